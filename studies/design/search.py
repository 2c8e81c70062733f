"""A search for a prior: slopes, exponents and cut-offs of heads whose profile is as near as can be to a target.

Of H heads K stay local, with ALiBi slopes. Each of the others is of one of three kinds, log, flat or ALiBi, with one
number. Several mixtures of kinds are tried; for each, L-BFGS-B follows the gradient of a smooth W₁ from a start that
the theory of scale-free kernels suggests. Contributions add up as sizes, with a residual mixing λ (the rollout), or as
squares, with the gains of an untrained network. Log and flat heads are scale-free, so that a prompt of few tokens
stands for a longer one there, with steeper slopes; what is reported is computed at the full length, from the rounded
numbers. Gains are read at the positions that the fewer tokens stand for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import exp1
from torch import Tensor

from posbias.comparison.distances import normalised_wasserstein
from posbias.design import closed_forms, rounded
from posbias.rollout.influence import influence_profile
from posbias.rollout.logits import alibi_slopes
from posbias.rollout.operators import SAFE
from posbias.rollout.position_bias import (
    AlibiBias,
    FlatBias,
    LogBias,
    describe,
    exponential_integral_inverse,
    log_ratios,
)
from posbias.rollout.structured import biased_kernels
from posbias.rollout.untrained import untrained_profile
from studies.design.gains import Gains

KINDS = ("log", "flat", "alibi")
"""Of heads that are searched."""
PAIRS = (("flat", "flat"), ("log", "log"), ("alibi", "alibi"), ("flat", "log"), ("flat", "alibi"), ("log", "alibi"))
"""Mixtures that are tried: kinds of the first half of the free heads and of the second."""
FINEST = {"sizes": 512, "squares": 64}
"""Most tokens that are searched with."""
POLISHED = 128
"""Most tokens that the best design for gates is searched with once more: fewer make too much of what is one token's."""
TRIAL, FINAL = (15, 0.02), (60, 0.001)
"""Most iterations, and δ of the smooth distance, for every mixture of kinds and for the two that do best."""
SPREADS = (0.5, 2.0)
"""How far from their mean heads of one kind start, in logarithms: equal heads would stay equal."""
INSIDE = 0.05
"""Share of the way between the limits of a number that a start keeps from them: there the gradient may be 0."""
FARTHEST, NEAREST = 6.0, 0.5
"""Log-distance beyond which no cut-off is put, and tokens nearer than which it makes no difference."""
TINY = 1e-24
"""Of the largest mean square: added before the root, whose slope at 0 is infinite."""

Heads = list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Task:
    """Say what is to be designed."""

    target: Float[np.ndarray, "n"]  # Probabilities of n positions
    layers: Float[np.ndarray, "T"] | Gains  # Residual mixing, where sizes add up, or gains, where squares do
    heads: int
    local: int = 0  # How many heads keep the steepest slopes of ALiBi's rule

    @property
    def mixing(self) -> Float[np.ndarray, "T"]:
        """λ of the layers."""
        return self.layers.mixing(self.target.size) if isinstance(self.layers, Gains) else self.layers

    @property
    def slopes(self) -> Float[np.ndarray, "H"]:
        """ALiBi's slopes, the steepest first."""
        return np.sort(alibi_slopes(self.heads))[::-1]

    def profile(self, heads: Heads) -> Float[np.ndarray, "n"]:
        """Return the profile of heads so described."""
        n, kernels = self.target.size, biased_kernels(len(self.mixing), heads, H=self.heads)
        if isinstance(self.layers, Gains):
            return untrained_profile(kernels, n=n, **self.layers.at(np.arange(1.0, n + 1)))
        return influence_profile(kernels, self.layers, n)

    def distance(self, heads: Heads) -> float:
        """Return the normalised W₁ of their profile to the target."""
        return normalised_wasserstein(self.profile(heads), self.target)


