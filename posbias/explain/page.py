"""The page on one prompt: its tokens shaded by influence, its segments beside their places, and how to read both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from markupsafe import Markup, escape

from posbias.explain.prompt import line
from posbias.explain.words import answer
from posbias.files import write_whole
from posbias.plotting import STYLE
from posbias.report import page

if TYPE_CHECKING:
    from posbias.explain.explanation import Explanation

TEMPLATE = Path(__file__).with_name("page.html")
ROWS = {"segment": "a segment a row", "token": "a token a row", "order": "an order and segment a row"}
"""Tables that the page holds, and what a row is."""
LONGEST = 200
"""Characters of a segment that the table shows."""


def write_page(path: Path, found: Explanation) -> Path:
    """Write the page, and return its path."""
    write_whole(path, page.rendered(TEMPLATE, **_context(found)))
    return path


def _context(found: Explanation) -> dict[str, Any]:
    """Return what the template needs."""
    table, attrs = found.segments, found.profile.results.attrs
    return {
        "found": found,
        "shaded": Markup("").join(_shaded(found.tokens)),
        "answer": answer(table),
        "figure": segment_figure(table),
        "rows": [_cells(k, row) for k, row in table.iterrows()],
        "band": bool(table["low"].notna().all()),
        "moves": [] if table["if_last"].isna().all() else _moves(found),
        "downloads": [
            page.Download(f"{name}s.csv", what, found.to_pandas(name).to_csv(lineterminator="\n"))
            for name, what in ROWS.items()
            if name != "order" or found.moves is not None
        ],
        "provenance": [(name, attrs[name]) for name in ("model", "revision", "dataset", "rule", "prompts", "length")],
        "profile_target": f"{attrs.get('of', 'probability')} of "
        + ("the token that follows" if attrs.get("target") == "next" else "the likeliest next token"),
    }


def _shaded(tokens: pd.DataFrame) -> list[Markup]:
    """Return the text of the prompt, each token on a ground as dark as the root of its share."""
    depth = np.sqrt(tokens["share"] / tokens["share"].max())
    spans = []
    for row, alpha in zip(tokens.itertuples(), depth, strict=True):
        told = f"token {row.Index}, segment {row.segment}: share {row.share:.4f}, its place’s {row.profile:.4f}"
        text = "".join(c if c.isprintable() or c == "\n" else "�" for c in row.token)
        ground = f"background: rgb(230 120 0 / {0.85 * alpha:.2f})"
        spans.append(Markup('<span style="{}" title="{}">{}</span>').format(ground, told, escape(text)))
    return spans


def _cells(k: Any, row: pd.Series) -> list[str]:
    """Return a segment's cells."""
    numbers = [f"{row[name]:.3f}" for name in ("share", "profile", "without_position")]
    band = "–" if np.isnan(row["low"]) else f"{row['low']:.3f} to {row['high']:.3f}"
    removed = "–" if np.isnan(row["removed"]) else f"{row['removed']:+.3f}"
    return [f"{k}: {line(row['text'], LONGEST)}", str(row["tokens"]), *numbers, band, removed]


def _moves(found: Explanation) -> list[list[str]]:
    """Return by segment what the profile expects of other places, and how it went in the orders that were tried."""
    rows = []
    for k, row in found.segments.iloc[:-1].iterrows():
        cells = [f"{k}: {line(row['text'])}", *(f"{row[name]:+.2f}" for name in ("if_first", "if_last"))]
        if found.moves is not None:
            own = found.moves[found.moves["segment"] == k]
            right, sizes = own["right"].dropna(), own[["measured", "expected"]].abs().mean()
            cells += [f"{right.sum()} of {len(right)}", *(f"{size:.2f}" for size in sizes)]
        rows.append(cells)
    return rows


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
    return page.shown(drawing, f"Shares of influence, as measured and with position divided out. {said}.", caption)
