"""Recorded outcomes of language models: which policy wins under which load, and when context does not pay.

Three public data sets, read from the folder that ``QUEUEWISE_DATA`` names; those that are not there are left out.

- LiveCodeBench: success fractions of ten attempts per (task, model), which is the retry model to the letter: they are the
  success probabilities of every attempt ("repeat"), and a job is given up after ten failures, as nobody ever did some.
- LLMRouter's scores of nine models on 14 tasks, and MMLU-Pro's right and wrong answers, are *one* attempt each. A probability
  is made of it in two ways: a logistic law is fitted to the record ("fit"), or what failed fails for ever ("repeat").

Loads are those of the best single server: at 1.1 it would be overrun, and what is left over is what matching jobs to servers
is worth. Next to the learners stand three rules that know the record (see :mod:`queuewise.experiments.offline`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._version import VERSION
from ..runs.plot import frameless, new_figure, save_figure, style
from ..runs.result import Result
from ..runs.simultaneous import Comparisons
from ..runs.statistics import Difference, Estimate, simultaneous_level
from ..runs.statistics import interval as estimated
from ..scheduling import engine
from ..scheduling.contexts.table import FiniteLaw, attempts_needed, ridge_logistic_fit
from ..scheduling.policies import acqb, cqb_epsilon, cqb_eta_2, cqb_opt, q_ths, q_ucb, random, wise
from ..scheduling.policy import Policy
from ..scheduling.recorded import RecordedOutcomes, RecordedSystem, read_outcomes
from ..scheduling.simulate import simulate
from ..scheduling.systems import (
    Floats,
)
from ..sheets import SheetError, find, read_sheet
from . import offline
from .registry import Outcome, Request
from .report import Progress, Table, estimate_json, interval, output_folder, to_json, write_text

ROUNDS = 2000
#: Loads of the best single server: arrivals in terms of what it carries alone. Those of the small size.
LOADS = (0.5, 0.8, 0.95, 1.1)
QUICK_LOADS = (0.8,)
#: Jobs of a pool, drawn by a hash of their ids: files are sorted by kind of job.
POOL = 500
#: Failed attempts after which a job is given up where outcomes are repeated: as many as LiveCodeBench made.
MAX_ATTEMPTS = 10
#: Learners that look at features, learners that do not, and rules that know the record.
CONTEXTUAL = ("wise", "cqb_opt", "cqb_epsilon", "cqb_eta_2", "acqb")
PLAIN = ("q_ucb", "q_ths", "random")
OFFLINE = ("single", "fallback", "router")
#: Share of newcomers that ``cqb_eta_2`` explores in its second phase; its own default needs a context-wise slack.
EXPLORATION = 0.1
#: The load at which output lengths are counted.
_LENGTH_LOAD = 0.8
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Case:
    """One record, read one way. `reading` are arguments of ``read_outcomes``, `building` those of ``from_outcomes``; a case
    that is not `played` stands in the table of capacities alone."""

    name: str
    words: str
    file: str
    reading: Mapping[str, Any]
    building: Mapping[str, Any]
    lengths: str = ""
    played: bool = True


_REPEAT = {"truth": "repeat", "impossible": "attempts", "max_attempts": MAX_ATTEMPTS}
_FIT = {"truth": "fit"}

#: Ten of LiveCodeBench's models that both of its halves of tasks have, from the best to a cheap one.
_CODERS = (
    "GPT-4O-2024-05-13",
    "GPT-4-Turbo-2024-04-09",
    "Dracarys-72B-Instruct",
    "Claude-3-Opus",
    "Gemini-Pro-1.5-May",
    "Mistral-Large",
    "Codestral-Latest",
    "LLama3-70b-Ins",
    "Claude-3-Haiku",
    "LLama3-8b-Ins",
)
#: Ten of the fifteen that repaired programs ten times (two others did once, which is no fraction).
_REPAIRERS = (
    "Claude-3.5-Sonnet-20241022",
    "Claude-3.5-Sonnet-20240620",
    "Qwen2.5-Ins-32B",
    "GPT-4O-2024-05-13",
    "Gemini-Pro-1.5-002",
    "GPT-4O-mini-2024-07-18",
    "Mistral-Large",
    "LLama3.1-70b-Ins",
    "Claude-3-Haiku",
    "LLama3.1-8b-Ins",
)
#: The four with the largest mean score, and one whose scores on one task (MMLU) look like answers that were not parsed.
_ROUTED = (
    "llama-3.1-nemotron-51b-instruct",
    "llama-3.3-nemotron-super-49b-v1",
    "llama-3.1-8b-instruct",
    "gemma-2-9b-it",
    "qwen2.5-7b-instruct",
)
#: Ten of 29: the best three, specialists and middle ones, cheap ones.
_EXAMINED = (
    "gemini-1.5-pro-002",
    "DeepSeek-Coder-V2",
    "Meta-Llama-3_1-70B-Instruct",
    "Qwen1.5-72B-Chat",
    "Meta-Llama-3_1-8B-Instruct",
    "mathstral-7B",
    "Phi-3-mini-4k-instruct",
    "gemma-7b",
    "Mistral-7B-Instruct-v0.2",
    "Llama-2-7b-hf",
)
_TESTGEN = "livecodebench/lcb_testgen_pass1.csv.gz"
_ROUTER_READING = {
    "id": "qid",
    "features": ["task_name"],
    "components": 11,
    "outcomes": _ROUTED,
    "jobs": POOL,
}
_EXAM_READING = {
    "id": "question_id",
    "features": ["category"],
    "components": 5,
    "outcomes": _EXAMINED,
    "feature_file": "mmlu_pro/mmlu_pro_queries.csv.gz",
    "missing": "drop",
    "jobs": POOL,
}
_LENGTHS = "mmlu_pro/mmlu_pro_output_chars.csv.gz"
_CODE_READING: dict[str, dict[str, Any]] = {
    "repair": {
        "id": "question_id",
        "features": ["difficulty", "platform", "date"],
        "outcomes": _REPAIRERS,
        "jobs": POOL,
    },
    "testgen": {
        "id": "question_id",
        "features": ["difficulty", "date"],
        "outcomes": _CODERS,
        "missing": "drop",
    },
    # The difficulty of a question stands in another of the files.
    "execution": {
        "id": ["question_id", "sample_id"],
        "features": ["difficulty", "date"],
        "feature_file": _TESTGEN,
        "join": ["question_id"],
        "outcomes": _CODERS,
        "missing": "drop",
    },
}

CASES = (
    *(
        Case(
            f"{kind}-{truth}",
            f"LiveCodeBench {kind}, {truth}",
            f"livecodebench/lcb_{kind}_pass1.csv.gz",
            reading,
            _REPEAT if truth == "repeat" else _FIT,
            played=truth == "repeat",
        )
        for kind, reading in _CODE_READING.items()
        for truth in ("repeat", "fit")
    ),
    *(
        Case(
            f"llmrouter-{truth}",
            f"LLMRouter, {truth}",
            "llmrouter/llmrouter_scores.csv.gz",
            _ROUTER_READING,
            _REPEAT if truth == "repeat" else _FIT,
        )
        for truth in ("repeat", "fit")
    ),
    *(
        Case(
            f"mmlu_pro-{truth}",
            f"MMLU-Pro, {truth}",
            "mmlu_pro/mmlu_pro_correct.csv.gz",
            _EXAM_READING,
            _REPEAT if truth == "repeat" else _FIT,
            lengths=_LENGTHS,
        )
        for truth in ("repeat", "fit")
    ),
)


class Capacity(NamedTuple):
    """What a way of sending jobs to servers carries: mean success of a first attempt, mean attempts of a job until it leaves,
    and the share of jobs that are given up."""

    success: float
    attempts: float
    given_up: float

    @property
    def rate(self) -> float:
        """Jobs per round, at most."""
        return 1.0 / self.attempts


@dataclass(frozen=True)
class Capacities:
    """The ways of one case, from the record alone: the best single server, fallbacks, a fitted router (judged on what it was
    fitted to, and on the half that it was not), hindsight."""

    server: str
    single: Capacity
    fallback: Capacity
    router: Capacity
    held_out: Capacity
    matched: Capacity

    def ways(self) -> dict[str, Capacity]:
        """All of them by name."""
        return {way: getattr(self, way) for way in WAYS}


#: What the ways of :class:`Capacities` are called.
WAYS = {
    "single": "best single server",
    "fallback": "the next server after a failure",
    "router": "router fitted to the features",
    "held_out": "router, judged on jobs it was not fitted to",
    "matched": "best server of each job (hindsight)",
}


@dataclass(frozen=True)
class Setting:
    """One case at one load, played.

    regret, given_up : per policy · hidden : regret of learners from which the features are hidden · context : the best learner
    with features minus the best without, paired by run, with an interval that holds for all such pairs together
    """

    case: Case
    load: float
    system: RecordedSystem
    regret: Mapping[str, Estimate]
    hidden: Mapping[str, Estimate]
    context: Difference
    given_up: Mapping[str, float]
    pairs: Comparisons
    runs: int

    @property
    def order(self) -> list[str]:
        """Learners by mean regret."""
        return sorted((*CONTEXTUAL, *PLAIN), key=lambda name: self.regret[name].mean)

    def difference(self, first: str, second: str) -> Difference:
        """Paired difference; its interval holds with those of all other pairs of the setting."""
        return self.pairs.of(first, second).difference


class Lengths(NamedTuple):
    """Characters that a policy had written: per attempt, and per job that was done."""

    per_attempt: float
    per_job: float


# --- the record alone ------------------------------------------------------------------------------------------------


def read_case(case: Case) -> RecordedOutcomes:
    """The record of a case. Raises SheetError where its files are not found."""
    return read_outcomes(case.file, **case.reading)


def capacities(system: RecordedSystem, outcomes: Floats | None = None) -> Capacities:
    """What each way of sending jobs carries, exact for the finite law of the record.

    Parameters
    ----------
    system : of recorded outcomes.
    outcomes : float64[jobs, servers], what a router is fitted to where that is not the law's own probabilities.
    """
    law = system.law
    assert isinstance(law, FiniteLaw)  # from_outcomes builds no other
    order = offline.by_success(system)
    rows = np.arange(len(law.weights))
    routed = np.einsum("rdk,d->rk", law.features, system.fitted_theta).argmax(axis=1)
    return Capacities(
        system.server_names[order[0]],
        _same_again(law, law.probabilities[:, order[0]]),
        _in_turn(law, law.probabilities[:, order]),
        _same_again(law, law.probabilities[rows, routed]),
        _same_again(law, law.probabilities[rows, _unseen(law, law.probabilities if outcomes is None else outcomes)]),
        _same_again(law, law.probabilities.max(axis=1)),
    )


def _unseen(law: FiniteLaw, outcomes: Floats) -> Any:
    """The server of each job that a logistic regression on the other half of the jobs thinks best: int64[rows]."""
    jobs, dimension, servers = law.features.shape
    half = np.arange(jobs) % 2
    found = np.zeros(jobs, dtype=np.int64)
    for judged in (0, 1):
        fitted = half != judged
        if not fitted.any():
            continue
        pairs = law.features[fitted].transpose(0, 2, 1).reshape(-1, dimension)
        weights = law.weights[fitted] * jobs
        theta = ridge_logistic_fit(pairs, outcomes[fitted].ravel(), np.repeat(weights, servers), ridge=1.0)
        found[~fitted] = np.einsum("rdk,d->rk", law.features[~fitted], theta).argmax(axis=1)
    return found


def _same_again(law: FiniteLaw, probability: Any) -> Capacity:
    """Every job to one server, however often it fails there."""
    limit = law.max_attempts
    lost = np.zeros_like(probability) if limit is None else (1.0 - probability) ** limit
    attempts = attempts_needed(probability, limit)
    return Capacity(*(float(law.weights @ values) for values in (probability, attempts, lost)))


def _in_turn(law: FiniteLaw, probabilities: Any) -> Capacity:
    """Every job to the next server after each failure: float64[rows, K], in the order in which they are asked."""
    limit, servers = law.max_attempts, probabilities.shape[1]
    waiting = np.ones(len(probabilities))
    attempts = np.zeros(len(probabilities))
    for n in range(servers if limit is None else limit):
        attempts += waiting
        waiting = waiting * (1.0 - probabilities[:, n % servers])
    if limit is None:
        # All over again with the chance of a whole round of failures.
        attempts, waiting = attempts / (1.0 - waiting), np.zeros_like(waiting)
    return Capacity(*(float(law.weights @ values) for values in (probabilities[:, 0], attempts, waiting)))


# --- playing ---------------------------------------------------------------------------------------------------------


def policies(system: RecordedSystem) -> list[Policy]:
    """The eight learners with the options that the system suggests, and the three rules that know the record."""
    return [
        wise(),
        cqb_opt(),
        cqb_epsilon(),
        cqb_eta_2(exploration=EXPLORATION),
        acqb(),
        q_ucb(),
        q_ths(),
        random(),
        offline.single(system),
        offline.fallback(system),
        offline.router(system),
    ]


def loads_of(found: Capacities, loads: Sequence[float]) -> list[float]:
    """Those loads of the best single server that the oracle carries."""
    return [load for load in loads if load * found.single.rate < found.matched.rate]


def at_load(case: Case, record: RecordedOutcomes, found: Capacities, load: float) -> RecordedSystem:
    """The system in which the best single server has this load."""
    return record.system(arrival_rate=load * found.single.rate, name=case.words, **case.building)


def summarise(case: Case, load: float, system: RecordedSystem, result: Result, hidden: Result) -> Setting:
    """What tables and figures need of two results, which may then be dropped."""
    given_up = {}
    if result.gives_up:
        arrivals = ROUNDS * system.arrival_rate
        given_up = {name: result.mean_given_up(name).mean / arrivals for name in (*result.policies, "oracle")}
    return Setting(
        case,
        load,
        system,
        {name: result.mean_regret(name) for name in result.policies},
        {name: hidden.mean_regret(name) for name in hidden.policies},
        what_context_pays(result, hidden),
        given_up,
        result.compare_all(level=LEVEL),
        result.runs,
    )


def lengths(case: Case, system: RecordedSystem, result: Result) -> tuple[dict[str, Lengths], dict[str, float]]:
    """Characters written under every policy and the oracle, from a result with a trace; and each server's mean on all jobs."""
    sheet = read_sheet(case.lengths)
    at = {row.values[0].strip(): row for row in sheet.rows}
    table = np.array([[sheet.number(at[job], name) for name in system.server_names] for job in system.job_ids])
    rows = [
        engine.draw(system, result.rounds, result.seed, result.first_run + run).contexts for run in range(result.runs)
    ]
    found = {}
    for name in (*result.policies, "oracle"):
        trace = result.trace[name]
        written, attempts, done = 0.0, 0, 0
        for run, contexts in enumerate(rows):
            busy = trace.job[run] >= 0
            written += float(table[contexts[trace.job[run][busy]], trace.server[run][busy]].sum())
            attempts += int(busy.sum())
            done += int(trace.departure[run].sum())
        found[name] = Lengths(written / attempts, written / done)
    return found, dict(zip(system.server_names, table.mean(axis=0).tolist(), strict=True))


