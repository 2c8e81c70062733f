"""The page that holds a report: its style, its skeleton, and pieces of HTML in which every text is escaped."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --quiet: #5d5d5d; --line: #d0d0d0; --shade: #f4f4f4;
  --link: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #16181c; --quiet: #a8a8a8; --line: #3d4147; --shade: #1f2228; --link: #7fb8f0; }
}
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 46rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
a { color: var(--link); }
figure { margin: 1.2rem 0; } figcaption, .quiet { color: var(--quiet); font-size: 0.92rem; }
svg { width: 100%; height: auto; color: var(--ink); }
.answer { border-left: 4px solid var(--link); padding: 0.1rem 0 0.1rem 1rem; margin: 1.2rem 0; }
.wide { overflow-x: auto; margin: 0.8rem 0; }
table { border-collapse: collapse; width: 100%; font-size: 0.92rem; font-variant-numeric: tabular-nums;
  overflow-wrap: normal; }
th, td { padding: 0.3rem 0.6rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; } thead th { border-bottom-width: 2px; }
td { white-space: nowrap; } td:first-child, td.words { white-space: normal; min-width: 8rem; }
td.words, th.words { text-align: left; }
tr.best { background: var(--shade); font-weight: 600; }
dl { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: 0.1rem 1rem; font-size: 0.88rem; }
dt { color: var(--quiet); } dd { margin: 0; } li { margin: 0.25rem 0; }
pre { overflow-x: auto; background: var(--shade); padding: 0.7rem 0.9rem; font-size: 0.85rem; white-space: pre-wrap; }
summary { cursor: pointer; margin: 0.6rem 0; } :focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
@media print {
  :root { color-scheme: light; --ink: #000; --paper: #fff; --quiet: #444; --line: #bbb; --shade: #f0f0f0;
    --link: #000; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  figure, table, pre, dl { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .wide { overflow: visible; } details:not([open]), .screen { display: none; }
}
"""


def page(title: str, parts: Iterable[str]) -> str:
    """Return a whole page.

    Parameters
    ----------
    title
        Its title, plain text.
    parts
        Pieces of HTML, in order.
    """
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f'<link rel="icon" href="data:,"><title>{text(title)}</title><style>{STYLE}</style>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n{body}\n</main></body></html>\n'


def text(value: object) -> str:
    """Return what may stand as text or in an attribute: escaped, in one line, without characters that no page may hold.

    >>> text("<b>" + chr(10) + chr(0) + "&")
    '&lt;b&gt; �&amp;'
    """
    return escape("".join(c if c.isprintable() else "�" for c in " ".join(str(value).split())), quote=True)


def paragraph(content: str, kind: str = "") -> str:
    """Return a paragraph of HTML, with a class if one is named."""
    mark = f' class="{kind}"' if kind else ""
    return f"<p{mark}>{content}</p>"


def section(title: str, *parts: str) -> str:
    """Return a heading and what stands under it."""
    return f"<h2>{text(title)}</h2>\n" + "\n".join(parts)


def figure(svg: str, caption: str) -> str:
    """Return a figure; the drawing says itself what it shows, the caption what it finds."""
    return f"<figure>{svg}<figcaption>{text(caption)}</figcaption></figure>"


def items(lines: Iterable[str]) -> str:
    """Return plain texts as a list."""
    return f"<ul>{''.join(f'<li>{text(line)}</li>' for line in lines)}</ul>"


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Return names with their values."""
    return f"<dl>{''.join(f'<dt>{text(name)}</dt><dd>{text(value)}</dd>' for name, value in pairs)}</dl>"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, best: str = "", words: Sequence[int] = ()) -> str:
    """Return a table that scrolls by itself where the screen is narrow.

    Parameters
    ----------
    titles
        Of the columns.
    rows
        Cells as plain text.
    best
        First cell of a row to mark.
    words
        Columns that hold words, set to the left.
    """
    sides = [' class="words"' if k in words else "" for k in range(len(titles))]
    head = "".join(f'<th scope="col"{side}>{text(title)}</th>' for side, title in zip(sides, titles, strict=True))
    lines = []
    for row in rows:
        mark = ' class="best"' if best and row[0] == best else ""
        cells = "".join(f"<td{side}>{text(cell)}</td>" for side, cell in zip(sides, row, strict=True))
        lines.append(f"<tr{mark}>{cells}</tr>")
    grid = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="wide" role="region" aria-label="{text(titles[0])}" tabindex="0">{grid}</div>'


def folded(title: str, *parts: str) -> str:
    """Return parts that open on demand."""
    return f"<details><summary>{text(title)}</summary>\n" + "\n".join(parts) + "\n</details>"


def download(name: str, content: str, title: str) -> str:
    """Return a link that saves a text that the page holds."""
    data = base64.b64encode(content.encode()).decode()
    return f'<a download="{text(name)}" href="data:text/csv;charset=utf-8;base64,{data}">{text(title)}</a>'


def commands(lines: Iterable[str]) -> str:
    """Return shell commands, a line each."""
    return f"<pre><code>{chr(10).join(text(line) for line in lines)}</code></pre>"
