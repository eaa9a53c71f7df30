"""Answers in JSON, of whatever the router and its parts say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from starlette.responses import JSONResponse


class Answer(JSONResponse):
    """JSON, in which None stands for what is no number."""

    def render(self, content: Any) -> bytes:
        try:
            return super().render(content)
        except (TypeError, ValueError):
            return super().render(_plain(content))


def _plain(value: Any) -> Any:
    """What JSON can hold: arrays as lists, None for NaN and the infinities."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, str | bool | int) else str(value)