def blind(system: RecordedSystem) -> RecordedSystem:
    """The same jobs, servers and probabilities, of which a policy sees no features: all it can learn is how good each server is
    on average. The same seed gives the same arrivals, jobs and luck."""
    law = system.law
    assert isinstance(law, FiniteLaw)  # from_outcomes builds no other
    jobs, _, servers = law.features.shape
    features = np.ascontiguousarray(np.broadcast_to(np.eye(servers), (jobs, servers, servers)))
    hidden = FiniteLaw(features, law.probabilities, law.weights, law.max_attempts, servers)
    fitted = ridge_logistic_fit(
        np.eye(servers), law.weights @ law.probabilities, np.full(servers, float(jobs)), ridge=1.0
    )
    return replace(
        system,
        name=f"{system.name}, features hidden",
        law=hidden,
        theta=None,
        feature_bound=1.0,
        parameter_bound=float(np.linalg.norm(fitted)) or 1.0,
        fitted_theta=fitted,
        feature_names=(),
        identification={**system.identification, "features": "hidden"},
    )


def what_context_pays(shown: Result, hidden: Result) -> Difference:
    """The best learner with features minus the best without, paired by run.

    Both were chosen by what they did in these runs, so the interval is Bonferroni's for all pairs.
    """
    with_features = {name: shown.run_means(name) for name in CONTEXTUAL}
    without = {f"{name}, features hidden": hidden.run_means(name) for name in CONTEXTUAL}
    without |= {name: shown.run_means(name) for name in PLAIN}
    first = min(with_features, key=lambda name: float(with_features[name].mean()))
    second = min(without, key=lambda name: float(without[name].mean()))
    level = simultaneous_level(LEVEL, len(with_features) * len(without))
    return Difference(*estimated(with_features[first] - without[second], level), first, second)


