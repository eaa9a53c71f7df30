"""Where SED sends an arrival, and where a wrong ratio sends it elsewhere (LASED, Sections 2.2 and 3.4). Nothing is simulated.

Two servers: the decision regions of SED(2); the states in which SED(r̂) disagrees with it, for a small and a large error, with
their exact stationary probability; u_r(m), the error that m jobs per queue forgive (Lemma 1). Three servers: the rule
depends on the direction of (q₁+1, q₂+1, q₃+1) alone, so the triangle of directions shows all of it: three regions around the
point proportional to μ, and a union of three wedges where wrong rates disagree.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...dispatch.policies.esed import esed
from ...dispatch.systems import System
from ...dispatch.theory import ratio_gap
from ...runs.plot import new_figure, save_figure
from ..claims import EXACTLY, Claim, Part, Verdict, known
from ..registry import Outcome, Request
from ..report import Table, output_folder
from . import _figures, _lased

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

NAME, REFERENCE = "lased-boundaries", "LASED, Sections 2.2 and 3.4"
RATIO = Fraction(2)
#: Ratios that are too high, by less and less.
BELIEVED = tuple(map(Fraction, ("3", "2.6", "2.4", "2.2", "2.1", "2.02")))
#: Those that are drawn.
DRAWN = (Fraction("2.2"), Fraction("2.6"))
LOADS = (0.3, 0.6, 0.9)
#: Of the probabilities of two servers.
ACCURACY = 1e-10
#: Largest queue drawn, and largest looked at for Lemma 1.
SHOWN, LOOKED_AT = 15, 40
#: Three servers: the rates and what is believed.
THREE, THREE_BELIEVED = (4, 3, 2), (4, 4, 2)
#: Load at which the three servers' probabilities are solved.
THREE_LOAD = 0.7

CLOSER = "The closer r̂ is to r*, the fewer states it decides against SED"
INFINITE = "Any r̂ ≠ r* is wrong in a region without end: ever more states as more are looked at"
LEMMA = "Lemma 1: closer than u_r(m), no decision with at most m jobs per queue is wrong"
SHARP = "u_r(m) is sharp: just beyond it some decision with at most m jobs per queue is wrong"
UNION = "Three servers: the states of disagreement lie in the union of the pairs' wedges"


def delays(rates: Sequence[Fraction | int], queue: Ints) -> NDArray[np.object_]:
    """(q_i + 1)/μ_i up to a common factor, exactly: int[..., n]."""
    weights = [Fraction(rate) for rate in rates]
    common = 1
    for weight in weights:
        common *= weight.numerator
    factors = [int(common * w.denominator // w.numerator) for w in weights]
    return np.asarray((queue + 1) * np.array(factors, dtype=np.int64))


def choice(rates: Sequence[Fraction | int], queue: Ints) -> Ints:
    """The server that SED with these rates chooses: the lowest of those with the least delay."""
    return np.asarray(delays(rates, queue).argmin(axis=-1))


def optimal(rates: Sequence[Fraction | int], queue: Ints) -> Bools:
    """Which servers are optimal: bool[..., n]."""
    found = delays(rates, queue)
    return np.asarray(found == found.min(axis=-1, keepdims=True))


def disagrees(truth: Sequence[Fraction | int], believed: Sequence[Fraction | int], queue: Ints) -> Bools:
    """Whether the choice by the believed rates is not optimal by the true ones."""
    chosen = choice(believed, queue)[..., None]
    return ~np.take_along_axis(optimal(truth, queue), chosen, axis=-1)[..., 0]


def grid(most: int, servers: int = 2) -> Ints:
    """All states with at most so many jobs per queue: int64[most + 1, ..., servers]."""
    return np.stack(np.meshgrid(*[np.arange(most + 1)] * servers, indexing="ij"), axis=-1)


def wrong_states(believed: Fraction, most: int, truth: Fraction = RATIO) -> int:
    """How many states with at most so many jobs per queue SED(r̂) decides against SED(r)."""
    return int(disagrees((1, truth), (1, believed), grid(most)).sum())


def nearest(ratio: Fraction, m: int) -> Fraction:
    """The fraction n₁/n₂ ≠ r nearest to r with 1 ≤ n₁, n₂ ≤ m + 1."""
    fractions = {Fraction(a, b) for a in range(1, m + 2) for b in range(1, m + 2)} - {ratio}
    return min(fractions, key=lambda f: abs(f - ratio))


def claims() -> list[Verdict]:
    """What the sections say of the boundaries, counted exactly."""
    way = EXACTLY
    counts = [(r, wrong_states(r, LOOKED_AT)) for r in BELIEVED]
    closer = [
        Part(f"r̂ = {float(near):g} minus {float(far):g}, up to {LOOKED_AT} jobs", [known(few - many)])
        for (far, many), (near, few) in itertools.pairwise(counts)
    ]
    endless = [
        Part(
            f"r̂ = {float(r):g}, up to {4 * m} minus {m} jobs",
            [known(wrong_states(r, 4 * m) - wrong_states(r, m))],
            0.0,
            "above",
        )
        for r in BELIEVED
        for m in (2 * _first_wrong(r),)
    ]
    lemma, sharp = [], []
    for ratio in (Fraction(1), Fraction(3, 2), RATIO, Fraction(7, 3)):
        wrong, right = 0, 0
        for m in range(1, LOOKED_AT // 2 + 1):
            gap = Fraction(ratio_gap(ratio, m)).limit_denominator(10**6)
            for sign in (-1, 1):
                inside = ratio + sign * gap * Fraction(999, 1000)
                wrong += int(disagrees((1, ratio), (1, inside), grid(m)).sum())
            edge = nearest(ratio, m)
            assert abs(edge - ratio) == gap
            beyond = edge + (edge - ratio) / 10**6
            right += int(disagrees((1, ratio), (1, beyond), grid(m)).any())
        name = f"r = {ratio}"
        lemma.append(Part(f"{name}, wrong decisions", [known(wrong)], 0.5))
        share = known(right / (LOOKED_AT // 2))
        sharp.append(Part(f"{name}, share of m = 1, …, {LOOKED_AT // 2}", [share], 0.999, "above"))
    queue = grid(24, 3)
    outside = int((disagrees(THREE, THREE_BELIEVED, queue) & ~wedges(queue)).sum())
    return [
        Claim(CLOSER, "LASED, Section 2.2", way, closer).judge(),
        Claim(INFINITE, "LASED, Sections 1 and 2.2", way, endless).judge(),
        Claim(LEMMA, "LASED, Lemma 1", way, lemma).judge(),
        Claim(SHARP, "LASED, (3)", way, sharp).judge(),
        Claim(UNION, "LASED, Section 3.4", way, [Part("states outside", [known(outside)], 0.5)]).judge(),
    ]


def _first_wrong(believed: Fraction) -> int:
    """The least m such that some state with at most m jobs per queue is decided wrongly."""
    m = 1
    while not wrong_states(believed, m):
        m += 1
    return m


def wedges(queue: Ints) -> Bools:
    """Whether some pair of the three servers, taken alone, is compared wrongly (or a tie is broken)."""
    found = np.zeros(queue.shape[:-1], dtype=np.bool_)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        true = delays((THREE[i], THREE[j]), queue[..., [i, j]])
        held = delays((THREE_BELIEVED[i], THREE_BELIEVED[j]), queue[..., [i, j]])
        found |= np.sign(true[..., 0] - true[..., 1]) * np.sign(held[..., 0] - held[..., 1]) < 0
        found |= (held[..., 0] == held[..., 1]) & (true[..., 0] != true[..., 1])
    return found


def shares() -> dict[Fraction, dict[float, float]]:
    """Believed ratio → load → exact probability of a wrong decision."""
    from ...dispatch import exact

    return {
        believed: {
            load: float(
                exact.disagreement(
                    _lased.system_of(("1", str(RATIO)), load), esed(rates=["1", str(believed)]), "sed", ACCURACY
                )
            )
            for load in LOADS
        }
        for believed in BELIEVED
    }


def three_share() -> float:
    """The exact probability of a wrong decision of the three servers' example."""
    from ...dispatch import exact

    system = System(arrival_rate=THREE_LOAD * sum(THREE), service_rates=list(THREE))
    return float(exact.disagreement(system, esed(rates=list(THREE_BELIEVED)), "sed", tolerance=1e-6))


