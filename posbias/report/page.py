"""Pages made from the template: every value is escaped, in one line, without characters that no page may hold."""

from __future__ import annotations

import base64
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from posbias.plotting import inline_svg


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


def rendered(**context: Any) -> str:
    """Return the page of ``report.html``."""
    options: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    loader = FileSystemLoader(Path(__file__).parent)
    return (
        Environment(loader=loader, finalize=clean, undefined=StrictUndefined, **options)
        .get_template("report.html")
        .render(context)
    )