# --- tables and sentences --------------------------------------------------------------------------------------------


def capacity_table(found: Mapping[str, tuple[Case, RecordedSystem, Capacities]]) -> Table:
    """What can be carried, and by whom."""
    rows = []
    for case, system, known in found.values():
        ways = known.ways().values()
        rows.append(
            (
                case.words,
                f"{len(system.job_ids)}",
                known.server,
                *(f"{way.success:.3f}" for way in (known.single, known.router, known.held_out, known.matched)),
                *(f"{way.rate:.3f}" for way in ways),
                *(_percent(way.given_up) for way in ways),
            )
        )
    columns = (
        *("case", "jobs", "best single server"),
        *("success\nsingle", "router", "held out", "matched"),
        *("capacity\nsingle", "fallback", "router", "held out", "matched"),
        *("given up\nsingle", "fallback", "router", "held out", "matched"),
    )
    return Table(
        "What can be carried",
        columns,
        tuple(rows),
        note="Exact for the record. success: of a first attempt; capacity: jobs per round at most, 1 / E[attempts]; given up: "
        f"share of jobs that fail {MAX_ATTEMPTS} times (repeat). router: a logistic regression on the whole record, judged on "
        "the record it was fitted to (in 'fit' it is the truth); held out: fitted to half of the jobs and judged on the other; "
        "matched: the best server of each job, by hindsight alone.",
        wide=(0,),
    )


