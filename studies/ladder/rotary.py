"""Mean queries and keys of rotary models before the rotation, and the kernels that they and others make.

What stands in for a model's mean attention is rolled out with the measured mixing, and held against the rollout of the
measured kernels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from scipy.optimize import brentq
from torch import Tensor, nn

from posbias import errors
from posbias.measure.instrument import Instrument, Observer
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.measure.summary import shave
from posbias.models.attention import Reading
from posbias.models.families import soft_cap
from posbias.models.hooks import hooked
from posbias.predict import layer_masks
from posbias.provenance import versions
from posbias.rollout.influence import influence_profile
from posbias.rollout.kernels import attention_kernel, mix_heads
from posbias.rollout.logits import rope_logits
from posbias.rollout.masks import Mask
from posbias.settings import Settings
from studies.interventions import rotary_module
from studies.ladder.rotary_kernels import RotaryMeans, distance_kernels

MOST = 128
"""How many of the prompts, at most, queries and keys are read on; the mixing is that of all prompts."""
LONGEST_ROWS = 256
"""Length of prompts up to which the last query's weights are kept."""
STEEPEST = 30.0
"""Logits per token at which next to nothing is left at distance 1."""

KERNELS = {
    "uniform": "within the mask",
    "mean": "mean query and mean key",
    "rest": "the same without position 0 in the means",
    "first": "the same, and position 0 has its own mean key",
    "keys": "rest, and half the variance of the logits over keys",
    "both": "rest, and half the variance of the logits over queries and keys",
    "logits": "softmax of the mean logits of every pair",
    "slopes": "nearest ALiBi slope of every head's measured kernel",
    "measured": "mean attention",
}
"""What may stand in for mean attention, in the order of what it knows, and mean attention itself."""


def read_rotary_means(
    instrument: Instrument,
    ids: Int[np.ndarray, "N n"],
    batch_size: int = 8,
    *,
    skip: int = 0,
    observe: Observer | None = None,
) -> RotaryMeans:
    """Return the means and covariances of every head's unrotated queries and keys over prompts and positions.

    ``skip`` positions at the start are left out; ``observe`` sees each layer's attention, for what else the same passes
    are to give. What is read is held against the model: on the first prompt, rotated and multiplied, it must give the
    logits that the softmax was given.

    Raises
    ------
    ValueError
        For a model without rotary positions, one whose unrotated queries and keys no module gives (fused projections),
        one with a soft cap on its logits, and one whose logits come out otherwise.
    """
    rotary: Any = rotary_module(instrument)
    paths = instrument.family.unrotated
    if paths is None:
        expected = "one with modules for queries and keys before the rotation (llama, mistral, qwen2, ...)"
        raise errors.invalid("model", expected, instrument.family.name)
    if any(soft_cap(attention) for attention in instrument.attentions):
        raise errors.invalid("model", "logits without a soft cap", soft_cap(instrument.attentions[0]))
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

    def see(reading: Reading) -> None:
        if reading.layer not in verified:
            verify(reading)
            verified.add(reading.layer)
        if observe is not None:
            observe(reading)

    def verify(reading: Reading) -> None:
        pairing, theta = _pairing(rotary, d)
        first = (pairing(x[0].double().cpu().numpy()).transpose(1, 0, 2) for x in latest)
        q, k = (_for_heads(x, instrument.H, 0) for x in first)
        scale = instrument.family.scale(instrument.attentions[reading.layer])
        logits = scale * np.stack([rope_logits(*both, theta) for both in zip(q, k, strict=True)])
        off = abs(reading.logits[0].double().cpu().numpy() - logits)[:, reading.allowed.cpu().numpy()].max()
        if off > 3 * torch.finfo(latest[0].dtype).eps ** 0.5 * (1 + abs(logits).max()):
            expected = "logits that are scaled products of rotated queries and keys"
            raise errors.invalid("model", expected, f"others in layer {reading.layer}, off by {off:.2g}")

    with hooked(
        after=[
            (attention.get_submodule(path), keep(t, which))
            for t, attention in enumerate(instrument.attentions)
            for which, path in enumerate(paths)
        ]
    ):
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


def nearest_slope(A: Float[np.ndarray, "n n"], mask: Mask) -> float:
    """Return the m for which softmax(-m (i - j)) over the allowed keys is nearest to A in Σ_i KL(A_i ‖ ·).

    The divergence is convex in m, and its derivative is zero where both kernels have the same mean distance, summed
    over queries: the fit takes one number from A. m < 0 where A reaches further back than uniform attention.
    A kernel without weight off the diagonal, or with all of it at the far end, has no such m.

    >>> from posbias.rollout import masks
    >>> round(nearest_slope(np.array([[1.0, 0.0], [0.25, 0.75]]), masks.causal()), 6)  # log 3
    1.098612
    """
    x = np.arange(len(A))
    reach, goal = mask.matrix(len(A)).sum(1), float((A * np.subtract.outer(x, x)).sum())

    def excess(m: float) -> float:
        """Return how much more distance m gives than A has; counted from the far end of a row, m is -m."""
        weights = np.exp(-abs(m) * x)
        distance = ((weights * x).cumsum() / weights.cumsum())[reach - 1]
        return float((distance if m >= 0 else reach - 1 - distance).sum()) - goal

    return float(brentq(excess, -STEEPEST, STEEPEST, xtol=1e-10))