def shares_table(found: dict[Fraction, dict[float, float]]) -> Table:
    """Per believed ratio: its first wrong state, and how probable wrong decisions are."""
    rows = []
    for believed, at in found.items():
        queue = grid(2 * _first_wrong(believed))
        wrong = np.argwhere(disagrees((1, RATIO), (1, believed), queue))
        first = wrong[wrong.sum(axis=1).argmin()]
        rows.append(
            (
                f"{float(believed):g}",
                f"{100 * (float(believed / RATIO) - 1):+.0f}%",
                f"({first[0]}, {first[1]})",
                *(f"{at[load]:.2e}" for load in LOADS),
            )
        )
    return Table(
        "Wrong decisions of SED(r̂) where r* = 2: exact stationary probability",
        ("r̂", "error", "first wrong state", *(f"load {load:g}" for load in LOADS)),
        tuple(rows),
        note="Per arrival; the slope of ESED's regret, to 1e-10. The state is the one with the fewest jobs.",
    )


# --- figures ---------------------------------------------------------------------------------------------------------

_FIRST, _SECOND, _TIE, _WRONG = "#bcdcf0", "#f7dcc0", "#d9d0e8", _figures.VERMILION
#: Colours of three servers' regions, and of the planes between them.
_REGIONS, _PLANES = ("#7fb8dd", "#f2c79f", "#8ccfb5"), ("#4d6f96", "#8a6d4f", "#7a7a7a")


