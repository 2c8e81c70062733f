"""Designing a prior: slopes, exponents and cut-offs of heads whose rollout is as near as can be to a wanted profile.

Of H heads K stay local, with ALiBi slopes that are given. Each of the others is of one of three kinds, log, flat or
ALiBi, with one number. Several mixtures of kinds are tried; for each, L-BFGS-B follows the gradient of a smooth W₁
(:mod:`posbias.design.profile_gradients`) from a start that the theory of scale-free kernels suggests. Log and flat
heads are scale-free, so that a prompt of at most :data:`FINEST` tokens stands for a longer one there, with steeper
slopes; what is reported is computed by the engine at the full length, from the rounded numbers. Gains of a network are
read at the positions that the fewer tokens stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.comparison.distances import normalised_wasserstein
from posbias.design import Description, rounded
from posbias.design.profile_gradients import Objective, limits, smooth_kernel, to_bias
from posbias.errors import Numbers
from posbias.rollout.biased import biased_kernels
from posbias.rollout.gains import Gains, gains_of_mixing
from posbias.rollout.influence import influence_profile
from posbias.rollout.logits import alibi_slopes
from posbias.rollout.position_bias import AlibiBias, Biases, described
from posbias.rollout.untrained import profile_of_gains

LAWS = ("aligned", "untrained")
"""Contributions that all point the same way, as trained models' nearly do, or that are independent."""
FINEST: Mapping[tuple[str, bool], int] = {
    ("aligned", False): 512,
    ("aligned", True): 256,
    ("untrained", False): 64,
    ("untrained", True): 64,
}
"""Most tokens that are optimised with, by law and by whether each layer has its own numbers."""
POLISHED = 128
"""Most tokens that the best design for gates is searched with once more: fewer make too much of what is one token's."""
TRIAL, FINAL = (15, 0.02), (60, 0.001)
"""Most iterations, and δ of the smooth distance, for every mixture of kinds and for the two that do best."""
SPREADS = (0.5, 2.0)
"""How far from their mean heads of one kind start, in logarithms: equal heads would stay equal."""
INSIDE = 0.05
"""Share of the way between the limits of a number that a start keeps from them: there the gradient may be 0."""
APART = (0.01, 1.0)
"""How far from the design for all layers those for each layer start, in logarithms: near it, and anywhere."""


@dataclass(frozen=True, eq=False)
class Wanted:
    """Hold what is asked of a design; :func:`wanted` makes a checked one."""

    target: Float[np.ndarray, "n"]  # Probabilities of n positions
    lambda_: Float[np.ndarray, "T"]  # Residual mixing of T layers
    heads: int  # Their number in each layer
    local_slopes: tuple[float, ...]  # ALiBi slopes of the heads that stay local
    law: str  # One of :data:`LAWS`
    gains: Gains | None = None  # Of a network's T layers, for the law of untrained networks; None for c = λ/(1 - λ)
    # Profiles that have been computed, by law and heads
    known: dict[tuple[str, Biases], np.ndarray] = field(default_factory=dict, repr=False)

    @property
    def free(self) -> int:
        """Number of heads in each layer that are designed."""
        return self.heads - len(self.local_slopes)

    @cached_property
    def layers(self) -> Float[np.ndarray, "T"] | Gains:
        """What the law takes of layers: their mixing, or their gains, if untrained."""
        if self.law == "aligned":
            return self.lambda_
        return gains_of_mixing(self.lambda_) if self.gains is None else self.gains

    @cached_property
    def local(self) -> list[dict[str, Any]]:
        """Descriptions of the local heads."""
        return [described(AlibiBias(slope)) for slope in self.local_slopes]

    def profile(self, description: Description, law: str | None = None) -> Float[np.ndarray, "n"]:
        """Return the profile of heads so described, under the law that is asked for or the aligned one.

        For an untrained network it is :func:`~posbias.rollout.untrained.profile_of_gains`.
        """
        kernels = biased_kernels(self.lambda_.size, description, H=self.heads)
        key = law or self.law, kernels.biases
        if key not in self.known:
            n, layers = self.target.size, self.lambda_ if key[0] == "aligned" else self.layers
            if isinstance(layers, Gains):
                self.known[key] = profile_of_gains(kernels, layers, n)
            else:
                self.known[key] = influence_profile(kernels, layers, n)
        return self.known[key]


@dataclass(frozen=True, eq=False)
class Design:
    """Hold heads with the profile that they give."""

    description: Description  # The position bias of each head, or of each head in each layer
    profile: Float[np.ndarray, "n"]  # The profile under the law that was asked for
    distance: float  # Its normalised W₁ to the target


