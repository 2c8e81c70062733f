"""Position biases in closed form for a network that is to be, and the one to add to a finished model.

The second is chosen from one measurement of the model, which does not run again. A bias b that is added to a head's
logits multiplies its weights: A'[i, j] ∝ A[i, j] e^b[i, j], row by row. Of measured mean kernels, each head's or those
averaged over heads, and measured λ this gives the rollout under any b at the cost of a few products, and b is chosen so
that it is as even as can be. What is neglected: a ratio of means stands for the mean of ratios over prompts (and over
heads, where only their mean was kept), and inputs of later layers and λ stay. Without content only λ is neglected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.comparison.distances import normalised_wasserstein
from posbias.rollout.logits import alibi_slopes
from posbias.rollout.position_bias import (
    AlibiBias,
    Biases,
    LogBias,
    NoBias,
    PositionBias,
    describe,
    layered_biases,
    position_bias,
)

if TYPE_CHECKING:
    import xarray as xr

Description = dict[str, Any] | list[dict[str, Any]] | list[list[dict[str, Any]]]
"""Of biases, as :func:`~posbias.rollout.position_bias.layered_biases` reads it."""
DIGITS = 6
"""Digits of the numbers that are found."""
KINDS = ("log", "alibi", "layers")
"""What is chosen among: one exponent, one slope, one of either for each layer."""
RANGES = {"log": (-4.0, 6.0), "alibi": (-30.0, 30.0)}
"""Of exponents, and of slopes in logits over the whole prompt."""
SAFE = 500.0
"""Logits up to this size stay inside the range of a double."""
POINTS = 25
"""Points of a grid in one number, around the best of which it is refined."""
SWEEPS, EVALUATIONS = 6, 800
"""Of the search over a number for each layer, at most."""


def rounded(x: float) -> float:
    """Return a number with so many digits."""
    return float(f"{x:.{DIGITS}g}")


def closed_forms(lambda_: Float[np.ndarray, "T"], heads: int) -> dict[str, list[dict[str, Any]]]:
    """Return biases for the heads of a network with this mixing, by name: those that theory has without a search.

    No bias, the slopes of ALiBi's rule, the steepest first, the exponent α = Σλ - 1, or flat with τ = Σλ. The last two
    make the rollout of many layers nearly even.

    Source: ours; the chapter on designing position bias.

    >>> closed_forms(np.full(8, 0.3), 2)["log, α = Σλ - 1"]
    [{'kind': 'log', 'alpha': 1.4}, {'kind': 'log', 'alpha': 1.4}]
    """
    tau = rounded(float(lambda_.sum()))
    return {
        "no bias": [{"kind": "none"}] * heads,
        "ALiBi's rule": [{"kind": "alibi", "slope": float(m)} for m in np.sort(alibi_slopes(heads))[::-1]],
        "log, α = Σλ - 1": [{"kind": "log", "alpha": rounded(max(tau - 1, -0.999))}] * heads,
        "flat, τ = Σλ": [{"kind": "flat", "tau": tau}] * heads,
    }


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
            alike = Counter((min(h, self.kernels.shape[1] - 1), bias) for h, bias in enumerate(row))
            for (h, bias), times in alike.items():
                moved += times / len(row) * self._pulled(v, t, h, bias)
            v = (1 - self.lambda_[t]) * v + self.lambda_[t] * moved
        return v

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


def read_attention(results: xr.Dataset) -> Attended:
    """Return what a measurement holds of attention and mixing: each head's kernels where it has them."""
    name = next((x for x in ("attention_heads", "attention") if x in results), None)
    if name is None:
        n = results.attrs["length"]
        raise errors.invalid("measurement", f"--quantities with kernels and --kernel-size {n} or more", "no kernels")
    if "condition" in results.attrs:
        received = f"one under {str(results.attrs['condition'])[:60]}"
        raise errors.invalid("measurement", "one of the model as it is", received)
    if "sinks" in results:
        raise errors.invalid("measurement", "attention whose rows sum to one", "one with sinks, which take a share")
    A = results[name].values.astype(np.float64)
    A = A[:, None] if name == "attention" else A
    lambda_ = results["lambda_frobenius"].values.astype(np.float64)
    return Attended(A / A.sum(-1, keepdims=True), lambda_, int(results.sizes["head"]))


