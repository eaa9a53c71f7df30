"""What a dispatching result says: identities that hold in every run, intervals, rankings, quantiles, and the way to disk."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from queuewise.dispatch import service
from queuewise.dispatch.policies import greedy, jsq, lased, make, sed
from queuewise.dispatch.result import CAUSES, Result
from queuewise.dispatch.simulate import simulate, trace
from queuewise.dispatch.systems import System
from queuewise.loading import load
from queuewise.runs.statistics import simultaneous_level

SYSTEM = System(1.6, [1, 2])
NAMES = ["jsq", "random", "lased", "sed"]


@pytest.fixture(scope="module")
def result() -> Result:
    return simulate(SYSTEM, NAMES, arrivals=4000, runs=8, seed=2, quantiles=[0.5, 0.9, 0.99])


@pytest.fixture(scope="module")
def warmed() -> Result:
    return simulate(SYSTEM, NAMES, arrivals=4000, runs=8, seed=2, warm_up=0.25)


def test_attributes(result: Result) -> None:
    assert result.policies == NAMES
    assert (result.runs, result.seed, result.servers, result.warm_up, result.first_run) == (8, 2, 2, 0, 0)
    assert repr(result) == "Result(jsq, random, lased, sed: 8 runs of 4000 arrivals, seed 2)"
    assert result.arrivals.dtype == np.int64
    assert (np.diff(result.arrivals) > 0).all()
    assert (result.arrivals[0], result.arrivals[-1]) == (1, 4000)
    assert set(result.settings["batch_marks"]) <= set(result.arrivals.tolist())
    assert (np.diff(result.time, axis=1) > 0).all()


@pytest.mark.parametrize("name", [*NAMES, "oracle"])
def test_regret_by_cause_sums_to_regret(result: Result, name: str) -> None:
    parts = result.regret_by_cause(name)
    assert tuple(parts) == CAUSES
    whole = result.regret(name)
    np.testing.assert_allclose(sum(part.mean for part in parts.values()), whole.mean, rtol=1e-12)
    assert (np.diff(result.regrets(name), axis=1) >= 0).all()
    assert (result.regrets(name) <= result.arrivals).all()
    assert whole.arrivals is result.arrivals
    assert whole.mean[-1] == result.total_regret(name).mean
    if name in ("sed", "oracle"):
        assert not whole.mean.any()
    elif name != "lased":
        assert not parts["exploration"].mean.any()
        assert not parts["overflow"].mean.any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("which", ["result", "warmed"])
def test_shares_and_utilisation(name: str, which: str, request: pytest.FixtureRequest) -> None:
    found: Result = request.getfixturevalue(which)
    shares, busy = found.shares(name), found.utilisation(name)
    assert sum(share.mean for share in shares) == pytest.approx(1.0, abs=1e-12)
    assert all(0.0 < each.mean < 1.0 for each in busy)
    work = [busy[0].mean * 1.0, busy[1].mean * 2.0]
    assert sum(work) == pytest.approx(1.6, rel=0.06)  # Σ c_i μ_i u_i = λ, up to the noise of 32,000 arrivals


def test_work_that_arrives_is_work_that_is_done() -> None:
    """Σ c_i μ_i u_i = λE[S] in the long run, and server by server λp_iE[S] = c_i μ_i u_i."""
    system = System(5.0, [1, 2, 1.5], slots=[2, 1, 3], service=service.resampled([0.5, 1.0, 1.2]))
    found = simulate(system, ["jsq", "random"], arrivals=60_000, runs=4, seed=1)
    for name in found.policies:
        busy = np.array([each.mean for each in found.utilisation(name)])
        shares = np.array([each.mean for each in found.shares(name)])
        done = busy * system.slot_counts * system.rates[0]
        assert done.sum() == pytest.approx(5.0 * 0.9, rel=0.01)
        np.testing.assert_allclose(done, 5.0 * 0.9 * shares, rtol=0.015)


def test_averages_after_the_warm_up_are_those_of_the_jobs(warmed: Result) -> None:
    for run in range(2):
        jobs = trace(SYSTEM, "jsq", 4000, seed=2, run=run)
        at = len(warmed.arrivals) - 1
        later = slice(1000, 4000)
        sojourn = (jobs.departs - jobs.arrival)[later].mean()
        assert warmed.sojourn_time["jsq"][run, at] == pytest.approx(sojourn, rel=1e-10)
        begin, end = jobs.arrival[999], jobs.arrival[3999]
        inside = np.minimum(jobs.departs, end) - np.maximum(jobs.arrival, begin)
        assert warmed.number_in_system["jsq"][run, at] == pytest.approx(
            np.maximum(inside, 0.0).sum() / (end - begin), rel=1e-10
        )
        sent = warmed._columns["jsq.served.1"][run]
        assert sent[-1] - sent[warmed.arrivals == 1000] == (jobs.server[later] == 1).sum()
    assert np.isnan(warmed.number_in_system["jsq"][:, warmed.arrivals <= 1000]).all()
    assert np.isfinite(warmed.number_in_system["jsq"][:, warmed.arrivals > 1000]).all()
    assert np.isfinite(warmed.regrets("jsq")).all()  # regret counts from the start


def test_arrivals_see_time_averages() -> None:
    """PASTA: Poisson arrivals find what is there on average over time."""
    found = simulate(SYSTEM, "jsq", arrivals=100_000, runs=6, seed=3)
    over_time, at_arrivals = found.number_in_system["jsq"][:, -1], found.number_at_arrivals["jsq"][:, -1]
    difference = over_time - at_arrivals
    assert abs(difference.mean()) < 4.5 * max(difference.std() / math.sqrt(5), 0.01)


def test_littles_law(result: Result) -> None:
    for name in NAMES:
        number = result.mean_number_in_system(name).mean
        rate = (result.arrivals[-1] / result.time[:, -1]).mean()
        assert number == pytest.approx(rate * result.mean_sojourn_time(name).mean, rel=0.02)


def test_quantiles_are_those_of_the_sorted_times(result: Result) -> None:
    for name in ("jsq", "random", "sed"):
        times = [np.diff(trace(SYSTEM, name, 4000, seed=2, run=run)[0::6], axis=0)[0] for run in range(8)]
        for q, close in ((0.5, 0.01), (0.9, 0.01), (0.99, 0.02)):
            exact = np.mean([np.quantile(each, q) for each in times])
            assert result.quantile(name, q).mean == pytest.approx(exact, rel=close)
    assert result.quantile("sed", 0.5) == result.quantile("oracle", 0.5)
    again = simulate(SYSTEM, NAMES, arrivals=4000, runs=8, seed=2, quantiles=[0.5], workers=2)
    assert again.quantile("random", 0.5) == result.quantile("random", 0.5)


def test_exponential_quantiles_of_one_server() -> None:
    """Sojourn times of M/M/1 are exponential with rate μ − λ."""
    found = simulate(System(0.5, [1]), "jsq", arrivals=100_000, runs=4, seed=1, quantiles=[0.5, 0.95, 0.999])
    for q in (0.5, 0.95, 0.999):
        assert found.quantile("jsq", q).mean == pytest.approx(-2.0 * math.log(1.0 - q), rel=0.06)


def test_quantiles_kept_by_six_digits_are_told_apart() -> None:
    found = simulate(SYSTEM, "jsq", arrivals=50, runs=2, quantiles=[0.5])
    with pytest.raises(ValueError, match=r"q: the quantile 0\.9 was not kept \(0\.5 were\)"):
        found.quantile("jsq", 0.9)
    with pytest.raises(ValueError, match=r"was not kept \(none were\)"):
        simulate(SYSTEM, "jsq", arrivals=50, runs=2).quantile("jsq", 0.5)


def test_quantiles_that_agree_in_six_digits() -> None:
    found = simulate(SYSTEM, "jsq", arrivals=50, runs=2, quantiles=[0.5])
    with pytest.raises(ValueError, match="was not kept"):
        found.quantile("jsq", 0.50000004)


def test_intervals_are_students(result: Result) -> None:
    values = result.sojourn_time["jsq"][:, -1]
    found = result.mean_sojourn_time("jsq", 0.9)
    low, high = stats.t.interval(0.9, 7, values.mean(), stats.sem(values))
    np.testing.assert_allclose(found[:3], [values.mean(), low, high], rtol=1e-12)
    assert found.runs == 8
    curve = result.regret("random", 0.5)
    rows = result.regrets("random")
    np.testing.assert_allclose(curve.low[1:], stats.t.interval(0.5, 7, rows.mean(0), stats.sem(rows))[0][1:], rtol=1e-9)


def test_one_run_has_batches() -> None:
    one = simulate(SYSTEM, ["jsq", "random"], arrivals=4000, runs=1, seed=2, warm_up=400)
    for measure, mean in (
        ("number_in_system", one.mean_number_in_system("jsq")),
        ("sojourn_time", one.mean_sojourn_time("jsq")),
    ):
        batches = one.batch_means("jsq", measure)  # type: ignore[arg-type]
        assert batches.shape == (20,)
        assert mean.mean == pytest.approx(batches.mean())
        assert mean.low < mean.mean < mean.high
    assert one.batch_means("jsq", "sojourn_time").mean() == pytest.approx(one.sojourn_time["jsq"][0, -1])
    assert one.total_regret("jsq").high == math.inf
    assert one.compare("jsq", "random").smaller is None
    assert len(one.rank()) == 2


def test_batches_are_as_good_as_runs() -> None:
    """One long run and many short ones estimate the same steady state; batch means are honest where batches are long."""
    long = simulate(SYSTEM, "jsq", arrivals=400_000, runs=1, seed=5, warm_up=10_000)
    many = simulate(SYSTEM, "jsq", arrivals=30_000, runs=16, seed=6, warm_up=10_000)
    a, b = long.mean_sojourn_time("jsq"), many.mean_sojourn_time("jsq")
    error = math.hypot(a.sd / math.sqrt(a.runs), b.sd / math.sqrt(b.runs))
    assert a.runs == 20
    assert abs(a.mean - b.mean) / error < 4.5


def test_batches_of_few_arrivals() -> None:
    few = simulate(SYSTEM, "jsq", arrivals=7, runs=1, warm_up=2)
    assert few.batch_means("jsq", "sojourn_time").shape == (5,)
    starts_together = System(service_rates=[1, 2], arrivals=[0.0] * 10 + [float(i) for i in range(1, 11)])
    at_once = simulate(starts_together, "jsq", arrivals=100, runs=1)
    assert np.isfinite(at_once.batch_means("jsq")).all()
    assert at_once.batch_means("jsq", "sojourn_time").shape == (20,)


def test_compare_excess_and_rank(result: Result) -> None:
    found = result.compare("random", "jsq", "sojourn_time")
    values = result.sojourn_time["random"][:, -1] - result.sojourn_time["jsq"][:, -1]
    assert found.mean == pytest.approx(values.mean())
    assert (found.first, found.second, found.smaller) == ("random", "jsq", "jsq")
    assert result.compare("jsq", "random", "sojourn_time").mean == pytest.approx(-found.mean)
    assert result.compare("jsq", "jsq")[:4] == (0, 0, 0, 0)
    assert result.excess("random").mean == pytest.approx(result.compare("random", "oracle", "sojourn_time").mean)
    assert result.excess("random").mean > 0.0
    assert result.excess("sed")[:4] == (0, 0, 0, 0)
    assert result.excess("jsq", "regret").mean == pytest.approx(result.total_regret("jsq").mean)
    for measure in ("regret", "number_in_system", "sojourn_time"):
        places = result.rank(measure)  # type: ignore[arg-type]
        means = [place.value.mean for place in places]
        assert means == sorted(means)
        assert places[0].behind is None
        assert {place.name for place in places} == set(NAMES)
        for place in places[1:]:
            each = simultaneous_level(0.95, 6)
            assert place.behind == result.compare(place.name, places[0].name, measure, each)  # type: ignore[arg-type]
            assert place.behind.mean >= 0.0


def test_by_server_and_by_run(result: Result) -> None:
    assert result.estimates["lased"].shape == (8, len(result.arrivals), 2)
    assert np.isnan(result.estimates["random"]).all()
    assert result.estimates["lased"][:, -1].mean(axis=0) == pytest.approx([1.0, 2.0], rel=0.1)
    assert (result.episodes["lased"] > 10).all()
    assert result.episodes["jsq"].tolist() == [0] * 8
    assert (result.busy_periods["oracle"] > 10).all()
    assert result.largest["random"].mean() > result.largest["oracle"].mean()
    assert result.verdict["lased"] == ["stable"] * 8


def test_labels_contain_the_ties() -> None:
    policies = [jsq(), sed(ties="random"), greedy([5, 0.1], name="mine"), lased(scale=2.0), make("random")]
    found = simulate(SYSTEM, policies, arrivals=5, runs=1)
    assert [found.label(name) for name in found.policies] == [
        "jsq(ties='lowest')",
        "sed(ties='random')",
        "mine: greedy(initial_rates=[5, 0.1], ties='lowest')",
        "lased(scale=2.0, ties='lowest')",
        "random",
    ]
    assert found.label("oracle") == "oracle"


def test_save_and_load(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path)
    result.save(tmp_path)  # nothing is lost or doubled
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["000000-000007.parquet"]
    found = load(tmp_path)
    assert isinstance(found, Result)
    assert found.settings == result.settings
    assert set(found._columns) == set(result._columns)
    for key, column in result._columns.items():
        np.testing.assert_array_equal(found._columns[key], column)
        assert found._columns[key].dtype == column.dtype
    assert found.rank() == result.rank()
    assert found.quantile("jsq", 0.9) == result.quantile("jsq", 0.9)
    other = simulate(SYSTEM, NAMES, arrivals=4000, runs=1, seed=3, quantiles=[0.5, 0.9, 0.99])
    with pytest.raises(ValueError, match=r"holds another experiment .*seed is 2 there, 3 here"):
        other.save(tmp_path)


def test_rows_on_disk_are_one_tidy_table(result: Result, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    result.save(tmp_path)
    table = pq.read_table(tmp_path / "runs")
    assert table.num_rows == 8 * len(result.arrivals)
    assert {"run", "round", "arrivals", "time", "oracle.area", "lased.misestimation", "lased.served.0"} <= set(
        table.column_names
    )


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda r: r.regret("jsqq"), "policy: the result has none called 'jsqq'; did you mean 'jsq'?"),
        (lambda r: r.compare("jsq", "xyz"), "none called 'xyz'; it has 'jsq', 'random', 'lased', 'sed'"),
        (lambda r: r.number_in_system["jsqq"], "did you mean 'jsq'"),
        (lambda r: r.estimates["jsqq"], "did you mean 'jsq'"),
        (lambda r: r.verdict["jsqq"], "did you mean 'jsq'"),
        (lambda r: r.label("jsqq"), "did you mean 'jsq'"),
        (lambda r: r.shares("jsqq"), "did you mean 'jsq'"),
        (lambda r: r.quantile("jsqq", 0.5), "did you mean 'jsq'"),
        (lambda r: r.batch_means("jsqq"), "did you mean 'jsq'"),
        (lambda r: r.plot(["jsqq"]), "did you mean 'jsq'"),
        (lambda r: r.regret("jsq", 95), "level must lie strictly between 0 and 1"),
        (lambda r: r.rank(level=1.0), "level must lie strictly between 0 and 1"),
        (lambda r: r.compare("jsq", "sed", "delay"), "of must be one of 'regret', 'number_in_system', 'sojourn_time'"),
        (lambda r: r.rank("delay"), "of must be one of"),
        (lambda r: r.batch_means("jsq", "regret"), "measure must be 'number_in_system' or 'sojourn_time' for batch"),
    ],
)
def test_bad_questions(result: Result, ask: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")) as caught:
        ask(result)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [(lambda r: r.batch_means("jsq", run=99), "run"), (lambda r: r.quantile("jsq", "median"), "^q: ")],
)
def test_bad_questions_that_want_a_sentence(result: Result, ask: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ask(result)


def test_plot(result: Result) -> None:
    axes = result.plot(title="mine").axes[0]
    assert axes.get_title(loc="left") == "mine"
    assert len(axes.lines) == 4
    one = result.plot(["lased"]).axes[0]
    np.testing.assert_array_equal(one.lines[0].get_ydata(), result.regret("lased").mean)
    assert [text.get_text() for text in one.get_legend().get_texts()] == ["lased(ties='lowest')"]


def test_where_the_clock_of_a_trace_begins_changes_no_average() -> None:
    """A trace of Unix times, as logs have them; its rate too is counted from its first arrival on."""
    times = np.cumsum(np.random.default_rng(0).exponential(1.0, 500))
    since, late = (
        simulate(System(service_rates=[1, 2], arrivals=times - times[0] + begin), "jsq", arrivals=500, runs=2)
        for begin in (0.0, 2.0**30)
    )
    assert late.mean_sojourn_time("jsq").mean == pytest.approx(since.mean_sojourn_time("jsq").mean, rel=1e-6)
    assert late.mean_number_in_system("jsq").mean == pytest.approx(since.mean_number_in_system("jsq").mean, rel=1e-4)
    np.testing.assert_allclose(late.batch_means("jsq"), since.batch_means("jsq"), rtol=1e-4)
    assert late.utilisation("jsq")[0].mean == pytest.approx(since.utilisation("jsq")[0].mean, rel=1e-4)
