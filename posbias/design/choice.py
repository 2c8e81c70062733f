"""The position bias to add to a finished model, chosen from one measurement of it: the model does not run again.

A bias b that is added to a head's logits multiplies its weights: A'[i, j] ∝ A[i, j] e^b[i, j], row by row. Of measured
mean kernels, each head's or those averaged over heads, and measured λ this gives the rollout under any b at the cost of
a few products, and b is chosen so that it is as even as can be. What is neglected: a ratio of means stands for the mean
of ratios over prompts (and over heads, where only their mean was kept), and inputs of later layers and λ stay. Without
content only λ is neglected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from posbias import errors
from posbias.comparison.distances import normalised_wasserstein
from posbias.design import Description, rounded
from posbias.rollout.position_bias import (
    AlibiBias,
    Biases,
    FlatBias,
    LogBias,
    NoBias,
    PositionBias,
    RatioBias,
    described,
    layered_biases,
    position_bias,
)

PARTS = 16
"""Equal parts of a prompt of which the one with least influence is its worst place."""
ALPHA, TAU, SLOPE = (-4.0, 6.0), (0.25, 8.0), 30.0
"""Ranges of exponents and cut-offs; the steepest slope either way, in logits over the whole prompt."""
SAFE = 500.0
"""Logits up to this size stay inside the range of a double."""
FARTHEST = 20.0
"""log(i / j) up to which an exponent of -1 or less is written out."""
POINTS = 25
"""Points of a grid in one number, around the best of which it is refined."""
SWEEPS, EVALUATIONS = 6, 800
"""Of the search over a number for each layer, at most."""


@dataclass(frozen=True, eq=False)
class Attended:
    """Hold what a measurement says of a model's attention and mixing."""

    # Mean attention of T layers: of each of H heads, or of one kernel that stands for all; rows sum to 1
    kernels: Float[np.ndarray, "T heads n n"]
    lambda_: Float[np.ndarray, "T"]  # Residual mixing
    heads: int  # H

    @property
    def n(self) -> int:
        """Number of tokens."""
        return int(self.kernels.shape[-1])

    def profile(self, biases: Biases) -> Float[np.ndarray, "n"]:
        """Return the influence profile of the rollout with biases added."""
        v = np.zeros(self.n)
        v[-1] = 1.0
        for t in reversed(range(len(self.lambda_))):
            moved = np.zeros(self.n)
            row = biases[min(t, len(biases) - 1)]
            for (h, bias), share in self._different(row).items():
                moved += share * self._pulled(v, t, h, bias)
            v = (1 - self.lambda_[t]) * v + self.lambda_[t] * moved
        return v

    def _different(self, row: tuple[PositionBias, ...]) -> dict[tuple[int, PositionBias], float]:
        """Return kernels with their biases, and the share of heads that have both."""
        found: dict[tuple[int, PositionBias], float] = {}
        for h, bias in enumerate(row):
            key = min(h, self.kernels.shape[1] - 1), bias
            found[key] = found.get(key, 0.0) + 1 / len(row)
        return found

    def _pulled(self, v: Float[np.ndarray, "n"], t: int, h: int, bias: PositionBias) -> Float[np.ndarray, "n"]:
        """Return v A', A' ∝ A e^b; a query of which b hides all that A shows sees itself."""
        A = self.kernels[t, h]
        if isinstance(bias, NoBias):
            return np.asarray(v @ A)
        keys = key_factors(bias, self.n)
        if keys is not None:
            return np.asarray((v / (A @ keys)) @ A * keys)
        weighed = A * _factors(bias, self.n)
        sums = weighed.sum(-1)
        seen = sums > 0
        out = np.divide(v, sums, out=np.zeros(self.n), where=seen) @ weighed
        return np.asarray(np.where(seen, out, out + v))


