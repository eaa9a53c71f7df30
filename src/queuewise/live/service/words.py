"""What pydantic finds wrong, in our words: one way for settings and for requests."""

from __future__ import annotations

#: Of pydantic, and in our sentences.
_WORDS = (
    ("Input should be", "must be"),
    ("String should", "must"),
    ("List should", "must"),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
)


def allowed(message: str) -> str:
    """pydantic's sentence as the rest of one of ours, behind the field's name and a colon."""
    for theirs, ours in _WORDS:
        message = message.replace(theirs, ours)
    return message[:1].lower() + message[1:]
