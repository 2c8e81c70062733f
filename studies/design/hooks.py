"""Remedies for position bias as contexts of hooks: they act on a model while it works, and change no weight.

One scales rotary positions, by layer and head; one a channel of what queries and keys are made of; one adds logits to
those of the model. After the context the model is what it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from posbias import errors
from posbias.measure.instrument import Instrument
from posbias.models.hooks import After, Before, given, hooked, regiven
from studies.interventions import rotary_module, unrotated

LEAST, MOST = 1.2, 1.8
"""Scales of the first and the last head of a layer in Ms-PoE."""
OUTSTANDING = 3.0
"""A key stands out if its weight is above this many times the mean weight."""


@contextmanager
def scaled_rope(instrument: Instrument, scales: Float[np.ndarray, "T H"]) -> Iterator[None]:
    """Let every head rotate by position / scale in the place of the position: interpolation.

    Rotations add up, so that queries and keys are turned by (1 / scale - 1) times their angle before the model turns
    them by the whole: nothing of the model's rotation is repeated here, and a scale of 1 changes no bit. Query heads
    that share a key have its scale.
    """
    rotary: Any = rotary_module(instrument)
    paths = unrotated(instrument.family)
    if paths is None:
        expected = "one with modules for queries and keys before the rotation (llama, mistral, qwen2, ...)"
        raise errors.invalid("model", expected, instrument.family.name)
    half, first = int(rotary.inv_freq.numel()), instrument.attentions[0]
    d = int(first.head_dim)  # type: ignore[arg-type]

    def turn(scale: np.ndarray) -> After:
        share = torch.from_numpy(1 / scale - 1)

        def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
            if not share.any():
                return None
            x = output.flatten(2).unflatten(-1, (-1, d))  # (B, n, heads, d)
            places = torch.arange(x.shape[1], dtype=torch.float64, device=x.device)
            angles = rotary.inv_freq.double() * places[:, None, None] * share.to(x.device)[:, None]
            cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
            a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
            return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1).reshape(output.shape)

        return hook

    shared = instrument.H // key_heads(instrument)
    after = [
        (attention.get_submodule(path), turn(scale))
        for attention, of_queries in zip(instrument.attentions, scales, strict=True)
        for path, scale in zip(paths, (of_queries, of_queries[::shared]), strict=True)
    ]
    with hooked(after=after):
        yield


@contextmanager
def scaled_channel(instrument: Instrument, channel: int, factor: float, layers: Iterable[int]) -> Iterator[None]:
    """Multiply one channel of what queries and keys are made of in some layers; values read it unchanged."""
    projections = _query_key_projections(instrument)

    def scale(module: nn.Module, args: Any, kwargs: Any) -> Any:
        x = given(args, kwargs).clone()
        x[..., channel] *= factor
        return regiven(args, kwargs, x)

    with hooked(before=[(module, scale) for t in layers for module in projections[t]]):
        yield


@contextmanager
def added_logits(instrument: Instrument, logits: Float[np.ndarray, "T H n n"]) -> Iterator[None]:
    """Add logits to those of every query and key that the mask lets see one another, in prompts of n tokens."""
    made: dict[tuple[int, torch.dtype], Tensor] = {}

    def add(t: int) -> Before:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> Any:
            mask = kwargs["attention_mask"]
            if (t, mask.dtype) not in made:  # prompts are without padding: all have the mask of the first
                least = torch.finfo(mask.dtype).min
                own = torch.from_numpy(logits[t]).to(mask)
                made[t, mask.dtype] = torch.where(mask[:1] > least / 2, mask[:1] + own, least)
            return args, {**kwargs, "attention_mask": made[t, mask.dtype]}

        return hook

    with hooked(before=[(attention, add(t)) for t, attention in enumerate(instrument.attentions)]):
        yield


def key_heads(instrument: Instrument) -> int:
    """Return how many heads of keys a layer has."""
    config: Any = instrument.model.config
    return int(getattr(config, "num_key_value_heads", None) or instrument.H)


def head_scales(
    awareness: Float[np.ndarray, "T H"], keys: int, least: float = LEAST, most: float = MOST
) -> Float[np.ndarray, "T H"]:
    """Return scales that grow linearly over a layer's heads, from the most position-aware to the least.

    Heads that share one of the ``keys`` are taken together, by their mean.

    >>> head_scales(np.array([[0.1, 0.3, 0.2]]), 3).round(3).tolist()
    [[1.8, 1.2, 1.5]]
    """
    T, H = awareness.shape
    grouped = awareness.reshape(T, keys, -1).mean(-1)
    rank = np.argsort(np.argsort(-grouped, axis=1, kind="stable"), axis=1)
    return np.repeat(np.linspace(least, most, keys)[rank], H // keys, axis=1)


def head_awareness(last_rows: Float[np.ndarray, "*heads n"]) -> Float[np.ndarray, "*heads"]:
    """Return the share of keys whose weight, seen from the last query, is above three times the mean weight.

    >>> head_awareness(np.array([0.85, 0.05, 0.05, 0.05])).tolist()
    0.25
    """
    return np.asarray((last_rows > OUTSTANDING * last_rows.mean(-1, keepdims=True)).mean(-1))


def distance_ratios(
    weights: Float[np.ndarray, "T H n n"], prompts: int
) -> tuple[Float[np.ndarray, "T H n"], Float[np.ndarray, "T H n"]]:
    """Return how many times the uniform weight, 1 / (keys that a query sees), heads give: by distance, and to key 0.

    Weights are sums over prompts. Distances are means over the queries that have a key other than 0 there, key 0 is a
    mean over prompts at each query; one uniform pair is added to each mean, so that no ratio is 0.
    """
    n = weights.shape[-1]
    times = weights * np.arange(1, n + 1)[:, None]
    near = np.ones(weights.shape[:-1])
    for distance in range(n - 1):
        pairs = np.diagonal(times, -distance, -2, -1)[..., 1:]  # without key 0
        near[..., distance] = (pairs.sum(-1) + 1) / (prompts * pairs.shape[-1] + 1)
    return near, (times[..., 0] + 1) / (prompts + 1)


def calibration_logits(
    near: Float[np.ndarray, "T H n"], first: Float[np.ndarray, "T H n"]
) -> Float[np.ndarray, "T H n n"]:
    """Return -log of the mean ratio at each query and key: added, they divide weights by what position alone gives."""
    n = near.shape[-1]
    back = np.subtract.outer(np.arange(n), np.arange(n)).clip(0)
    z = -np.log(near)[..., back].astype(np.float32)
    z[..., 0] = -np.log(first)
    return z


def positional_channels(
    instrument: Instrument, ids: Tensor, layers: Iterable[int]
) -> tuple[np.ndarray, Float[np.ndarray, "D"]]:
    """Return the channels, most monotone first, and how monotone each is.

    A channel's number is |Spearman's correlation| of position and the channel's mean over prompts, in what queries
    are made of; position 0 is left out, and the mean is taken over layers.
    """
    from scipy.stats import rankdata

    n = ids.shape[1]
    projections = _query_key_projections(instrument)
    means: list[np.ndarray] = []

    def keep(module: nn.Module, args: Any, kwargs: Any) -> None:
        means.append(given(args, kwargs)[:, 1:].double().mean(0).cpu().numpy())

    with hooked(before=[(projections[t][0], keep) for t in layers]):
        instrument.forward(ids, lambda reading: None)
    ranks = rankdata(np.stack(means), axis=1)  # (layers, n - 1, D)
    ranks -= ranks.mean(1, keepdims=True)
    line = np.arange(n - 1) - (n - 2) / 2
    sizes = np.sqrt((ranks**2).sum(1) * (line @ line))
    cross = np.einsum("tnd,n->td", ranks, line)
    monotone = np.abs(np.divide(cross, sizes, out=np.zeros_like(cross), where=sizes > 0)).mean(0)
    return np.argsort(-monotone, kind="stable"), monotone


def _query_key_projections(instrument: Instrument) -> list[list[nn.Module]]:
    """Return the projections of queries and keys of each layer, or raise ValueError where they are one."""
    if instrument.family.groups is not None:
        raise errors.invalid("model", "one projection for queries and another one for keys", instrument.family.name)
    return [instrument.family.projections_of(attention)[:2] for attention in instrument.attentions]