def attended(results: xr.Dataset) -> Attended:
    """Return what a measurement holds of attention and mixing: each head's kernels where it has them."""
    name = next((x for x in ("attention_heads", "attention") if x in results), None)
    if name is None:
        n = results.attrs["length"]
        raise errors.invalid("measurement", f"--quantities with kernels and --kernel-size {n} or more", "no kernels")
    if "added_bias" in results.attrs:
        received = f"one with {str(results.attrs['added_bias'])[:60]}"
        raise errors.invalid("measurement", "one of the model as it is, without a bias that is added", received)
    if "sinks" in results:
        raise errors.invalid("measurement", "attention whose rows sum to one", "one with sinks, which take a share")
    A = results[name].values.astype(np.float64)
    A = A[:, None] if name == "attention" else A
    lambda_ = results["lambda_frobenius"].values.astype(np.float64)
    return Attended(A / A.sum(-1, keepdims=True), lambda_, int(results.sizes["head"]))


def distance_to_even(p: Float[np.ndarray, "n"]) -> float:
    """Return the normalised W₁ of a profile to uniform.

    >>> distance_to_even(np.array([0.0, 1.0]))
    0.5
    """
    return normalised_wasserstein(p, np.full(p.size, 1 / p.size))


def worst_place(p: Float[np.ndarray, "n"]) -> float:
    """Return the influence of the worst of :data:`PARTS` parts of a prompt, in multiples of an even share.

    >>> worst_place(np.array([0.25, 0.75]))
    0.5
    """
    parts = np.array_split(p, min(PARTS, p.size))
    return float(min(part.mean() for part in parts) * p.size)


CRITERIA: Mapping[str, Callable[[np.ndarray], float]] = {
    "uniform": distance_to_even,
    "worst": lambda p: -worst_place(p),
}
"""What is made as small as can be: the distance to uniform, or less the influence of the worst place."""


@dataclass(frozen=True, eq=False)
class Choice:
    """Hold a bias that was chosen, and what it is expected to do."""

    kind: str  # A name of :data:`KINDS`
    description: Description  # Of the bias, as :func:`~posbias.rollout.position_bias.layered_biases` reads it
    profile: Float[np.ndarray, "n"]  # Of the rollout with it
    value: float  # Of the criterion


def chosen_bias(model: Attended, kind: str = "best", criterion: str = "uniform") -> Choice:
    """Return the bias under which the rollout is as even as can be.

    >>> recent = np.tril(0.5 ** np.subtract.outer(np.arange(8), np.arange(8)).clip(0))
    >>> model = Attended(np.tile(recent / recent.sum(1, keepdims=True), (3, 1, 1, 1)), np.full(3, 0.5), 2)
    >>> chosen_bias(model, "alibi").description["slope"] < 0
    True
    """
    found = [KINDS[name](model, criterion) for name in (SMOOTH if kind == "best" else [kind])]
    return min(found, key=lambda choice: choice.value)


def evaluated(model: Attended, kind: str, description: Description, criterion: str = "uniform") -> Choice:
    """Return a bias with the profile that is expected of it."""
    p = model.profile(layered_biases(description, len(model.lambda_), model.heads))
    return Choice(kind, description, p, CRITERIA[criterion](p))


def power(alpha: float) -> PositionBias:
    """Return the bias that multiplies weights by j^α: α log j, or written as a function of i / j for α ≤ -1.

    >>> power(1.5), power(-1.5)
    (LogBias(alpha=1.5), RatioBias(distances=(0.0, 20.0), values=(0.0, 30.0)))
    """
    alpha = rounded(alpha)
    return LogBias(alpha) if alpha > -1 else RatioBias((0.0, FARTHEST), (0.0, -alpha * FARTHEST))


def sloped(x: float, n: int) -> PositionBias:
    """Return the bias that loses x logits from the last of n tokens to the first; below 0 it wins them.

    >>> sloped(-8.0, 16)
    AlibiBias(slope=-0.5)
    """
    slope = rounded(x / n)
    return AlibiBias(slope) if slope else NoBias()


def exponent(bias: PositionBias) -> float | None:
    """Return the α of :func:`power`, None for another bias."""
    if isinstance(bias, RatioBias) and bias.distances == (0.0, FARTHEST) and bias.values[0] == 0:
        return -bias.values[1] / FARTHEST
    return bias.alpha if isinstance(bias, LogBias) else None