def winners_table(settings: Sequence[Setting]) -> Table:
    """Who wins under which load, by how much, and how far from the oracle."""
    rows, ends = [], []
    for i, one in enumerate(settings):
        first, second = one.order[:2]
        rows.append(
            (
                one.case.words,
                f"{one.load:g}",
                first,
                _estimate(one.regret[first]),
                second,
                _difference(one.difference(second, first)),
                one.context.second,
                _difference(one.context),
                *(_difference(one.difference(first, name)) for name in ("fallback", "router")),
            )
        )
        if i + 1 == len(settings) or settings[i + 1].case is not one.case:
            ends.append(i)
    return Table(
        "Who wins under which load",
        (
            "case",
            "load",
            "best learner",
            "its regret",
            "next",
            "next behind",
            "best without features",
            "context",
            "minus\nfallback",
            "minus\nrouter",
        ),
        tuple(rows),
        note="load: of the best single server. Regret over 2,000 rounds in jobs, the distance to the oracle. context: the best "
        "contextual learner minus the best learner from which the features are hidden (negative: context pays), "
        "with an interval for whichever of them are best. Differences are paired "
        "by run; those of a row hold together for all pairs of policies with 95% confidence.",
        wide=(0,),
        sections=tuple(ends),
    )


def regret_table(settings: Sequence[Setting]) -> Table:
    """Mean regret of every policy in every setting."""
    return Table(
        "Mean regret of every policy",
        ("case", "load", *CONTEXTUAL, *PLAIN, *OFFLINE),
        tuple(
            (
                one.case.words,
                f"{one.load:g}",
                *(_estimate(one.regret[name]) for name in (*CONTEXTUAL, *PLAIN, *OFFLINE)),
            )
            for one in settings
        ),
        note="In jobs, with plain 95% intervals. q_ucb and q_ths take a uniform server with probability "
        f"min(1, 3 K ln(t)^2 / t), which is still {_uniform(5):.0%} in the last round with 5 servers, "
        f"{_uniform(10):.0%} with 10.",
        wide=(0,),
    )


