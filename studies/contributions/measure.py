"""The shares of a layer's parts by several rules, rolled out, and what of the 1-norm's is position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor, nn

from posbias.comparison.distances import spearman, unit
from posbias.measure.instrument import Instrument
from posbias.measure.ladder import Rungs
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.models.attention import Reading
from posbias.models.families import output_projection
from posbias.models.hooks import given, hooked, regiven
from posbias.models.weights import output_weight
from posbias.predict import predict
from posbias.rollout.influence import influence_profile
from posbias.rollout.order import stochastic_monotonicity
from posbias.settings import Settings
from studies.reference.measure import untrained_twin
from studies.summaries import shave

FEW = 16
"""Prompts of which MLPs are left out of the gradient."""
RULES = ("2-norm", "norms", "half", "token-lambda")
"""How a layer's kernel is made of its parts T_ij, or of attention, of each prompt; see :func:`kernels_of`."""
PREDICTED = ("layer-shares", "measured-attention", "contributions", "contributions-own", "head-gains-squared")
WAYS = ("influence", "gradient", "fixed-attention")
"""Influence, the same without what goes through MLPs, and this with attention fixed."""


def kernels_of(reading: Reading, instrument: Instrument) -> Iterator[dict[str, Tensor]]:
    """Yield the kernels of a layer by every rule, and the ``cosine`` of a_i and x_i, prompt by prompt.

    ``2-norm`` is max(0, ‖y_i‖ - ‖y_i - T_ij‖), ``norms`` ‖T_ij‖ (Kobayashi et al.), both with rows made 1. ``half`` is
    half the mean attention and half the token itself (Abnar and Zuidema), ``token-lambda`` the same by each token's λ.
    """
    layer, attention = instrument.layers[reading.layer], instrument.attentions[reading.layer]
    weight, times = output_weight(attention), instrument.family.multiplier(layer)
    maps = weight.view(len(weight), instrument.H, -1).permute(1, 2, 0) * times  # W_O of each head, (H, V, d)
    bias = getattr(output_projection(attention), "bias", None)
    assert reading.stream is not None
    for x, values, p in zip(reading.stream.float(), reading.values.float(), reading.probabilities.float(), strict=True):
        carried = values @ maps  # (H, key, d)
        a = (p @ carried).sum(0) + (0.0 if bias is None else bias.float() * times)
        y = x + a
        by_key, each = p.permute(2, 1, 0), carried.transpose(0, 1)
        squares = ((by_key @ (each @ each.mT)) * by_key).sum(-1).mT.clamp_min(0).contiguous()
        own = torch.einsum("hii,hid->id", p, carried)
        squares.diagonal().add_((x * (x + 2 * own)).sum(-1))
        along = (p * (y @ carried.mT)).sum(0)
        along.diagonal().add_((x * y).sum(-1))
        square = y.square().sum(-1, keepdim=True)
        found = {
            "2-norm": (square.sqrt() - (square - 2 * along + squares).clamp_min(0).sqrt()).clamp_min(0),
            "norms": squares.clamp_min(0).sqrt(),
        }
        found = {name: share / share.sum(-1, keepdim=True) for name, share in found.items()}
        mean, lambda_ = p.mean(0), a.norm(dim=-1) / (a.norm(dim=-1) + x.norm(dim=-1))
        found["half"] = (torch.eye(len(x)) + mean) / 2
        found["token-lambda"] = torch.diag(1 - lambda_) + lambda_[:, None] * mean
        yield found | {"cosine": torch.cosine_similarity(a, x, dim=-1)}


def by_distance(kernels: Float[np.ndarray, "T n n"]) -> Float[np.ndarray, "T n n"]:
    """Return kernels whose weights are means over the queries of those at one distance, with rows made 1.

    >>> by_distance(np.array([[[1.0, 0.0], [0.5, 0.5]]])).tolist()
    [[[1.0, 0.0], [0.4, 0.6]]]
    """
    out = np.zeros_like(kernels)
    for t, C in enumerate(kernels):
        means = [np.diagonal(C, -r).mean() for r in range(len(C))]
        for i in range(len(C)):
            out[t, i, : i + 1] = means[i::-1]
    return out / out.sum(-1, keepdims=True)


@dataclass(frozen=True)
class _Seen:
    """Hold what prompts gave: each one's own product by rule, layers' cosines, influence without MLPs of the first."""

    products: Float[np.ndarray, "rules N n"]
    cosines: Float[np.ndarray, "T"]
    bare: Float[np.ndarray, "ways n"]


