"""The page on one prompt: its tokens shaded by influence, its segments beside their places, and how to read both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from markupsafe import escape

from posbias.explain.prompt import line
from posbias.explain.words import answer
from posbias.files import write_whole
from posbias.plotting import STYLE
from posbias.report import page

if TYPE_CHECKING:
    from posbias.explain.explanation import Explanation

TEMPLATE = Path(__file__).with_name("page.html")


def write_page(path: Path, explanation: Explanation) -> Path:
    """Write the page, and return its path."""
    table, tokens = explanation.segments, explanation.tokens
    text = page.render(
        TEMPLATE,
        found=explanation,
        line=line,
        attrs=explanation.profile.results.attrs,
        tokens=tokens.assign(depth=0.85 * np.sqrt(tokens["share"] / tokens["share"].max())),
        printable=lambda text: escape("".join(c if c.isprintable() or c == "\n" else "�" for c in text)),
        answer=answer(table),
        figure=segment_figure(table),
        band=bool(table["low"].notna().all()),
        moves=None if table["if_last"].isna().all() else moves_table(explanation),
    )
    write_whole(path, text)
    return path


def moves_table(explanation: Explanation) -> pd.DataFrame:
    """Return by segment what the profile expects of other places, and how it went in the orders that were tried."""
    table = explanation.segments.iloc[:-1]
    if explanation.moves is None:
        return table
    moves = explanation.moves.assign(**explanation.moves[["measured", "expected"]].abs())
    means = {name: (name, "mean") for name in ("measured", "expected")}
    return table.join(moves.groupby("segment").agg(right=("right", "sum"), of=("right", "count"), **means))


@plt.style.context(str(STYLE))
def segment_figure(table: pd.DataFrame) -> page.Figure:
    """Return shares of segments beside those of their places, and what is left once these are divided out."""
    drawing, (left, right) = plt.subplots(1, 2, figsize=(6.6, 1.2 + 0.28 * len(table)), sharey=True)
    y = np.arange(len(table))
    left.barh(y - 0.2, table["share"], 0.4, color="C0", label="this prompt")
    left.barh(y + 0.2, table["profile"], 0.4, color="#9a9a9a", label="their places, in other prompts")
    right.barh(y, table["without_position"], 0.5, color="C0")
    right.hlines(y, table["low"], table["high"], color="#000000", linewidth=1.2)
    right.axvline(1 / len(table), color="#7f7f7f", linestyle="--", linewidth=0.9)
    left.set(xlabel="share of influence", ylabel="segment", yticks=y, yticklabels=table.index)
    left.invert_yaxis()
    right.set(xlabel="share, position divided out")
    left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8)
    said = "; ".join(
        f"segment {k}: {a:.3f} and {b:.3f}" for k, a, b in table[["share", "without_position"]].itertuples()
    )
    caption = (
        "Left: what segments have, beside what their places have in other prompts. Right: the first divided by the "
    )
    caption += "second; the dashed line is an equal share."
    return page.close_figure(
        drawing, f"Shares of influence, as measured and with position divided out. {said}.", caption
    )