def draw_two(found: dict[Fraction, dict[float, float]], out: Path) -> list[Path]:
    """Three panels: SED(2), and two believed ratios with the states of disagreement."""
    from matplotlib.colors import ListedColormap
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure = new_figure(10.6, 6.2)
    axes = figure.subplots(1, 3, sharey=True)
    wide = 9
    queue = grid(SHOWN)[: wide + 1]
    best = optimal((1, RATIO), queue)
    line = np.array([-0.5, wide + 0.5])
    for axis, believed in zip(axes, (None, *DRAWN), strict=True):
        kind = np.where(best.all(axis=-1), 2, np.where(best[..., 0], 0, 1))
        if believed is not None:
            kind = np.where(disagrees((1, RATIO), (1, believed), queue), 3, kind)
        axis.pcolormesh(
            np.arange(wide + 2) - 0.5,
            np.arange(SHOWN + 2) - 0.5,
            kind.T,
            cmap=ListedColormap([_FIRST, _SECOND, _TIE, _WRONG]),
            vmin=-0.5,
            vmax=3.5,
            edgecolors="white",
            linewidth=1.5,
        )
        axis.plot(line, float(RATIO) * (line + 1) - 1, color="black", linewidth=1.7)
        axis.set_title("SED(2)", fontsize=10, loc="left")
        if believed is not None:
            axis.plot(line, float(believed) * (line + 1) - 1, color="black", linewidth=1.7, linestyle="--")
            chances = [
                f"load {load:g}: {100 * value:.2g}% wrong" if value >= 1e-5 else f"load {load:g}: below 0.001% wrong"
                for load, value in found[believed].items()
            ]
            axis.set_title("\n".join([f"SED({float(believed):g}) against SED(2)", *chances]), fontsize=10, loc="left")
        axis.set_xlim(-0.5, wide + 0.5)
        axis.set_ylim(-0.5, SHOWN + 0.5)
        axis.set_aspect("equal")
        axis.set_xlabel("jobs at server 1 (q₁)")
        axis.set_xticks(range(0, wide + 1, 3))
        axis.set_yticks(range(0, SHOWN + 1, 3))
        axis.tick_params(length=0)
        for side in axis.spines.values():
            side.set_visible(False)
    axes[0].set_ylabel("jobs at server 2 (q₂)")
    handles: list[Any] = [
        Patch(facecolor=_FIRST, label="to server 1"),
        Patch(facecolor=_SECOND, label="to server 2"),
        Patch(facecolor=_TIE, label="either (tie)"),
        Patch(facecolor=_WRONG, label="SED(r̂) is wrong"),
        Line2D([], [], color="black", linewidth=1.7, label="2(q₁+1) = q₂+1"),
        Line2D([], [], color="black", linewidth=1.7, linestyle="--", label="r̂(q₁+1) = q₂+1"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False, fontsize=9.5)
    figure.suptitle("Where an arrival is sent: two servers, r* = 2", fontsize=12.5)
    return save_figure(figure, out, "figure")


def _corner(point: NDArray[Any]) -> NDArray[np.float64]:
    """Barycentric coordinates in a triangle with side 1: server 1 left below, 2 right below, 3 above."""
    share = np.asarray(point, dtype=np.float64)
    share = share / share.sum(axis=-1, keepdims=True)
    return np.stack([share[..., 1] + share[..., 2] / 2.0, share[..., 2] * np.sqrt(3.0) / 2.0], axis=-1)


def _clip(polygon: list[Floats], edge: tuple[Floats, Floats]) -> list[Floats]:
    """What of a convex polygon lies to the left of a directed edge (Sutherland and Hodgman)."""
    start, end = edge
    along = end - start

    def side(point: Floats) -> float:
        return float(along[0] * (point[1] - start[1]) - along[1] * (point[0] - start[0]))

    kept: list[Floats] = []
    for before, point in zip([polygon[-1], *polygon[:-1]], polygon, strict=True) if polygon else ():
        a, b = side(before), side(point)
        if (a >= 0.0) != (b >= 0.0):
            kept.append(before + (point - before) * (a / (a - b)))
        if b >= 0.0:
            kept.append(point)
    return kept


def _region(rates: Sequence[int], server: int) -> list[Floats]:
    """Directions in which SED with these rates chooses a server: the triangle of μ and the other two corners."""
    corners = np.eye(3)
    points = [_corner(np.array(rates)), _corner(corners[(server + 1) % 3]), _corner(corners[(server + 2) % 3])]
    return points  # counterclockwise, as the corners are


def _overlap(first: list[Floats], second: list[Floats]) -> list[Floats]:
    """The intersection of two convex polygons, both counterclockwise."""
    for edge in zip(second, [*second[1:], second[0]], strict=True):
        first = _clip(first, edge)
    return first


def _draw_space(space: Any) -> None:
    """The three half planes between the regions."""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection  # type: ignore[import-untyped]

    size = 10.0
    centre = np.array(THREE) / max(THREE) * size
    for k in range(3):
        # Where the other two tie: from the common ray up to q_k + 1 = size.
        top, above = np.zeros(3), centre.copy()
        top[k] = above[k] = size
        face = [np.zeros(3), centre, above, top]
        space.add_collection3d(Poly3DCollection([face], facecolor=_PLANES[k], alpha=0.42, edgecolor="0.25"))
    space.plot(*np.stack([np.zeros(3), centre], axis=1), color="black", linewidth=2.6)
    for server, place in enumerate(((1.0, 9.0, 8.0), (7.5, 1.0, 7.5), (7.5, 5.5, 0.6))):
        look = {"facecolor": _REGIONS[server], "edgecolor": "none", "boxstyle": "round,pad=0.35"}
        space.text(*place, f"to server {server + 1}", ha="center", fontsize=9.5, bbox=look, zorder=10)
    space.set_xlim(0, size)
    space.set_ylim(0, size)
    space.set_zlim(0, size)
    space.set_xlabel("q₁ + 1")
    space.set_ylabel("q₂ + 1")
    space.set_zlabel("q₃ + 1")
    space.view_init(elev=24, azim=-62)
    space.set_box_aspect((1, 1, 1), zoom=0.86)
    space.set_title(f"three planes meet in the line through μ = {THREE}", fontsize=10)


def draw_three(share: float, out: Path) -> list[Path]:
    """The regions in space, and the triangle of directions with the wedges."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Polygon

    figure = new_figure(12.0, 5.9)
    _draw_space(figure.add_subplot(1, 2, 1, projection="3d"))
    flat = figure.add_subplot(1, 2, 2)
    for server in range(3):
        flat.add_patch(Polygon(_region(THREE, server), facecolor=_REGIONS[server], edgecolor="none"))
    for server in range(3):
        for other in range(3):
            wedge = _overlap(_region(THREE, server), _region(THREE_BELIEVED, other))
            if server != other and len(wedge) > 2:
                flat.add_patch(Polygon(wedge, facecolor=_WRONG, edgecolor="none"))
    for rates, dashes in ((THREE, "-"), (THREE_BELIEVED, "--")):
        for corner in np.eye(3):
            ends = np.stack([_corner(np.array(rates)), _corner(corner)], axis=1)
            flat.plot(*ends, color="black", linestyle=dashes, linewidth=1.5)
    places = ((-0.02, -0.03, "left", "top"), (0.02, -0.03, "right", "top"), (0.0, 0.02, "center", "bottom"))
    for k, (dx, dy, across, up) in enumerate(places):
        at = _corner(np.eye(3)[k])
        flat.text(at[0] + dx, at[1] + dy, f"queue {k + 1} is long", ha=across, va=up, fontsize=9.5)
    flat.set_xlim(-0.06, 1.06)
    flat.set_ylim(-0.09, 0.94)
    flat.set_aspect("equal")
    flat.set_axis_off()
    flat.set_title(
        f"directions of (q₁+1, q₂+1, q₃+1): μ = {THREE}, believed {THREE_BELIEVED};\n"
        f"wrong with probability {share:.3f} at load {THREE_LOAD:g}",
        fontsize=10,
    )
    handles: list[Any] = [Patch(facecolor=_REGIONS[k], label=f"to server {k + 1}") for k in range(3)]
    handles += [
        Patch(facecolor=_WRONG, label="the believed rates are wrong"),
        Line2D([], [], color="black", linewidth=1.5, label="boundaries"),
        Line2D([], [], color="black", linewidth=1.5, linestyle="--", label="believed boundaries"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False, fontsize=9.5)
    figure.suptitle("Where an arrival is sent: three servers", fontsize=12.5)
    return save_figure(figure, out, "figure-three-servers")


def run(request: Request) -> Outcome:
    """Solve, draw, count, and write everything to ``request.out``."""
    out = output_folder(request.out)
    found, share = shares(), three_share()
    files = [*draw_two(found, out), *draw_three(share, out)]
    said = [
        f"Three servers, μ = {THREE}, believed {THREE_BELIEVED}, load {THREE_LOAD:g}: a decision is wrong with probability "
        f"{share:.4f} (exact)."
    ]
    results = {
        "settings": [
            {"believed_ratio": float(believed), "load": load, "wrong": value}
            for believed, at in found.items()
            for load, value in at.items()
        ],
        "three_servers": {"service_rates": THREE, "believed": THREE_BELIEVED, "load": THREE_LOAD, "wrong": share},
    }
    return _lased.finish(request, NAME, REFERENCE, claims(), [shares_table(found)], said, results, files)
