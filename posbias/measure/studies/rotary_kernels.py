"""Mean queries and keys before the rotation, read off forward passes of rotary models."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from posbias import checks
from posbias.measure.families import soft_cap
from posbias.measure.instrument import AttentionReading, Instrument, Observer
from posbias.measure.interventions import rotary_module
from posbias.rollout.logits import rope_logits
from posbias.rollout.rotary import RotaryMeans


def read_rotary_means(
    instrument: Instrument,
    ids: Int[np.ndarray, "N n"],
    batch_size: int = 8,
    *,
    skip: int = 0,
    observe: Observer | None = None,
) -> RotaryMeans:
    """Return the means and covariances of every head's unrotated queries and keys over prompts and positions.

    What is read is held against the model: on the first prompt, rotated and multiplied, it must give the logits that
    the softmax was given.

    Parameters
    ----------
    instrument
        Of a model whose rotary angles come from one module and whose projections are modules.
    ids
        Token ids.
    batch_size
        Prompts at a time.
    skip
        Positions at the start that are left out of means and covariances.
    observe
        Called with each layer's attention, batch by batch, for what else the same passes are to give.

    Raises
    ------
    ValueError
        For a model without rotary positions, one whose unrotated queries and keys no module gives (fused projections),
        one with a soft cap on its logits, and one whose logits come out otherwise.
    """
    n = ids.shape[1]
    if not 0 <= skip < n:
        raise checks.refuse("skip", f"a number from 0 to {n - 1}", skip)
    rotary: Any = rotary_module(instrument)
    paths = instrument.family.unrotated
    if paths is None:
        expected = "one with modules for queries and keys before the rotation (llama, mistral, qwen2, ...)"
        raise checks.refuse("model", expected, instrument.family.name)
    if any(soft_cap(attention) for attention in instrument.attentions):
        raise checks.refuse("model", "logits without a soft cap", soft_cap(instrument.attentions[0]))
    module: Any = instrument.attentions[0]
    d = int(module.head_dim)
    sums = [[_Moments(skip), _Moments(skip)] for _ in instrument.attentions]
    latest: list[Tensor] = [torch.empty(0)] * 2
    verified: set[int] = set()  # layers, on the first prompt

    def keep(t: int, which: int) -> Any:
        def hook(module: nn.Module, args: Any, output: Tensor) -> None:
            latest[which] = output.detach().flatten(2).unflatten(-1, (-1, d))  # (B, n, heads, d)
            sums[t][which].add(latest[which])

        return hook

    def see(reading: AttentionReading) -> None:
        if reading.layer not in verified:
            verify(reading)
            verified.add(reading.layer)
        if observe is not None:
            observe(reading)

    def verify(reading: AttentionReading) -> None:
        pairing, theta = _pairing(rotary, d)
        first = (pairing(x[0].double().cpu().numpy()).transpose(1, 0, 2) for x in latest)
        q, k = (_for_heads(x, instrument.H, 0) for x in first)
        scale = instrument.family.scale(instrument.attentions[reading.layer])
        logits = scale * np.stack([rope_logits(*both, theta) for both in zip(q, k, strict=True)])
        off = abs(reading.logits[0].double().cpu().numpy() - logits)[:, reading.allowed.cpu().numpy()].max()
        if off > 3 * torch.finfo(latest[0].dtype).eps ** 0.5 * (1 + abs(logits).max()):
            expected = "logits that are scaled products of rotated queries and keys"
            raise checks.refuse("model", expected, f"others in layer {reading.layer}, off by {off:.2g}")

    with ExitStack() as stack:
        for t, attention in enumerate(instrument.attentions):
            for which, path in enumerate(paths):
                stack.callback(attention.get_submodule(path).register_forward_hook(keep(t, which)).remove)
        for start in range(0, len(ids), batch_size):
            instrument.forward(torch.from_numpy(ids[start : start + batch_size]), see)
    pairing, theta = _pairing(rotary, d)
    (query, C, first_query), (key, D, first_key) = (
        [pairing(_for_heads(np.stack(x), instrument.H, 1)) for x in zip(*(m[which].means() for m in sums), strict=True)]
        for which in range(2)
    )
    C, D = (pairing(x.swapaxes(-1, -2)).swapaxes(-1, -2) for x in (C, D))  # the other side of the matrix
    scale = np.array([instrument.family.scale(attention) for attention in instrument.attentions])
    return RotaryMeans(query, key, C, D, first_query, first_key, theta, scale)


class _Moments:
    """Sums over prompts and positions of vectors and their outer products, in 64 bits."""

    def __init__(self, skip: int) -> None:
        self.skip, self.count, self.prompts = skip, 0, 0
        self.sum = self.products = self.first = torch.zeros(1, dtype=torch.float64)

    def add(self, x: Tensor) -> None:
        x = x.double().cpu()
        seen = x[:, self.skip :].flatten(0, 1)
        self.sum, self.first = self.sum + seen.sum(0), self.first + x[:, 0].sum(0)
        self.products = self.products + torch.einsum("nhd,nhe->hde", seen, seen)
        self.count, self.prompts = self.count + len(seen), self.prompts + len(x)

    def means(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return mean, covariance, and the mean at position 0."""
        mean = self.sum / self.count
        covariance = self.products / self.count - mean[:, :, None] * mean[:, None, :]
        return mean.numpy(), covariance.numpy(), (self.first / self.prompts).numpy()


def _pairing(rotary: Any, d: int) -> tuple[Any, np.ndarray]:
    """Return what puts features into pairs, and the pairs' angles per token.

    A rotated part of r features comes in halves: feature l turns with l + r/2. The rest is not rotated.
    """
    angles = rotary.inv_freq.double().cpu().numpy()
    r = 2 * angles.size
    order = np.concatenate([np.arange(r).reshape(2, -1).T.ravel(), np.arange(r, d)])
    size = np.where(order < r, float(getattr(rotary, "attention_scaling", 1.0)), 1.0)
    return lambda x: x[..., order] * size, np.concatenate([angles, np.zeros((d - r) // 2)])


def _for_heads(x: np.ndarray, H: int, axis: int) -> np.ndarray:
    """Return what G groups of heads share once for each of the H heads."""
    return np.repeat(x, H // x.shape[axis], axis=axis)
