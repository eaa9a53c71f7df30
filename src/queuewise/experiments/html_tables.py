"""The tables of a report's page."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..dispatch.result import Result as DispatchResult
from ..runs.convergence import Convergence
from ..runs.result import Result
from ..runs.simultaneous import Comparisons
from ..runs.statistics import Estimate
from .accounts import LEVEL, Account, effect_text, estimate_text, p_value, value_text
from .report import Table, short

#: Longest value of a setting that is written out.
_LONGEST = 160


def ranking_table(found: Account) -> Table:
    """Policies by mean, each beside the first."""
    best = found.order[0]
    rows = []
    for place, name in enumerate(found.order, 1):
        row = [name, str(place), estimate_text(found.means[name])]
        if name == best:
            row += ["", "", "", "", ""]
        else:
            comparison, effects = found.comparison(name), found.effects[name]
            better = "unknown" if not effects.better.defined else effect_text(effects.better, 100.0, " %")
            row += [
                estimate_text(comparison.difference),
                p_value(comparison.p),
                effect_text(effects.ratio),
                effect_text(effects.standardised),
                better,
            ]
        rows.append(tuple(row))
    columns = (
        "policy",
        "place",
        found.measure.words,
        "above the first",
        "p",
        "ratio to\nthe first",
        "d_z",
        "beats the\nfirst in",
    )
    return Table(
        f"Policies by {found.measure.words}",
        tuple(columns),
        tuple(rows),
        note=f"In {found.measure.unit}. Intervals are at 95 %; means, ratios, d_z and shares of runs each by itself, and "
        f'"above the first" so that all pairs of policies hold together: {found.pairs.describe()}. p is adjusted alike.',
    )


def pairs_table(found: Account) -> Table:
    """Every pair of policies."""
    rows = []
    for a, b in itertools.combinations(found.order, 2):
        comparison = found.pairs.of(a, b)
        difference = comparison.difference
        smaller = difference.smaller or ("" if math.isnan(difference.mean) else "undecided")
        rows.append((a, b, estimate_text(difference), p_value(comparison.p), smaller))
    return Table(
        f"All pairs by {found.measure.words}",
        ("first", "second", "first − second", "adjusted p", "smaller"),
        tuple(rows),
        note=f"In {found.measure.unit}, paired by run. {found.pairs.describe()}.",
    )


def against_table(found: Account, against: Comparisons) -> Table:
    """All others against the baseline."""
    rows = []
    for comparison in sorted(against, key=lambda comparison: comparison.difference.mean):
        difference = comparison.difference
        smaller = difference.smaller or ("" if math.isnan(difference.mean) else "undecided")
        rows.append((difference.first, estimate_text(difference), p_value(comparison.p), smaller))
    baseline = against.comparisons[0].difference.second
    return Table(
        f"Against the baseline {baseline} by {found.measure.words}",
        ("policy", f"policy − {baseline}", "adjusted p", "smaller"),
        tuple(rows),
        note=f"In {found.measure.unit}, paired by run. The baseline was named before the runs, so that fewer intervals need to "
        f"hold together than over all pairs: {against.describe()}.",
    )


def convergence_table(found: Account) -> Table:
    """How well each mean, and each distance to the first, is known, and how many runs it takes to know them better."""
    rows = []
    ends = []
    for group in (found.convergence, found.behind):
        for one in group.values():
            mean, half = float(one.mean[-1]), float(one.half_width[-1])
            rows.append(
                (
                    one.name,
                    str(int(one.runs[-1])),
                    f"{value_text(mean, mean - half, mean + half).partition(' [')[0]} ± {short(half)}",
                    _needed(one, abs(mean) / 10.0) if group is found.convergence else "",
                    _needed(one, abs(mean)) if group is found.behind else "",
                    "" if math.isnan(one.drift) else f"{one.drift:.2f}",
                    "" if math.isnan(one.skewness) else f"{one.skewness:.1f}",
                    "" if math.isnan(one.largest_share) else f"{100 * one.largest_share:.0f} %",
                )
            )
        ends.append(len(rows) - 1)
    columns = ["mean of", "runs", "± 95 %", "runs for\n± 10 %", "runs to tell\nfrom 0"]
    columns += ["sd later /\nearlier", "skewness", "largest\nrun's share"]
    return Table(
        f"Convergence of {found.measure.words}",
        tuple(columns),
        tuple(rows),
        note="Each interval by itself. Runs that are needed are about (t·sd/wanted half width)², from the mean and deviation "
        "found here. The last three columns speak against trusting a width where they are far from 1, 0 and a few percent: the "
        "deviation of the later half of the runs over that of the earlier, the skewness of runs, and the share of all "
        "squared deviations that a single run has.",
        sections=tuple(ends[:1]),
    )


def _needed(one: Convergence, half_width: float) -> str:
    """Runs for a half width, as text; empty where the mean is 0 or too small for it."""
    try:
        return str(one.needed(half_width))
    except ValueError:
        return ""


def causes_table(result: DispatchResult) -> Table:
    """Regret by cause, and what operators feel, of a dispatching result."""
    rows = []
    unstable = any("unstable" in verdict for verdict in result.verdict.values())
    quantiles = list(result.settings.get("quantiles", []))
    for name in [*result.policies, "oracle"]:
        causes = result.regret_by_cause(name, LEVEL)
        row = [name, estimate_text(result.total_regret(name, LEVEL))]
        for curve in causes.values():
            mean, low, high, sd = (float(column[-1]) for column in (curve.mean, curve.low, curve.high, curve.sd))
            row.append(estimate_text(Estimate(mean, low, high, sd, curve.runs)))
        row.append(estimate_text(result.mean_number_in_system(name, LEVEL)))
        row.append(estimate_text(result.mean_sojourn_time(name, LEVEL)))
        row += [estimate_text(result.quantile(name, q, LEVEL)) for q in quantiles]
        if unstable:
            row.append(f"{result.verdict[name].count('unstable')} of {result.runs}")
        rows.append(tuple(row))
    columns = ["policy", "regret", "exploration", "misestimation", "overflow", "number\nin system", "sojourn\ntime"]
    columns += [f"sojourn time,\n{100 * q:g} % quantile" for q in quantiles] + ["unstable\nruns"] * unstable
    return Table(
        "Regret by cause, and what users of the system feel",
        tuple(columns),
        tuple(rows),
        note="Regret counts decisions against the oracle at the policy's own state, split by why they were made. Numbers in "
        "the system are averages over time, sojourn times over jobs, after the warm-up. Intervals are at 95 %, each by itself"
        + ("." if result.runs > 1 else "; with a single run, those of averages are over batches of it."),
        sections=(len(rows) - 2,),
    )


def given_up_table(result: Result) -> Table | None:
    """Jobs that were given up, where the system gives jobs up."""
    if result.settings.get("system", {}).get("max_attempts") is None:
        return None
    try:
        rows = [(name, estimate_text(result.mean_given_up(name, level=LEVEL))) for name in [*result.policies, "oracle"]]
    except ValueError:  # only moments were kept
        return None
    return Table(
        "Jobs given up in a run",
        ("policy", "jobs"),
        tuple(rows),
        note="Jobs that left undone after their last attempt. 95 % intervals, each by itself.",
    )


def overview_table(found: Sequence[tuple[str, int]], accounts: Sequence[Account], words: str) -> Table:
    """One line per result: who is first, and whether it can be told from the next. found : where each is, and its runs."""
    rows = []
    for (where, runs), here in zip(found, accounts, strict=True):
        best = here.order[0]
        row = [where or "this folder", str(runs), best, estimate_text(here.means[best])]
        if len(here.order) > 1:
            second = here.comparison(here.order[1])
            close = sum(here.comparison(name).difference.smaller != best for name in here.order[1:])
            row += [here.order[1], estimate_text(second.difference), p_value(second.p), str(close)]
        else:
            row += [""] * 4
        rows.append(tuple(row))
    return Table(
        f"All results, by {words}",
        ("result", "runs", "first", words, "second", "second − first", "p", "not told\nfrom the first"),
        tuple(rows),
        note="Within each line, the intervals and p-values of all its pairs of policies hold together with 95 % confidence; "
        "over all lines together they do not. The last column counts policies that the runs cannot tell from the first.",
    )


def wins_table(accounts: Sequence[Account], words: str) -> Table:
    """How often each policy is first, for sure or by the mean, over several results."""
    names = list(dict.fromkeys(name for here in accounts for name in here.order))
    rows = []
    for name in names:
        there = [here for here in accounts if name in here.order and len(here.order) > 1]
        first = [here for here in there if here.order[0] == name]
        sure = sum(all(h.comparison(n).difference.smaller == name for n in h.order[1:]) for h in first)
        behind = sum(h.comparison(name).difference.smaller == h.order[0] for h in there if h.order[0] != name)
        rows.append((name, str(len(there)), str(len(first)), str(sure), str(behind)))
    rows.sort(key=lambda row: (-int(row[2]), -int(row[3]), int(row[4])))
    return Table(
        f"How often each policy is first, by {words}",
        ("policy", "results", "first by\nthe mean", "significantly\nfirst", "significantly\nbehind"),
        tuple(rows),
        note='"Significantly" is meant within a result, over all its pairs of policies (95 %).',
    )


def claims_table(claims: Sequence[Mapping[str, Any]]) -> Table:
    """The claims of ``claims.json`` with their verdicts, a row per way of measuring."""
    rows, previous = [], ""
    for claim in claims:
        text = f"{claim['claim']} ({claim['reference']})"
        rows.append(
            (
                "" if text == previous else text,
                str(claim["verdict"]),
                str(claim["way"]),
                str(claim["measured"]["text"]),
                str(claim["interval"]["text"]),
            )
        )
        previous = text
    return Table(
        "Claims and verdicts",
        ("claim", "verdict", "measured over", "measured", "interval"),
        tuple(rows),
        note="A claim holds if all its parts do (or as many as it needs) with their whole intervals, does not if a part is "
        "significantly opposite, and is undecided otherwise. A count has the interval [settings where it certainly holds, "
        "settings where it may]. Intervals of one claim hold together with 95 % confidence (t intervals over runs, "
        "Bonferroni).",
        wide=(0,),
    )


def parts_table(claim: Mapping[str, Any]) -> Table:
    """The parts of one claim of ``claims.json``. An end of an interval that is null is infinite."""

    def number(value: Any) -> float:
        return math.nan if value is None else float(value)

    rows = []
    for part in claim["parts"]:
        value, low, high = (part[key] for key in ("value", "low", "high"))
        whole = value_text(number(value), -math.inf if low is None else low, math.inf if high is None else high)
        rows.append(
            (str(part["setting"]), str(part["verdict"]), whole, f"{part['direction']} {number(part['bound']):g}")
        )
    return Table(f"{claim['claim']} ({claim['way']})", ("setting", "verdict", "measured", "claimed"), tuple(rows))


def markdown_tables(path: Path) -> list[Table]:
    """The tables in a Markdown file that this package wrote: a heading, the table, a note."""
    if not path.is_file():
        return []
    found: list[Table] = []
    for section in re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        lines = [line for line in body.splitlines() if line.strip()]
        rows = [_markdown_cells(line) for line in lines if line.startswith("|")]
        if len(rows) < 3 or any(len(row) != len(rows[0]) for row in rows):
            continue
        note = " ".join(line for line in lines if not line.startswith(("|", "#")))
        found.append(Table(title.strip(), tuple(rows[0]), tuple(tuple(row) for row in rows[2:]), note=note))
    return found


def _markdown_cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def settings_table(title: str, values: Mapping[str, Any], note: str = "") -> Table:
    rows = tuple((name, text) for name, text in _flat(values))
    return Table(title, ("setting", "value"), rows, note=note, wide=(1,))


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found = []
    for key, value in values.items():
        name = f"{prefix}{key.replace('_', ' ')}"
        if isinstance(value, Mapping):
            found += _flat(value, f"{name}, ")
        else:
            found.append((name, _value(value)))
    return found


def _value(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key.replace('_', ' ')} {_value(item)}" for key, item in value.items())
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    text = ", ".join(map(_value, value)) if isinstance(value, list) else str(value)
    if len(text) <= _LONGEST:
        return text
    if isinstance(value, list):
        return f"{len(value)} values, from {_value(value[0])[:40]} to {_value(value[-1])[:40]}"
    return f"{text[:_LONGEST]}…"


def policies_table(results: Sequence[Any]) -> Table:
    """Every policy of these results with all its options; a line for each set of options that it had."""
    rows: dict[tuple[str, ...], None] = {}
    for result in results:
        for policy in result.settings["policies"]:
            options = ", ".join(f"{key} = {_value(value)}" for key, value in policy.get("options", {}).items())
            rule = str(policy.get("rule", "")) + (" (code of one's own)" if "code" in policy else "")
            rows[str(policy["name"]), rule, options or "none"] = None
    return Table("Policies with all their options", ("policy", "rule", "options"), tuple(rows), wide=(2,))