def design(task: Task, seed: int = 0) -> Heads:
    """Return the heads whose profile is nearest to the target of those that are found, closed forms among them.

    >>> task = Task(np.full(32, 1 / 32), np.full(8, 0.3), heads=2)
    >>> task.distance(design(task)) < min(map(task.distance, closed(task).values()))
    True
    """
    rng, n, squares = np.random.default_rng(seed), task.target.size, isinstance(task.layers, Gains)
    few = _Search(task, min(n, FINEST["squares" if squares else "sizes"]))
    trials = sorted((few.descend(kinds, x, *TRIAL) for kinds, x in _starts(task, rng)), key=lambda trial: trial[0])
    finals = [few.descend(kinds, x, *FINAL) for _, kinds, x in trials[:2]]
    if isinstance(task.layers, Gains) and task.layers.positions.size > 1 and n > few.n:
        _, kinds, x = min(finals, key=lambda final: final[0])
        finer = _Search(task, min(n, POLISHED))
        finals.append(finer.descend(kinds, x + 0.01 * rng.standard_normal(x.size), *FINAL))
    found = [few.described(kinds, x) for _, kinds, x in [*([] if squares else trials), *finals]]
    return min([*closed(task).values(), *found], key=task.distance)


def closed(task: Task) -> dict[str, Heads]:
    """Return the closed forms, the local heads with the steepest slopes of ALiBi's rule."""
    forms = closed_forms(task.mixing, task.heads)
    return {name: [*forms["ALiBi's rule"][: task.local], *heads[task.local :]] for name, heads in forms.items()}


