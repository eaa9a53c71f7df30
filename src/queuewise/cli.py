"""The command line.

Exit codes: 0 done; 1 a claim or check failed where that was asked for; 2 bad input, with one sentence on stderr; 130
interrupted. Modules that take time to load (numba, matplotlib, pyarrow) are imported inside the commands that need them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer
from typer.core import TyperGroup

from ._version import VERSION

#: What the parser raises for an unknown command or option, or a value of the wrong type: the most general class of it.
_ParserError: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__base__ is Exception)

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


class Commands(TyperGroup):
    """The commands, with every error a user can make as one sentence on stderr and never a traceback."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        extra["standalone_mode"] = False
        try:
            code = super().main(args, **extra)
        except _ParserError as error:
            _say(_sentence(error))
            sys.exit(BAD_INPUT)
        except typer.Abort:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:  # the reader of our output has gone, which is its right
            sys.stdout = _Nowhere()  # type: ignore[abstract]
            sys.exit(DONE)
        sys.exit(code if isinstance(code, int) else DONE)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ValueError as error:
            _say(str(error))
            raise typer.Exit(BAD_INPUT) from error
        except MemoryError as error:
            _say("runs: the results do not fit into memory; ask for fewer runs or rounds")
            raise typer.Exit(BAD_INPUT) from error
        except KeyboardInterrupt as interrupt:
            reached = f" ({interrupt})" if str(interrupt) else ""
            _say(f"interrupted{reached}; finished runs are kept, and the same command continues from them")
            raise typer.Exit(INTERRUPTED) from interrupt


class _Nowhere(TextIO):
    """A standard output that swallows what is still to be flushed at exit."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def _sentence(error: Exception) -> str:
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    return " ".join(str(message).split())


def _say(message: str) -> None:
    print(f"queuewise: {' '.join(message.splitlines())}", file=sys.stderr)


def _print_json(value: Any) -> None:
    from .experiments.report import to_json

    print(to_json(value))


app = typer.Typer(
    cls=Commands,
    name="queuewise",
    help="Learn service rates while you route and schedule.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]
Workers = Annotated[
    int | None, typer.Option(help="Threads. Default: one per core. Changes no result.", show_default=False)
]
OutByFile = Annotated[
    Path | None, typer.Option("--out", help="Folder for files. Default: out/FILE's name.", show_default=False)
]
SystemFile = Annotated[
    Path | None,
    typer.Argument(metavar="[EXPERIMENT.TOML]", help="A file with a system, as for compare.", show_default=False),
]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"queuewise {VERSION}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="A reproduction; see --list.", show_default=False)] = None,
    listed: Annotated[bool, typer.Option("--list", help="Print every reproduction and exit.")] = False,
    runs: Annotated[
        int | None,
        typer.Option(help="Runs the paper's way; 0 leaves them out. Default: see --list.", show_default=False),
    ] = None,
    instances: Annotated[
        int | None,
        typer.Option(help="Runs over fresh instances; 0 leaves them out. Default: see --list.", show_default=False),
    ] = None,
    arrivals: Annotated[
        int | None, typer.Option(help="Arrivals of a run, for dispatching. Default: see --list.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for files. Default: out/NAME.", show_default=False)] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A choice the paper leaves open; repeatable.", show_default=False
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small size for a first look: about a minute.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of all randomness.")] = 1,
    workers: Workers = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a claim does not hold.")] = False,
    as_json: Json = False,
) -> None:
    """Draw a figure of a paper again, and judge what the paper claims about it."""
    from .experiments import registry

    if listed:
        if as_json:
            _print_json(registry.listing_json())
        else:
            _print_tables([registry.listing()])
        return
    if name is None:
        raise ValueError(f"name: name a reproduction, one of {', '.join(registry.REPRODUCTIONS)} (or --list)")
    outcome = registry.reproduce(
        name,
        runs=runs,
        instances=instances,
        arrivals=arrivals,
        out=out,
        seed=seed,
        workers=workers,
        quick=quick,
        progress=True,
        parameters=registry.parse_settings(settings or ()),
    )
    if as_json:
        _print_json({**outcome.results, "files": [str(path) for path in outcome.files]})
    else:
        _print_tables(outcome.tables)
        _print_lines([*(f"- {sentence}" for sentence in outcome.sentences), "", *_files(outcome.files)])
    if check and outcome.contradicted:
        raise typer.Exit(FAILED)


@app.command()
def compare(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="EXPERIMENT.TOML", help="Systems and policies; see docs.", show_default=False),
    ] = None,
    out: OutByFile = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of such files, for editors, and exit.")
    ] = False,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Compare policies of your choice on systems of your own."""
    if schema:
        from .experiments.schema import schema as described

        _print_json(described())
        return
    if file is None:
        raise ValueError("file: name a TOML file that describes systems and policies (or --schema)")
    from .experiments.compare import compare as run

    _print_found(run(file, out or Path("out") / file.stem, workers=workers, progress=True), as_json)


