"""What the law leaves out: gradients through keys and query beside the one through values, in simulated heads."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float

NU = 0.02
"""Standard deviation of the weights, that of most families."""
TOKENS, DRAWS = 256, 24


def estimate(width: float) -> float:
    """Return the square of the gradient through keys, or through the query, over that through values, about.

    >>> round(estimate(1250), 3)
    0.25
    """
    return float((NU**2 * width) ** 2)


def content_shares(d: int, rng: np.random.Generator) -> Float[np.ndarray, "2"]:
    """Return squared gradients through keys and through the query, over the one through values, in one head."""
    size = 64
    x = rng.standard_normal((TOKENS, d), dtype=np.float32)
    W_Q, W_K, W_V = np.float32(NU) * rng.standard_normal((3, size, d), np.float32)
    b = rng.standard_normal(size)
    query, keys, values = W_Q @ x[-1], x @ W_K.T, x @ W_V.T
    logits = keys @ query / np.sqrt(size)
    A = np.exp(logits - logits.max())
    A = A / A.sum()
    pull = A * ((values - A @ values) @ b) / np.sqrt(size)  # gradient at the logits
    by_keys = (pull**2).sum() * ((query @ W_K) ** 2).sum()
    by_query = ((pull @ keys @ W_Q) ** 2).sum()
    through_values = (A**2).sum() * ((b @ W_V) ** 2).sum()
    return np.array([by_keys, by_query]) / through_values


def spread_table(widths: tuple[int, ...] = (128, 768, 1024, 1600, 2048)) -> pd.DataFrame:
    """Return the estimate and what simulated heads have, by width."""
    rows = {}
    for d in widths:
        rng = np.random.default_rng(0)
        shares = np.mean([content_shares(d, rng) for _ in range(DRAWS)], axis=0)
        rows[d] = {"estimate": estimate(d), "keys": shares[0], "query": shares[1]}
    return pd.DataFrame.from_dict(rows, "index")


def spread_numbers() -> dict[str, float]:
    """Return the shares at the width of GPT-2, and how far simulated heads are off the estimate at most."""
    found = spread_table()
    return {
        "births_left_768": found.loc[768, "keys"],
        "births_left_2048": found.loc[2048, "keys"],
        "births_left_off": (found["keys"] / found["estimate"] - 1).abs().max(),
    }
