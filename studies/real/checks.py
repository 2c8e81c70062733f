"""Checks of the chapter ``real``: the lemma on long states inside a network, and what is sensitive and what is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from posbias.comparison.distances import spearman
from posbias.comparison.resampling import interval
from posbias.models.families import family_of
from posbias.models.hooks import given, hooked, regiven, returned
from posbias.report.stats import LONG
from studies.real.tables import draw_profiles, gap_table

CLOSE = 1e-3
"""What moves by less is said not to move: norms have an ε."""
RESAMPLES = 300


@torch.no_grad()
def layer_norms(
    network: Any, ids: Int[Tensor, "B n"], t: int, c: float, *, every: bool = False, output: float = 1.0
) -> tuple[Float[np.ndarray, "B n"], Float[np.ndarray, "B n"]]:
    """Return ‖x_i‖ and ‖a_i‖ of layer t where the first state, or every one, is made c times as long.

    ``output`` multiplies what attention adds, for a check that should notice.
    """
    family, seen = family_of(network.config), {}
    layer = family.layers(network)[t]

    def lengthen(_: Any, args: Any, kwargs: Any) -> Any:
        x = seen["x"] = given(args, kwargs).clone()
        x[:, slice(None) if every else 0] *= c
        return regiven(args, kwargs, x)

    def keep(_: Any, args: Any, out: Any) -> None:
        seen["a"] = output * returned(out)

    with hooked([(layer, lengthen)], [(family.output_of(layer), keep)]):
        network(ids)
    return seen["x"].norm(dim=-1).numpy(), seen["a"].norm(dim=-1).numpy()


def lemma_holds(network: Any, ids: Int[Tensor, "B n"], t: int, c: float, **change: Any) -> bool:
    """Tell whether a layer does what the lemma on one long state says: nothing else moves, and λ is below its bound."""
    x, a = layer_norms(network, ids, t, 1.0)
    longer, a_longer = layer_norms(network, ids, t, c, **change)
    token, token_longer = a / (x + a), a_longer / (longer + a_longer)
    all_x, all_a, start = (np.linalg.norm(v, axis=-1) for v in (longer, a_longer, a))
    return bool(
        np.allclose(a, a_longer, rtol=CLOSE)
        and np.allclose(token[:, 1:], token_longer[:, 1:], rtol=CLOSE)
        and np.abs(token.mean(1) - token_longer.mean(1)).max() <= 1 / ids.shape[1]
        and (all_a / (all_x + all_a) <= start / (c * x[:, 0] + start) * (1 + CLOSE)).all()
    )


@torch.no_grad()
def spread(network: Any, ids: Int[Tensor, "n"]) -> float:
    """Return how far a prompt's states are apart at most, over all layers, as a share of the longest."""
    states = network(ids[None], output_hidden_states=True).hidden_states
    return max(float((x - x[:, :1]).norm(dim=-1).max() / x.norm(dim=-1).max()) for x in states)


def readings_part(
    ratio: Float[np.ndarray, "T"],
    apart: Float[np.ndarray, "T"],
    attention: Float[np.ndarray, "T"],
    contributed: Float[np.ndarray, "T"],
) -> bool:
    """Tell whether readings of λ part where one state is long, and the first token contributes little there.

    ``apart`` is one reading over the other; the others are the first token's shares.
    """
    long = ratio > LONG
    together = spearman(ratio / ratio.sum(), apart / apart.sum()) > 0.5
    return bool(together and contributed[long].mean() < attention[long].mean() / 2)


def first_shares(entry: xr.Dataset) -> tuple[Float[np.ndarray, "B"], Float[np.ndarray, "B"]]:
    """Return the first token's share by gradient and by replacement, in equal shares, in paired resamples."""
    gradient, use = (draw_profiles(entry[way].values, RESAMPLES)[:, 0] for way in ("gradient", "replaced"))
    n = entry.sizes["position"]
    return n * gradient, n * use


def is_sensitive(entry: xr.Dataset) -> bool:
    """Tell whether the first token has more than an equal share of the gradient, in 95% of resamples."""
    return bool(interval(first_shares(entry)[0])[0] > 1)


def is_unused(entry: xr.Dataset) -> bool:
    """Tell whether the first token has less of use than of the gradient, and not more than an equal share."""
    gradient, use = first_shares(entry)
    return bool(interval(gradient - use)[0] > 0 and interval(use)[0] <= 1)


def overstates_start(entry: xr.Dataset) -> bool:
    """Tell whether the gradient gives the start, its first token aside, more than its use, and the end less."""
    gaps = gap_table({"": entry}, RESAMPLES).loc[""]
    return bool(gaps.loc["rest", "low"] > 1 and gaps.loc["end", "high"] < 1)


def ways_agree(entry: xr.Dataset, resamples: int = RESAMPLES) -> bool:
    """Tell whether deletion and hidden keys rank places more like replacement than the gradient does, in 95%."""
    ways = ("replaced", "gradient", "deleted", "hidden")
    drawn = [draw_profiles(entry[way].values, resamples) for way in ways]
    ranks = np.array([[spearman(p, q) for q in others] for p, *others in zip(*drawn, strict=True)])
    gains = ranks[:, 1:] - ranks[:, :1]
    return all(bool(interval(gain)[0] > 0) for gain in gains.T)


def break_ways(entry: xr.Dataset, runs: int = 10) -> Mapping[str, list[xr.Dataset]]:
    """Return entries in which a way of taking a token away is not what it says, by what is wrong with them."""
    rng = np.random.default_rng(0)
    return {
        "gradients in place of deletion": [changed(entry, "deleted", entry["gradient"].values)],
        "places of hidden keys shuffled": [
            changed(entry, "hidden", rng.permuted(entry["hidden"].values, axis=1)) for _ in range(runs)
        ],
    }


def changed(entry: xr.Dataset, way: str, values: Float[np.ndarray, "N n"]) -> xr.Dataset:
    """Return an entry with other numbers by one way, for a check that should notice."""
    return entry.assign({way: (("prompt", "position"), values)})


def break_entries(entry: xr.Dataset, runs: int = 20) -> Mapping[str, list[xr.Dataset]]:
    """Return entries that checks should reject, by what is wrong with them."""
    rng, raised = np.random.default_rng(0), entry["replaced"].values.copy()
    raised[:, 0] *= 8
    return {
        "places of each prompt shuffled": [
            changed(entry, "gradient", rng.permuted(entry["gradient"].values, axis=1)) for _ in range(runs)
        ],
        "gradients in place of use": [changed(entry, "replaced", entry["gradient"].values)],
        "use of the first token eight times as large": [changed(entry, "replaced", raised)],
    }
