"""Logs to standard error: a line per record for people, or a JSON object per line for programs.

What a record says may come from anybody: a path, a model's name, a backend's error. No character of it ends a line or moves a
cursor. Tracebacks are one field in JSON, and lines that are set in otherwise, so that none looks like a record. Secrets of
the settings that :func:`hide` was told of, and whatever follows ``Bearer``, are not printed, wherever they stand.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, TextIO

from pydantic import BaseModel, SecretStr

from .config import LogConfig

#: What takes the place of a secret.
HIDDEN = "[hidden]"
#: A text shorter than this is hidden nowhere: it would be in every second word.
_SHORTEST = 4
_BEARER = re.compile(r"(bearer[\s\"':=]+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
#: Attributes of every record; all others are fields of it. uvicorn says some things twice, once in colour.
_USUAL = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message", "taskName"}
_SECRETS: set[str] = set()
_PATTERN: re.Pattern[str] | None = None


def setup(config: LogConfig, stream: TextIO | None = None) -> logging.Handler:
    """Send all logs of the process to a stream, by default standard error, and warnings with them. A second call takes the
    place of the first. Returns the handler."""
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, _Handler)]:
        root.removeHandler(old)
    handler = _Handler(sys.stderr if stream is None else stream)
    handler.setFormatter(_Json() if config.format == "json" else _Text())
    root.addHandler(handler)
    level = getattr(logging, config.level.upper())
    ours, others = logging.getLogger("queuewise"), max(level, logging.WARNING)
    ours.setLevel(level)
    logging.getLogger("uvicorn").setLevel(level if level < logging.INFO else others)
    root.setLevel(others)
    logging.captureWarnings(True)
    return handler


def hide(settings: BaseModel) -> None:
    """Print no secret of these settings from now on; those of earlier ones stay hidden."""
    global _PATTERN
    for secret in _secrets(settings):
        if len(secret) >= _SHORTEST:
            escaped = secret.replace("\\", r"\\")  # as it stands in JSON, and in Python's way to write a text
            _SECRETS.update((secret, escaped, escaped.replace('"', r"\""), escaped.replace("'", r"\'")))
    if _SECRETS:
        _PATTERN = re.compile("|".join(map(re.escape, sorted(_SECRETS, key=len, reverse=True))))


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for field in type(value).model_fields:
            yield from _secrets(getattr(value, field))
    elif isinstance(value, dict):
        for one in value.values():
            yield from _secrets(one)


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, to be told from others'."""


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = self._line(record)
        if "earer" in line or "EARER" in line:
            line = _BEARER.sub(rf"\1{HIDDEN}", line)
        return line if _PATTERN is None else _PATTERN.sub(HIDDEN, line)

    def _line(self, record: logging.LogRecord) -> str:
        raise NotImplementedError

    def _trace(self, record: logging.LogRecord) -> str:
        pieces = [self.formatException(record.exc_info)] if record.exc_info and record.exc_info[0] else []
        if record.stack_info:
            pieces.append(record.stack_info)
        return "\n".join(pieces)


class _Json(_Formatter):
    """JSON as the standard has it: without NaN, and without half characters."""

    def _line(self, record: logging.LogRecord) -> str:
        found: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _whole(record.getMessage()),
        }
        for name, value in _fields(record):
            found.setdefault(_whole(name), _whole(value) if isinstance(value, str) else value)
        trace = self._trace(record)
        if trace:
            found["exception"] = _whole(trace)
        try:
            return json.dumps(found, default=_described, allow_nan=False, separators=(",", ":"))
        except (ValueError, TypeError):  # NaN, a circle, keys that are no texts
            plain = {name: value if isinstance(value, str) else _described(value) for name, value in found.items()}
            return json.dumps(plain, separators=(",", ":"))


class _Text(_Formatter):
    def _line(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {_escaped(name)}={_quoted(value)}" for name, value in _fields(record) if value is not None)
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {_escaped(record.getMessage())}{fields}"
        for one in self._trace(record).splitlines():
            line += f"\n    {_escaped(one)}"
        return line


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> Iterable[tuple[str, Any]]:
    return [(name, value) for name, value in record.__dict__.items() if name not in _USUAL]


def _whole(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _described(value: Any) -> str:
    return _whole(str(value))


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _quoted(value: Any) -> str:
    text = str(value)
    plain = text.isprintable() and text and not any(c in text for c in " =\"'")
    return text if plain else repr(text)
