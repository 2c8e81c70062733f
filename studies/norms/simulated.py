"""What simulated networks say of norms and recency, in the numbers that the page prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from studies import results
from studies.norms import layernorm as theory
from studies.norms import recency

N = 10
"""Tokens of every simulated sequence."""
WIDTHS = (16, 64, 256, 1024)
ALPHAS = (0.0, 0.2, 0.5, 0.8)
"""Widths and cosines at which closed forms are compared with networks."""
FOUR = tuple((d, alpha) for d in (16, 64) for alpha in (0.5, 0.8))
"""Widths and cosines of the networks of twelve layers."""
NETWORKS = {
    "no norm": (1 / 4, 1 / 4, 1.0, False),
    "LayerNorm": (4.0, 4.0, 1.0, True),
    "LayerNorm, residual": (4.0, 4.0, 4 / (4 + 2**0.5), True),
}
"""Of the networks that the page compares at width 16: scale of the logits, β, λ, and whether they normalise."""
SETTING = ["d", "alpha", "norm", "residual", "layer"]

Tokens = Float[np.ndarray, "sequences n d"]


def random_tokens(rng: np.random.Generator, d: int, alpha: float, size: int = 2000) -> Tokens:
    """Draw sequences of tokens with mean cosine α whose own parts have a length of about 1."""
    shared = np.sqrt(alpha / (1 - alpha)) * rng.standard_normal((size, 1, d))
    return (rng.standard_normal((size, N, d)) + shared) / np.sqrt(d)


def twelve_layers(X: Tokens, kinds: tuple[Any, ...] = ("none", "pre")) -> pd.DataFrame:
    """Return what twelve layers do, a row for each kind of residual connection and layer."""
    found = [recency.by_depth(X, 12, kind) for kind in kinds]
    return pd.concat(found).set_index(["residual", "layer"])


@dataclass(frozen=True, eq=False)
class Simulated:
    """Hold the kept grid of recency probabilities, and the printed ones; what is simulated anew is worked out once."""

    grid: pd.DataFrame
    printed: Sequence[Any]

    @property
    def usual(self) -> pd.DataFrame:
        """The settings in which a token's own part has length 1, in order."""
        return self.grid[self.grid["own_part"]].set_index(SETTING).sort_index()

    @property
    def low(self) -> pd.DataFrame:
        """Networks with LayerNorm, layers from 2 on, cosines up to 0.8."""
        chosen = "norm == 'layernorm' and layer > 1 and residual != 'post' and own_part and alpha <= 0.8"
        return self.grid.query(chosen).reset_index(drop=True)

    @property
    def bare(self) -> pd.DataFrame:
        """Networks without a norm and without a residual connection."""
        return self.usual.reset_index().query("norm == 'none' and residual == 'none'")

    @property
    def long(self) -> pd.DataFrame:
        """Such networks on tokens of length √d."""
        return self.grid.query("d in (16, 64) and norm == 'none' and residual == 'none' and not own_part")

    @property
    def beside(self) -> pd.DataFrame:
        """The printed probabilities beside ours."""
        return recency.beside_print(self.grid, self.printed)

    @cached_property
    def depths(self) -> dict[tuple[int, float], pd.DataFrame]:
        """Twelve layers with a residual connection and without, by width and cosine."""
        rng = np.random.default_rng(0)
        return {setting: twelve_layers(random_tokens(rng, *setting)) for setting in FOUR}

    @property
    def overtaken(self) -> list[int]:
        """The layers from which on, by setting, the rise is larger with a residual connection."""
        found = []
        for x in self.depths.values():
            larger = (x["slope"]["pre"] > x["slope"]["none"]).loc[2:]
            if larger.any():
                found.append(int(larger.idxmax()))
        return found

    @cached_property
    def shuffled(self) -> pd.DataFrame:
        """Twelve layers of width 16 on shuffled tokens with a cosine of 0.8."""
        rng = np.random.default_rng(0)
        X = rng.standard_normal((2000, N, 16)) + 2 * rng.standard_normal((2000, 1, 16))
        return twelve_layers(np.stack([rng.permutation(x) for x in X]) / 4)


def load_simulated(printed: Sequence[Any]) -> Simulated:
    """Return what is kept, beside printed probabilities."""
    return Simulated(recency.read_grid(results.FOLDER / "recency.csv"), printed)


def opening(seen: Simulated) -> dict[str, list[float]]:
    """Return the recency probabilities of layers 1 to 4 at width 16 and α = 1/2, by network."""
    kept = seen.usual["probability"]
    return {kind: kept.loc[16, 0.5, *how].loc[1:4].tolist() for kind, how in recency.KINDS.items()}


def last_row(kind: str) -> Float[np.ndarray, "keys"]:
    """Return the logits of the last query in layer 2 at width 16 and α = 1/2, in closed form, key 1 subtracted."""
    scale, beta, lam, normalised = NETWORKS[kind]
    g = theory.weight_ratio(0.5, beta)
    S = theory.second_layer_logits(N, 0.5, g, lam, scale=scale, normalised=normalised)
    return np.asarray(S[-1, :-1] - S[-1, 0])


def simulation_numbers(seen: Simulated) -> dict[str, Any]:
    """Return the numbers of the sections on untrained networks."""
    X = random_tokens(np.random.default_rng(0), 16, 0.5, 20_000)
    attended = recency.by_depth(X, 4, "none").set_index("layer")["attended"]
    curves = recency.growth(seen.low).set_index(["d", "residual", "layer"])
    p, fixed = seen.usual["probability"], seen.depths[16, 0.8]["slope"]
    numbers = {
        "opening_norm": 100 * opening(seen)["LayerNorm"][-1], "moved_4": 100 * (attended[4] - 0.5),
        "twice": np.exp(last_row("LayerNorm")[-1]), "worst": seen.beside["difference"].max(),
        "bottom": curves["first"][64, "none", 2], "top": curves["last"][64, "none", 2],
        "without": p[64, 0.5, "layernorm", "none", 4], "with": p[64, 0.5, "layernorm", "pre", 4],
        "crossed": ["no", "one", "two", "three", "all"][len(seen.overtaken)],
        "cross_low": min(seen.overtaken), "cross_high": max(seen.overtaken),
        "shuffled": seen.shuffled["probability"]["none", 2],
        "early_3": p[16, 0.0, "none", "none", 3], "early_4": p[16, 0.0, "none", "none", 4],
        "large_4": seen.long.query("d == 16 and layer == 4")["probability"].item(),
        "settings": len(WIDTHS) * len(ALPHAS),
    }  # fmt: skip
    for t in (2, 12):
        numbers |= {f"rise_bare_{t}": fixed["none", t], f"rise_mixed_{t}": fixed["pre", t]}
    return {f"layernorm_{name}": x for name, x in numbers.items()}
