"""When exploration is beneficial (LASED, Section 7.3): a bad start that Greedy never recovers from.

λ = 1, μ = (5, 10), initial rates (5, 0.1): r̂₁ = 0.02 where r* = 2. All of it is in the text but the horizon. At this load LASED
is still exploring after 10⁶ arrivals (α(k) = ln⁴(k + 1) is above 36,000 then), so the horizon is 3·10⁶.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...dispatch.result import ORACLE, Result
from ...dispatch.simulate import simulate
from ...dispatch.systems import System
from ...runs.plot import new_figure, save_figure
from ..claims import Claim, Part, Verdict
from ..registry import Outcome, Request
from ..report import Progress, Table, estimate_json, output_folder
from . import _figures, _lased

NAME, REFERENCE = "lased-exploration", "LASED, Section 7.3"
SYSTEM = System(arrival_rate=1.0, service_rates=["5", "10"], initial_rates=["5", "0.1"])
#: How far the share of a linear regret in the last third may be from a third.
NEAR_THIRD = 0.02

LINEAR = "Greedy's regret is linear over the horizon: its last third brings a third of it (31% to 35%)"
FLAT = "LASED's regret levels off: the last third brings less than 1% of it"
LESS = "LASED accumulates less regret than Greedy"
FASTEST = "LASED has fewer customers in the system than Greedy"
QUICK = "LASED converges quickly (our reading: 90% of its regret comes in the first tenth of the arrivals)"


def claims(result: Result) -> list[Verdict]:
    """The section's claims."""
    way = f"{result.runs} runs of {int(result.arrivals[-1]):,} arrivals"
    third = _lased.last_share(result, "greedy")
    linear = [
        Part("above 31%", [third], 1 / 3 - NEAR_THIRD, "above"),
        Part("below 35%", [third], 1 / 3 + NEAR_THIRD),
    ]
    after_a_tenth = _lased.last_share(result, "lased", 0.1, at=0.1)
    return [
        Claim(LINEAR, REFERENCE, way, linear).judge(),
        Claim(FLAT, REFERENCE, way, [Part("last third", [_lased.levels_off(result, "lased")], _lased.LEVEL)]).judge(),
        Claim(QUICK, REFERENCE, way, [Part("after the first tenth", [after_a_tenth], 0.1)]).judge(),
        Claim(LESS, REFERENCE, way, [Part("difference", [result.compare("lased", "greedy")])]).judge(),
        Claim(
            FASTEST, REFERENCE, way, [Part("difference", [result.compare("lased", "greedy", "number_in_system")])]
        ).judge(),
    ]


def facts(result: Result) -> Table:
    """Regret, customers and the share of server 2 under each rule."""
    rows = []
    for name in ("lased", "greedy", ORACLE):
        customers, share = result.mean_number_in_system(name), result.shares(name)[1]
        regret = "0" if name == ORACLE else _lased.counted(result.total_regret(name))
        third = "" if name == ORACLE else f"{100 * _lased.last_share(result, name).mean:.2f}%"
        rows.append(
            (
                _lased.LABELS["sed" if name == ORACLE else name],
                regret,
                third,
                f"{customers.mean:.4f} ± {customers.half_width:.4f}",
                f"{100 * share.mean:.2f}%",
            )
        )
    return Table(
        f"After {int(result.arrivals[-1]):,} arrivals, {result.runs} runs: λ = 1, μ = (5, 10), initial rates (5, 0.1)",
        ("rule", "regret", "its last\nthird", "customers (time average)", "jobs sent\nto server 2"),
        tuple(rows),
        note="± half a 95% interval.",
    )


def draw(result: Result, out: Path) -> list[Path]:
    """Regret on logarithmic axes, LASED's on plain ones, and customers."""
    from matplotlib.ticker import FuncFormatter

    figure = new_figure(12.0, 4.3)
    first, second, third = figure.subplots(1, 3)
    arrivals = result.arrivals
    for name in ("greedy", "lased"):
        values = _lased.regrets(result, name)
        _figures.draw_curve(first, arrivals, values, _lased.LABELS[name], **_lased.LOOK[name])
    _figures.draw_curve(second, arrivals, _lased.regrets(result, "lased"), "LASED", **_lased.LOOK["lased"])
    for name, key in (("greedy", "greedy"), ("lased", "lased"), ("sed", ORACLE)):
        number = result.number_in_system[key]
        third.plot(arrivals, number.mean(axis=0), label=_lased.LABELS[name], linewidth=1.7, **_lased.LOOK[name])
    _lased.logarithmic(first, result)
    first.set_ylabel("regret (decisions against SED)")
    first.set_title("regret", fontsize=10.5, loc="left")
    second.set_title("LASED's regret on plain axes", fontsize=10.5, loc="left")
    second.set_xlim(0, int(arrivals[-1]))
    second.set_ylim(bottom=0)
    second.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _lased.millions(second)
    third.set_title("customers in the system (time average so far)", fontsize=10.5, loc="left")
    third.set_xscale("log")
    third.set_xlim(10, int(arrivals[-1]))
    third.set_ylim(0, 1.15 * float(np.nanmax(result.number_in_system["greedy"][:, arrivals >= 10].mean(axis=0))))
    third.set_xlabel("arrivals")
    for axis in (first, second, third):
        _figures.bare(axis)
    handles, names = third.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize=10)
    figure.suptitle(
        "When exploration is beneficial: λ = 1, μ = (5, 10), initial rates (5, 0.1); "
        f"mean of {result.runs} runs, regret with 95% intervals",
        fontsize=12,
    )
    return save_figure(figure, out, "figure")


def run(request: Request) -> Outcome:
    """Simulate, judge, and write everything to ``request.out``."""
    out = output_folder(request.out)
    with Progress(request.runs, shown=request.progress) as progress:
        result = simulate(
            SYSTEM,
            [_lased.learner(), "greedy"],
            arrivals=request.arrivals,
            runs=request.runs,
            seed=request.seed,
            workers=request.workers,
            checkpoints=_lased.checkpoints(request.arrivals),
            folder=out / "rows",
            progress=progress.begin("simulating"),
        )
        progress.begin("drawing")
        files = draw(result, out)
    forced = float(result.regret_by_cause("lased")["exploration"].mean[-1])
    total = result.total_regret("lased").mean
    episodes = float(np.mean(result.episodes["lased"]))
    still = last_exploring(result)
    said = [
        f"Greedy sends {100 * result.shares('greedy')[1].mean:.2g}% of the jobs to server 2, SED "
        f"{100 * result.shares(ORACLE)[1].mean:.3g}%.",
        f"{100 * forced / max(total, 1e-9):.1f}% of LASED's wrong decisions are forced exploration, over {episodes:,.0f} "
        f"episodes. In half of the runs its last wrong decision came within {_lased.count(still)} arrivals.",
    ]
    results = {
        "settings": [
            {
                "arrival_rate": 1.0,
                "service_rates": [5, 10],
                "initial_rates": [5, 0.1],
                "regret": {name: estimate_json(result.total_regret(name)) for name in ("lased", "greedy")},
                "last_third": {name: estimate_json(_lased.last_share(result, name)) for name in ("lased", "greedy")},
                "customers": {
                    name: estimate_json(result.mean_number_in_system(name)) for name in ("lased", "greedy", ORACLE)
                },
            }
        ]
    }
    return _lased.finish(request, NAME, REFERENCE, claims(result), [facts(result)], said, results, files)


def last_exploring(result: Result) -> float:
    """The median over runs of the arrivals after which LASED's regret no longer grew."""
    return float(np.median(10.0 ** _lased.settling(result, "lased", 1.0)))