def _starts(task: Task, rng: np.random.Generator) -> list[tuple[tuple[str, ...], np.ndarray]]:
    """Return mixtures of kinds with coordinates: those that theory has for the rate of the free heads, spread out."""
    F = task.heads - task.local
    rate = float(np.log(task.mixing.sum() * F / task.heads))
    starts = []
    mixtures = {(first,) * (F - F // 2) + (second,) * (F // 2) for first, second in PAIRS}
    for kinds, spread in product(sorted(mixtures), SPREADS):
        x = np.where(
            np.array(kinds) == "alibi", np.log(task.slopes[task.local :]), rate + spread * np.linspace(1, -1, F)
        )
        starts.append((kinds, x + 0.1 * rng.standard_normal(F)))
    return starts


class _Search:
    """A search with n tokens that stand for those of the task."""

    def __init__(self, task: Task, n: int) -> None:
        self.task, self.n, self.steeper = task, n, float(np.log(task.target.size / n))
        shares = np.append(0.0, np.cumsum(task.target))
        at = np.interp(np.linspace(0, 1, n + 1), np.linspace(0, 1, shares.size), shares)
        self.target = torch.from_numpy(np.diff(at))
        local = [smooth_kernel("alibi", torch.tensor(np.log(m) + self.steeper), n) for m in task.slopes[: task.local]]
        self.local, self.gains = local, {}
        if isinstance(task.layers, Gains):
            read = task.layers.at(np.arange(1.0, n + 1) * (task.target.size / n))
            self.gains = {name: torch.from_numpy(x) for name, x in read.items()}

    def value(self, kinds: tuple[str, ...], x: Tensor, delta: float) -> Tensor:
        """Return Σ_k (√(d_k² + δ²) - δ) / (n - 1), d the difference of distribution functions: W₁ as δ goes to 0."""
        A = torch.stack([*self.local, *(smooth_kernel(kind, y, self.n) for kind, y in zip(kinds, x, strict=True))])
        p = squares(A, **self.gains) if self.gains else sizes(A, self.task.mixing)
        return ((p - self.target).cumsum(0)[:-1].square() + delta**2).sqrt().sub(delta).mean()

    def descend(
        self, kinds: tuple[str, ...], x: np.ndarray, steps: int, delta: float
    ) -> tuple[float, tuple[str, ...], np.ndarray]:
        """Return the smooth distance, the kinds and the coordinates, of slopes at full length, after some steps."""
        moved = np.array([self.steeper if kind == "alibi" else 0.0 for kind in kinds])
        bounds = np.array([limits(kind, self.n) for kind in kinds])
        inside = bounds + INSIDE * np.diff(bounds, axis=1) * [1, -1]

        def value_and_gradient(y: np.ndarray) -> tuple[float, np.ndarray]:
            at = torch.tensor(y, requires_grad=True)
            value = self.value(kinds, at, delta)
            (gradient,) = torch.autograd.grad(value, at)
            return float(value.detach()), gradient.numpy()

        options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-9, "gtol": 1e-8}
        start = (x + moved).clip(*inside.T)
        done = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return float(done.fun), kinds, done.x - moved

    def described(self, kinds: tuple[str, ...], x: np.ndarray) -> Heads:
        """Return all heads' descriptions, numbers rounded."""
        local: Heads = [{"kind": "alibi", "slope": float(m)} for m in self.task.slopes[: self.task.local]]
        free = [describe(to_bias(kind, float(y))) for kind, y in zip(kinds, x, strict=True)]
        return local + [{k: rounded(v) if isinstance(v, float) else v for k, v in one.items()} for one in free]


def to_bias(kind: str, x: float) -> LogBias | FlatBias | AlibiBias:
    """Return the bias of a free kind at coordinate ``x``: log(α + 1), log τ or log slope."""
    number = float(np.exp(x))
    if kind == "log":
        return LogBias(number - 1)
    return FlatBias(number) if kind == "flat" else AlibiBias(number)


def limits(kind: str, n: int) -> tuple[float, float]:
    """Return between which coordinates a kind makes a difference to n tokens."""
    if kind == "flat":
        least, most = exp1([min(FARTHEST, np.log(max(n, 3) / 2)), NEAREST / n])
        return float(np.log(least)), float(np.log(most))
    if kind == "log":  # n^-α stays inside the range of a double
        return -4.0, min(5.0, float(np.log1p(SAFE / np.log(max(n, 2)))))
    return float(np.log(1e-2 / n)), float(np.log(20.0))


def smooth_kernel(kind: str, x: Tensor, n: int) -> Tensor:
    """Return a head's kernel, which for a flat head is continuous in its cut-off.

    That of the engine steps from one visible key to the next; here it goes from step to step in a straight line,
    half-way points where the engine has its steps.

    >>> smooth_kernel("log", torch.tensor(2.0).log(), 3)[2].numpy().round(3).tolist()
    [0.167, 0.333, 0.5]
    """
    j = torch.arange(1, n + 1, dtype=torch.float64)
    if kind == "flat":
        return _flat_kernel(x, n)
    if kind == "log":
        A = ((j / n) ** (x.exp() - 1)).expand(n, n).tril()
    else:
        A = torch.exp(-x.exp() * (j[:, None] - j).clamp(min=0)).tril()
    return A / A.sum(1, keepdim=True)


def _flat_kernel(x: Tensor, n: int) -> Tensor:
    """Return 1 - f of the kernel with k visible keys and f of that with k + 1, for the k and f of each row."""
    i, tau = torch.arange(n), x.exp()
    cutoff = exponential_integral_inverse(float(tau.detach()))
    epsilon = cutoff - cutoff * float(np.exp(cutoff)) * (tau - tau.detach())  # dε / dτ = -ε e^ε
    seen = ((i + 1) * (-epsilon).exp() - 0.5).clamp(min=0).minimum(i.double())
    k = seen.detach().floor().long()
    f = (seen - k)[:, None]
    near, sums = _nearness(n)
    upto, with_next = (near * (i < m[:, None]) / sums[i, m].clamp(min=TINY)[:, None] for m in (k, (k + 1).clamp(max=n)))
    alone = torch.diag((k == 0).double())  # a query that sees no key sees itself
    return (1 - f) * (upto + alone) + f * with_next


@lru_cache(maxsize=4)
def _nearness(n: int) -> tuple[Tensor, Tensor]:
    """Return 1 / log(i / j), 0 from the query on, and its sums over the first 0, 1, …, n keys."""
    distance = log_ratios(n)
    near = torch.from_numpy(np.divide(1.0, distance, out=np.zeros_like(distance), where=distance > 0))
    return near, torch.cat([torch.zeros(n, 1, dtype=torch.float64), near.cumsum(1)], dim=1)


def sizes(A: Tensor, lambda_: Float[np.ndarray, "T"]) -> Tensor:
    """Return the rollout's profile of the same heads (H, n, n) in all layers."""
    mean, v = A.mean(0), torch.eye(A.shape[-1], dtype=torch.float64)[-1]
    for mixing in lambda_[::-1].tolist():
        v = (1 - mixing) * v + mixing * (v @ mean)
    return v


def squares(A: Tensor, gains: Tensor, scales: Tensor, outputs: Tensor, steps: Tensor, parallel: Tensor) -> Tensor:
    """Return the profile by the law of untrained networks of the same heads in all layers, of equal shares."""
    n = A.shape[-1]
    G = torch.zeros(n, n, dtype=torch.float64)
    G[-1, -1] = 1.0
    for t in reversed(range(len(gains))):
        stepped = G + G * steps[t]
        read = (G if parallel[t] else stepped) * torch.outer(outputs[t], outputs[t])
        G = stepped + (A.transpose(1, 2) @ read @ A).mean(0) * torch.outer(scales[t], scales[t])
        G = G / G.trace().detach()
    roots = (G.diagonal().clamp(min=0) + TINY).sqrt()
    return roots / roots.sum()
