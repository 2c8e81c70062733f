"""The page on one prompt: its tokens shaded by influence, its segments by what each does, and how to read both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from markupsafe import escape
from matplotlib.axes import Axes

from posbias.explain.prompt import line, without_label
from posbias.files import write_whole
from posbias.plotting import STYLE
from posbias.report import page

if TYPE_CHECKING:
    from posbias.explain.explanation import Explanation

TEMPLATE = Path(__file__).with_name("page.html")
LABEL = 24
"""Letters of a segment's label beside its bars."""


def write_page(path: Path, explanation: Explanation, **words: Any) -> Path:
    """Write the page, and return its path; ``words`` are what it says of the segments."""
    table, tokens = explanation.segments, explanation.tokens
    text = page.render(
        TEMPLATE,
        found=explanation,
        line=line,
        without_label=without_label,
        tokens=_shaded(tokens) if len(tokens) else tokens,
        printable=lambda text: escape("".join(c if c.isprintable() or c == "\n" else "�" for c in text)),
        figure=segment_figure(table),
        **words,
    )
    write_whole(path, text)
    return path


def _shaded(tokens: pd.DataFrame) -> pd.DataFrame:
    """Return tokens with how dark the ground of each is."""
    return tokens.assign(depth=0.85 * np.sqrt(tokens["share"] / tokens["share"].max()))


@plt.style.context(str(STYLE))
def segment_figure(table: pd.DataFrame) -> page.Figure:
    """Return what deletions change, beside shares of influence and of contributions, as far as they were measured."""
    measured = bool(table["share"].notna().any())
    size = (6.6 if measured else 3.9, 1.2 + 0.28 * len(table))
    drawing, axes = plt.subplots(1, 2 if measured else 1, figsize=size, sharey=True, squeeze=False)
    left = axes[0, 0]
    y = np.arange(len(table))
    left.barh(y, table["removed"], 0.5, color="C0")
    left.axvline(0, color="#7f7f7f", linewidth=0.9)
    labels = [x if len(x) <= LABEL else f"{x[: LABEL - 1]}…" for x in table["label"]]
    left.set(xlabel="deleted, nats", yticks=y, yticklabels=labels)
    left.invert_yaxis()
    each = []
    for name, removed, share in table[["label", "removed", "share"]].to_numpy():
        each.append(f"{name}: {removed:+.3f} nats" + (f", {share:.3f}" if measured else ""))
    aside = ", the last segment’s aside," if len(table) > 2 else ""
    caption = "Left: the change of the target’s log-probability without the segment; the longest bar to the left"
    caption += f"{aside} is what the target depends on most."
    shown = "Deletions, and shares of influence" if measured else "Deletions"
    if measured:
        _draw_shares(axes[0, 1], table)
        caption += " Right: shares of influence and of contributions."
    return page.close_figure(drawing, f"{shown}, by segment. {'; '.join(each)}.", caption)


def _draw_shares(ax: Axes, table: pd.DataFrame) -> None:
    """Draw shares of influence and of contributions."""
    y = np.arange(len(table))
    ax.barh(y - 0.2, table["share"], 0.4, color="C0", label="gradient")
    ax.barh(y + 0.2, table["contributed"], 0.4, color="#9a9a9a", label="contributions")
    ax.set(xlabel="share")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8, ncols=2)
