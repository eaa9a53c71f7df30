"""pydantic's sentences read as ours. What it says is asked of pydantic itself, so that a new version that says it otherwise is
noticed here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from queuewise.live.service.words import allowed


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        (Annotated[int, Field(ge=1)], 0, "must be at least 1"),
        (Annotated[int, Field(le=1)], 2, "must be at most 1"),
        (Annotated[float, Field(gt=0)], 0, "must be greater than 0"),
        (int, "x", "must be a whole number"),
        (Literal["text", "json"], "xml", "must be 'text' or 'json'"),
        (Annotated[str, Field(min_length=1)], "", "must have at least 1 character"),
        (Annotated[str, Field(pattern="^a$")], "b", "must match pattern '^a$'"),
        (Annotated[list[int], Field(max_length=1)], [1, 2], "must have at most 1 item after validation, not 2"),
        (dict[str, int], [], "must be an object"),
    ],
)
def test_what_is_allowed(kind: Any, value: Any, sentence: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)
    assert allowed(caught.value.errors()[0]) == sentence