def hidden_table(settings: Sequence[Setting]) -> Table:
    """Mean regret of the contextual learners with the features hidden."""
    return Table(
        "Mean regret with the features hidden",
        ("case", "load", *CONTEXTUAL),
        tuple(
            (one.case.words, f"{one.load:g}", *(_estimate(one.hidden[name]) for name in CONTEXTUAL)) for one in settings
        ),
        note="The same arrivals, jobs and luck; the learners see which server is which, and nothing of a job. In jobs, with "
        "plain 95% intervals.",
        wide=(0,),
    )


def given_up_table(settings: Sequence[Setting]) -> Table | None:
    """Jobs given up, where they are."""
    rows = tuple(
        (
            one.case.words,
            f"{one.load:g}",
            *(_percent(one.given_up[name]) for name in ("oracle", *CONTEXTUAL, *PLAIN, *OFFLINE)),
        )
        for one in settings
        if one.given_up
    )
    if not rows:
        return None
    return Table(
        "Jobs given up",
        ("case", "load", "oracle", *CONTEXTUAL, *PLAIN, *OFFLINE),
        rows,
        note=f"Share of arriving jobs given up within the {ROUNDS} rounds, after {MAX_ATTEMPTS} failed attempts. A queue is "
        "kept short by giving up too: a policy with less regret and more jobs given up has not won.",
        wide=(0,),
    )


