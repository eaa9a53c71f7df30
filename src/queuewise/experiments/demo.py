"""The demo: a figure of LASED and one of WISE in small, then scheduling policies on real outcomes.

``python -m queuewise.experiments.demo`` (or ``make demo``) runs all three and ends with their figures, the tables of the
papers' claims, and which policy wins on classifiers of handwritten digits, by how much.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ..scheduling.simulate import simulate
from .compare import conclude
from .registry import Outcome, Request, reproduce
from .report import Progress, output_folder, print_table

ROUNDS = 2000
#: The two truths that the recorded successes are turned into, and the load of each. Repeated as recorded, a tenth of the
#: images defeat every logistic learner, which tries them for ever: only a light load is stable. Fitted, the papers' model
#: holds exactly.
TRUTHS = {"repeat": 0.5, "fit": 0.8}
#: One policy of each kind; their options are what the system suggests.
POLICIES = ("wise", "cqb_opt", "acqb", "q_ucb", "random")


def run(request: Request) -> Outcome:
    """Policies on classifiers of handwritten digits: figures, rows and rankings to ``request.out``.

    Twice: with the recorded success fractions repeated at every attempt, and with a logistic law fitted to them.

    Raises ValueError where scikit-learn is missing, or where the folder cannot be written to or holds rows of another
    experiment.
    """
    from ..scheduling.digits import digits_system

    output_folder(request.out)
    tables, sentences, files = [], [], []
    results: dict[str, Any] = {"reproduction": "digits", "quick": request.quick}
    with Progress(len(TRUTHS) * request.runs, shown=request.progress) as progress:
        for truth, load in TRUTHS.items():
            out = output_folder(request.out / truth)
            try:
                system = digits_system(load=load, seed=0, truth=truth)
            except ImportError as error:
                raise ValueError(f"digits: {error}") from error
            result = simulate(
                system,
                policies=list(POLICIES),
                rounds=ROUNDS,
                runs=request.runs,
                seed=request.seed,
                workers=request.workers,
                folder=out / "rows",
                progress=progress.begin(f"handwritten digits, {truth}"),
            )
            server, alone = system.best_single_server()
            title = f"Handwritten digits, truth {truth!r}, load {load:g}: {request.runs} runs of {ROUNDS} rounds"
            facts = {
                "truth": truth,
                "load": load,
                "arrival_rate": system.arrival_rate,
                "best_single_server": {"name": system.server_names[server], "success": alone},
                "matched_success": system.matched_success(),
                "fitted_success": system.fitted_success(),
            }
            found = conclude(result, out, title, facts)
            tables.append(found.table)
            sentences.append(
                f"Digits, truth {truth!r}: {found.sentence} (The best single classifier, {system.server_names[server]}, "
                f"reads {alone:.0%} of the images; the best classifier of each image, {system.matched_success():.0%}.)"
            )
            files += [*found.files, out / "rows"]
            results[truth] = found.results
    return Outcome((), tuple(tables), tuple(sentences), tuple(files), results)


def main() -> int:
    """Run all parts. Returns the exit code."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=False)
    out = Path("out") / "demo"
    try:
        console.print(
            "[bold]1. Dispatching: a server that a greedy router never tries[/bold] (LASED, section 7.3, in small)\n"
        )
        routed = reproduce("lased-exploration", out=out / "lased-exploration", quick=True, progress=True)
        console.print(
            "[bold]2. Scheduling: WISE's Figure 1, in small[/bold] (the full size: queuewise reproduce wise-figure-1)\n"
        )
        figure = reproduce("wise-figure-1", out=out / "wise-figure-1", quick=True, progress=True)
        console.print("[bold]3. The same policies on real outcomes: classifiers of handwritten digits[/bold]\n")
        digits = reproduce("digits", out=out / "digits", quick=True, progress=True)
    except ValueError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted. Finished runs are kept; the same command continues from them.", file=sys.stderr)
        return 130
    for outcome in (routed, figure, digits):
        # The claims table is a reproduction's last one; what it rests on is in its files.
        for table in outcome.tables[-1:] if outcome.verdicts else outcome.tables:
            print_table(console, table)
        for sentence in outcome.sentences:
            console.print(f"• {sentence}", markup=False)
        console.print()
    for outcome, what in ((routed, "LASED's claims"), (figure, "WISE's claims"), (digits, "Real outcomes")):
        tables = ", ".join(str(path) for path in outcome.files if path.suffix == ".md")
        pictures = ", ".join(str(path) for path in outcome.files if path.suffix == ".png")
        console.print(f"{what}: {tables}\n  figures: {pictures}", markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
