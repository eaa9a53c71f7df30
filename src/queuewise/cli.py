"""The command line. A user's mistake is one sentence and exit code 2, never a traceback."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Learn service rates while you route and schedule.",
)

Out = Annotated[Path | None, typer.Option(help="Folder for figures, rows and tables; a rerun continues there.")]
Workers = Annotated[int | None, typer.Option(help="Threads; all cores unless given. Changes no number.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, nothing else.")]


def _show(tables: Sequence[Any], sentences: Sequence[str], files: Sequence[Path]) -> None:
    from rich.console import Console

    console = Console()
    for table in tables:
        console.print(table.rich())
    for sentence in sentences:
        console.print(sentence, highlight=False)
    for path in files:
        console.print(f"written: {path}", highlight=False, soft_wrap=True)


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="Which figure; see --list.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List what can be reproduced.")] = False,
    runs: Annotated[int | None, typer.Option(help="Runs the paper's way; 0 leaves them out.")] = None,
    instances: Annotated[int | None, typer.Option(help="Fresh instances, one run each; 0 leaves them out.")] = None,
    out: Out = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small size, for a first look.")] = False,
    seed: Annotated[int, typer.Option(help="Of all randomness.")] = 1,
    workers: Workers = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a claim does not hold.")] = False,
    as_json: Json = False,
) -> None:
    """Draw a paper's figure again, with rows on disk and a table of its claims and verdicts."""
    from .experiments import registry

    if list_:
        if as_json:
            print(json.dumps(registry.listing_json(), indent=2))
        else:
            _show([registry.listing()], [], [])
        return
    if name is None:
        raise ValueError("name: say which figure; 'queuewise reproduce --list' shows them")
    outcome = registry.reproduce(
        name, runs=runs, instances=instances, out=out, seed=seed, workers=workers, quick=quick, progress=not as_json
    )
    if as_json:
        from .experiments.report import to_json

        print(to_json({**outcome.results, "files": [str(path) for path in outcome.files]}))
    else:
        _show(outcome.tables, outcome.sentences, outcome.files)
    if check and outcome.contradicted:
        raise typer.Exit(1)


@app.command()
def compare(
    experiment: Annotated[Path, typer.Argument(help="A TOML file; docs/tutorial.md shows one.")],
    out: Out = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Simulate systems and policies of your own, and say which policy wins by how much."""
    from .experiments import compare as module
    from .experiments.report import to_json

    folder = Path("out") / experiment.stem if out is None else out
    found = module.compare(experiment, folder, workers=workers, progress=not as_json)
    if as_json:
        print(to_json(found.results))
    else:
        _show([found.table], [found.sentence], found.files)


@app.command()
def policies(as_json: Json = False) -> None:
    """List the registered policies."""
    from . import policies as registered

    if as_json:
        print(json.dumps(registered(), indent=2, ensure_ascii=False))
        return
    for name, says in registered().items():
        print(f"{name:<14}{says}")


@app.command()
def doctor(as_json: Json = False) -> None:
    """Versions, threads, compile cache, and a short simulation against the exact law of a Geo/Geo/1 queue."""
    from .experiments.health import examine

    found = examine()
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        for key, value in found.items():
            print(f"{key:<28}{value}")
    if not found["self_check_passed"]:
        raise typer.Exit(1)


def _version(wanted: bool) -> None:
    if wanted:
        from ._version import VERSION

        print(f"queuewise {VERSION}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Shared by all commands."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 done, 1 a check failed, 2 bad input, 130 interrupted."""
    run: Callable[..., Any] = typer.main.get_command(app)
    try:
        code = run(
            args=list(sys.argv[1:] if arguments is None else arguments), prog_name="queuewise", standalone_mode=False
        )
    except (ValueError, ImportError) as error:
        print(f"queuewise: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        kept = str(error) or "interrupted"
        print(f"queuewise: {kept}; finished runs are kept, and the same command continues", file=sys.stderr)
        return 130
    except Exception as error:
        if hasattr(error, "format_message"):  # the command line's own usage errors
            print(f"queuewise: {error.format_message()}", file=sys.stderr)
            return 2
        if type(error).__name__ == "Abort":
            return 130
        raise
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
