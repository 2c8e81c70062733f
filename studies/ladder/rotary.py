"""Mean queries and keys of rotary models before the rotation, and the kernels that they make.

What stands in for a model's mean attention is rolled out with the measured mixing, and held against the rollout of the
measured kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias import errors
from posbias.measure.instrument import Instrument, Observer
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.measured_kernels import layer_masks
from posbias.models.attention import Reading
from posbias.models.hooks import After, hooked
from posbias.rollout.influence import influence_profile
from posbias.rollout.kernels import mix_heads
from posbias.settings import Settings
from studies.interventions import rotary_module, unrotated
from studies.ladder.rotary_kernels import RotaryMeans, distance_kernels
from studies.rotation import rope_logits

MOST = 128
"""How many of the prompts, at most, queries and keys are read on; the mixing is that of all prompts."""
KERNELS = {
    "uniform": "within the mask",
    "mean": "mean query and mean key",
    "measured": "mean attention",
}
"""What may stand in for mean attention, in the order of what it knows, and mean attention itself."""


class _Unrotated:
    """Sums of every head's queries and keys before the rotation, and those of the layer at work, held against it."""

    def __init__(self, instrument: Instrument) -> None:
        """Refuse models whose queries and keys cannot be read before the rotation."""
        self.instrument = instrument
        self.rotary: Any = rotary_module(instrument)
        paths = unrotated(instrument.family)
        if paths is None:
            expected = "one with modules for queries and keys before the rotation (llama, mistral, qwen2, ...)"
            raise errors.invalid("model", expected, instrument.family.name)
        if (cap := getattr(instrument.model.config, "attn_logit_softcapping", None)) is not None:
            raise errors.invalid("model", "logits without a soft cap", cap)
        module: Any = instrument.attentions[0]
        self.paths, self.d = paths, int(module.head_dim)
        self.sums = [[torch.zeros(1, dtype=torch.float64)] * 2 for _ in instrument.attentions]
        self.latest: list[Tensor] = [torch.empty(0)] * 2

    def hooks(self) -> list[tuple[nn.Module, After]]:
        """Return hooks that add up what every layer's modules for queries and keys give."""
        return [
            (attention.get_submodule(path), self.adding(t, which))
            for t, attention in enumerate(self.instrument.attentions)
            for which, path in enumerate(self.paths)
        ]

    def adding(self, t: int, which: int) -> After:
        """Return the hook of a layer's queries (0) or keys (1)."""

        def add(module: nn.Module, args: Any, output: Tensor) -> None:
            self.latest[which] = output.detach().flatten(2).unflatten(-1, (-1, self.d))  # (B, n, heads, d)
            self.sums[t][which] = self.sums[t][which] + self.latest[which].double().cpu().sum((0, 1))

        return add

    def verify(self, reading: Reading) -> None:
        """Refuse a layer whose logits are not those of the latest queries and keys, rotated, on the first prompt."""
        instrument = self.instrument
        pairing, theta = _pairing(self.rotary, self.d)
        first = (pairing(x[0].double().cpu().numpy()).transpose(1, 0, 2) for x in self.latest)
        q, k = (_for_heads(x, instrument.H, 0) for x in first)
        scale = instrument.family.scale(instrument.attentions[reading.layer])
        logits = scale * np.stack([rope_logits(*both, theta) for both in zip(q, k, strict=True)])
        off = abs(reading.logits[0].double().cpu().numpy() - logits)[:, reading.allowed.cpu().numpy()].max()
        if off > 3 * torch.finfo(self.latest[0].dtype).eps ** 0.5 * (1 + abs(logits).max()):
            expected = "logits that are scaled products of rotated queries and keys"
            raise errors.invalid("model", expected, f"others in layer {reading.layer}, off by {off:.2g}")

    def means(self, tokens: int) -> RotaryMeans:
        """Return the means over so many tokens."""
        pairing, theta = _pairing(self.rotary, self.d)
        summed = zip(*self.sums, strict=True)  # the queries of all layers, then their keys
        query, key = (pairing(_for_heads(torch.stack(x).numpy() / tokens, self.instrument.H, 1)) for x in summed)
        scale = np.array([self.instrument.family.scale(attention) for attention in self.instrument.attentions])
        return RotaryMeans(query, key, theta, scale)


def read_rotary_means(
    instrument: Instrument,
    ids: Int[np.ndarray, "N n"],
    batch_size: int = 8,
    *,
    observe: Observer | None = None,
) -> RotaryMeans:
    """Return the means of every head's unrotated queries and keys over prompts and positions.

    ``observe`` sees each layer's attention, for what else the same passes are to give. What is read is held against the
    model: on the first prompt, rotated and multiplied, it must give the logits that the softmax was given.
    """
    summed = _Unrotated(instrument)
    verified: set[int] = set()  # layers, on the first prompt

    def see(reading: Reading) -> None:
        if reading.layer not in verified:
            summed.verify(reading)
            verified.add(reading.layer)
        if observe is not None:
            observe(reading)

    with hooked(after=summed.hooks()):
        for start in range(0, len(ids), batch_size):
            instrument.forward(torch.from_numpy(ids[start : start + batch_size]), see)
    return summed.means(ids.size)


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


def kernel_variation(A: Float[np.ndarray, "... n n"], B: Float[np.ndarray, "... n n"]) -> Float[np.ndarray, "..."]:
    """Return ½ Σ_j |A[i, j] - B[i, j]|, averaged over the queries from the second on (the first has no choice).

    >>> float(kernel_variation(np.eye(2), np.array([[1.0, 0.0], [0.25, 0.75]])))
    0.25
    """
    return np.asarray(abs(A - B)[..., 1:, :].sum(-1).mean(-1) / 2)


def measure_rotary(settings: Settings) -> xr.Dataset:
    """Measure a rotary model, and roll out every kernel of :data:`KERNELS` with the measured mixing."""
    study = Session(settings)
    instrument, n = study.instrument, settings.length
    ids = study.prompts.ids[:MOST]
    attention = np.zeros((instrument.T, instrument.H, n, n))

    def observe(reading: Reading) -> None:
        attention[reading.layer] += reading.probabilities.sum(0).cpu().numpy()

    logits = read_rotary_means(instrument, ids, settings.batch_size, observe=observe).logits(n)
    kept = measure(settings, study.prompts)
    A, masks = attention / attention.sum(-1, keepdims=True), layer_masks(kept)
    heads = {
        "uniform": [distance_kernels(0 * z, mask) for z, mask in zip(logits, masks, strict=True)],
        "mean": [distance_kernels(z, mask) for z, mask in zip(logits, masks, strict=True)],
        "measured": list(A),
    }
    kernels = {which: np.stack([mix_heads(layer) for layer in heads[which]]) for which in KERNELS}
    lambda_ = kept["lambda_frobenius"].values
    about = {"summary": 1, "kernels": "; ".join(f"{name}: {what}" for name, what in KERNELS.items())}
    return xr.Dataset(
        {
            "profile": (("kernel", "position"), np.stack([influence_profile(B, lambda_) for B in kernels.values()])),
            "variation": (
                ("kernel", "layer"),
                np.stack([kernel_variation(B, kernels["measured"]) for B in kernels.values()]),
                {"long_name": "mean total variation to the measured kernel, queries from the second on"},
            ),
        },
        coords={"kernel": list(KERNELS)},
        attrs={**kept.attrs, **about, "prompts_read": len(ids)},
    )