@app.command()
def sweep(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[EXPERIMENT.TOML]", help="As for compare.", show_default=False),
    ] = None,
    out: OutByFile = None,
    part: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Play the I-th of N equal parts of the runs only.", show_default=False),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of all randomness, in the place of the file's.", show_default=False)
    ] = None,
    merge: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER", help="Merge what was played into these folders; repeatable.", show_default=False
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Print the systems of the file and exit.")] = False,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Play a comparison in parts, on several machines, and merge them."""
    from .experiments import sweep as sweeps

    if merge:
        if file is not None or part is not None or seed is not None:
            raise ValueError("merge: takes folders alone; leave the file, --part and --seed out")
        if out is None:
            raise ValueError("out: name a folder for what is merged")
        _print_found(sweeps.merge(merge, out), as_json)
        return
    if file is None:
        raise ValueError("file: name a TOML file that describes systems and policies, or folders to --merge")
    if listed:
        from .experiments.description import read

        _print_tables([sweeps.listing(read(file))])
        return
    found = sweeps.sweep(
        file,
        out or Path("out") / file.stem,
        part=sweeps.WHOLE if part is None else sweeps.parse_part(part),
        seed=seed,
        workers=workers,
        progress=True,
    )
    _print_found(found, as_json)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder of results: rows, a comparison, a sweep, a reproduction.")],
    out: Annotated[
        Path | None, typer.Option(help="The page. Default: report.html in the folder.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Write one self-contained HTML page about results: rankings, intervals, figures, settings."""
    from .experiments.html_report import report as write

    found = write(folder, out)
    if as_json:
        _print_json({**found.results, "files": [str(found.path)]})
        return
    _print_tables(found.tables)
    _print_lines([*found.sentences, "", *_files([found.path])])


@app.command()
def bounds(
    file: SystemFile = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A key of \\[system] in the place of a file: law=uniform_law, service_rates=[5,10]; repeatable.",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="An argument of the theory: rounds=100000; queue=30, rate_bounds=[1,20]; repeatable.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """What the papers prove, as numbers for a system of yours, and which assumptions it meets."""
    from .experiments import evaluate, registry

    _print_evaluation(evaluate.bounds(_systems(file, settings), registry.parse_settings(at or (), "at")), as_json)


@app.command()
def exact(
    file: SystemFile = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A key of \\[system] in the place of a file: service_rates=[5,10], load=0.9; repeatable.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A dispatching rule, as for replay; repeatable. Default: several.", show_default=False),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="The oracle's queue at the beginning of this round. Default: long run.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Exact numbers of a system of yours, without simulation."""
    from .experiments import evaluate
    from .replay import parse_policy

    rules = None if policy is None else [parse_policy(text) for text in policy]
    _print_evaluation(evaluate.exact(_systems(file, settings), rules, rounds), as_json)


def _systems(file: Path | None, settings: Sequence[str] | None) -> Any:
    """The systems of a file, or the one that keys on the command line describe."""
    from .experiments import registry
    from .experiments.description import parse_systems, read_systems

    if (file is None) == (not settings):
        raise ValueError("file: name a TOML file with a system, or describe one with --set, and not both")
    if file is not None:
        return read_systems(file)
    return parse_systems({"system": registry.parse_settings(settings or ())})


def _print_evaluation(found: Any, as_json: bool) -> None:
    if as_json:
        _print_json(found.results)
        return
    _print_tables(found.tables)
    _print_lines(found.sentences)


def _print_found(found: Any, as_json: bool) -> None:
    """What a comparison or a sweep found."""
    if as_json:
        _print_json({**found.results, "files": [str(path) for path in found.files]})
        return
    _print_tables(found.tables)
    _print_lines([*found.sentences, "", *_files(found.files)])


@app.command()
def replay(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG", help="CSV with a header, gzipped or not; or a folder that queuewise serve recorded."
        ),
    ],
    group: Annotated[
        str | None, typer.Option(help="Whose requests of a recording. Default: the only one.", show_default=False)
    ] = None,
    time: Annotated[str | None, typer.Option(help="Column of arrival times.", show_default=False)] = None,
    size: Annotated[
        str | None,
        typer.Option(
            help="Column of the work of a job, or a sum: 0.1*prompt+output. Default: each 1. Of a recording: time or work.",
            show_default=False,
        ),
    ] = None,
    duration: Annotated[
        str | None, typer.Option(help="Column of seconds of service, as recorded.", show_default=False)
    ] = None,
    server: Annotated[str | None, typer.Option(help="Column of who served the job.", show_default=False)] = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Only such lines; repeatable.", show_default=False)
    ] = None,
    time_unit: Annotated[str, typer.Option(help="Of times that are numbers: s, ms, us, ns.")] = "s",
    layout: Annotated[str, typer.Option(help="auto, csv, azure_llm, technion_bank.")] = "auto",
    sort: Annotated[bool, typer.Option("--sort", help="Put the jobs in order of time.")] = False,
    drop_bad: Annotated[bool, typer.Option("--drop-bad", help="Drop and count lines that cannot be replayed.")] = False,
    jobs: Annotated[int | None, typer.Option(help="Read the first so many jobs only.", show_default=False)] = None,
    encoding: Annotated[str, typer.Option(help="Of the text of both files, such as cp1252.")] = "utf-8",
    rates: Annotated[
        str | None,
        typer.Option(
            metavar="R1,R2,…",
            help="Size per second of each server; fractions allowed. Default: estimated from the log's servers.",
            show_default=False,
        ),
    ] = None,
    rates_file: Annotated[
        Path | None, typer.Option(help="CSV of rates that change: time, one column per server.", show_default=False)
    ] = None,
    rates_servers: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Servers of the rates file. Default: all.", show_default=False)
    ] = None,
    fit_rates: Annotated[
        bool, typer.Option("--fit-rates", help="Squeeze or stretch the rates file to the length of the replay.")
    ] = False,
    slots: Annotated[
        str | None, typer.Option(metavar="C1,C2,…", help="Jobs served at a time. Default: 1.", show_default=False)
    ] = None,
    busiest: Annotated[
        int | None, typer.Option(help="Only the so many servers of the log that served most.", show_default=False)
    ] = None,
    load: Annotated[
        float | None, typer.Option(help="Stretch time to this load. Default: time as recorded.", show_default=False)
    ] = None,
    allow_unstable: Annotated[
        bool, typer.Option("--allow-unstable", help="Replay on servers that cannot do the work.")
    ] = False,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A rule, or lased(ratio_bounds=(0.05, 20)); repeatable. Default: all.", show_default=False),
    ] = None,
    initial_rates: Annotated[
        str | None,
        typer.Option(
            metavar="R1,R2,…", help="What learning rules believe at first. Default: all alike.", show_default=False
        ),
    ] = None,
    runs: Annotated[int, typer.Option(help="Repetitions, for rules that draw at random.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the rules' own randomness.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Folder for files. Default: none.", show_default=False)] = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Replay recorded traffic on every dispatching policy: what would have happened."""
    from . import replay as recorded

    def listed(text: str | None) -> list[str] | None:
        return None if text is None else [item.strip() for item in text.split(",")]

    # The slots of a recording's own servers are needed when it is read, to derive service times.
    counts = recorded.parse_slots(listed(slots))
    own = counts if rates is None and rates_file is None else None
    traffic = recorded.read_traffic(
        log,
        group=group,
        slots=own,
        time=time,
        size=size,
        duration=duration,
        server=server,
        where=recorded.parse_where(where or ()),
        time_unit=time_unit,
        layout=layout,
        sort=sort,
        drop_bad=drop_bad,
        jobs=jobs,
        encoding=encoding,
    )
    found = recorded.replay(
        traffic,
        listed(rates),
        drift=None
        if rates_file is None
        else recorded.read_rates(rates_file, servers=listed(rates_servers), encoding=encoding),
        fit_rates=fit_rates,
        slots=counts if own is None or traffic.recorded is None else None,
        busiest=busiest,
        load=load,
        policies=[recorded.parse_policy(text) for text in policy or recorded.DEFAULT_POLICIES],
        initial_rates=listed(initial_rates),
        runs=runs,
        seed=seed,
        allow_unstable=allow_unstable,
        out=out,
        workers=workers,
        progress=True,
    )
    if as_json:
        _print_json({**found.results, "files": [str(path) for path in found.files]})
        return
    _print_lines([*(f"- {line}" for line in found.notes), ""])
    _print_tables([found.table])
    _print_lines([found.sentence, *(["", *_files(found.files)] if found.files else [])])


@app.command()
def serve(
    file: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG.YAML]", help="Settings; see docs.", show_default=False)
    ] = None,
    backends: Annotated[
        list[str] | None,
        typer.Option(
            "--backend",
            metavar="[NAME=]URL",
            help="In the place of a file: a backend; repeatable.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="With --backend: the policy. Default: optimistic_sed.", show_default=False)
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="With --backend. Default: 127.0.0.1:8080.", show_default=False),
    ] = None,
    admin: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="With --backend. Default: 127.0.0.1:8081.", show_default=False),
    ] = None,
) -> None:
    """Route HTTP requests to backends by a policy that learns their speed."""
    with _service_installed("serve"):
        from .live.service import config as settings
        from .live.service import server
    if (file is None) == (not backends):
        raise ValueError("serve: name a file of settings, or backends by --backend URL (not both)")
    if file is not None and (policy, listen, admin) != (None, None, None):
        raise ValueError("serve: --policy, --listen and --admin go with --backend; with a file they stand in it")
    if file is not None:
        config = settings.read(file)
    else:
        config = settings.of_options(backends or [], policy=policy, listen=listen, admin=admin)
    from .live.errors import StoreError

    try:
        server.serve(config, file)
    except StoreError as error:
        raise ValueError(str(error)) from error


@app.command("check-config")
def check_config(
    file: Annotated[Path | None, typer.Argument(metavar="CONFIG.YAML", show_default=False)] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of such files, for editors, and exit.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the settings of `serve`, with a sentence per mistake."""
    with _service_installed("check-config"):
        from .live.service import config as settings
        from .live.service.summary import notes, summary
    if schema:
        _print_json(settings.schema())
        return
    if file is None:
        raise ValueError("file: name a file of settings (or --schema)")
    try:
        config = settings.read(file)
    except settings.ConfigError as error:
        if as_json:
            _print_json({"file": str(file), "good": False, "mistakes": error.mistakes, "notes": []})
        for mistake in error.mistakes:
            _say(f"{file}: {mistake}")
        raise typer.Exit(BAD_INPUT) from None
    if as_json:
        _print_json({"file": str(file), "good": True, "mistakes": [], "notes": notes(config)})
    else:
        _print_lines([f"{file} is good:", *summary(config)])
        for note in notes(config):
            _say(f"{file}: warning: {note}")


