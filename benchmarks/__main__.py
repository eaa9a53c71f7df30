"""``make bench``: what the project promises about speed and memory, as ratios measured in one run.

    python -m benchmarks [WING | WING.SECTION ...] [--literal] [--long] [--quick]

Absolute times depend on the machine and its mood; every promise is therefore a ratio of two things timed in turn here,
or a rate or a time beside its limit. Wings are scheduling, dispatch, exact, live_router, live_scheduler and live_service;
without a name all of them run. ``--literal`` adds the literal transcription of WISE (about a minute), ``--long`` the runs of
100,000 rounds, of 10⁸ arrivals and of 20 times 10⁵ live requests in virtual time (a quarter of an hour). live_service takes
a quarter of an hour, or with ``--quick``, and among all others, two minutes. What is measured, and what one quiet run found,
is in docs/benchmarks.md; live_router.delays and live_service write benchmarks/live.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from . import dispatch, exact, live_router, live_scheduler, live_service, scheduling
from .report import MISSED


def main(arguments: list[str]) -> None:
    """Run the sections named, or all."""
    literal, long = "--literal" in arguments, "--long" in arguments
    asked = [name for name in arguments if not name.startswith("--")]
    wings: dict[str, dict[str, Callable[[], None]]] = {
        "scheduling": scheduling.sections(literal, long),
        "dispatch": dispatch.sections(long),
        "exact": exact.sections(),
        "live_router": live_router.sections(long),
        "live_scheduler": live_scheduler.sections(),
        "live_service": live_service.sections("--quick" in arguments or not asked),
    }
    everything = {f"{wing}.{name}": section for wing, found in wings.items() for name, section in found.items()}
    unknown = [name for name in asked if name not in wings and name not in everything]
    if unknown:
        sys.exit(f"no section is called {', '.join(unknown)}; there are {', '.join([*wings, *everything])}")
    for name, section in everything.items():
        if not asked or name in asked or name.split(".")[0] in asked:
            print(name)
            section()
    if MISSED:
        print(f"\nnot kept in this run: {len(MISSED)}")
        for missed in MISSED:
            print(f"  {missed}")


if __name__ == "__main__":
    main(sys.argv[1:])
