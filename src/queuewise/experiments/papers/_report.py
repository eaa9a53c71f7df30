"""How every reproduction reports what it found, whatever the model: claims as JSON and as Markdown, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..._version import VERSION
from ..claims import Verdict, claims_table
from ..registry import Outcome, Request
from ..report import Table, to_json, write_text


def finish(
    request: Request,
    name: str,
    reference: str,
    verdicts: Sequence[Verdict],
    tables: Sequence[Table],
    said: Sequence[str],
    results: Mapping[str, Any],
    files: Sequence[Path],
    *,
    heading: str = "",
    title: str = "",
    below: Sequence[Table] = (),
) -> Outcome:
    """Write ``claims.json`` and ``claims.md`` and put everything together.

    Parameters
    ----------
    name, reference : of the reproduction, and of what it reproduces.
    tables : what is shown beside the claims' table, which comes last on a terminal and first in ``claims.md``.
    said : sentences that sum up.
    results : numbers of this reproduction's own, put into ``claims.json`` after what all have.
    files : written already.
    heading : of ``claims.md``; else the reference.
    title : of the claims' table; else "Claims of" the reference.
    below : tables that stand in ``claims.md`` alone.
    """
    title = title or f"Claims of {reference}"
    tables = (
        *tables,
        claims_table(verdicts, title + (" (quick: small, for a first look)" * request.quick)),
    )
    found = {
        "reproduction": name,
        "reference": reference,
        "version": VERSION,
        "quick": request.quick,
        "seed": request.seed,
        "runs": request.runs,
        "claims": [verdict.as_json() for verdict in verdicts],
        "conclusions": list(said),
        **results,
    }
    lines = [f"# {heading or reference}", "", *(f"- {sentence}" for sentence in said), ""]
    lines += [table.markdown() for table in (tables[-1], *tables[:-1], *below)]
    written = [
        write_text(request.out / "claims.json", to_json(found) + "\n"),
        write_text(request.out / "claims.md", "\n".join(lines)),
    ]
    rows = [request.out / "rows"] if request.runs or request.instances else []
    return Outcome(tuple(verdicts), tables, tuple(said), (*files, *written, *rows), found)
