"""A rollout from a measurement alone: depth, heads, slopes, mask, λ and content as the file has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.special import expit, logsumexp

from posbias import errors
from posbias.measure.results import described_biases
from posbias.measure.settings import RUNGS, VARIANTS
from posbias.rollout import masks
from posbias.rollout.biased import BiasedKernels
from posbias.rollout.influence import Kernels, influence_profile
from posbias.rollout.kernels import attention_kernel, mix_heads
from posbias.rollout.logits import content_logits, position_logits
from posbias.rollout.masks import Mask
from posbias.rollout.structured import structured_kernels
from posbias.rollout.token_bins import BinKernels, BinSteps, TokenBins
from posbias.rollout.untrained import aligned_profile, untrained_profile

OF_MEANS = ("a", "b", "c", "kernels")
"""Rollouts of kernels that are the same for all prompts."""
BRANCHES = {
    "gains": "branch_gain", "scales": "branch_scale", "outputs": "output_scale", "parallel": "parallel",
}  # fmt: skip
"""What the law is given, as :func:`~posbias.rollout.untrained.untrained_profile` and a measurement name it."""
NORMS = ("frobenius", "token")


@dataclass(frozen=True)
class MeasuredRollout:
    """Hold what :func:`~posbias.rollout.influence.influence_profile` needs.

    Parameters
    ----------
    kernels
        Structured where one mask serves all layers, or of the position biases that a model is given; dense where
        windows differ or go with such biases, and for measured kernels that are whole; measured kernels of long prompts
        are in cells.
    lambda_
        T values.
    n
        Tokens.
    branches
        What the law of untrained networks takes in place of λ; None for a rollout, which adds sizes.
    has_sinks
        Whether the first of the n states is no token but the sinks, which keep what they are given.
    """

    kernels: Kernels
    lambda_: Float[np.ndarray, "T"]
    n: int
    branches: dict[str, Any] | None = None
    has_sinks: bool = False

    def profile(self) -> Float[np.ndarray, "n"]:
        """Return the influence profile: of what sinks leave, if there are any."""
        if self.branches is not None:
            return self._of_tokens(untrained_profile(self.kernels, n=self.n, **self.branches))
        return self._of_tokens(influence_profile(self.kernels, self.lambda_, self.n))

    def aligned(self) -> Float[np.ndarray, "n"]:
        """Return the profile of the same gains, denominators and steps with sizes added, or raise ValueError."""
        if self.branches is None:
            raise errors.invalid("variant", "untrained, which has gains", "another")
        return self._of_tokens(aligned_profile(self.kernels, n=self.n, **self.branches))

    def _of_tokens(self, p: Float[np.ndarray, "n"]) -> Float[np.ndarray, "tokens"]:
        """Return the part of a profile that belongs to tokens, normalised."""
        return p[1:] / p[1:].sum() if self.has_sinks else p

    def dense(self) -> Float[np.ndarray, "T n n"]:
        """Return the kernels written out, one for each layer."""
        if isinstance(self.kernels, np.ndarray):
            return self.kernels
        return np.stack([self.kernels.dense(t, self.n) for t in range(len(self.lambda_))])


def measured_rollout(
    results: xr.Dataset, variant: str, *, n: int | None = None, norm: str = "frobenius"
) -> MeasuredRollout:
    """Return the rollout that a measurement describes, by the variants of :data:`~posbias.measure.settings.VARIANTS`.

    ``a`` has λ = 1; ``c`` constant content with the measured diagonal, layer by layer and head by head. Prompts' own
    rollouts have no kernels: :func:`measured_profile` knows them. ``norm`` says which reading of λ: ``frobenius`` (the
    paper's text) or ``token`` (the authors' code).

    Source: residual-aware paper, section 6.2. Slopes or given biases, scale and mask are the model's own, which the
    published configurations assume; content logits carry their 1/√D, which the published ones lack.
    """
    for field, value, known in (("variant", variant, (*OF_MEANS, "untrained")), ("norm", norm, NORMS)):
        if value not in known:
            raise errors.invalid(field, f"one of {', '.join(known)}", value)
    if variant not in variants_of(results):
        raise _absent(results, variant)
    measured = int(results.attrs["length"])
    n = measured if n is None else errors.positive_integer("length", n)
    if variant == "untrained":
        return _of_untrained(results, measured, n)
    T = results.sizes["layer"]
    lambda_ = np.ones(T) if variant == "a" else results[f"lambda_{norm}"].values.astype(np.float64)
    if variant == "kernels":
        if n != measured:
            raise errors.invalid("length", f"{measured}, the length of the measured kernels", n)
        has_sinks = "sink_share" in results
        return MeasuredRollout(measured_kernels(results), lambda_, n + has_sinks, has_sinks=has_sinks)
    diagonal = base = np.zeros((T, results.sizes["head"]))
    if variant == "c":
        base = results["content_offdiagonal"].values.astype(np.float64)
        diagonal = results["content_diagonal"].values.astype(np.float64) - base
    return MeasuredRollout(_kernels(results, diagonal, base, n), lambda_, n)


def measured_profile(
    results: xr.Dataset, variant: str, *, n: int | None = None, norm: str = "frobenius"
) -> Float[np.ndarray, "n"]:
    """Return the influence profile that a measurement describes; arguments and errors are :func:`measured_rollout`'s.

    The variant ``own`` is known here too, the mean over prompts of the rollouts of each prompt's own λ and attention,
    and so are the rungs of the ladder.
    """
    if variant not in ("own", *RUNGS):
        return measured_rollout(results, variant, n=n, norm=norm).profile()
    if variant not in variants_of(results):
        raise _absent(results, variant)
    measured = int(results.attrs["length"])
    if n not in (None, measured) or norm != "frobenius":
        raise errors.invalid("rollout", f"length {measured} and norm frobenius, as {variant} has", f"{n}, {norm}")
    kept = results["rollout_own"] if variant == "own" else results["ladder_prompts"].sel(rung=variant)
    p = kept.astype(np.float64).mean([dim for dim in kept.dims if dim != "position"]).values
    return np.asarray(p / p.sum())


def variants_of(results: xr.Dataset) -> tuple[str, ...]:
    """Return the variants that a measurement describes: those whose variables it has; none of whole prompts."""
    if "prompt_length" in results:
        return ()
    there = {str(name) for name in results}
    kernels = "attention" in there or {"attention_cells", "attention_band", "cell_start"} <= there
    steps = "step_gain" in there or {"step_gain_cells", "step_gain_diagonal", "cell_start"} <= there
    if "lambda_frobenius" not in there:
        return ()
    has = {
        "c": {"content_diagonal", "content_offdiagonal"} <= there,
        "kernels": kernels,
        "own": "rollout_own" in there,
        "untrained": set(BRANCHES.values()) <= there and steps,
        **dict.fromkeys(RUNGS, "ladder_prompts" in there),
    }
    return tuple(variant for variant in VARIANTS if has.get(variant, True))


def measured_kernels(results: xr.Dataset) -> Float[np.ndarray, "T n n"] | BinKernels:
    """Return the mean attention of each layer, whole or in cells; with sinks as a state before the first token."""
    name = "attention" if "attention" in results else "attention_cells"
    A = results[name].values.astype(np.float64)
    has_sinks = "sink_share" in results
    A = with_sinks(A) if has_sinks else A / A.sum(-1, keepdims=True)  # weights were rounded to 32 bits or 16
    if name == "attention":
        return A
    cells, band = measured_cells(results), results["attention_band"].values.astype(np.float64)
    if has_sinks:
        cells = TokenBins(cells.n + 1, np.append(0, cells.starts + 1))
        band = np.concatenate([np.eye(1, band.shape[-1])[None].repeat(len(A), 0), band], axis=1)
        near = np.arange(1, band.shape[-1])  # queries so near to the first state are cells of their own
        band[:, near, near] = A[:, near, 0]
    return BinKernels(cells, A, band)


def with_sinks(A: Float[np.ndarray, "*stack n n"]) -> Float[np.ndarray, "*stack states states"]:
    """Return kernels with a state before the first token that takes what their rows lack, and keeps it.

    What a rollout leaves with tokens is then what sinks leave, and rows sum to one.

    >>> with_sinks(np.array([[0.5, 0.0], [0.25, 0.5]])).tolist()
    [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]
    """
    out = np.zeros((*A.shape[:-2], A.shape[-2] + 1, A.shape[-1] + 1))
    out[..., 1:, 1:], out[..., 1:, 0], out[..., 0, 0] = A, (1 - A.sum(-1)).clip(0), 1.0
    return out / out.sum(-1, keepdims=True)


def measured_cells(results: xr.Dataset) -> TokenBins:
    """Return how a measurement of long prompts divides their tokens."""
    return TokenBins(int(results.attrs["length"]), results["cell_start"].values.astype(np.int64))


def needs(variant: str) -> str:
    """Return what to measure for a variant that a measurement may lack.

    >>> needs("own")
    '--quantities with kernels'
    """
    of_untrained = ", of a model without a norm on the residual sum" * (variant == "untrained")
    return f"--quantities with {quantity_of(variant)}{of_untrained}"


def quantity_of(variant: str) -> str:
    """Return the quantity of a measurement that a variant is made of.

    >>> quantity_of("vectors")
    'ladder'
    """
    named = {
        "a": "mixing",
        "b": "mixing",
        "c": "content",
        "kernels": "kernels",
        "own": "kernels",
        "untrained": "branches",
    }
    return named.get(variant, "ladder")


def _absent(results: xr.Dataset, variant: str) -> ValueError:
    """Return what to say of a variant that a measurement does not describe."""
    if "prompt_length" in results:
        return errors.invalid("variant", "none for whole prompts, whose lengths differ: rollouts are of one", variant)
    if not (described := variants_of(results)):
        return errors.invalid("variant", "none, of a measurement of influence alone", variant)
    expected = f"one of {', '.join(described)}, which the measurement describes"
    if variant == "untrained" and "no_branches" in results.attrs:
        return errors.invalid("variant", expected, f"untrained, of a model with {results.attrs['no_branches']}")
    return errors.invalid("variant", expected, f"{variant}, which needs {needs(variant)}{_command(results, variant)}")


def _command(results: xr.Dataset, variant: str) -> str:
    """Return how to measure once more with what a variant needs; nothing of a model that no one name opens."""
    attrs = {str(name): str(value) for name, value in results.attrs.items()}
    if " " in (name := attrs.get("model", " ")) or "quantities" not in attrs:
        return ""
    text = "--rule random" if attrs["rule"].startswith("random") else f"--dataset {attrs['dataset']}"
    numbers = f"--prompts {attrs['prompts']} --length {attrs['length']}"
    quantities = f"{attrs['quantities']},{quantity_of(variant)}"
    return f": posbias measure {name} {text} {numbers} --quantities {quantities} --output again.nc"


def _of_untrained(results: xr.Dataset, measured: int, n: int) -> MeasuredRollout:
    """Return the law of untrained networks: content-free kernels with the branches' gains, or raise ValueError."""
    if n != measured:
        raise errors.invalid("length", f"{measured}, the length of the measured denominators", n)
    branches: dict[str, Any] = {
        name: results[variable].values.astype(np.float64) for name, variable in BRANCHES.items()
    }
    if "step_gain" in results:
        branches["steps"] = results["step_gain"].values.astype(np.float64)
    else:
        sizes = results["step_gain_diagonal"].values.astype(np.float64)
        branches["steps"] = BinSteps(measured_cells(results), results["step_gain_cells"].values, sizes)
    T, H = results["slopes"].shape
    none = np.zeros((T, H))
    kernels, biased = _kernels(results, none, none, n), {"position_bias", "added_bias"} & set(results.attrs)
    if isinstance(kernels, np.ndarray) and not biased and "sinks" not in results:  # windows, and heads of one kernel
        branches["gains"] = np.linalg.norm(branches["gains"], axis=1)
    elif isinstance(kernels, np.ndarray):
        kernels = np.stack([_heads(results, t, none[t], none[t], n) for t in range(T)])
    if "sinks" in results:
        kernels = np.stack([with_sinks(_heads(results, t, none[t], none[t], n, sinks=True)) for t in range(T)])
        return MeasuredRollout(kernels, np.ones(T), n + 1, _beside_sinks(branches, n), has_sinks=True)
    return MeasuredRollout(kernels, np.ones(T), n, branches)