def length_table(case: Case, found: Mapping[str, Lengths], servers: Mapping[str, float]) -> Table:
    """What policies had written."""
    best, worst = (pick(servers, key=servers.__getitem__) for pick in (min, max))
    return Table(
        f"Characters written, {case.words}, load {_LENGTH_LOAD:g}",
        ("policy", "per attempt", "per job done"),
        tuple((name, f"{one.per_attempt:.0f}", f"{one.per_job:.0f}") for name, one in found.items()),
        note="An attempt takes one round whatever is written, so that length is a cost beside the queue, not a part of it. A "
        f"server writes between {servers[best]:.0f} ({best}) and {servers[worst]:.0f} ({worst}) characters on average.",
    )


def _estimate(estimate: Estimate | Difference) -> str:
    return interval(estimate.mean, estimate.low, estimate.high)


_difference = _estimate


def _uniform(servers: int) -> float:
    """How often Q-UCB takes a uniform server in the last round."""
    return min(1.0, 3.0 * servers * math.log(ROUNDS) ** 2 / ROUNDS)


def _percent(share: float) -> str:
    return "0" if share == 0 else f"{100 * share:.1f}%"


def verdict(one: Setting) -> str:
    """Whether context pays: "pays", "costs" or "undecided", by the interval of the best with against the best without."""
    return "pays" if one.context.high < 0 else "costs" if one.context.low > 0 else "undecided"


def sentences(
    found: Mapping[str, tuple[Case, RecordedSystem, Capacities]], settings: Sequence[Setting], loads: Sequence[float]
) -> list[str]:
    """What was found, two or three sentences per case; the numbers stand in the tables."""
    said = []
    for case, _, known in found.values():
        more = {way: _more(capacity.rate / known.single.rate - 1.0) for way, capacity in known.ways().items()}
        text = (
            f"{case.words}: {known.server} alone carries {known.single.rate:.3f} jobs per round; a router fitted to the "
            f"features {more['router']} ({more['held_out']} on jobs that it has not seen), trying the next server after a "
            f"failure {more['fallback']}, hindsight {more['matched']}."
        )
        own = [one for one in settings if one.case is case]
        if own:
            text += f" Smallest regret of all learners: {_by_load(own, lambda one: one.order[0])}."
            text += f" Context: {_by_load(own, verdict)}."
        left = [load for load in loads if load not in [one.load for one in own]]
        if case.played and left:
            text += f" Load {', '.join(f'{load:g}' for load in left)} is more than the oracle carries."
        said.append(text)
    return said


def _by_load(settings: Sequence[Setting], what: Callable[[Setting], str]) -> str:
    """``wise at load 0.5, acqb at 0.8 and 0.95``."""
    at: dict[str, list[str]] = {}
    for one in settings:
        at.setdefault(what(one), []).append(f"{one.load:g}")
    parts = [f"{word} at {' and '.join(filter(None, (', '.join(own[:-1]), own[-1])))}" for word, own in at.items()]
    return ", ".join(parts).replace(" at ", " at load ", 1)


def _more(share: float) -> str:
    text = f"{abs(share):.0%}"
    return "as much" if text == "0%" else f"{text} {'more' if share > 0 else 'less'}"


# --- figures ---------------------------------------------------------------------------------------------------------


def draw_capacities(found: Mapping[str, tuple[Case, RecordedSystem, Capacities]]) -> Any:
    """What each way carries, as bars."""
    figure = new_figure(9.0, 0.72 * len(found) + 1.5)
    axes = figure.add_subplot()
    for i, (way, label) in enumerate(WAYS.items()):
        places = np.arange(len(found)) + (i - (len(WAYS) - 1) / 2) * 0.16
        rates = [known.ways()[way].rate for _, _, known in found.values()]
        axes.barh(places, rates, height=0.145, color=style(i)["color"], label=label)
    axes.set_yticks(np.arange(len(found)), [case.words for case, _, _ in found.values()])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlabel("capacity: jobs per round, at most")
    axes.set_xlim(0, 1)
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    frameless(axes)
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=9)
    return figure