def kernel_variation(A: Float[np.ndarray, "... n n"], B: Float[np.ndarray, "... n n"]) -> Float[np.ndarray, "..."]:
    """Return ½ Σ_j |A[i, j] - B[i, j]|, averaged over the queries from the second on (the first has no choice).

    >>> float(kernel_variation(np.eye(2), np.array([[1.0, 0.0], [0.25, 0.75]])))
    0.25
    """
    return np.asarray(abs(A - B)[..., 1:, :].sum(-1).mean(-1) / 2)


def measure_rotary(settings: Settings) -> xr.Dataset:
    """Measure a rotary model, and roll out every kernel of :data:`KERNELS` with the measured mixing.

    The first :data:`MOST` prompts are read for kernels.
    """
    study = Session(settings)
    instrument, n = study.instrument, settings.length
    ids = study.prompts.ids[:MOST]
    seen = _Means(instrument.T, instrument.H, n)
    rest = read_rotary_means(instrument, ids, settings.batch_size, skip=1, observe=seen)
    kept = measure(study)
    variances = {"keys": rest.variances(n, queries=False), "both": rest.variances(n)}
    A, content = seen.attention / seen.attention.sum(-1, keepdims=True), seen.logits / len(ids)
    masks = layer_masks(kept)
    slopes = np.array([[nearest_slope(head, mask) for head in heads] for heads, mask in zip(A, masks, strict=True)])
    kernels = _kernels(rest, variances, A, content, slopes, masks)
    lambda_, sees = kept["lambda_frobenius"].values, [slice(1, int(w) or None) for w in kept["window"].values]
    row = ("kernel", "layer")
    fields: dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, str]]] = {
        "profile": (("kernel", "position"), np.stack([influence_profile(B, lambda_) for B in kernels.values()]), {}),
        "variation": (
            row,
            np.stack([kernel_variation(B, kernels["measured"]) for B in kernels.values()]),
            {"long_name": "mean total variation to the measured kernel, queries from the second on"},
        ),
        "first": (
            row,
            np.stack([[b[s, 0].mean() for b, s in zip(B, sees, strict=True)] for B in kernels.values()]),
            {"long_name": "mean weight on position 0 of the later queries that see it"},
        ),
        "variance": (
            ("source", "layer", "position"),
            np.stack([v.mean(1) for v in variances.values()]),
            {"long_name": "variance of logits at a distance, mean over heads", "units": "nats²"},
        ),
        "slopes": (("layer", "head"), slopes, {"long_name": "nearest ALiBi slopes", "units": "nats a token"}),
        "query": (("layer", "head", "feature"), _every(rest, n).query, {"long_name": "mean query before the rotation"}),
        "key": (("layer", "head", "feature"), _every(rest, n).key, {"long_name": "mean key before the rotation"}),
        "theta": (("pair",), rest.theta, {"units": "radians a token"}),
        "scale": (("layer",), rest.scale, {}),
    }
    if n <= LONGEST_ROWS:
        rows = np.stack([B[:, -1] for B in kernels.values()]).astype(np.float32)
        fields["last_row"] = (("kernel", "layer", "position"), shave(rows), {"long_name": "the last query's weights"})
    about = {"summary": 1, "kernels": "; ".join(f"{name}: {what}" for name, what in KERNELS.items())}
    return xr.Dataset(
        fields,
        coords={"kernel": list(KERNELS), "source": list(variances)},
        attrs={**kept.attrs, **about, "prompts_read": len(ids), **versions("scipy")},
    )


def _every(rest: RotaryMeans, n: int) -> RotaryMeans:
    """Return the means with position 0, from those without it."""
    return replace(rest, **dict(zip(("query", "key"), rest.with_first(n), strict=True)))


def _kernels(
    rest: RotaryMeans,
    variances: dict[str, np.ndarray],
    A: Float[np.ndarray, "T H n n"],
    content: Float[np.ndarray, "T H n n"],
    slopes: Float[np.ndarray, "T H"],
    masks: list[Mask],
) -> dict[str, Float[np.ndarray, "T n n"]]:
    """Return every kernel of :data:`KERNELS`, heads averaged."""
    n = A.shape[-1]
    every = _every(rest, n).logits(n)
    logits = {"uniform": 0 * every, "mean": every, "rest": rest.logits(n)}
    logits |= {which: logits["rest"] + variance / 2 for which, variance in variances.items()}
    own, x = rest.first_logits(n), np.subtract.outer(np.arange(n), np.arange(n)).astype(float)
    layers = []
    for t, mask in enumerate(masks):
        found = {which: distance_kernels(distances[t], mask) for which, distances in logits.items()}
        found["first"] = distance_kernels(logits["rest"][t], mask, own[t])
        found["logits"] = attention_kernel(content[t], mask)
        found["slopes"] = attention_kernel(-slopes[t, :, None, None] * x, mask)
        found["measured"] = A[t]
        layers.append({which: mix_heads(heads) for which, heads in found.items()})
    return {which: np.stack([layer[which] for layer in layers]) for which in KERNELS}


class _Means:
    """Add up the attention and the content logits of every head."""

    def __init__(self, T: int, H: int, n: int) -> None:
        self.attention, self.logits = np.zeros((2, T, H, n, n))

    def __call__(self, reading: Reading) -> None:
        self.attention[reading.layer] += reading.probabilities.sum(0).cpu().numpy()
        self.logits[reading.layer] += torch.where(reading.allowed, reading.logits, 0.0).sum(0).cpu().numpy()
