"""Real outcomes without a file: classifiers of handwritten digits as servers, and what ``make demo`` shows."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from ..scheduling import acqb, cqb_opt, digits_system, q_ucb, random, simulate, wise
from .compare import ranking
from .registry import Outcome, Request
from .report import Progress, output_folder, to_json, write_text

ROUNDS = 2000
#: Loads under which the recorded success fractions are replayed as they are, and with a fitted logistic truth.
REPEATED, FITTED = 0.5, 0.8


def run(request: Request) -> Outcome:
    """The digits system twice: success fractions repeated as recorded, and a logistic law fitted to them."""
    out = output_folder(request.out)
    systems = {
        f"as recorded, load {REPEATED:g}": digits_system(load=REPEATED, truth="repeat"),
        f"fitted, load {FITTED:g}": digits_system(load=FITTED, truth="fit"),
    }
    policies = [wise(), cqb_opt(), acqb(), q_ucb(), random()]
    tables, sentences, files = [], [], []
    results: dict[str, Any] = {}
    with Progress(len(systems) * request.runs, shown=request.progress) as progress:
        for name, system in systems.items():
            advanced = progress.begin(f"digits, {name}")
            stem = name.split(",")[0].replace(" ", "-")
            result = simulate(
                system,
                policies,
                rounds=ROUNDS,
                runs=request.runs,
                seed=request.seed,
                workers=request.workers,
                folder=out / "rows" / stem,
                progress=advanced,
            )
            table, found = ranking(result)
            tables.append(replace(table, title=f"Digits {name}: {table.title.lower()}"))
            results[name] = found
            first, second = (entry["policy"] for entry in found["policies"][:2])
            apart = result.compare(second, first)
            certain = "certainly" if apart.low > 0 else "perhaps"
            sentences.append(
                f"Digits {name}: {first} {certain} wins, by {apart.mean:.3g} [{apart.low:.3g}, {apart.high:.3g}] jobs "
                f"before {second} (paired, {result.runs} runs)."
            )
            figure = result.plot()
            for suffix in ("png", "svg"):
                path = out / f"{stem}.{suffix}"
                figure.savefig(path, dpi=150)
                files.append(path)
    files.append(write_text(out / "results.json", to_json(results) + "\n"))
    return Outcome((), tuple(tables), tuple(sentences), tuple(files), results)


def main() -> int:
    """What ``make demo`` runs: WISE's Figure 1 in its quick size, then the digits."""
    from ..cli import main as command

    for arguments in (["reproduce", "wise-figure-1", "--quick"], ["reproduce", "digits", "--quick"]):
        code = command(arguments)
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