def wanted(
    target: Numbers,
    lambda_: Numbers | None,
    heads: int,
    local: int = 0,
    *,
    local_slopes: Numbers | None = None,
    law: str = "aligned",
    gains: Gains | None = None,
) -> Wanted:
    """Return what is asked of a design, checked.

    >>> wanted(np.full(8, 1 / 8), [0.2, 0.2], heads=8, local=2).local_slopes
    (0.5, 0.25)
    """
    if law not in LAWS:
        raise errors.invalid("law", f"one of {', '.join(LAWS)}", repr(law))
    heads = errors.positive_integer("heads", heads)
    local = errors.positive_integer("local", local, minimum=0)
    if local > heads:
        raise errors.invalid("local", f"at most {heads}, the number of heads", local)
    p = errors.distribution("target", target, tolerance=1e-6)
    if p.size < 2:
        raise errors.invalid("target", "at least 2 positions", p.size)
    if gains is not None and law != "untrained":
        raise errors.invalid("gains", "none, or the law untrained", law)
    if gains is not None and lambda_ is None:
        mixing = gains.mixing(p.size)
    elif gains is None and lambda_ is not None:
        mixing = errors.mixing_coefficients("lambda", lambda_)
    else:
        raise errors.invalid("lambda", "values, or gains in their place", "neither" if gains is None else "both")
    if not mixing.any():
        raise errors.invalid("lambda", "at least one value above 0", "none")
    if law == "untrained" and mixing.max() >= 1:
        raise errors.invalid("lambda", "values below 1 under the law of untrained networks", mixing.max())
    if local_slopes is None:
        slopes = np.sort(alibi_slopes(heads))[::-1][:local]
    else:
        slopes = errors.finite_array("local_slopes", local_slopes, ndim=(1,))
        if slopes.size != local or (slopes <= 0).any():
            raise errors.invalid("local_slopes", f"{local} numbers above 0, one for each local head", slopes.tolist())
    return Wanted(p.clip(0) / p.clip(0).sum(), mixing, heads, tuple(slopes.tolist()), law, gains)


def design(task: Wanted, *, each_layer: bool = False, seed: int = 0) -> Design:
    """Return the heads whose profile is nearest to the target of those that were found.

    None of :func:`rivals` with the same local heads is nearer.

    >>> task = wanted(np.full(32, 1 / 32), [0.3] * 8, heads=2)
    >>> design(task).distance < min(d for _, d in rivals(task).values())
    True
    """
    rng = np.random.default_rng(errors.seed("seed", seed))
    found = [evaluated(task, part) for part in rival_heads(task).values()]
    if task.free:
        small = _Search(task, min(task.target.size, FINEST[task.law, False]))
        starts = _starts(task, rng)
        trials = sorted((small.descend(kinds, x, *TRIAL) for kinds, x in starts), key=lambda trial: trial[0])
        finals = [small.descend(kinds, x, *FINAL) for _, kinds, x in trials[:2]]
        if isinstance(task.layers, Gains) and task.layers.alone is None and task.target.size > small.n:
            finer = _Search(task, min(task.target.size, POLISHED))
            _, kinds, x = min(finals, key=lambda final: final[0])
            finals.append(finer.descend(kinds, x + APART[0] * rng.standard_normal(x.size), *FINAL))
        cheap = trials if task.law == "aligned" else []
        found += [evaluated(task, small.description(kinds, x)) for _, kinds, x in [*cheap, *finals]]
        if each_layer and task.lambda_.size > 1:
            small = _Search(task, min(task.target.size, FINEST[task.law, True]))
            _, kinds, shared = min(finals[:2], key=lambda final: final[0])
            for width in APART:
                start = shared + width * rng.standard_normal((task.lambda_.size, shared.size))
                _, _, x = small.descend(kinds, start, *FINAL)
                found.append(evaluated(task, small.description(kinds, x)))
    return min(found, key=lambda design: design.distance)


def evaluated(task: Wanted, description: Description) -> Design:
    """Return heads with their profile at the full length and its distance."""
    p = task.profile(description)
    return Design(description, p, normalised_wasserstein(p, task.target))


def rival_heads(task: Wanted) -> dict[str, Description]:
    """Return what could be had without a search, with the same local heads: descriptions by name.

    No bias, ALiBi's rule, the exponent α = Σλ - 1, and flat heads of τ = Σλ.
    """
    tau = rounded(float(task.lambda_.sum()))
    rest = np.sort(alibi_slopes(task.heads))[::-1][len(task.local_slopes) :].tolist()
    free: dict[str, Description] = {
        "no bias": [{"kind": "none"}] * task.free,
        "ALiBi's rule": [{"kind": "alibi", "slope": slope} for slope in rest],
        "log, α = Σλ - 1": [{"kind": "log", "alpha": rounded(max(tau - 1, -0.999))}] * task.free,
        "flat, τ = Σλ": [{"kind": "flat", "tau": tau}] * task.free,
    }
    return {name: [*task.local, *heads] for name, heads in free.items()}  # type: ignore[misc]


