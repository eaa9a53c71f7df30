"""Whether `optimistic_sed`'s regret stays bounded: three instances to 10⁸ arrivals.

The instances: LASED's Section 7.3 with its bad start; equal servers at high load; and three servers at load 0.5, initial rates
drawn within a factor of ten. Drawn on a logarithmic axis of arrivals, at whose checkpoints a bounded regret is a line that has
become level.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...dispatch.policies.optimistic_sed import optimistic_sed
from ...dispatch.result import Result
from ...dispatch.simulate import simulate
from ...dispatch.systems import System
from ...runs.plot import new_figure, save_figure
from ...runs.statistics import interval
from ..claims import Claim, Part
from ..registry import Outcome, Request
from ..report import Progress, Table, estimate_json, output_folder
from . import _figures, _lased

NAME, REFERENCE = "adaptive-long", "Queuewise, beyond LASED"
OURS = "optimistic_sed"

BOUNDED = "optimistic_sed's regret stays bounded: the last nine tenths of the arrivals bring less than a tenth of it"


def instances() -> dict[str, System]:
    """By name."""
    return {
        "μ = (5, 10), λ = 1, start (5, 0.1)": System(1.0, [5, 10], initial_rates=[5, 0.1]),
        "μ = (1, 1), load 0.9": System(1.8, [1, 1], initial_spread=10.0),
        "μ = (1, 2, 4), load 0.5": System(3.5, [1, 2, 4], initial_spread=10.0),
    }


def run(request: Request) -> Outcome:
    """Simulate, judge, and write everything to ``request.out``."""
    out = output_folder(request.out)
    results: dict[str, Result] = {}
    found = instances()
    with Progress(len(found) * request.runs, shown=request.progress) as progress:
        for number, (name, system) in enumerate(found.items(), 1):
            results[name] = simulate(
                system,
                [optimistic_sed()],
                arrivals=request.arrivals,
                runs=request.runs,
                seed=request.seed,
                workers=request.workers,
                checkpoints=sorted({*_lased.checkpoints(request.arrivals), *_looks(request.arrivals)}),
                folder=out / "rows" / f"instance-{number}",
                progress=progress.begin(name),
            )
        progress.begin("drawing")
        files = draw(results, f"{request.runs} runs of {request.arrivals:,} arrivals", out)
    way = f"{request.runs} runs of {request.arrivals:,} arrivals"
    parts = []
    rows = []
    for name, result in results.items():
        late = _lased.ratio(_late(result), _lased.regret_at(result, OURS, 1.0), 0.1)
        parts.append(Part(name, [late], 0.1))
        regret = _lased.regrets(result, OURS)
        at = [int(np.searchsorted(result.arrivals, mark)) for mark in _looks(request.arrivals)]
        rows.append((name, *(_lased.counted(interval(regret[:, mark])) for mark in at)))
    verdicts = [Claim(BOUNDED, REFERENCE, way, parts).judge()]
    columns = ("instance", *(f"{mark:,}" for mark in _looks(request.arrivals)))
    table = Table("Mean regret after so many arrivals", columns, tuple(rows))
    data = {
        "instances": [
            {"name": name, "regret": estimate_json(result.total_regret(OURS))} for name, result in results.items()
        ]
    }
    return _lased.finish(request, NAME, REFERENCE, verdicts, [table], [], data, files)


def _looks(arrivals: int) -> list[int]:
    """The checkpoints of the table."""
    return [max(1, arrivals // k) for k in (1000, 100, 10, 1)]


def _late(result: Result) -> _lased.Floats:
    """Regret in the last nine tenths: float64[run]."""
    return _lased.grown(result, OURS, 0.1)


def draw(results: Mapping[str, Result], words: str, out: Path) -> list[Path]:
    """Regret over arrivals on a logarithmic axis, with the interval of its mean."""
    figure = new_figure(8.4, 5.0)
    axes = figure.add_subplot()
    for (name, result), colour in zip(
        results.items(), (_figures.BLUE, _figures.VERMILION, _figures.GREEN), strict=True
    ):
        _figures.draw_curve(axes, result.arrivals, _lased.regrets(result, OURS), name, color=colour)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("arrivals")
    axes.set_ylabel("mean regret (decisions against SED)")
    axes.legend(frameon=False, loc="upper left")
    axes.set_title(f"Optimistic SED over a long time: {words}, 95% intervals", fontsize=10.5, loc="left")
    _figures.bare(axes)
    return save_figure(figure, out, "figure")