@app.command()
def policies(as_json: Json = False) -> None:
    """List every policy with a line about it."""
    from . import policies as registered

    lines = registered()
    if as_json:
        _print_json(lines)
        return
    from .experiments.report import Table

    _print_tables([Table("Policies", ("policy", "what it does"), tuple(lines.items()), wide=(1,))])


@app.command()
def doctor(as_json: Json = False) -> None:
    """Versions, cores, compile cache, and a self-check against an exact result (about ten seconds)."""
    from .experiments import doctor as checks

    report = checks.examine()
    if as_json:
        _print_json(report.as_json())
    else:
        _print_tables(report.tables())
        _print_lines([report.sentence])
    if not report.healthy:
        raise typer.Exit(FAILED)


@contextlib.contextmanager
def _service_installed(command: str) -> Iterator[None]:
    """What the service needs beside the library, or a sentence that says how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("queuewise"):
            raise
        raise ValueError(
            f"{command}: needs {error.name}, which is not installed; the extra serve has all it needs: pip install "
            "'queuewise[serve]', or in a clone pip install -e '.[serve]'"
        ) from error


def _files(paths: Sequence[Path]) -> list[str]:
    return ["Files:", *(f"  {path}" for path in paths)]


def _print_tables(tables: Sequence[Any]) -> None:
    from rich.console import Console

    from .experiments.report import print_table

    console = Console(highlight=False)
    for table in tables:
        print_table(console, table)


def _print_lines(lines: Sequence[str]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for line in lines:
        # A path is not folded: it is there to be copied.
        console.print(line, markup=False, soft_wrap=line.startswith("  "))


def main() -> None:
    """The console command."""
    app()


if __name__ == "__main__":
    main()
