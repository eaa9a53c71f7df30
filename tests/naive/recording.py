"""A literal twin of how service times are derived from when requests went out and came back."""

from __future__ import annotations

import itertools


def first_come_service_times(issued: list[int], ended: list[int], slots: int) -> list[int]:
    """Of requests in order of issue: from the later of issue and the c-th last departure among those before, to their own."""
    found = []
    for k in range(len(issued)):
        before = sorted(ended[:k], reverse=True)
        begins = issued[k] if k < slots else max(issued[k], before[slots - 1])
        found.append(ended[k] - begins)
    return found


def busy_time(issued: list[int], ended: list[int], slots: int) -> int:
    """∫ min(requests there, slots) dt, from moment to moment."""
    moments = sorted({*issued, *ended})
    total = 0
    for here, there in itertools.pairwise(moments):
        present = sum(a <= here and there <= b for a, b in zip(issued, ended, strict=True))
        total += min(present, slots) * (there - here)
    return total
