"""Recency probabilities over a grid of settings: simulated, kept in a file, beside the print, and what they show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import chi2

from studies.norms.layernorm_simulation import Norm, Residual, layer_logits, recency_share

SETTING = ["d", "alpha", "norm", "residual", "rms", "layer"]
"""Columns that tell rows of a grid apart: width, cosine, network, root-mean-square norm of a token, and layer."""
KINDS: dict[str, tuple[Norm, Residual]] = {
    "no norm": ("none", "none"),
    "LayerNorm": ("layernorm", "none"),
    "LayerNorm, residual": ("layernorm", "pre"),
}
"""The networks that the chapter compares: what stands before attention, and the residual."""
SMALLEST = 1e-6
"""Standard errors are kept to six decimals: one of 0 is below this."""


def read_grid(path: Path | str) -> pd.DataFrame:
    """Return the grid that ``benchmarks/recency.py`` made: the columns of :data:`SETTING`, and numbers.

    ``probability`` with its standard ``error``, and of how many ``sequences``.

    ``own_part`` tells the rows in which a token's own part has norm 1, its norm being 1/√(1-α), from others.
    """
    frame = pd.read_csv(path, comment="#")
    frame["own_part"] = np.isclose(frame["rms"], (1 - frame["alpha"]) ** -0.5, rtol=1e-4)
    return frame


def by_depth(X: Float[np.ndarray, "sequences n d"], layers: int, residual: Residual) -> pd.DataFrame:
    """Return how recent each layer of the LayerNorm network is on given tokens: by preference and by weight.

    ``probability`` and its standard ``error`` are those of the recency probability. ``slope`` is the mean of
    S_(n,n-1) - S_(n,1), in logits, and ``attended`` the mean position of the last query's weight on earlier tokens: 0
    is the first, 1 the one before the query, 1/2 no preference.

    >>> by_depth(np.stack([np.eye(3)] * 2), 2, "none")["layer"].tolist()
    [1, 2]
    """
    sequences = len(X)
    S = layer_logits(X, layers, residual=residual)
    share = recency_share(S)
    earlier = S[:, :, -1, :-1]
    weight = np.exp(earlier - earlier.max(-1, keepdims=True))
    position = (weight / weight.sum(-1, keepdims=True)) @ np.linspace(0, 1, earlier.shape[-1])
    return pd.DataFrame(
        {
            "residual": residual,
            "layer": np.arange(1, layers + 1),
            "probability": share.mean(1),
            "error": share.std(1) / np.sqrt(sequences - 1),
            "slope": (earlier[..., -1] - earlier[..., 0]).mean(1),
            "attended": position.mean(1),
        }
    )


def growth(grid: pd.DataFrame, by: Sequence[str] = ("d", "norm", "residual", "layer")) -> pd.DataFrame:
    """Return of each curve over α its ``first`` and ``last`` value, the steepest ``fall``, and where it ``peaks``.

    ``fall`` is the largest fall from one α to the next in standard errors; below 0 the curve rises throughout.
    ``clear`` is the whole rise in standard errors of the last value.
    """
    rows = []
    for key, curve in grid.sort_values("alpha").groupby(list(by)):
        p = curve["probability"].to_numpy()
        error = curve["error"].clip(lower=SMALLEST).to_numpy()
        fall = float((-np.diff(p) / np.hypot(error[1:], error[:-1])).max())
        peak = float(curve["alpha"].to_numpy()[p.argmax()])
        rows.append((*key, p[0], p[-1], fall, (p[-1] - p[0]) / error[-1], peak))
    return pd.DataFrame(rows, columns=[*by, "first", "last", "fall", "clear", "peak"])


def beside_print(grid: pd.DataFrame, printed: Iterable[Any], digits: int = 4) -> pd.DataFrame:
    """Return every printed probability with ours, tokens' own parts of norm 1.

    ``beyond`` is by how many of our standard errors the two differ more than the rounding of the print explains.
    """
    columns = ["d", "alpha", "norm", "residual", "layer"]
    frame = pd.DataFrame(map(vars, printed)).rename(columns={"probability": "printed"})
    joined = frame.merge(grid[grid["own_part"]], on=columns, how="left")
    if joined["probability"].isna().any():
        missing = joined.loc[joined["probability"].isna(), columns].iloc[0].tolist()
        raise ValueError(f"grid: expected every printed setting, received none for {missing}")
    joined["difference"] = (joined["probability"] - joined["printed"]).abs()
    rounding = 0.5 * 10.0**-digits
    joined["beyond"] = (joined["difference"] - rounding).clip(lower=0) / joined["error"].clip(lower=SMALLEST)
    return joined[[*columns, "printed", "probability", "error", "difference", "beyond"]]


def sizes_tried(grid: pd.DataFrame, printed: Iterable[Any], alpha: float = 0.5) -> pd.DataFrame:
    """Return the printed probabilities with a residual beside ours, for each way to read how large a token is."""
    target = [entry for entry in printed if entry.residual == "pre" and entry.layer > 1 and entry.alpha == alpha]
    rows = []
    for entry in target:
        sizes = {
            "own part of norm 1": ("pre", (1 - alpha) ** -0.5),
            "token of norm 1": ("pre", 1.0),
            "token of norm √d": ("pre", entry.d**0.5),
            "residual taken of normalised states": ("post", (1 - alpha) ** -0.5),
        }
        here = grid.query("d == @entry.d and alpha == @alpha and norm == @entry.norm and layer == @entry.layer")
        for name, (residual, rms) in sizes.items():
            (row,) = here[(here["residual"] == residual) & np.isclose(here["rms"], rms, rtol=1e-4)].itertuples()
            rows.append((name, entry.d, entry.layer, entry.probability, row.probability, row.error))
    frame = pd.DataFrame(rows, columns=["size of a token", "d", "layer", "printed", "probability", "error"])
    return frame.assign(difference=(frame["probability"] - frame["printed"]).abs())


SURE = 4.0
"""Standard errors beyond which a difference is none of chance, over some hundred comparisons."""


def rises(grid: pd.DataFrame) -> bool:
    """Tell whether every curve over α nowhere falls by 4 standard errors, and ends 10 above where it began."""
    curves = growth(grid)
    return bool((curves["fall"] < SURE).all() and (curves["clear"] > 10).all())


def print_is_met(beside: pd.DataFrame, digits: int = 4) -> bool:
    """Tell whether printed probabilities are ours: each alone, and all together.

    Each differs by less than 4 of our standard errors beyond the rounding of the print and by less than 5 units of its
    last digit. Together, squared differences over their variance, our error's and that of rounding, have a sum that
    chance exceeds in more than one of a thousand cases.
    """
    error = np.hypot(beside["error"].clip(lower=SMALLEST), 10.0**-digits / 12**0.5)
    together = float(((beside["difference"] / error) ** 2).sum())
    each = (beside["beyond"] < SURE).all() and beside["difference"].max() < 5 * 10.0**-digits
    return bool(each and together < chi2.ppf(0.999, len(beside)))


def residual_weakens(grid: pd.DataFrame) -> bool:
    """Tell whether a residual nowhere raises the recency probability, and leaves it above 1/2 where it is strong.

    Strong is d < 256 and α of 0.4 or more; a residual must leave it 5 standard errors above 1/2 there, and lower it by
    4 at least.
    """
    by = ["d", "alpha", "layer"]
    bare, mixed = (grid[grid["residual"] == kind].set_index(by).sort_index() for kind in ("none", "pre"))
    error = np.hypot(bare["error"], mixed["error"])
    more = (mixed["probability"] - bare["probability"]) / error.clip(lower=SMALLEST)
    strong = mixed.query("d < 256 and alpha >= 0.4")
    still = strong["probability"] > 0.5 + 5 * strong["error"]
    return bool((more < SURE).all() and (more.loc[strong.index] < -SURE).all() and still.all())


def turns_early(grid: pd.DataFrame) -> bool:
    """Tell whether layer 3 prefers early tokens by 10 standard errors, and layer 4 no less, in every setting."""
    table = grid.set_index(["d", "alpha", "layer"])
    p, error = (table[column].unstack("layer") for column in ("probability", "error"))
    return bool((p[3] < 0.5 - 10 * error[3]).all() and (p[4] <= p[3]).all())


def disappears(grid: pd.DataFrame) -> bool:
    """Tell whether no row prefers the later key: at most 4 standard errors above 1/2.

    >>> disappears(pd.DataFrame({"probability": [0.5, 0.3], "error": [0.01, 0.01]}))
    True
    """
    return bool((grid["probability"] <= 0.5 + SURE * grid["error"]).all())


def altered(grid: pd.DataFrame, rows: Sequence[int] | np.ndarray, by: float) -> pd.DataFrame:
    """Return the grid with the probabilities of some rows, counted from 0, changed by a number.

    >>> altered(pd.DataFrame({"probability": [0.5, 0.25]}), [1], 0.25)["probability"].tolist()
    [0.5, 0.5]
    """
    probability = grid["probability"].to_numpy(copy=True)
    probability[np.asarray(rows)] += by
    return grid.assign(probability=probability)


def shuffled(grid: pd.DataFrame, column: str, by: Sequence[str], seed: int) -> pd.DataFrame:
    """Return the grid with a column's values shuffled within each group: a null of no order.

    >>> table = pd.DataFrame({"a": [0, 0, 1], "x": [1, 2, 3]})
    >>> sorted(shuffled(table, "x", ["a"], 0)["x"][:2].tolist()), shuffled(table, "x", ["a"], 0)["x"][2]
    ([1, 2], np.int64(3))
    """
    rng = np.random.default_rng(seed)
    values = grid[column].to_numpy(copy=True)
    for places in grid.groupby(list(by)).indices.values():
        values[places] = rng.permutation(values[places])
    return grid.assign(**{column: values})
