"""Every reproduction by name: what it draws, where the paper has it, and how large it is."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from ..fields import nearest
from .claims import FAILS, Verdict
from .report import Table

#: Most runs that a command line is taken to mean (each is kept on disk).
MOST_RUNS = 1_000_000
#: Arrivals below which a run has no last third to speak of.
LEAST_ARRIVALS = 100


@dataclass(frozen=True)
class Request:
    """How large a reproduction is to be, and where its files go.

    Attributes
    ----------
    out : Path
        Folder for figures, rows and claims.
    runs : int
        Runs the paper's way. 0 leaves them out, else at least 2: one run has no spread.
    instances : int
        Runs over fresh instances. 0 leaves them out, else at least 2.
    arrivals : int
        Arrivals of a run, where the reproduction is about dispatching.
    seed : int
        Of all randomness.
    workers : int or None
        Threads; None for one per core.
    quick : bool
        Whether this is the small size, so that tables say so.
    progress : bool
        Whether progress is written to stderr.
    parameters : mapping
        The reproduction's named choices, with what the user set of them.
    """

    out: Path
    runs: int
    instances: int
    seed: int = 1
    workers: int | None = None
    quick: bool = False
    progress: bool = False
    arrivals: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a reproduction found: verdicts, tables to print, sentences that sum up, files, and all of it as JSON values."""

    verdicts: tuple[Verdict, ...]
    tables: tuple[Table, ...]
    sentences: tuple[str, ...]
    files: tuple[Path, ...]
    results: dict[str, Any] = field(default_factory=dict)

    @property
    def contradicted(self) -> bool:
        """Whether some claim does not hold."""
        return any(verdict.verdict == FAILS for verdict in self.verdicts)


@dataclass(frozen=True)
class Reproduction:
    """A figure that one command makes again.

    Attributes
    ----------
    name, title, draws, reference : str
        Name on the command line, one line, what the figure shows, and where it comes from.
    runs, instances, quick_runs, quick_instances : int
        Default sizes, and those of ``--quick``. Where `instances` is 0 the reproduction has no fresh instances; where `runs`
        is 0 as well it simulates nothing.
    module : str
        Module with ``run(request) -> Outcome``; imported when asked for, so that listing costs nothing.
    arrivals, quick_arrivals : int
        Arrivals of a run where runs are long streams of jobs to dispatch; 0 where their length is part of the setting.
    parameters : mapping
        What the paper leaves open, by name, and how it is settled unless a user sets it otherwise. The module checks what is
        set.
    """

    name: str
    title: str
    draws: str
    reference: str
    runs: int
    instances: int
    quick_runs: int
    quick_instances: int
    module: str
    arrivals: int = 0
    quick_arrivals: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def simulates(self) -> bool:
        """Whether there is anything random in it."""
        return self.runs > 0 or self.instances > 0

    @property
    def size(self) -> str:
        """The default size in words."""
        if not self.simulates:
            return "exact, no runs"
        if self.arrivals:
            return f"{self.runs} runs of {self.arrivals:,} arrivals per setting"
        fresh = f" and {self.instances} fresh instances" if self.instances else ""
        return f"{self.runs} runs{fresh} per setting" if self.instances else f"{self.runs} runs"

    @property
    def default_out(self) -> Path:
        """Where files go unless another folder is named."""
        return Path("out") / self.name