def key_factors(bias: PositionBias, n: int) -> Float[np.ndarray, "n"] | None:
    """Return by what a bias multiplies the weight of each of n keys, at most 1; None where that depends on the query.

    >>> key_factors(LogBias(1.0), 2), key_factors(AlibiBias(-1.0), 2).round(3)
    (array([0.5, 1. ]), array([1.   , 0.368]))
    """
    position, alpha = np.arange(1.0, n + 1), exponent(bias)
    if alpha is not None:
        found = alpha * np.log(position)
    elif isinstance(bias, AlibiBias):
        found = bias.slope * position
    else:
        return None
    return np.exp(found - found.max()) if np.ptp(found) < SAFE else None


@lru_cache(maxsize=1)
def _factors(bias: PositionBias, n: int) -> Float[np.ndarray, "n n"]:
    """Return e^b at keys up to the query, 1 at the largest of each row."""
    z = np.where(np.tri(n, dtype=bool), bias.logits(n), -np.inf)
    return np.asarray(np.exp(z - z.max(-1, keepdims=True)))


def flat_share(model: Attended, share: int, criterion: str = "uniform") -> Choice:
    """Return flat logits in the last ``share`` heads, with the cut-off that makes the rollout as even as can be."""

    def heads(x: float) -> Description:
        flat = described(FlatBias(rounded(float(np.exp(x)))))
        return [described(NoBias())] * (model.heads - share) + [flat] * share

    return _in_one_number(model, "flat", heads, (float(np.log(TAU[0])), float(np.log(TAU[1]))), criterion)


def _log(model: Attended, criterion: str) -> Choice:
    return _in_one_number(model, "log", lambda x: described(power(x)), ALPHA, criterion)


def _alibi(model: Attended, criterion: str) -> Choice:
    return _in_one_number(model, "alibi", lambda x: described(sloped(x, model.n)), (-SLOPE, SLOPE), criterion)


def _flat(model: Attended, criterion: str) -> Choice:
    found = [flat_share(model, share, criterion) for share in range(1, model.heads + 1)]
    return min(found, key=lambda choice: choice.value)


def _by_layer(model: Attended, criterion: str) -> Choice:
    """Search exponents or slopes, whichever are better for all layers, from there on by Powell's method."""
    from scipy.optimize import minimize

    shared = min(_log(model, criterion), _alibi(model, criterion), key=lambda choice: choice.value)
    bias = position_bias(shared.description)
    if shared.kind == "log":
        start, limits, make = exponent(bias), ALPHA, power
    else:
        start, limits, make = getattr(bias, "slope", 0.0) * model.n, (-SLOPE, SLOPE), partial(sloped, n=model.n)

    def value(x: np.ndarray) -> float:
        return CRITERIA[criterion](model.profile(tuple((make(float(y)),) * model.heads for y in x)))

    T = len(model.lambda_)
    options = {"maxiter": SWEEPS, "maxfev": EVALUATIONS, "xtol": 1e-2, "ftol": 1e-4}
    done = minimize(value, np.full(T, start), method="Powell", bounds=[limits] * T, options=options)
    own: list[Any] = [[described(make(float(x)))] * model.heads for x in done.x]
    same: list[Any] = [[shared.description] * model.heads] * T
    found = [evaluated(model, "layers", description, criterion) for description in (own, same)]
    return min(found, key=lambda choice: choice.value)


KINDS: Mapping[str, Callable[[Attended, str], Choice]] = {
    "log": _log, "alibi": _alibi, "layers": _by_layer, "flat": _flat
}  # fmt: skip
"""What is chosen among: how a bias of each kind is found."""
SMOOTH = tuple(kind for kind in KINDS if kind != "flat")
"""Kinds that hide no key."""


def _in_one_number(
    model: Attended, kind: str, describe: Callable[[float], Description], limits: tuple[float, float], criterion: str
) -> Choice:
    """Return the best of a grid, refined between its neighbours."""
    from scipy.optimize import minimize_scalar

    found: list[tuple[float, Choice]] = []

    def value(x: float) -> float:
        found.append((x, evaluated(model, kind, describe(float(x)), criterion)))
        return found[-1][1].value

    grid = np.linspace(limits[0], limits[1], POINTS)
    best = int(np.argmin([value(x) for x in grid]))
    around = grid[max(best - 1, 0)], grid[min(best + 1, POINTS - 1)]
    minimize_scalar(value, bounds=around, method="bounded", options={"xatol": 1e-3})
    return min(found, key=lambda tried: tried[1].value)[1]
