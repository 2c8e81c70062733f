"""Pages made from the template: every value is escaped, in one line, without characters that no page may hold."""

from __future__ import annotations

import base64
import html
import io
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from posbias.plotting import STYLE

TEMPLATE = Path(__file__).with_name("report.html")


class Figure(NamedTuple):
    """A drawing that says itself what it shows, and a caption that says what it finds."""

    svg: Markup
    caption: str


class Download(NamedTuple):
    """A table that the page holds as a file to save."""

    name: str
    what: str
    csv: str

    @property
    def href(self) -> str:
        """The file as a link."""
        return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(self.csv.encode()).decode()}"


def clean(value: object) -> object:
    """Return a value as one line of printable signs; what is HTML already stays as it is.

    >>> clean("<b>" + chr(10) + chr(0) + "&")
    '<b> �&'
    """
    if isinstance(value, Markup):
        return value
    return "".join(c if c.isprintable() else "�" for c in " ".join(str(value).split()))


def sentence(words: str, **values: object) -> Markup:
    """Return a sentence of HTML with values that are escaped.

    >>> str(sentence("<em>{name}</em>", name="a<b"))
    '<em>a&lt;b</em>'
    """
    return Markup(words).format(**{name: clean(value) for name, value in values.items()})


def shown(drawing: Any, description: str, caption: str) -> Figure:
    """Return a figure and close it; signs that the font lacks are the reader's font's to draw."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        return Figure(Markup(inline_svg(drawing, str(clean(description)))), caption)


def inline_svg(figure: Any, description: str) -> str:
    """Return a figure as an ``<svg>`` element that takes black and its ground from the page, and close it.

    The description is for those who cannot see it.

    >>> fig, ax = plt.subplots()
    >>> text = inline_svg(fig, "Nothing <yet>")
    >>> text.startswith("<svg"), "http" in text, 'aria-label="Nothing &lt;yet&gt;"' in text
    (True, False, True)
    """
    content = io.StringIO()
    with plt.style.context([str(STYLE), {"svg.fonttype": "none", "svg.hashsalt": description}]):
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(content, format="svg", transparent=True, metadata=metadata)
    plt.close(figure)
    text = content.getvalue()
    text = text[text.index("<svg") :]
    for pattern in (r"<metadata>.*?</metadata>", r"<style.*?</style>", r' xmlns(:\w+)?="[^"]*"'):
        text = re.sub(pattern, "", text, flags=re.DOTALL)
    text = text.replace("xlink:href", "href").replace("#000000", "currentColor")
    text = text.replace("stroke: #d9d9d9", "stroke: currentColor; stroke-opacity: 0.15")
    text = re.sub(r"<text\b", '<text fill="currentColor"', text)
    text = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"| height="[\d.]+pt"| width="[\d.]+pt"', "", text, count=2)
    label = html.escape(description, quote=True)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()


def rendered(template: Path = TEMPLATE, **context: Any) -> str:
    """Return the page of a template, the report's unless given."""
    options: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    loader = FileSystemLoader(template.parent)
    return (
        Environment(loader=loader, finalize=clean, undefined=StrictUndefined, **options)
        .get_template(template.name)
        .render(context)
    )
