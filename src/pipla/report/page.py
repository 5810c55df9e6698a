"""One self-contained HTML page of tables, figures and text; it opens without a network."""

from __future__ import annotations

import base64
import dataclasses
import functools
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

#: The pixels of a screen for an inch of a figure, at least: text of 8 points has 8 pixels then.
SHRUNK = 72
#: The widest figure that is not made smaller, in pixels: that of a page on a large screen.
LARGEST = 1024


class Cell(NamedTuple):
    """A table cell whose text differs from the number that it is sorted by.

    Attributes:
        text: what the cell shows.
        number: what the column is sorted by.
        tone: `"flag"` highlights the cell.
    """

    text: str
    number: float
    tone: str = ""


def fixed(number: float | None, digits: int) -> Cell | None:
    """A number with `digits` decimals; `None` stays an empty cell."""
    return None if number is None else Cell(f"{float(number):.{digits}f}", float(number))


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns and rows of text or numbers; clicking on a heading sorts the rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""

    def html(self) -> str:
        """The table as HTML."""
        head = "".join(f"<th scope='col' tabindex='0'>{_text(c)}</th>" for c in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td{_sort_key(v)}>{_text(v)}</td>" for v in row) + "</tr>"
            for row in self.rows
        )
        # Not a <caption>: it would scroll away with the table on a narrow screen.
        caption = f"<p class='caption'>{_text(self.caption)}</p>" if self.caption else ""
        return (
            f"{caption}<div class='wide'><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table></div>"
        )

    def text(self) -> str:
        """The table for a terminal: aligned columns, no colours."""
        cells = [list(map(str, self.columns)), *([_plain(v) for v in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
        return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def sortable(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> Table:
    """A table of text whose first column holds names; what is a number can be sorted by."""

    def cell(text: str) -> Cell | str:
        try:
            return Cell(text, float(text))
        except ValueError:  # names and intervals
            return text

    return Table(head, [[row[0], *map(cell, row[1:])] for row in rows], caption)


@dataclasses.dataclass(frozen=True)
class Figure:
    """A matplotlib figure with its caption."""

    figure: Any
    caption: str

    def png(self) -> bytes:
        """The figure as PNG."""
        return self._png

    @functools.cached_property
    def _png(self) -> bytes:  # drawn once, for the file and for the page
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=144, bbox_inches="tight", facecolor="white")
        return buffer.getvalue()

    def html(self) -> str:
        """The figure, embedded as base64."""
        data = base64.b64encode(self.png()).decode()
        alt = html.escape(self.caption, quote=True)
        # It scrolls rather than shrink until nobody can read its text.
        least = f"min-width:min({SHRUNK * self.figure.get_figwidth():.0f}px,{LARGEST}px)"
        return (
            f"<figure><div class='wide'><img alt='{alt}' src='data:image/png;base64,{data}' "
            f"style='{least}'></div>"
            f"<figcaption>{_text(self.caption)}</figcaption></figure>"
        )


@dataclasses.dataclass(frozen=True)
class Text:
    """A paragraph; `code=True` for commands."""

    text: str
    code: bool = False

    def html(self) -> str:
        """The paragraph as HTML."""
        return f"<pre>{_text(self.text)}</pre>" if self.code else f"<p>{_text(self.text)}</p>"


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading and what follows it."""

    title: str
    parts: Sequence[Table | Figure | Text]


def write_page(path: Path, title: str, lead: str, sections: Sequence[Section]) -> Path:
    """Write one HTML file that contains everything, figures included.

    Arguments:
        path: the file.
        title: the heading of the page.
        lead: a sentence or two below the heading.
        sections: what follows.
    """
    body = "".join(
        f"<section><h2>{_text(s.title)}</h2>{''.join(p.html() for p in s.parts)}</section>"
        for s in sections
    )
    path.write_text(
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{_text(title)}</h1><p class='lead'>{_text(lead)}</p>{body}"
        f"<script>{_SORT}</script></body></html>",
        encoding="utf-8",
    )
    return path


def _text(value: Any) -> str:
    return html.escape(_plain(value))


def _plain(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, Cell):
        return value.text
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _sort_key(value: Any) -> str:
    number = value.number if isinstance(value, Cell) else value
    tone = f" class='{value.tone}'" if isinstance(value, Cell) and value.tone else ""
    return tone + (f" data-n='{float(number)!r}'" if isinstance(number, int | float) else "")


_STYLE = """
:root{color-scheme:light}
body{font:16px/1.55 system-ui,sans-serif;color:#1c2430;
  max-width:66rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin-bottom:.3rem}h2{font-size:1.15rem;margin-top:2.2rem}
.lead{color:#4a5568;margin-top:0}.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.84rem;font-variant-numeric:tabular-nums}
.caption{font-size:.84rem;color:#4a5568;margin-bottom:.4rem}
th,td{padding:.3rem .5rem;border-bottom:1px solid #e2e8f0;text-align:left}
td{white-space:nowrap}td:first-child{white-space:normal;min-width:11rem}
th{cursor:pointer;border-bottom:2px solid #94a3b8;vertical-align:bottom}
td.flag{background:#fef3c7;color:#92400e}
th:hover,th:focus{background:#f1f5f9}
th[data-dir=up]::after{content:" ▲"}th[data-dir=down]::after{content:" ▼"}
figure{margin:1.2rem 0}img{max-width:100%}figcaption{font-size:.88rem;color:#4a5568}
pre{background:#f1f5f9;padding:.7rem;overflow-x:auto;font-size:.85rem}
@media(max-width:600px){td:first-child{min-width:5rem}th,td{padding:.3rem .35rem}}
"""

_SORT = """
document.querySelectorAll('th').forEach(th=>{const go=()=>{
const t=th.closest('table'),i=[...th.parentNode.children].indexOf(th),up=th.dataset.dir!=='up';
t.querySelectorAll('th').forEach(h=>delete h.dataset.dir);th.dataset.dir=up?'up':'down';
const key=r=>{const c=r.children[i];return c.dataset.n!==undefined?+c.dataset.n:c.textContent};
const rows=[...t.tBodies[0].rows].sort((a,b)=>{const x=key(a),y=key(b);
const n=v=>typeof v==='number';
const d=n(x)&&n(y)?x-y:n(x)?-1:n(y)?1:x.localeCompare(y);
return up?d:-d});t.tBodies[0].append(...rows)};
th.onclick=go;th.onkeydown=e=>{if(e.key==='Enter'||e.key===' '){e.preventDefault();go()}}});
"""
