"""Regret curves with their bands. Plotting never simulates, and leaves matplotlib's global state alone."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from .store import make_folder, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import Result

#: Okabe and Ito's colours, which people with any colour vision tell apart (without their yellow, too pale for a line).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
#: Line styles. Their number and the colours' have no common divisor, so 35 policies get 35 different pairs.
STYLES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (7, 2, 1, 2, 1, 2)))
#: Most points that a line is drawn with; more are not seen, and make an SVG slow to open.
_POINTS = 1000
#: Longest label with options that a legend has room for; a longer one is cut to the policy's name.
_LABEL = 36
#: Longest name that a figure has room for.
_LONGEST = 44


def style(position: int) -> dict[str, Any]:
    """Colour and line style of the policy at this place in ``result.policies``: the same in every panel of a figure."""
    return {"color": COLOURS[position % len(COLOURS)], "linestyle": STYLES[position % len(STYLES)]}


def new_figure(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """An empty figure, in inches, without pyplot: no window system is looked for, and nothing global is touched."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout=layout)


def frameless(axes: Axes, *sides: str) -> None:
    """No frame at these sides; above and to the right where none is named."""
    for side in sides or ("top", "right"):
        axes.spines[side].set_visible(False)


def label_of(label: str, name: str) -> str:
    """A label for a legend; the name alone where the label is too long. A dollar sign is one, and begins no formula."""
    return shortened(label if len(label) <= _LABEL else name).replace("$", r"\$")


def shortened(name: str) -> str:
    """A name that a figure has room for: without its middle where it is long, since names often differ at their ends."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST // 2]}…{name[-(_LONGEST // 2 - 1) :]}"


def crowded(entries: int) -> dict[str, Any]:
    """Options of a legend inside a panel: smaller letters, in columns, where there would be no room for the curves else."""
    if entries <= 12:
        return {}
    return {"ncols": 2 if entries <= 24 else 3, "fontsize": 7 if entries <= 24 else 6}


def curves(
    result: Result,
    policies: Sequence[str] | None = None,
    *,
    window: int = 25,
    level: float = 0.95,
    band: Literal["interval", "sd"] | None = "interval",
    title: str | None = None,
) -> Figure:
    """Mean regret of several policies over rounds, each with its band.

    Parameters
    ----------
    result : what to draw.
    policies : names; None for all.
    window : rounds of the centred moving average; 1 for none.
    level : confidence level of the intervals.
    band : "interval" for the interval of the mean, "sd" for ± 2 standard deviations of a run (as in WISE's figures), or
        None. With one run there is none.
    title : None for one that says what is shown.

    Returns
    -------
    matplotlib.figure.Figure : save it with ``figure.savefig`` or :func:`save_figure`.

    Raises
    ------
    ValueError : an unknown policy, window, level or band.
    """
    figure = new_figure(8.0, 5.0)
    axes = figure.add_subplot()
    draw_curves(axes, result, policies, window=window, level=level, band=band)
    if title is None:
        bands = {"interval": f"{100 * level:g} % intervals of the mean", "sd": "± 2 standard deviations of a run"}
        shown = [f"{result.runs} run{'s' * (result.runs != 1)}"]
        shown += [bands[band]] if band is not None and result.runs > 1 else []
        shown += [f"moving average over {window} rounds"] if window > 1 else []
        title = ", ".join(shown)
    axes.set_title(title, fontsize=10, loc="left")
    axes.legend(frameon=False, **crowded(len(result.policies if policies is None else policies)))
    return figure


def draw_curves(
    axes: Axes,
    result: Result,
    policies: Sequence[str] | None = None,
    *,
    window: int = 25,
    level: float = 0.95,
    band: Literal["interval", "sd"] | None = "interval",
) -> None:
    """The same in one panel of a figure of one's own, without title and legend (the lines carry their labels)."""
    if band not in ("interval", "sd", None):
        raise ValueError(f"band must be 'interval', 'sd' or None, not {band!r}")
    places = {name: position for position, name in enumerate(result.policies)}
    step = max(1, result.rounds // _POINTS)
    for name in result.policies if policies is None else policies:
        curve = result.regret(name, level).smooth(window)
        look = style(places.get(name, len(places)))
        label = label_of(result.label(name), name)
        axes.plot(curve.rounds[::step], curve.mean[::step], label=label, linewidth=1.6, **look)
        if band is not None and result.runs > 1:
            low, high = (curve.low, curve.high) if band == "interval" else curve.band()
            axes.fill_between(
                curve.rounds[::step], low[::step], high[::step], color=look["color"], alpha=0.15, linewidth=0
            )
    axes.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    axes.set_xlim(1, max(2, result.rounds))
    axes.set_xlabel("round")
    axes.set_ylabel("queue length regret (jobs)")
    frameless(axes)


def save_figure(figure: Figure, folder: str | os.PathLike[str], stem: str) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg`` to a folder (made if missing), each whole or not at all; returns their paths.

    The same figure gives the same bytes: no date and no random identifiers are put in. Raises ValueError where the folder
    cannot be written to.
    """
    import matplotlib as mpl

    make_folder(Path(folder))
    paths = [Path(folder) / f"{stem}.png", Path(folder) / f"{stem}.svg"]

    def write(file: IO[bytes], kind: str) -> None:
        with mpl.rc_context({"svg.hashsalt": stem}), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a name's letters, drawn as boxes
            figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)

    write_atomically(paths[0], lambda file: write(file, "png"))
    write_atomically(paths[1], lambda file: write(file, "svg"))
    return paths
