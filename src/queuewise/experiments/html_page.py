"""A page of HTML that needs nothing else: texts escaped, styles and figures inside, no script.

It is written as a list of pieces, each made by one of the functions here, which escape whatever they are given. Figures
are pictures in data URIs, not inline SVG: identifiers of two figures cannot collide, and nothing in a file that was found
beside results can act in the page.
"""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from .claims import FAILS, HOLDS, UNDECIDED
from .report import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INTERVAL = re.compile(r"^(\S.*?) (\[[^\[\]]*\])$", re.DOTALL)
#: A cell that stands to the right, among numbers: one with its interval or unit, or "2 of 3".
_NUMBER = re.compile(r"[-−+<±∞%×·.,\[\] \de]*|\d+ of \d+")
_CLASSES = {HOLDS: "holds", FAILS: "fails", UNDECIDED: "undecided"}

STYLE = """
:root{color-scheme:light dark;--ink:#1c2126;--soft:#5a6570;--line:#d5dbe1;--faint:#eef1f4;--paper:#fff;
--accent:#0b5ca8;--good:#1a7440;--bad:#b3261e;--open:#8a5a00}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#a3adb7;--line:#3a424b;--faint:#20262c;--paper:#14181c;
--accent:#7db8f0;--good:#6fd096;--bad:#ff9a90;--open:#e6b95c}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif}
main{max-width:74rem;margin:0 auto;padding:2.2rem clamp(1rem,4vw,3rem) 4rem}
h1{font-size:clamp(1.5rem,1.1rem + 1.6vw,2.15rem);line-height:1.2;margin:0 0 .4rem;letter-spacing:-.012em}
h2{font-size:1.35rem;line-height:1.3;margin:2.9rem 0 .8rem;padding-top:1.1rem;border-top:1px solid var(--line)}
h3{font-size:1.06rem;margin:1.9rem 0 .5rem}
h1,h2,h3,p,li,summary,figcaption,dd{overflow-wrap:anywhere}td,th,caption{overflow-wrap:break-word}
p,ul.said,dl,figcaption,.note{max-width:52rem}
.under{color:var(--soft);margin:0 0 1.6rem}
ul.said{margin:1rem 0;padding:.9rem 1.1rem .9rem 2.2rem;background:var(--faint);border-left:4px solid var(--accent);
border-radius:0 6px 6px 0}
ul.said li{margin:.3rem 0}
nav{font-size:.93rem;margin:1.2rem 0 0;display:flex;flex-wrap:wrap;gap:.25rem 1.1rem}
a{color:var(--accent);text-underline-offset:.18em}
.scroll{overflow-x:auto;margin:.7rem 0 .3rem;-webkit-overflow-scrolling:touch}
.scroll:focus-visible{outline:2px solid var(--accent)}
table{border-collapse:collapse;font-size:.92rem;font-variant-numeric:tabular-nums lining-nums;min-width:min(100%,28rem)}
caption{caption-side:top;text-align:left;font-weight:600;padding:.2rem 0 .45rem}
caption span{display:inline-block;max-width:calc(100vw - 2.2rem)}
th,td{padding:.38rem .9rem .38rem 0;text-align:left;vertical-align:baseline}
th:last-child,td:last-child{padding-right:.2rem}
thead th,thead th.n{border-bottom:1.5px solid var(--ink);font-weight:600;vertical-align:bottom;
overflow-wrap:normal;white-space:pre}
tbody tr{border-bottom:1px solid var(--line)}
tbody tr.rule{border-bottom:1.5px solid var(--soft)}
tbody th{font-weight:600;min-width:6.5rem;max-width:19rem}
.n{text-align:right;white-space:nowrap}
td .ci{color:var(--soft);font-size:.9em}
td.wide,tbody th.wide{min-width:min(20rem,60vw)}
tbody th.wide{font-weight:400;max-width:30rem}
.holds{color:var(--good);font-weight:600}.fails{color:var(--bad);font-weight:600}
.undecided{color:var(--open);font-weight:600}td.holds,td.fails,td.undecided{white-space:nowrap}
.beside{display:flex;flex-wrap:wrap;gap:0 4rem;align-items:flex-start}.beside>*{min-width:0;max-width:100%}
.note{color:var(--soft);font-size:.89rem;margin:.35rem 0 1.2rem}
figure{margin:1.2rem 0 1.6rem}
figure img{display:block;width:100%;height:auto;min-width:33rem;background:#fff;border-radius:4px}
figcaption{color:var(--soft);font-size:.89rem;margin-top:.45rem}
.warn{border-left:4px solid var(--open);padding:.1rem 0 .1rem .9rem;margin:.8rem 0;max-width:52rem}
details{margin:1rem 0}
summary{cursor:pointer;font-weight:600}
pre{background:var(--faint);padding:.9rem 1rem;border-radius:6px;overflow:auto;font-size:.83rem;line-height:1.45;
max-height:32rem}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
dt{font-weight:600;margin-top:.8rem}dd{margin:.1rem 0 0}
footer{color:var(--soft);font-size:.87rem;margin-top:3rem;border-top:1px solid var(--line);padding-top:.9rem}
@media print{:root{--ink:#000;--soft:#444;--line:#bbb;--faint:#f4f4f4;--paper:#fff;--accent:#003e7a;
--good:#0d5a2d;--bad:#8f1a13;--open:#6b4500}
body{font-size:10pt}main{max-width:none;padding:0}nav{display:none}
h2,h3,caption{break-after:avoid}figure,tr,.warn,ul.said{break-inside:avoid}
table{font-size:8pt}th,td{padding:.25rem .5rem .25rem 0}.scroll{overflow:visible}td.wide{min-width:0}
figure img{min-width:0;max-width:100%!important}pre{max-height:none;white-space:pre-wrap}a{color:inherit;text-decoration:none}}
"""