def rivals(task: Wanted) -> dict[str, tuple[float, float]]:
    """Return the distances of :func:`rival_heads`, with all heads so and with the local ones kept."""
    everywhere = rival_heads(replace(task, local_slopes=()))
    kept = rival_heads(task)
    return {
        name: (evaluated(task, heads).distance, evaluated(task, kept[name]).distance)
        for name, heads in everywhere.items()
    }


def least_distance_with_local(task: Wanted) -> float:
    """Return a distance that no free heads undercut under the aligned law, whatever their kernels.

    The part of the profile that no free head has touched is ℓ, of mass μ = Π(1 - λ_t F / H) with F of H heads free. All
    else has mass 1 - μ, wherever it is: F_ℓ ≤ F_p ≤ F_ℓ + 1 - μ.

    >>> round(least_distance_with_local(wanted(np.full(100, 0.01), [0.5], heads=1)), 4)  # ½² / 2
    0.1237
    """
    n, K = task.target.size, len(task.local_slopes)
    v = np.zeros(n)
    v[-1] = 1.0
    local = biased_kernels(1, task.local) if K else None
    for mixing in task.lambda_[::-1]:
        v = (1 - mixing) * v + (mixing * K / task.heads * local.pull(v, 0) if local else 0.0)
    low, wish = np.cumsum(v)[:-1], np.cumsum(task.target)[:-1]
    return float(np.maximum(np.maximum(wish - low - (1 - v.sum()), low - wish), 0.0).mean())


class _Search:
    """A search with n tokens that stand for those of the task."""

    def __init__(self, task: Wanted, n: int) -> None:
        self.task, self.n, self.steeper = task, n, float(np.log(task.target.size / n))
        shares = np.append(0.0, np.cumsum(task.target))
        at = np.interp(np.linspace(0, 1, n + 1), np.linspace(0, 1, shares.size), shares)
        local = [smooth_kernel("alibi", float(np.log(slope)) + self.steeper, n) for slope in task.local_slopes]
        read = np.arange(1.0, n + 1) * (task.target.size / n)
        self.objective = Objective(np.diff(at), task.layers, np.array(local).reshape(-1, n, n), read)

    def descend(
        self, kinds: tuple[str, ...], x: np.ndarray, steps: int, delta: float
    ) -> tuple[float, tuple[str, ...], np.ndarray]:
        """Return the smooth distance, the kinds and the coordinates, of slopes at full length, after some steps."""
        from scipy.optimize import minimize

        shape, moved = np.atleast_2d(x).shape, np.array([self.steeper if kind == "alibi" else 0.0 for kind in kinds])
        bounds = np.tile([limits(kind, self.n) for kind in kinds], (shape[0], 1))
        inside = bounds + INSIDE * np.diff(bounds, axis=1) * [1, -1]
        start = (np.atleast_2d(x) + moved).ravel().clip(*inside.T)

        def value_and_gradient(y: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self.objective.value_and_gradient(kinds, y.reshape(shape), delta)
            return value, gradient.ravel()

        options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-9, "gtol": 1e-8}
        done = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return float(done.fun), kinds, (done.x.reshape(shape) - moved).reshape(np.shape(x))

    def description(self, kinds: tuple[str, ...], x: np.ndarray) -> Description:
        """Return all heads' descriptions, numbers rounded."""
        layers = [
            [*self.task.local, *(_described(kind, float(y)) for kind, y in zip(kinds, row, strict=True))]
            for row in np.atleast_2d(x)
        ]
        return layers if np.ndim(x) == 2 else layers[0]


def _starts(task: Wanted, rng: np.random.Generator) -> list[tuple[tuple[str, ...], np.ndarray]]:
    """Return mixtures of kinds with coordinates: those that theory has for the rate of the free heads, spread out."""
    F = task.free
    rate = float(np.log(task.lambda_.sum() * F / task.heads))
    slopes = np.log(np.sort(alibi_slopes(task.heads))[::-1][len(task.local_slopes) :])
    mixtures = {(first,) * (F - F // 2) + (second,) * (F // 2) for first, second in _PAIRS}
    starts = []
    for kinds, spread in product(sorted(mixtures), SPREADS):
        x = np.where(np.array(kinds) == "alibi", slopes, rate + spread * np.linspace(1, -1, F))
        starts.append((kinds, x + 0.1 * rng.standard_normal(F)))
    return starts


_PAIRS = (("flat", "flat"), ("log", "log"), ("alibi", "alibi"), ("flat", "log"), ("flat", "alibi"), ("log", "alibi"))


def _described(kind: str, x: float) -> dict[str, Any]:
    description = described(to_bias(kind, x))
    return {name: rounded(part) if isinstance(part, float) else part for name, part in description.items()}