def _read_batches(session: Session) -> _Seen:
    """Return what a session's prompts give, batch by batch."""
    instrument, (N, n) = session.instrument, session.ids.shape
    products = np.zeros((len(RULES), N, n), dtype=np.float32)
    cosines = np.zeros(instrument.T)
    bare = torch.zeros(len(WAYS), n, dtype=torch.float64)
    for rows, ids in session.batches():
        row = torch.zeros(len(RULES), len(ids), n)
        row[..., -1] = 1.0

        def roll(reading: Reading, row: Tensor = row) -> None:
            for b, found in enumerate(kernels_of(reading, instrument)):
                for k, rule in enumerate(RULES):
                    row[k, b] = row[k, b] @ found[rule]
                cosines[reading.layer] += float(found["cosine"][1:].mean()) / N

        reading = instrument.measure(ids, roll)
        products[:, rows] = row.numpy()
        if rows.start < FEW:
            bare[0] += reading.influence.sum(0)
            bare[1:] += without_mlp(instrument, ids)
    return _Seen(products, cosines, bare.numpy())


def _profiles(
    results: xr.Dataset, C: Float[np.ndarray, "T n n"], products: Float[np.ndarray, "rules N n"]
) -> dict[str, Float[np.ndarray, "n"]]:
    """Return the profiles of the registry, of every rule, and of mean contributions by distance alone."""
    profiles = {name: predict(results, name) for name in PREDICTED}
    profiles |= {rule: unit(products[k].mean(0, dtype=np.float64)) for k, rule in enumerate(RULES)}
    return profiles | {"distance": influence_profile(by_distance(C), np.ones(len(C)), C.shape[-1])}


def _by_layer(
    results: xr.Dataset, C: Float[np.ndarray, "T n n"], cosines: Float[np.ndarray, "T"]
) -> dict[str, Float[np.ndarray, "T"]]:
    """Return what a token keeps of itself in each layer, λ, the cosine, and how far contributions are monotone."""
    order = [stochastic_monotonicity(layer) for layer in C]
    return {
        "own_share": np.diagonal(C, axis1=1, axis2=2)[:, 1:].mean(-1),
        "lambda_frobenius": results["lambda_frobenius"].values,
        "lambda_token": results["lambda_token"].values,
        "cosine": cosines,
        "violated": np.array([layer.violated for layer in order]),
        "shortfall": np.array([layer.shortfall for layer in order]),
    }


def measure_shares(settings: Settings, init: str = "") -> xr.Dataset:
    """Measure what predicts influence by shares of parts; of the model before training where ``init`` names its scale.

    ``profile`` (prediction, position) has :data:`PREDICTED` of the registry, by each of :data:`RULES` the mean over
    prompts of each one's own product, and that of mean contributions by ``distance`` alone. ``halves`` (half, position)
    is influence of every other prompt; ``within`` (prompt) the rank correlation of influence and the own product of
    contributions. By layer: what a token keeps of itself (``own_share``), λ, ``cosine``, and how often mean
    contributions are not monotone. ``without_mlp`` (way, position): influence of the first prompts, the same without
    what goes through MLPs, and this with attention fixed.
    """
    if init:
        with untrained_twin(settings.source, init) as twin:
            return measure_shares(replace(settings, source=twin))
    quantities = ("mixing", "influence", "kernels", "branches", "contributions")
    session = Session(replace(settings, quantities=quantities, attention="eager"))
    results, seen = measure(session.settings, session.prompts), _read_batches(session)
    C = results["contributions"].values.astype(np.float64)
    C /= C.sum(-1, keepdims=True)
    own, exact = results["contributions_own"].values, results["influence_prompts"].values
    profiles = _profiles(results, C, seen.products)
    arrays = {
        "profile": (("prediction", "position"), np.stack(list(profiles.values()))),
        "halves": (("half", "position"), np.stack([unit(exact[k::2].sum(0)) for k in range(2)])),
        "within": (("prompt",), np.array([spearman(unit(p), unit(q)) for p, q in zip(own, exact, strict=True)])),
        "without_mlp": (("way", "position"), np.stack([unit(x) for x in seen.bare])),
        **{name: (("layer",), x) for name, x in _by_layer(results, C, seen.cosines).items()},
    }
    return xr.Dataset(
        {name: (dims, shave(np.asarray(x, dtype=np.float32))) for name, (dims, x) in arrays.items()},
        {"prediction": list(profiles), "way": list(WAYS)},
        session.provenance(),
    )


def without_mlp(instrument: Instrument, ids: Tensor) -> Float[Tensor, "2 n"]:
    """Return the sum over prompts of influence where nothing goes back through MLPs, and this with attention fixed."""
    steps: list[nn.Module] = [getattr(layer, "mlp", None) or layer.get_submodule("ffn") for layer in instrument.layers]

    def cut(module: nn.Module, args: Any, kwargs: Any) -> Any:
        return regiven(args, kwargs, given(args, kwargs).detach())

    with hooked(before=[(step, cut) for step in steps]):
        reading = instrument.measure(ids, rungs=Rungs(np.arange(len(ids))[None], names=("fixed-attention",)))
    assert reading.ladder is not None
    return torch.stack([reading.influence.sum(0), reading.ladder[:, 0, 0].sum(0)])