def distance_to_even(p: Float[np.ndarray, "n"]) -> float:
    """Return the normalised W₁ of a profile to uniform."""
    return normalised_wasserstein(p, np.full(p.size, 1 / p.size))


@dataclass(frozen=True, eq=False)
class Choice:
    """Hold a bias that was chosen, and what it is expected to do."""

    kind: str  # One of :data:`KINDS`
    description: Description  # Of the bias, as :func:`~posbias.rollout.position_bias.layered_biases` reads it
    profile: Float[np.ndarray, "n"]  # Of the rollout with it
    value: float  # Its distance to uniform


def choose_bias(model: Attended, kind: str = "best") -> Choice:
    """Return the bias under which the rollout is as even as can be.

    >>> recent = np.tril(0.5 ** np.subtract.outer(np.arange(8), np.arange(8)).clip(0))
    >>> model = Attended(np.tile(recent / recent.sum(1, keepdims=True), (3, 1, 1, 1)), np.full(3, 0.5), 2)
    >>> choose_bias(model, "alibi").description["slope"] < 0
    True
    """
    if kind == "layers":
        return _by_layer(model)
    if kind == "best":
        found = [choose_bias(model, name) for name in KINDS]
    else:
        found = [in_one_number(model, kind, lambda x: describe(smooth(kind, x, model.n)), RANGES[kind])]
    return min(found, key=lambda choice: choice.value)


def evaluate(model: Attended, kind: str, description: Description) -> Choice:
    """Return a bias with the profile that is expected of it."""
    p = model.profile(layered_biases(description, len(model.lambda_), model.heads))
    return Choice(kind, description, p, distance_to_even(p))


def smooth(kind: str, x: float, n: int) -> PositionBias:
    """Return an exponent x, or a slope that loses x logits from the last of n tokens to the first (wins below 0)."""
    if kind == "log":
        return LogBias(rounded(x))
    slope = rounded(x / n)
    return AlibiBias(slope) if slope else NoBias()


def key_factors(bias: PositionBias, n: int) -> Float[np.ndarray, "n"] | None:
    """Return by what a bias multiplies the weight of each of n keys, at most 1; None if that depends on the query."""
    position = np.arange(1.0, n + 1)
    if isinstance(bias, LogBias):
        found = bias.alpha * np.log(position)
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


def _by_layer(model: Attended) -> Choice:
    """Search exponents or slopes, whichever are better for all layers, from there on by Powell's method."""
    from scipy.optimize import minimize

    shared = min((choose_bias(model, kind) for kind in ("log", "alibi")), key=lambda choice: choice.value)
    kind, bias, T = shared.kind, position_bias(shared.description), len(model.lambda_)
    start = bias.alpha if isinstance(bias, LogBias) else getattr(bias, "slope", 0.0) * model.n

    def value(x: np.ndarray) -> float:
        return distance_to_even(model.profile(tuple((smooth(kind, float(y), model.n),) * model.heads for y in x)))

    options = {"maxiter": SWEEPS, "maxfev": EVALUATIONS, "xtol": 1e-2, "ftol": 1e-4}
    done = minimize(value, np.full(T, start), method="Powell", bounds=[RANGES[kind]] * T, options=options)
    own: list[Any] = [[describe(smooth(kind, float(x), model.n))] * model.heads for x in done.x]
    same: list[Any] = [[shared.description] * model.heads] * T
    found = [evaluate(model, "layers", description) for description in (own, same)]
    return min(found, key=lambda choice: choice.value)


def in_one_number(
    model: Attended, kind: str, describe: Callable[[float], Description], limits: tuple[float, float]
) -> Choice:
    """Return the best of a grid, refined between its neighbours."""
    from scipy.optimize import minimize_scalar

    found: list[tuple[float, Choice]] = []

    def value(x: float) -> float:
        found.append((x, evaluate(model, kind, describe(float(x)))))
        return found[-1][1].value

    grid = np.linspace(limits[0], limits[1], POINTS)
    best = int(np.argmin([value(x) for x in grid]))
    around = grid[max(best - 1, 0)], grid[min(best + 1, POINTS - 1)]
    minimize_scalar(value, bounds=around, method="bounded", options={"xatol": 1e-3})
    return min(found, key=lambda tried: tried[1].value)[1]
