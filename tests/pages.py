"""Pages of the docs, typed in as a reader would."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str) -> list[tuple[str, str]]:
    """(kind, text) of every fenced block."""
    return re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)


def typed_in(page: str, folder: Path) -> tuple[dict[str, object], str, int]:
    """Run every block of Python in a folder and hold what it prints against the block of text that follows it. Gives the
    names that are defined in the end, the last thing printed, and how many blocks of text there were."""
    names: dict[str, object] = {}
    printed, compared = "", 0
    with contextlib.chdir(folder):
        for kind, text in blocks(page):
            if kind == "python":
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(text, names)
                printed = out.getvalue()
            elif kind == "text":
                assert printed == text
                compared += 1
    return names, printed, compared
