"""Doubles as 64 bits and back, alike compiled and in plain Python."""

from __future__ import annotations

import struct
from typing import Any

from numba import types
from numba.extending import intrinsic, overload

from .._compile import replaced_when_compiled


@replaced_when_compiled
def bits_as_float(bits: int) -> float:
    """The double with these 64 bits, read as a signed number."""
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


@replaced_when_compiled
def float_as_bits(number: float) -> int:
    """The 64 bits of a double, as a signed number."""
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


@intrinsic
def _to_float(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float64))

    return types.float64(types.int64), generate


@intrinsic
def _to_bits(typing_context: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.int64))

    return types.int64(types.float64), generate


@overload(bits_as_float, inline="always")
def _compiled_bits_as_float(bits):  # type: ignore[no-untyped-def]
    return lambda bits: _to_float(bits)  # type: ignore[call-arg]


@overload(float_as_bits, inline="always")
def _compiled_float_as_bits(number):  # type: ignore[no-untyped-def]
    return lambda number: _to_bits(number)  # type: ignore[call-arg]