def draw_loads(settings: Sequence[Setting]) -> Any:
    """Mean regret of every policy at every load, a panel per case; linear up to one job, logarithmic above."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    cases = list(dict.fromkeys(one.case for one in settings))
    loads = sorted({one.load for one in settings})
    columns = min(3, len(cases))
    lines = -(-len(cases) // columns)
    names = (*CONTEXTUAL, *PLAIN, *OFFLINE)
    figure = new_figure(3.5 * columns + 1.2, 3.0 * lines + 0.9)
    panels = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    top = max(1.0, *(estimate.mean for one in settings for estimate in one.regret.values()))
    for panel, axis in enumerate(panels):
        if panel >= len(cases):
            axis.set_visible(False)
            continue
        for one in settings:
            if one.case is not cases[panel]:
                continue
            # Loads of one policy side by side, the lightest on top.
            i = loads.index(one.load)
            places = np.arange(len(names)) + (i - (len(loads) - 1) / 2) * 0.19
            known = [one.regret[name] for name in names]
            axis.errorbar(
                [estimate.mean for estimate in known],
                places,
                xerr=[[e.mean - e.low for e in known], [e.high - e.mean for e in known]],
                label=f"load {one.load:g}",
                color=style(i)["color"],
                marker="osD^"[i % 4],
                markersize=3.5,
                linestyle="none",
                elinewidth=0.9,
            )
        for end in (len(CONTEXTUAL), len(CONTEXTUAL) + len(PLAIN)):
            axis.axhline(end - 0.5, color="0.75", linewidth=0.8, zorder=0)
        axis.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
        axis.set_title(cases[panel].words, fontsize=10, loc="left")
        axis.grid(axis="x", color="#e9e9e9", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.tick_params(labelsize=8)
        if panel + columns >= len(cases):
            axis.set_xlabel("mean regret (jobs)", fontsize=9)
            axis.tick_params(labelbottom=True)
        frameless(axis)
    first = panels[0]
    first.set_yticks(range(len(names)), names)
    first.set_ylim(len(names) - 0.5, -0.5)
    first.set_xscale("symlog", linthresh=1.0)
    first.set_xlim(-0.6, top * 1.5)
    first.xaxis.set_major_locator(FixedLocator([0, 1, 2, 5, 10, 20, 50, 100, 200, 500]))
    first.xaxis.set_minor_locator(NullLocator())
    first.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    # The panel with the most loads knows them all.
    most = max(panels[: len(cases)], key=lambda axis: len(axis.get_legend_handles_labels()[1]))
    handles, labels = most.get_legend_handles_labels()
    figure.legend(
        handles,
        [f"{label} of the best single server" if i == 0 else label for i, label in enumerate(labels)],
        loc="outside upper left",
        ncols=4,
        frameon=False,
        fontsize=9,
    )
    return figure


# --- the command -----------------------------------------------------------------------------------------------------


def available(cases: Sequence[Case] = CASES) -> tuple[list[Case], str]:
    """The cases whose files are found, and one sentence that names the data sets of the others ("" if there are none).

    Raises ValueError where none is found.
    """
    found: list[Case] = []
    missing: dict[str, None] = {}
    for case in cases:
        try:
            for path in (case.file, case.reading.get("feature_file"), case.lengths):
                if path:
                    find(path)
        except SheetError:
            missing[case.file.split("/")[0]] = None
        else:
            found.append(case)
    if not found:
        raise ValueError(
            f"recorded-outcomes: none of its data sets is found ({', '.join(missing)}); QUEUEWISE_DATA must name the folder "
            "that holds them"
        )
    said = f"Left out, since QUEUEWISE_DATA does not have them: {', '.join(missing)}." if missing else ""
    return found, said


def run(request: Request) -> Outcome:
    """Read the data sets, simulate, and write figures, rows and tables to ``request.out``.

    Raises ValueError where no data set is found, or where the folder cannot be written to or holds rows of another experiment.
    """
    cases, missing = available()
    out = output_folder(request.out)
    loads = QUICK_LOADS if request.quick else LOADS
    known: dict[str, tuple[Case, RecordedSystem, Capacities]] = {}
    plan: list[tuple[Case, RecordedOutcomes, float]] = []
    for case in cases:
        record = read_case(case)
        # The load does not matter to what can be carried.
        system = record.system(load=0.5, name=case.words, **case.building)
        known[case.name] = (case, system, capacities(system, record.outcomes))
        if case.played:
            plan += [(case, record, load) for load in loads_of(known[case.name][2], loads)]
    settings: list[Setting] = []
    written: list[Table] = []
    with Progress(2 * len(plan) * request.runs, shown=request.progress) as progress:
        for case, record, load in plan:
            system = at_load(case, record, known[case.name][2], load)
            counts = bool(case.lengths) and load == _LENGTH_LOAD
            result = simulate(
                system,
                policies=policies(system),
                rounds=ROUNDS,
                runs=request.runs,
                seed=request.seed,
                workers=request.workers,
                trace=counts,
                folder=out / "rows" / case.name / f"load-{load:g}",
                progress=progress.begin(f"{case.words}, load {load:g}"),
            )
            hidden = simulate(
                blind(system),
                policies=policies(system)[: len(CONTEXTUAL)],
                rounds=ROUNDS,
                runs=request.runs,
                seed=request.seed,
                workers=request.workers,
                folder=out / "rows" / case.name / f"load-{load:g}-features-hidden",
                progress=progress.begin(f"{case.words}, load {load:g}, features hidden"),
            )
            settings.append(summarise(case, load, system, result, hidden))
            if counts:
                written.append(length_table(case, *lengths(case, system, result)))
        progress.begin("drawing")
        files = save_figure(draw_capacities(known), out, "capacities")
        files += save_figure(draw_loads(settings), out, "loads")
    return _report(request, known, settings, written, files, loads, missing)


def _report(
    request: Request,
    known: Mapping[str, tuple[Case, RecordedSystem, Capacities]],
    settings: Sequence[Setting],
    written: Sequence[Table],
    files: Sequence[Path],
    loads: Sequence[float],
    missing: str,
) -> Outcome:
    said = [*([missing] if missing else []), *sentences(known, settings, loads)]
    given_up = given_up_table(settings)
    tables = [capacity_table(known), winners_table(settings)]
    further = [regret_table(settings), hidden_table(settings), *([given_up] if given_up is not None else []), *written]
    results: dict[str, Any] = {
        "reproduction": "recorded-outcomes",
        "version": VERSION,
        "quick": request.quick,
        "rounds": ROUNDS,
        "runs": request.runs,
        "seed": request.seed,
        "conclusions": said,
        "cases": [_case_json(*entry) for entry in known.values()],
        "settings": [_setting_json(one) for one in settings],
    }
    title = "# Recorded outcomes" + (" (quick: few runs, for a first look)" if request.quick else "")
    text = "\n".join(
        [title, "", *(f"- {line}" for line in said), "", *(table.markdown() for table in (*tables, *further))]
    )
    written_files = [
        write_text(request.out / "recorded-outcomes.json", to_json(results) + "\n"),
        write_text(request.out / "recorded-outcomes.md", text),
    ]
    return Outcome((), (*tables, *further), tuple(said), (*files, *written_files, request.out / "rows"), results)


def _case_json(case: Case, system: RecordedSystem, known: Capacities) -> dict[str, Any]:
    return {
        "name": case.name,
        "title": case.words,
        "jobs": len(system.job_ids),
        "servers": list(system.server_names),
        "features": list(system.feature_names),
        "notes": list(system.notes),
        "best_single_server": known.server,
        **{way: {**found._asdict(), "capacity": found.rate} for way, found in known.ways().items()},
    }


def _setting_json(one: Setting) -> dict[str, Any]:
    first, second = one.order[:2]
    return {
        "case": one.case.name,
        "load_of_best_single_server": one.load,
        "arrival_rate": one.system.arrival_rate,
        "load_of_oracle": 1.0 - one.system.slack(),
        "runs": one.runs,
        "best_learner": first,
        "next_behind": estimate_json(one.difference(second, first)),
        "context": verdict(one),
        "context_difference": {**estimate_json(one.context), "with": one.context.first, "without": one.context.second},
        "mean_regret": {name: estimate_json(estimate) for name, estimate in one.regret.items()},
        "mean_regret_features_hidden": {name: estimate_json(estimate) for name, estimate in one.hidden.items()},
        "given_up": dict(one.given_up),
    }