def _beside_sinks(branches: dict[str, Any], n: int) -> dict[str, Any]:
    """Return what the law of untrained networks takes, with a first state that has no value and no step."""
    steps = np.stack([branches["steps"][t] for t in range(len(branches["gains"]))])
    return branches | {
        "scales": np.pad(branches["scales"], ((0, 0), (1, 0))),
        "outputs": np.pad(branches["outputs"], ((0, 0), (1, 0)), constant_values=1.0),
        "steps": np.pad(steps, ((0, 0), (1, 0), (1, 0))),
    }


def layer_masks(results: xr.Dataset) -> list[Mask]:
    """Return each layer's mask: a sliding window where the model has one, else causal."""
    return [masks.sliding_window(int(w)) if w else masks.causal() for w in results["window"].values]


def _kernels(results: xr.Dataset, diagonal: np.ndarray, base: np.ndarray, n: int) -> Kernels:
    """Return structured kernels or those of given biases; dense ones where windows differ or biases have windows.

    Those of a model with a bias that was added while it was measured are dense too.
    """
    biases, layers = described_biases(results), layer_masks(results)
    T, H = diagonal.shape
    if "added_bias" in results.attrs:
        return np.stack([mix_heads(_heads(results, t, diagonal[t], base[t], n)) for t in range(T)])
    if biases is not None and not results["window"].values.any():
        return BiasedKernels(T, H, biases, diagonal, np.full((1, H), 1 / H))
    if biases is None and len(set(layers)) == 1:
        slopes = results["slopes"].values.astype(np.float64)
        slope = slopes if (slopes > 0).all() else None
        return structured_kernels(T, slope=slope, diagonal=diagonal, base=base, mask=layers[0], H=H)
    return np.stack([mix_heads(_heads(results, t, diagonal[t], base[t], n)) for t in range(T)])


def _heads(
    results: xr.Dataset, t: int, diagonal: np.ndarray, base: np.ndarray, n: int, *, sinks: bool = False
) -> Float[np.ndarray, "H n n"]:
    """Return the kernels of a layer's heads, dense; less what sinks take, if that is asked for."""
    biases, mask = described_biases(results), layer_masks(results)[t]
    added = described_biases(results, "added_bias")
    if biases is None:
        logits = [position_logits(n, m) for m in results["slopes"].values[t].astype(np.float64)]
    else:
        logits = [bias.logits(n) for bias in biases[min(t, len(biases) - 1)]]
    if added is not None:
        logits = [z + bias.logits(n) for z, bias in zip(logits, added[min(t, len(added) - 1)], strict=True)]
    whole = [z + content_logits(n, b, d) for z, d, b in zip(logits, diagonal, base, strict=True)]
    A = np.stack([attention_kernel(z, mask) for z in whole])
    if sinks:
        seen = logsumexp(np.where(mask.matrix(n), np.stack(whole), -np.inf), axis=-1)
        A *= expit(seen - results["sinks"].values[t][:, None])[..., None]
    return A
