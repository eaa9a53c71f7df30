"""What users hand in, checked: one clear sentence that names the field and what is allowed; and its form in JSON."""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import math
import types
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt


def require_number(field: str, value: float) -> None:
    """Refuse what is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError(f"{field} must be a number, not {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{field} must be finite, not {value!r}")


def require_positive(field: str, value: float) -> None:
    """Refuse what is not a finite number above zero."""
    require_number(field, value)
    if not value > 0:
        raise ValueError(f"{field} must be positive, not {value!r}")


def require_count(field: str, value: int, least: int = 1) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{field} must be a whole number of at least {least}, not {value!r}")


def require_choice(field: str, value: str, allowed: Sequence[str]) -> None:
    """Refuse what is not one of the allowed words."""
    if value not in allowed:
        raise ValueError(f"{field} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def require_list(field: str, values: Any, of: str) -> list[Any]:
    """The values as a list; refuse a text, a single number, or what has no order."""
    if isinstance(values, str | bytes | set | frozenset | Mapping) or not hasattr(values, "__len__"):
        raise ValueError(f"{field} must be a list of {of}, not {values!r}")
    return list(values)


def number(options: Mapping[str, Any], key: str, low: float, high: float = math.inf, strict: bool = True) -> float:
    """The option as a float in (low, high], or [low, high] when not strict; a sentence that names it otherwise."""
    value = options[key]
    converted = math.nan
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        converted = float(value)
    inside = (converted > low if strict else converted >= low) and converted <= high and math.isfinite(converted)
    if not inside:
        limits = f"above {low:g}" if strict else f"at least {low:g}"
        limits += "" if math.isinf(high) else f" and at most {high:g}"
        raise ValueError(f"{key}: must be a number {limits}, not {value!r}")
    return converted


def whole(options: Mapping[str, Any], key: str, low: int) -> int:
    """The option as an integer ≥ low; a sentence that names it otherwise."""
    value = options[key]
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise ValueError(f"{key}: must be a whole number of at least {low}, not {value!r}")
    return int(value)


def choice(options: Mapping[str, Any], key: str, allowed: Mapping[str, int]) -> int:
    """The code of a named option; a sentence that lists the names otherwise."""
    value = options[key]
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{key}: must be one of {sorted(allowed)}, not {value!r}")
    return allowed[value]


def nearest(word: str, known: Any) -> str:
    """A hint for a mistyped name: ``; did you mean 'wise'?`` or the list of what there is."""
    known = sorted(known)
    if not known:
        return "; it has none"
    # As close as "nom" and "name"; "fastest" and "lased" are not.
    close = difflib.get_close_matches(str(word), known, n=1, cutoff=0.55)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


def spelled(function: Any) -> str:
    """The name of a function, for people."""
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def _identity(function: Any) -> Any:
    """What tells a function of the user's own from another one, by its code: in a folder of results two versions of it must
    not be mixed. A function of this package is known by its name."""
    if str(getattr(function, "__module__", "")).split(".")[0] == __name__.split(".")[0]:
        return spelled(function)
    from ._compile import fingerprint  # here, since loading numba takes long

    if isinstance(function, functools.partial):
        return {"partial": plain(function.func), "arguments": plain([function.args, function.keywords])}
    if isinstance(function, types.FunctionType) or hasattr(function, "py_func"):
        return {"function": spelled(function), "code": fingerprint(function)}
    if isinstance(function, types.MethodType):
        return {"method": plain(function.__func__), "of": plain(vars(function.__self__))}
    call = type(function).__call__
    if isinstance(call, types.FunctionType):
        return {"object": spelled(type(function)), "code": fingerprint(call), "state": plain(vars(function))}
    return spelled(function)


def plain(value: Any) -> Any:
    """A JSON-able form of a law's argument: arrays by their digest, functions by their name."""
    if isinstance(value, np.ndarray):
        return {"sha256": digest(value)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Fraction):
        return str(value)
    if callable(value):
        return _identity(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = [plain(item) for item in value]
        text = json.dumps(items)
        # A long table typed as nested lists is identified like an array, not spelled out.
        return items if len(text) <= 1000 else {"sha256": hashlib.sha256(text.encode()).hexdigest()}
    return value


def digest(*arrays: npt.NDArray[Any]) -> str:
    """SHA-256 of the shapes and entries of arrays, the same on every machine."""
    code = hashlib.sha256()
    for array in arrays:
        portable = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
        code.update(f"{portable.dtype.str}{portable.shape}".encode())
        code.update(portable.tobytes())
    return code.hexdigest()
