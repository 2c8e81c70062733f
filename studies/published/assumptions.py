"""What the published configurations assume about slopes and content logits, and which files have tabs: tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posbias.published import numbers
from posbias.rollout.logits import alibi_slopes, geometric_slopes

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_ODDS = 1e6
"""Cap of e^d, without which one head would be the mean."""


def slope_frame() -> DataFrame:
    """Return whether the slopes in each model's file are the geometric ones, and whether they are ALiBi's rule.

    One row for each model: label, heads, geometric (the file has 2^{-8h/H}) and rule (the file has what ALiBi's
    rule gives for H heads).

    >>> slope_frame().query("not rule")["label"].tolist()
    ['BLOOM-176B']
    """
    import pandas as pd

    rows = []
    for name, described in numbers.MODELS.items():
        attention = numbers.config(name).attention_config
        H, in_file = attention.num_heads, np.array(attention.alibi_slopes)
        row = {"model": name, "label": described.label, "heads": H}
        row |= {"geometric": bool(np.allclose(in_file, geometric_slopes(H), rtol=1e-12))}
        rows.append(row | {"rule": bool(np.allclose(in_file, alibi_slopes(H), rtol=1e-12))})
    return pd.DataFrame(rows)


def content_frame() -> DataFrame:
    """Return the size of the diagonal content logits in each model's file.

    One row for each model: label, head_dim, mean (over layers and heads), magnitude (mean absolute value), scaled
    (magnitude over √head_dim, as the architectures have it) and odds (mean weight e^d of a token on itself against
    a key without content, capped at a million).
    """
    import pandas as pd

    rows = []
    for name, described in numbers.MODELS.items():
        d = np.array(numbers.config(name).content_config.diagonal_scores)
        magnitude = float(np.abs(d).mean())
        odds = float(np.exp(np.minimum(d, np.log(MOST_ODDS))).mean())
        row = {"model": name, "label": described.label, "head_dim": described.head_dim, "mean": float(d.mean())}
        row |= {"magnitude": magnitude, "scaled": magnitude / described.head_dim**0.5, "odds": odds}
        rows.append(row)
    return pd.DataFrame(rows)


def tab_frame() -> DataFrame:
    """Return the configuration files with tab characters: configuration (its name) and tabs (how many)."""
    import pandas as pd

    known = set(numbers.configuration_names())
    files = [file for source in numbers.sources() for file in source.files if file.name in known and file.tabs]
    return pd.DataFrame({"configuration": [file.name for file in files], "tabs": [file.tabs for file in files]})
