"""What a notebook shows of an object: a table of facts, and a profile as a line, without matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from jaxtyping import Float

WIDTH, HEIGHT, DECADES = 360, 60, 4
"""Of the line, in pixels; powers of ten below the largest share that it spans."""


def shown(title: str, rows: Sequence[tuple[str, str]], profile: Float[np.ndarray, "n"] | None = None) -> str:
    """Return HTML: a title, a line of a profile on a logarithmic axis if there is one, and rows of names and values.

    >>> shown("a<b", [("tokens", "4")])
    '<div><strong>a&lt;b</strong><table><tr><th>tokens</th><td>4</td></tr></table></div>'
    """
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    drawn = "" if profile is None else line(profile)
    return f"<div><strong>{escape(title)}</strong>{drawn}<table>{cells}</table></div>"


def line(profile: Float[np.ndarray, "n"]) -> str:
    """Return a profile as one line of SVG, first position on the left.

    >>> line(np.array([0.1, 0.9])).partition("points=")[2][:20]
    '"1.0,14.8 359.0,1.0"'
    """
    height = np.log10(np.maximum(profile, profile.max() * 10.0**-DECADES) / profile.max()) / DECADES + 1
    x = np.linspace(1, WIDTH - 1, profile.size)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, 1 + (HEIGHT - 2) * (1 - height), strict=True))
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img"'
    label = f"influence of {profile.size} positions on a logarithmic axis, first on the left"
    path = f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
    return f'<svg {box} aria-label="{label}" style="display:block">{path}</svg>'
