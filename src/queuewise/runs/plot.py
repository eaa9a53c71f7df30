"""Regret curves with their intervals. Plotting never simulates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .store import write_atomically

if TYPE_CHECKING:
    from .result import Result

#: Colours that people with colour-blind eyes tell apart (Okabe and Ito), each with a line style of its own.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000", "#8C564B", "#B8A800")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), "-", "--", "-.")


def curves(result: Result, policies: Sequence[str], window: int, level: float) -> Any:
    """A figure of smoothed regret curves with their `level` bands."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for i, name in enumerate(policies):
        line = result.regret(name, level).smooth(window)
        colour, style = COLOURS[i % len(COLOURS)], STYLES[i % len(STYLES)]
        axes.plot(line.rounds, line.mean, color=colour, linestyle=style, label=name)
        if result.runs > 1:
            axes.fill_between(line.rounds, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
    axes.axhline(0.0, color="0.7", linewidth=0.8, zorder=0)
    axes.set_xlabel("round")
    axes.set_ylabel("queue length beyond the oracle's")
    axes.set_title(f"{result.runs} runs, {100 * level:g} % intervals of the mean")
    axes.legend(frameon=False)
    return figure


def save_figure(figure: Any, folder: Path, stem: str) -> list[Path]:
    """The figure as PNG and SVG in `folder`, each written atomically; their paths."""
    paths = [folder / f"{stem}.png", folder / f"{stem}.svg"]
    for path in paths:
        write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=150))
    return paths
