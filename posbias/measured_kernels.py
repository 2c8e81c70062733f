"""What a measurement says of attention, as kernels: by positions, with content, as measured; and the law of gains."""

from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.special import expit, logsumexp

from posbias.measure.results import described_biases
from posbias.rollout import masks
from posbias.rollout.influence import Kernels
from posbias.rollout.kernels import attention_kernel, mix_heads
from posbias.rollout.logits import position_logits
from posbias.rollout.masks import Mask
from posbias.rollout.structured import biased_kernels, structured_kernels

LAW = {"gains": "branch_gain", "scales": "branch_scale", "outputs": "output_scale", "parallel": "parallel"}
"""What head gains are predicted with, as the engine and a file name it."""


def position_kernels(results: xr.Dataset) -> Kernels:
    """Return attention by mask and position bias alone, heads mixed.

    Structured where one mask serves all layers, or of the position biases that a model is given; dense where windows
    differ, where they go with such biases, and where a bias was added while the model was measured. Slopes, scale and
    mask are the model's own.
    """
    none = np.zeros((results.sizes["layer"], results.sizes["head"]))
    return _kernels(results, none)


def self_preferring_kernels(results: xr.Dataset) -> Kernels:
    """Return the same with mean content logits, which carry their 1/√D, layer by layer and head by head."""
    own, rest = (results[name].values.astype(np.float64) for name in ("content_diagonal", "content_offdiagonal"))
    return _kernels(results, own - rest)


def measured_kernels(results: xr.Dataset) -> Float[np.ndarray, "T n n"]:
    """Return the mean attention of each layer; with sinks as a state before the first token."""
    A = results["attention"].values.astype(np.float64)
    return with_sinks(A) if "sink_share" in results else A / A.sum(-1, keepdims=True)  # rounded to 32 bits or 16


def law(results: xr.Dataset) -> dict[str, Any]:
    """Return what the law of untrained networks takes (:func:`~posbias.rollout.untrained.untrained_profile`).

    Kernels know no content. Sinks are a first state that has no value and no step; what belongs to tokens begins with
    the second.
    """
    n = results.sizes["position"]
    T, H = results["slopes"].shape
    none = np.zeros((T, H))
    made: dict[str, Any] = {name: results[variable].values.astype(np.float64) for name, variable in LAW.items()}
    made["steps"] = results["step_gain"].values.astype(np.float64)
    if "sinks" in results:
        heads = [with_sinks(_heads(results, t, none[t], sinks=True)) for t in range(T)]
        return made | {
            "kernels": np.stack(heads),
            "n": n + 1,
            "scales": np.pad(made["scales"], ((0, 0), (1, 0))),
            "outputs": np.pad(made["outputs"], ((0, 0), (1, 0)), constant_values=1.0),
            "steps": np.pad(made["steps"], ((0, 0), (1, 0), (1, 0))),
        }
    kernels: Any = position_kernels(results)
    if isinstance(kernels, np.ndarray) and any(described_biases(results, x) for x in ("position_bias", "condition")):
        kernels = np.stack([_heads(results, t, none[t]) for t in range(T)])
    elif isinstance(kernels, np.ndarray):  # windows, and heads of one kernel
        made["gains"] = np.linalg.norm(made["gains"], axis=1)
    return made | {"kernels": kernels, "n": n}


def dense(kernels: Kernels, T: int, n: int) -> Float[np.ndarray, "T n n"]:
    """Return the kernels of T layers written out."""
    return kernels if isinstance(kernels, np.ndarray) else np.stack([kernels.dense(t, n) for t in range(T)])


def layer_masks(results: xr.Dataset) -> list[Mask]:
    """Return each layer's mask: a sliding window where the model has one, else causal."""
    return [masks.sliding_window(int(w)) if w else masks.causal() for w in results["window"].values]


def with_sinks(A: Float[np.ndarray, "*stack n n"]) -> Float[np.ndarray, "*stack states states"]:
    """Return kernels with a state before the first token that takes what their rows lack, and keeps it.

    What a rollout leaves with tokens is then what sinks leave, and rows sum to one.

    >>> with_sinks(np.array([[0.5, 0.0], [0.25, 0.5]])).tolist()
    [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]
    """
    out = np.zeros((*A.shape[:-2], A.shape[-2] + 1, A.shape[-1] + 1))
    out[..., 0, 0] = 1.0
    out[..., 1:, 0] = (1 - A.sum(-1)).clip(0)
    out[..., 1:, 1:] = A
    return out / out.sum(-1, keepdims=True)


def _kernels(results: xr.Dataset, diagonal: np.ndarray) -> Kernels:
    """Return kernels of positions, and of what content a token itself has more than the others."""
    biases, layers = described_biases(results), layer_masks(results)
    T, H = diagonal.shape
    if described_biases(results, "condition") is None:
        if biases is not None and not results["window"].values.any():
            return biased_kernels(T, biases, diagonal=diagonal)
        if biases is None and len(set(layers)) == 1:
            slopes = results["slopes"].values.astype(np.float64)
            slope = slopes if (slopes > 0).all() else None
            return structured_kernels(T, slope=slope, diagonal=diagonal, mask=layers[0], H=H)
    return np.stack([mix_heads(_heads(results, t, diagonal[t])) for t in range(T)])


def _heads(results: xr.Dataset, t: int, diagonal: np.ndarray, *, sinks: bool = False) -> Float[np.ndarray, "H n n"]:
    """Return the kernels of a layer's heads, dense; less what sinks take, if that is asked for."""
    biases, mask = described_biases(results), layer_masks(results)[t]
    added, n = described_biases(results, "condition"), results.sizes["position"]
    if biases is None:
        logits = [position_logits(n, m) for m in results["slopes"].values[t].astype(np.float64)]
    else:
        logits = [bias.logits(n) for bias in biases[min(t, len(biases) - 1)]]
    if added is not None:
        logits = [z + bias.logits(n) for z, bias in zip(logits, added[min(t, len(added) - 1)], strict=True)]
    whole = [z + d * np.eye(n) for z, d in zip(logits, diagonal, strict=True)]
    A = np.stack([attention_kernel(z, mask) for z in whole])
    if sinks:
        seen = logsumexp(np.where(mask.matrix(n), np.stack(whole), -np.inf), axis=-1)
        A *= expit(seen - results["sinks"].values[t][:, None])[..., None]
    return A