REPRODUCTIONS: dict[str, Reproduction] = {
    reproduction.name: reproduction
    for reproduction in (
        Reproduction(
            name="wise-figure-1",
            title="WISE's queue length regret beside seven other policies",
            draws="regret over 2000 rounds in nine settings, the paper's way and over fresh instances; three claims",
            reference="WISE, Figure 1, Section 6, Appendix F",
            runs=10,
            instances=300,
            quick_runs=10,
            quick_instances=20,
            module="queuewise.experiments.papers.wise_figure_1",
        ),
        Reproduction(
            name="cqb-eta-2-figure-1",
            title="CQB-η-2's queue length regret beside four other policies, by slack and by number of servers",
            draws="regret over 2000 rounds in three panels, the paper's way and over fresh instances; what each choice moves",
            reference="CQB-η-2, Figure 1, Section 5",
            runs=10,
            instances=300,
            quick_runs=10,
            quick_instances=20,
            module="queuewise.experiments.papers.cqb_eta_2_figure_1",
            parameters={
                "parameter_bound": "norm",
                "lambda_0": 1.0,
                "initial_design": "lambda_0",
                "delta": "1/T",
                "radius_scale": 0.1,
                "phase_1_end": 0.2,
                "acqb_exploration_scale": 20.0,
                "pool": 1000,
                "kappa_rejects": "parameters",
                "instance": "per run",
                "exploration": "slack/4",
                "epsilon_exploration": "1/sqrt(T)",
                "acqb_samples": 5,
                "acqb_radius_scale": "radius_scale",
                "ties": "earliest",
                "stable_within": 5.0,
                "choice_instances": 100,
            },
        ),
        Reproduction(
            name="digits",
            title="The same policies on real outcomes: classifiers of handwritten digits as servers",
            draws="regret over 2000 rounds on scikit-learn's digits; which policy wins, and by how much",
            reference="an example of Queuewise, not of a paper",
            runs=100,
            instances=0,
            quick_runs=20,
            quick_instances=0,
            module="queuewise.experiments.demo",
        ),
        Reproduction(
            name="recorded-outcomes",
            title="Language models as servers, by what they were recorded to do",
            draws="what one model, fallbacks, a router and hindsight carry; which policy wins at which load; if context pays",
            reference="an example of Queuewise, on recorded data",
            runs=20,
            instances=0,
            quick_runs=4,
            quick_instances=0,
            module="queuewise.experiments.recorded_outcomes",
        ),
        Reproduction(
            name="lased-fixed-estimates",
            title="Fixed, slightly wrong estimates against learning",
            draws="regret of ESED (simulated and exact) and of LASED over loads; both readings of a 1% error",
            reference="LASED, Section 7.1",
            runs=100,
            instances=0,
            quick_runs=10,
            quick_instances=0,
            module="queuewise.experiments.papers.lased_fixed_estimates",
            arrivals=1_000_000,
            quick_arrivals=200_000,
        ),
        Reproduction(
            name="lased-exploitation",
            title="When exploitation suffices: Greedy against LASED",
            draws="regret and number of customers at loads 0.3, 0.6 and 0.9",
            reference="LASED, Section 7.2",
            runs=100,
            instances=0,
            quick_runs=20,
            quick_instances=0,
            module="queuewise.experiments.papers.lased_exploitation",
            arrivals=1_000_000,
            quick_arrivals=200_000,
        ),
        Reproduction(
            name="lased-exploration",
            title="When exploration is beneficial: a server that Greedy never tries",
            draws="regret and number of customers after a bad start, Greedy against LASED",
            reference="LASED, Section 7.3",
            runs=100,
            instances=0,
            quick_runs=20,
            quick_instances=0,
            module="queuewise.experiments.papers.lased_exploration",
            arrivals=3_000_000,
            quick_arrivals=1_000_000,
        ),
        Reproduction(
            name="lased-trade-off",
            title="Exploration against exploitation over rates, loads and initial errors",
            draws="map of LASED's regret minus Greedy's; five claims",
            reference="LASED, Section 7.4",
            runs=40,
            instances=0,
            quick_runs=6,
            quick_instances=0,
            module="queuewise.experiments.papers.lased_trade_off",
            arrivals=100_000,
            quick_arrivals=20_000,
        ),
        Reproduction(
            name="lased-boundaries",
            title="Where SED decides what, and where a wrong ratio decides otherwise",
            draws="decision regions of two and three servers, the states of disagreement and their exact probability",
            reference="LASED, Sections 2.2 and 3.4",
            runs=0,
            instances=0,
            quick_runs=0,
            quick_instances=0,
            module="queuewise.experiments.papers.lased_boundaries",
        ),
        Reproduction(
            name="lased-constants",
            title="LASED's constants and bounds for its own examples, beside exact numbers",
            draws="θ, p, ξ and the bounds of Lemmas 6, 8, 10, 13 and Theorem 1, and how loose they are; three claims",
            reference="LASED, Sections 4 and 5",
            runs=0,
            instances=0,
            quick_runs=0,
            quick_instances=0,
            module="queuewise.experiments.papers.lased_constants",
        ),
        Reproduction(
            name="queueing-bandit-reference",
            title="Q-UCB's several queues against its authors' published runs",
            draws="queue regret of 3 users and 5 servers over the published curve, and z at every time; five claims",
            reference="Krishnasamy et al. 2016 and 2021, their published runs",
            runs=4000,
            instances=0,
            quick_runs=400,
            quick_instances=0,
            module="queuewise.experiments.papers.queueing_bandit_reference",
            parameters={
                "matching": "cardinality",
                "conflict": "first",
                "start": "service_first",
                "randomness": "independent",
            },
        ),
        Reproduction(
            name="lower-bounds",
            title="The scheduling papers' lower bounds on the families that prove them",
            draws="every policy's average regret over each family and horizon, over the bound; three claims",
            reference="WISE, Theorems 7 and 8; CQB-η-2, Theorem 10",
            runs=100,
            instances=0,
            quick_runs=20,
            quick_instances=0,
            module="queuewise.experiments.papers.lower_bounds",
        ),
        Reproduction(
            name="regret-decay",
            title="How fast regret decays, with slopes beside the papers' rates",
            draws="regret over 10^5 rounds on two fixed laws, on shrinking families, and as slack goes to 0; six claims",
            reference="WISE, Theorems 6 to 8; CQB-η-2, Theorem 5",
            runs=64,
            instances=0,
            quick_runs=20,
            quick_instances=0,
            module="queuewise.experiments.papers.regret_decay",
            parameters={
                "radius": 3.0,
                "slack": 0.25,
                "law_seed": 0,
                "fit_from": 1024,
                "horizon": 131_072,
                "theory_runs": 16,
                "family_horizon": 65_536,
                "family_runs": 40,
                "family_slack_rounds": 102_400,
                "family_slack_runs": 16,
                "slack_rounds": 16_384,
                "slack_runs": 50,
                "long_horizon": 1_048_576,
                "long_runs": 20,
                "long_estimator": "one_pass",
            },
        ),
        Reproduction(
            name="adaptive-map",
            title="Every learning rule over the whole map",
            draws="regret over rates, loads, 2 to 100 servers and service laws; is optimistic SED best everywhere?",
            reference="Queuewise, beyond LASED",
            runs=200,
            instances=0,
            quick_runs=6,
            quick_instances=0,
            module="queuewise.experiments.papers.adaptive_map",
            arrivals=100_000,
            quick_arrivals=5_000,
        ),
        Reproduction(
            name="adaptive-long",
            title="Optimistic SED over a hundred million arrivals",
            draws="whether its regret stays bounded, on three instances",
            reference="Queuewise, beyond LASED",
            runs=20,
            instances=0,
            quick_runs=10,
            quick_instances=0,
            module="queuewise.experiments.papers.adaptive_long",
            arrivals=100_000_000,
            quick_arrivals=300_000,
        ),
    )
}


