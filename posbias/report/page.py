"""Pages made from the template: every value is escaped, in one line, without characters that no page may hold."""

import html
import io
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from posbias.comparison.resampling import interval
from posbias.plotting import STYLE

NONE = "–"
TEMPLATE = Path(__file__).with_name("report.html")


class Figure(NamedTuple):
    """A drawing that says itself what it shows, and a caption that says what it finds."""

    svg: Markup
    caption: str


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


def close_figure(drawing: Any, description: str, caption: str) -> Figure:
    """Return a figure and close it; signs that the font lacks are the reader's font's to draw."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        return Figure(Markup(inline_svg(drawing, str(clean(description)))), caption)


def inline_svg(figure: Any, description: str) -> str:
    """Return a figure as an ``<svg>`` element that takes black and its ground from the page, and close it.

    The description is for those who cannot see it; the page's style sets sizes, and the colour of letters.

    >>> fig, ax = plt.subplots()
    >>> text = inline_svg(fig, "Nothing <yet>")
    >>> text.startswith("<svg"), 'aria-label="Nothing &lt;yet&gt;"' in text
    (True, True)
    """
    content = io.StringIO()
    with plt.style.context([str(STYLE), {"svg.fonttype": "none", "svg.hashsalt": description}]):
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(content, format="svg", transparent=True, metadata=metadata)
    plt.close(figure)
    text = content.getvalue().partition("<svg")[2]
    for black, from_page in (("#000000", "currentColor"), ("#d9d9d9", "currentColor; stroke-opacity: 0.15")):
        text = text.replace(black, from_page)
    return f'<svg role="img" aria-label="{html.escape(description, quote=True)}"{text.strip()}'


def number(value: float, how: str = ".3f") -> str:
    """Return a number as a table shows it; a dash for what is not known.

    >>> number(0.12345), number(float("nan"))
    ('0.123', '–')
    """
    return format(value, how) if np.isfinite(value) else NONE


def span(ends: Any, how: str = ".3f") -> str:
    """Return an interval from its two ends, a dash where there is none."""
    low, high = ends
    return NONE if np.isnan(low) or np.isnan(high) else f"{low:{how}} to {high:{how}}"


def environment(folder: Path = TEMPLATE.parent, **filters: Any) -> Environment:
    """Return where templates of a folder are read, with numbers, intervals and further filters."""
    options: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    made = Environment(loader=FileSystemLoader(folder), finalize=clean, undefined=StrictUndefined, **options)
    made.filters |= {"number": number, "span": span, "interval": interval, **filters}
    return made


def render(template: Path = TEMPLATE, **context: Any) -> str:
    """Return the page of a template, the report's unless given."""
    return environment(template.parent).get_template(template.name).render(context)