def page(title: str, body: Iterable[str]) -> str:
    """A whole document around these pieces."""
    # The policy forbids what the page does without: whatever a name or a file slipped in, nothing is loaded or run.
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            "<main>",
            *body,
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def heading(level: int, text: str, anchor: str = "") -> str:
    """A heading, with an anchor that the contents can lead to."""
    mark = f' id="{escape(anchor)}"' if anchor else ""
    return f"<h{level}{mark}>{escape(text)}</h{level}>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def listed(texts: Sequence[str]) -> str:
    """Conclusions, as a list that stands out."""
    return "\n".join(['<ul class="said">', *(f"<li>{escape(text)}</li>" for text in texts), "</ul>"])


def contents(entries: Sequence[tuple[str, str]]) -> str:
    """Links to anchors in the page: (anchor, words)."""
    links = [f'<a href="#{escape(anchor)}">{escape(words)}</a>' for anchor, words in entries]
    return "\n".join(['<nav aria-label="Contents">', *links, "</nav>"])


def definitions(entries: Sequence[tuple[str, str]]) -> str:
    """Terms and what they mean."""
    return "\n".join(["<dl>", *(f"<dt>{escape(t)}</dt><dd>{escape(m)}</dd>" for t, m in entries), "</dl>"])


def folded(summary: str, pieces: Iterable[str]) -> str:
    """Pieces that are shown on demand."""
    return "\n".join(["<details>", f"<summary>{escape(summary)}</summary>", *pieces, "</details>"])


def preformatted(text: str) -> str:
    """Text as it is, in fixed width."""
    return f'<pre tabindex="0">{escape(text)}</pre>'


def table(found: Table) -> str:
    """A table, its first column as row headings, numbers to the right, with its note below."""
    numbers = [
        index > 0
        and index not in found.wide
        and any(row[index] for row in found.rows)
        and all(_NUMBER.fullmatch(row[index]) or row[index] == "undefined" for row in found.rows)
        for index in range(len(found.columns))
    ]
    head = "".join(
        f'<th scope="col"{_kind("n" if number else "")}>{escape(column)}</th>'
        for column, number in zip(found.columns, numbers, strict=True)
    )
    rows = []
    for position, row in enumerate(found.rows):
        cells = [f'<th scope="row"{_kind("wide" if 0 in found.wide else "")}>{escape(row[0])}</th>']
        for index in range(1, len(row)):
            kind = "n" if numbers[index] else "wide" if index in found.wide else _CLASSES.get(row[index], "")
            cells.append(f"<td{_kind(kind)}>{_cell(row[index])}</td>")
        rows.append(f"<tr{_kind('rule' if position in found.sections else '')}>{''.join(cells)}</tr>")
    label = escape(found.title)
    pieces = [
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">',
        "<table>",
        f"<caption><span>{label}</span></caption>",
        f"<thead><tr>{head}</tr></thead>",
        "<tbody>",
        *rows,
        "</tbody>",
        "</table>",
        "</div>",
    ]
    if found.note:
        pieces.append(paragraph(found.note, "note"))
    return "\n".join(pieces)


def _kind(name: str) -> str:
    return f' class="{name}"' if name else ""


def _cell(text: str) -> str:
    match = _INTERVAL.match(text)
    if match is None:
        return escape(text).replace("\n", "<br>")
    return f'{escape(match[1])} <span class="ci">{escape(match[2])}</span>'


def beside(pieces: Iterable[str]) -> str:
    """Pieces beside each other where there is room."""
    return "\n".join(['<div class="beside">', *(f"<div>{piece}</div>" for piece in pieces), "</div>"])


def figure(picture: bytes, kind: str, caption: str, alternative: str, width: float = 10.0) -> str:
    """A picture, ``svg+xml`` or ``png``, inside the page.

    alternative : what it shows, for those who cannot see it · width : largest width in inches, at which its letters have the
    size of the page's.
    """
    data = base64.b64encode(picture).decode("ascii")
    return "\n".join(
        [
            "<figure>",
            f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">',
            f'<img style="max-width:{6 * width:g}rem" alt="{escape(alternative)}" src="data:image/{kind};base64,{data}">',
            "</div>",
            f"<figcaption>{escape(caption)}</figcaption>",
            "</figure>",
        ]
    )


def drawn(found: Figure, caption: str, alternative: str, salt: str) -> str:
    """A matplotlib figure in the page. The same figure and `salt` give the same bytes."""
    import matplotlib as mpl
    from matplotlib.legend import Legend

    # A policy may have a $ in its name. Ticks are left alone: powers of ten are formulas.
    texts = [label for axes in found.axes for label in (axes.xaxis.label, axes.yaxis.label)]
    for legend in found.findobj(Legend):
        assert isinstance(legend, Legend)
        texts += legend.get_texts()
    for text in texts:
        text.set_text(text.get_text().replace(r"\$", "$"))
        text.set_parse_math(False)
    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"Date": None, "Creator": None}
    with mpl.rc_context({"svg.hashsalt": salt}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        found.savefig(buffer, format="svg", metadata=metadata)
    return figure(buffer.getvalue(), "svg+xml", caption, alternative, float(found.get_figwidth()))