def find(name: str) -> Reproduction:
    """The reproduction of that name. Raises ValueError with the nearest known name."""
    if name not in REPRODUCTIONS:
        raise ValueError(f"name: no reproduction is called {name!r}{nearest(name, REPRODUCTIONS)}")
    return REPRODUCTIONS[name]


def reproduce(
    name: str,
    *,
    runs: int | None = None,
    instances: int | None = None,
    out: Path | None = None,
    seed: int = 1,
    workers: int | None = None,
    quick: bool = False,
    progress: bool = False,
    arrivals: int | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Outcome:
    """Run a reproduction, write its files and say what it found.

    Sizes and parameters that are left out are the reproduction's own, or its small sizes if `quick`. What an earlier call
    left in `out` is taken up again, provided that it had the same number of arrivals and the same parameters.

    Raises
    ------
    ValueError
        For an unknown name, a size out of range, a folder that cannot be written to or that holds another experiment.
    """
    found = find(name)
    if instances and not found.instances:
        raise ValueError(f"instances: {name} has no fresh instances, so only 0 is allowed, not {instances}")
    if runs and not found.simulates:
        raise ValueError(f"runs: {name} is exact and has no runs, so only 0 is allowed, not {runs}")
    if arrivals is not None:
        if not found.arrivals:
            raise ValueError(f"arrivals: {name} has no arrivals to choose, so leave them out, not {arrivals!r}")
        _whole("arrivals", arrivals, LEAST_ARRIVALS)
    request = Request(
        out=found.default_out if out is None else Path(out),
        runs=_size("runs", runs, found.quick_runs if quick else found.runs),
        instances=_size("instances", instances, found.quick_instances if quick else found.instances),
        seed=seed,
        workers=workers,
        quick=quick,
        progress=progress,
        arrivals=arrivals or (found.quick_arrivals if quick else found.arrivals),
        parameters=_chosen(found, parameters or {}),
    )
    if found.simulates and request.runs == request.instances == 0:
        raise ValueError(
            "runs: with 0 runs and 0 instances there is nothing to measure; give at least one of them 2 or more"
        )
    _whole("seed", seed, 0)
    if workers is not None:
        _whole("workers", workers, 1)
    run: Callable[[Request], Outcome] = import_module(found.module).run
    return run(request)


def parse_settings(texts: Sequence[str], option: str = "set") -> dict[str, Any]:
    """Parameters from texts ``name=value``: numbers, true and false as TOML has them, anything else a word."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{option}: must have the form name=value, not {text!r}")
        try:
            found[name.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[name.strip()] = value.strip()
    return found


def _chosen(found: Reproduction, given: Mapping[str, Any]) -> dict[str, Any]:
    for name in given:
        if name not in found.parameters:
            if not found.parameters:
                raise ValueError(f"{name}: {found.name} has no parameters to set")
            raise ValueError(f"{name}: no such parameter of {found.name}{nearest(name, found.parameters)}")
    return {**found.parameters, **given}


def _size(field_name: str, value: int | None, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value == 1 or not 0 <= value <= MOST_RUNS:
        raise ValueError(f"{field_name}: must be 0 (leave out) or a whole number from 2 to {MOST_RUNS}, not {value!r}")
    return value


def _whole(field_name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{field_name}: must be a whole number of at least {least}, not {value!r}")


def listing() -> Table:
    """Every reproduction with what it draws, its source and its default size."""
    return Table(
        "Reproductions",
        ("name", "what it draws", "source", "default size"),
        tuple((item.name, f"{item.title}: {item.draws}", item.reference, item.size) for item in REPRODUCTIONS.values()),
        wide=(1, 2, 3),
    )


def listing_json() -> list[dict[str, Any]]:
    """The same as plain JSON values."""
    return [
        {
            "name": item.name,
            "title": item.title,
            "draws": item.draws,
            "reference": item.reference,
            "runs": item.runs,
            "instances": item.instances,
            "quick_runs": item.quick_runs,
            "quick_instances": item.quick_instances,
            "arrivals": item.arrivals,
            "quick_arrivals": item.quick_arrivals,
            "parameters": dict(item.parameters),
        }
        for item in REPRODUCTIONS.values()
    ]
