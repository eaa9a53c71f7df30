"""What a scheduler is handed, checked: one sentence that names the field and what is allowed, and the status ``bad_option``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .errors import Refused

#: Longest id of a job, and name of a server.
LONGEST_ID = 512
#: Seconds from now that a deadline may be away: 32 years, and less than any time since 1970 after 2001.
FARTHEST = 1e9


def slots(servers: Iterable[str] | Mapping[str, int]) -> dict[str, int]:
    """Name → jobs at once, from a list or a mapping."""
    if isinstance(servers, str | bytes) or not isinstance(servers, Iterable):
        raise Refused(
            "bad_option", f"servers: must be a list of names, or a mapping from name to slots, not {servers!r}"
        )
    names = list(servers)
    for name in names:
        check_name(name)
    if not names or len(set(names)) < len(names):
        raise Refused("bad_option", "servers: at least one must be named, and none twice")
    given = servers if isinstance(servers, Mapping) else dict.fromkeys(names, 1)
    return {name: count(f"slots of {name!r}", given[name], 1) for name in names}


def check_name(name: Any) -> None:
    """Refuse what cannot be a server's name."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_ID or not name.isprintable():
        raise Refused("bad_option", f"server: a name must be a printable text, not {name!r}")


def count(field: str, value: Any, least: int) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise Refused("bad_option", f"{field}: must be a whole number of at least {least}, not {value!r}")
    return int(value)


def seconds(field: str, value: Any) -> float:
    """A finite number above 0."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise Refused("bad_option", f"{field}: must be a number above 0, not {value!r}")
    return float(value)


def seconds_from_now(field: str, value: Any) -> float:
    """A finite number above 0 that is no time of day in seconds since 1970: such a deadline would never come."""
    found = seconds(field, value)
    if found >= FARTHEST:
        raise Refused("bad_option", f"{field}: must be in seconds from now, and no time since 1970, as {value!r} is")
    return found


def word(field: str, value: Any, allowed: tuple[str, ...]) -> str:
    """One of the allowed words."""
    if value not in allowed:
        raise Refused("bad_option", f"{field}: must be one of {', '.join(map(repr, allowed))}, not {value!r}")
    return str(value)


def differences(there: Any, here: Any, path: str = "") -> list[str]:
    """In words, what differs between two settings."""
    if isinstance(there, dict) and isinstance(here, dict):
        return [
            found
            for key in sorted({*there, *here})
            for found in differences(there.get(key), here.get(key), f"{path}.{key}" if path else key)
        ]
    return [] if there == here else [f"{path} is {there!r} there, {here!r} here"]
