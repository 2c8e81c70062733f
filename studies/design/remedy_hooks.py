"""Remedies for position bias that act on a given model while it works: contexts of hooks, and no weight changes.

A remedy scales rotary positions, by layer and head; scales one channel of what queries and keys are made of; or adds
logits to those of the model. After the context the model is what it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import comb
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from posbias import errors
from posbias.errors import Numbers
from posbias.measure.instrument import Instrument
from posbias.measure.interventions import rotary_module
from posbias.networks.hooks import After, Before, given, hooked, regiven

LEAST, MOST = 1.2, 1.8
"""Scales of the first and the last head of a layer in Ms-PoE."""
OUTSTANDING = 3.0
"""A key stands out if its weight is above this many times the mean weight."""


@contextmanager
def scaled_rope(instrument: Instrument, scales: Numbers) -> Iterator[None]:
    """Let every layer, or every head, rotate by position / scale in the place of the position: interpolation.

    Rotations add up, so that queries and keys are turned by (1 / scale - 1) times their angle before the model turns
    them by the whole: nothing of the model's rotation is repeated here, and a scale of 1 changes no bit.

    Parameters
    ----------
    instrument
        Of a model with rotary positions whose queries and keys come from modules of their own.
    scales
        Above 0; (T,), or (T, H) with one scale for all query heads that share a key.

    Raises
    ------
    ValueError
        For another model, and for scales that are not as they should be.
    """
    rotary: Any = rotary_module(instrument)
    paths = instrument.family.unrotated
    if paths is None:
        expected = "one with modules for queries and keys before the rotation (llama, mistral, qwen2, ...)"
        raise errors.invalid("model", expected, instrument.family.name)
    s = errors.finite_array("scales", scales, ndim=(1, 2))
    T, H = instrument.T, instrument.H
    if s.shape not in ((T,), (T, H)) or (s <= 0).any():
        raise errors.invalid(
            "scales", f"numbers above 0, shape ({T},) or ({T}, {H})", f"shape {s.shape}, from {s.min()}"
        )
    s = np.broadcast_to(s.reshape(T, -1), (T, H))
    keys = key_heads(instrument)
    groups = s.reshape(T, keys, H // keys)
    if (groups != groups[..., :1]).any():
        raise errors.invalid("scales", f"one for the {H // keys} query heads that share a key", "several")
    half = int(rotary.inv_freq.numel())
    d = head_width(instrument)

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

    after = [
        (attention.get_submodule(path), turn(scale))
        for t, attention in enumerate(instrument.attentions)
        for path, scale in zip(paths, (s[t], groups[t, :, 0]), strict=True)
    ]
    with hooked(after=after):
        yield


@contextmanager
def scaled_channel(instrument: Instrument, channel: int, factor: float, layers: Iterable[int]) -> Iterator[None]:
    """Multiply one channel of what queries and keys are made of by a factor; values read it unchanged.

    Parameters
    ----------
    instrument
        Of a model with one projection for queries and another one for keys.
    channel
        Number of the channel, from 0.
    factor
        Any finite number; 1 changes nothing.
    layers
        Numbers of the layers in which it acts.

    Raises
    ------
    ValueError
        For a fused projection, and for a channel, a factor or a layer that is not there.
    """
    projections = _query_key_projections(instrument)
    width = int(instrument.model.config.hidden_size)  # type: ignore[union-attr, arg-type]
    if not 0 <= channel < width:
        raise errors.invalid("channel", f"a number from 0 to {width - 1}", channel)
    times = float(errors.finite_array("factor", factor, ndim=(0,)))
    chosen = [errors.index("layers", t, instrument.T) for t in layers]

    def scale(module: nn.Module, args: Any, kwargs: Any) -> Any:
        x = given(args, kwargs).clone()
        x[..., channel] *= times
        return regiven(args, kwargs, x)

    before: list[tuple[nn.Module, Before]] = [(module, scale) for t in chosen for module in projections[t]]
    with hooked(before=before):
        yield


@contextmanager
def added_logits(instrument: Instrument, logits: Float[np.ndarray, "layers heads n keys"]) -> Iterator[None]:
    """Add logits to those of every query and key that the mask lets see one another.

    Parameters
    ----------
    instrument
        Of a model whose attention modules take an additive mask; with eager attention, so that there is one.
    logits
        For 1 layer that stands for all, or T; for 1 head that stands for all, or H; finite, for prompts of n tokens.

    Raises
    ------
    ValueError
        For another model, prompts of another length, and logits that are not as they should be.
    """
    z = errors.finite_array("logits", logits, ndim=(4,))
    layers, heads, n = z.shape[:3]
    T, H = instrument.T, instrument.H
    if layers not in (1, T) or heads not in (1, H) or z.shape[3] != n:
        raise errors.invalid("logits", f"shape (1 or {T}, 1 or {H}, n, n)", z.shape)
    made: dict[tuple[int, torch.dtype], Tensor] = {}

    def add(t: int) -> Before:
        row = min(t, layers - 1)

        def hook(module: nn.Module, args: Any, kwargs: Any) -> Any:
            mask = kwargs.get("attention_mask")
            if mask is None or mask.dim() != 4 or not mask.is_floating_point():
                raise errors.invalid("model", "attention with an additive mask as a keyword", type(module).__name__)
            if mask.shape[-1] != n:
                raise errors.invalid("logits", f"those of {mask.shape[-1]} tokens, as the prompts have", n)
            if (row, mask.dtype) not in made:  # prompts are without padding: all have the mask of the first
                least = torch.finfo(mask.dtype).min
                own = torch.from_numpy(z[row]).to(mask)
                made[row, mask.dtype] = torch.where(mask[:1] > least / 2, mask[:1] + own, least)
            return args, {**kwargs, "attention_mask": made[row, mask.dtype]}

        return hook

    before = [(attention, add(t)) for t, attention in enumerate(instrument.attentions)]
    with hooked(before=before):
        yield


def key_heads(instrument: Instrument) -> int:
    """Return how many heads of keys a layer has."""
    config: Any = instrument.model.config
    return int(getattr(config, "num_key_value_heads", None) or instrument.H)


def head_width(instrument: Instrument) -> int:
    """Return how many features a head of queries or keys has."""
    module: Any = instrument.attentions[0]
    return int(module.head_dim)


def bezier_curve(points: Numbers, T: int) -> Float[np.ndarray, "T"]:
    """Return Σ_k C(m, k) u^k (1 - u)^(m - k) p_k at u = t / (T - 1), t = 0 … T - 1, for the m + 1 control points p.

    >>> bezier_curve([1.0, 2.0, 1.0], 3).tolist()
    [1.0, 1.5, 1.0]
    """
    p = errors.finite_array("points", points, ndim=(1,))
    m, u = p.size - 1, np.linspace(0.0, 1.0, errors.positive_integer("T", T))
    if m < 0:
        raise errors.invalid("points", "at least one control point", "none")
    return np.asarray(sum(comb(m, k) * u**k * (1 - u) ** (m - k) * p[k] for k in range(m + 1)))


def head_scales(
    awareness: Float[np.ndarray, "T H"], keys: int, least: float = LEAST, most: float = MOST
) -> Float[np.ndarray, "T H"]:
    """Return scales that grow linearly over a layer's heads, from the most position-aware to the least.

    Parameters
    ----------
    awareness
        Of each head, as :func:`head_awareness` has it; heads that share a key are taken together, by their mean.
    keys
        Heads of keys.
    least, most
        First and last scale.

    >>> head_scales(np.array([[0.1, 0.3, 0.2]]), 3).round(3).tolist()
    [[1.8, 1.2, 1.5]]
    """
    T, H = awareness.shape
    if H % errors.positive_integer("keys", keys):
        raise errors.invalid("keys", f"a divisor of {H} heads", keys)
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

    One uniform pair is added to each mean, so that no ratio is 0.

    Parameters
    ----------
    weights
        Attention weights, summed over prompts.
    prompts
        How many.

    Returns
    -------
    near
        Mean over the queries that have a key other than 0 at the distance.
    first
        Mean over prompts of what each query gives to key 0.
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
    """Return -log of the mean ratio at each query and key: added, they divide weights by what position alone gives.

    Parameters
    ----------
    near, first
        Of :func:`distance_ratios`, above 0.
    """
    if (near <= 0).any() or (first <= 0).any():
        raise errors.invalid("ratios", "numbers above 0", "others")
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

    Parameters
    ----------
    instrument
        Of a model with one projection for queries.
    ids
        Token ids (N, n), n at least 3.
    layers
        Numbers of the layers.

    Raises
    ------
    ValueError
        For a fused projection, and for shorter prompts.
    """
    from scipy.stats import rankdata

    n = ids.shape[1]
    if n < 3:
        raise errors.invalid("ids", "prompts of at least 3 tokens", n)
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
