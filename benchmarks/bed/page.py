"""benchmarks/live.md: two parts, each written by the section that measured it, when it ran at full length."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).parents[1] / "live.md"
PARTS = ("virtual time", "sockets", "cost")
TITLE = """# Live routing, measured

Written by `python -m benchmarks`; every table says by which section. What is promised and what a word means is in
[docs/live.md](../docs/live.md) and [docs/benchmarks.md](../docs/benchmarks.md).
"""


def put(part: str, text: str, page: Path = PAGE) -> None:
    """Replaces a part of the page, and leaves the others."""
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}, not {part!r}")
    old = page.read_text() if page.exists() else ""
    found = dict(re.findall(r"<!-- (.+?) -->\n(.*?)(?=<!-- |\Z)", old, re.S))
    found[part] = text.strip() + "\n\n"
    whole = TITLE + "\n" + "".join(f"<!-- {name} -->\n{found[name]}" for name in PARTS if name in found)
    page.write_text(whole.rstrip() + "\n")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(one) + " |" for one in lines) + "\n"
