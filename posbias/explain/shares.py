"""Shares of segments: their sums, what is left once position is divided out, and what another order should change."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

UNMOVED = 1e-9
"""Nats below which no change is expected."""


def by_segment(values: Float[np.ndarray, "*B n"], segment: Int[np.ndarray, "n"]) -> Float[np.ndarray, "*B S"]:
    """Return the sum over each segment's tokens; start tokens, of segment -1, are in none.

    >>> by_segment(np.array([0.5, 0.25, 0.125, 0.125]), np.array([-1, 0, 1, 0])).tolist()
    [0.375, 0.125]
    """
    return np.asarray(values @ (segment[:, None] == np.arange(segment.max() + 1)))


def without_position(share: Float[np.ndarray, "S"], expected: Float[np.ndarray, "*B S"]) -> Float[np.ndarray, "*B S"]:
    """Return shares divided by what their places get in other prompts, normalised to sum 1.

    Influence of a passage is about a product of an effect of its place and one of its content: the chapter
    ``place_content`` measures how nearly.

    >>> without_position(np.array([0.25, 0.5]), np.array([0.25, 0.25])).round(3).tolist()
    [0.333, 0.667]
    """
    left = share / expected
    return np.asarray(left / left.sum(-1, keepdims=True))


def centred_logs(share: Float[np.ndarray, "*B S"]) -> Float[np.ndarray, "*B S"]:
    """Return logarithms less their mean: shares of segments among themselves, in nats."""
    logs = np.log(share)
    return np.asarray(logs - logs.mean(-1, keepdims=True))


def moves(
    orders: Int[np.ndarray, "K S"],
    shares: Float[np.ndarray, "K1 S"],
    expected: Float[np.ndarray, "K1 S"],
) -> pd.DataFrame:
    """Return by order and segment how its log share changed against the order as given, and how it was to change.

    ``orders`` has the segments place by place; ``shares`` and ``expected``, by segment, begin with the order as given.
    Changes are in nats, of segments among themselves. ``right`` says whether both have one sign; it is missing where no
    change is expected.
    """
    seen, said = (centred_logs(x)[1:] - centred_logs(x)[0] for x in (shares, expected))
    place = np.argsort(orders, axis=1)
    K, S = orders.shape
    table = pd.DataFrame({
        "order": np.repeat(np.arange(1, K + 1), S), "segment": np.tile(np.arange(1, S + 1), K),
        "place": place.ravel() + 1, "measured": seen.ravel(), "expected": said.ravel(),
    })  # fmt: skip
    right = (table["measured"] * table["expected"] > 0).astype("boolean")
    return table.assign(right=right.where(table["expected"].abs() > UNMOVED))
