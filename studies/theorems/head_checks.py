"""Checks of what a mean of heads keeps, with and without value maps of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from posbias.rollout import masks
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.order import prefix_masses
from studies.checks import Check
from studies.theorems.drifts import HEADS, TINY
from studies.theorems.forces import case_drifts, case_rollouts, sort_stacks, value_influence

UNIFORM = np.full(HEADS, 1 / HEADS)
OUTSIDE = np.append(np.full(HEADS - 1, 1.01 / (HEADS - 1)), -0.01)
"""Weights that sum to 1, of which one is negative."""


@dataclass(frozen=True)
class Heads:
    """Draw random sets of heads, one after the other, from one generator."""

    rng: np.random.Generator
    cases: int = 200
    runs: int = 20

    def draw(self, loose: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Draw monotone heads, but for `loose` of them, and heads with earlier rows."""
        logits = self.rng.normal(scale=4, size=(2, self.cases, HEADS, 3, 5, 5))
        A, other = attention_kernel(logits, masks.causal())
        A[:, loose:] = sort_stacks(A[:, loose:])
        larger = np.maximum(prefix_masses(A), prefix_masses(other))
        earlier = np.diff(larger, axis=-1, prepend=0.0)
        return A, earlier / earlier.sum(axis=-1, keepdims=True)

    def margins(self, weights: Float[np.ndarray, "H"], loose: int = 0) -> Float[np.ndarray, "cases"]:
        """Return by case the smallest margin of (i) to (v) and of growth with depth."""
        A, earlier = self.draw(loose)
        mean, before = (np.einsum("h,chtij->ctij", weights, K) for K in (A, earlier))
        excess = -np.abs(np.triu(mean, 1)), -np.abs(mean.sum(axis=-1) - 1)
        every = [mean, *excess, mean[..., 0] - A[..., 0].min(axis=1)]
        least = [margin.reshape(self.cases, -1).min(axis=1) for margin in every]
        least.append(case_drifts(mean[:, :, :-1], mean[:, :, 1:]))
        least.append(case_drifts(before, mean))
        if mean.min() >= 0:  # kernels: their rollouts exist
            P = case_rollouts(mean, self.rng.beta(0.3, 0.3, size=(self.cases, 3)))
            least.append(case_drifts(P[:, 1:], P[:, :-1]))
        return np.min(least, axis=0)

    def passes(self, weights: Float[np.ndarray, "H"], loose: int = 0) -> list[bool]:
        """Say for each of the runs whether every margin is kept."""
        return [bool((self.margins(weights, loose) >= TINY).all()) for _ in range(self.runs)]

    def one_head(self, apart: float, like: str = "weighted") -> bool:
        """Say whether a network equals that of one head with the weighted kernel."""
        A, v = self.draw()[0][0].swapaxes(0, 1), self.rng.uniform(size=(3, HEADS, 1, 1))
        W = v * self.rng.normal(size=(3, 1, 4, 4))
        W[:, 0] += apart * np.abs(W[:, 0]).max() * self.rng.normal(size=(3, 4, 4))
        v = v if like == "weighted" else np.ones_like(v)
        mean = (v * A).sum(axis=1, keepdims=True) / v.sum(axis=1, keepdims=True)
        single = value_influence(mean, W.sum(axis=1, keepdims=True))
        return bool(np.abs(value_influence(A, W) - single).max() < 1e-10)

    def order_kept(self, heads: int, apart: float) -> Bool[np.ndarray, "cases"]:
        """Return by case whether order survives maps that are a share apart."""
        A, earlier = (K[:, :heads, 0, -1] for K in self.draw())
        common = self.rng.normal(size=(self.cases, 1, 4, 4))
        own = self.rng.normal(size=(self.cases, heads, 4, 4))
        W = np.sqrt(1 - apart**2) * common + apart * own
        return np.asarray(case_drifts(brought(earlier, W), brought(A, W)) >= TINY)


def brought(A: Float[np.ndarray, "*over H n"], W: Float[np.ndarray, "*over H a b"]) -> Float[np.ndarray, "*over n"]:
    """Return the shares in which keys reach the last token: |Σ_h A_h[n, j] W_h|.

    >>> brought(np.array([[0.5, 0.5], [1.0, 0.0]]), np.ones((2, 1, 1)))
    array([0.75, 0.25])
    """
    sizes = np.linalg.norm(np.einsum("...hj,...hab->...jab", A, W), axis=(-2, -1))
    return np.asarray(sizes / sizes.sum(axis=-1, keepdims=True))


def head_checks() -> tuple[list[Check], dict[str, Any]]:
    """Return a check of the mean of heads, two of value maps, and how often these lose the order."""
    heads = Heads(np.random.default_rng(0))
    found = heads.margins(UNIFORM)
    power = {
        f"one of {HEADS} heads not monotone": heads.passes(UNIFORM, loose=1),
        "weights that sum to 1, one of them -0.01": heads.passes(OUTSIDE),
    }
    mean = Check(
        "RA-B", "", "Appendix B: what every head has, their mean has.", bool((found >= TINY).all()),
        f"in {(found >= TINY).sum()} of {heads.cases} random sets of {HEADS} heads in three "
        "layers the mean keeps all of these: row sums, mask, monotone rows, the order of "
        "two sets of heads, a floor on the first key, growth of prefix masses with depth",
        "a property of all heads is missing in their mean, by more than 1e-12",
        power, "one of the properties is lost in a random set of heads", {"kind": "proved"},
    )  # fmt: skip
    one = _one_map_check(heads)
    own, numbers = _own_maps_check(heads)
    return [mean, one, own], numbers


def _one_map_check(heads: Heads) -> Check:
    held = [heads.one_head(0.0) for _ in range(heads.cases)]
    wrong = {
        f"one of {HEADS} maps off by 1% of its largest entry": (0.01, "weighted"),
        "uniform in place of weighted mean": (0.0, "uniform"),
    }
    power = {}
    for what, (apart, like) in wrong.items():
        power[what] = [heads.one_head(apart, like) for _ in range(heads.runs)]
    return Check(
        "RA-B-values", "multiples of one value map",
        "Ours: a mean of kernels stands for heads whose value maps are multiples of one map.", all(held),
        f"influence through {HEADS} heads in 3 layers equals that of one head with the "
        f"weighted kernel in {sum(held)} of {heads.cases} random networks",
        "an influence differs by more than 1e-10",
        power, "a network of several heads differs from that of one", {"kind": "proved"},
    )  # fmt: skip


def _own_maps_check(heads: Heads) -> tuple[Check, dict[str, Any]]:
    kept = {number: heads.order_kept(number, 1.0) for number in (1, 2, HEADS)}
    lost = {number: float(1 - where.mean()) for number, where in kept.items()}
    power = {}
    for name, apart in {"random maps": 1.0, "maps a tenth apart": 0.1}.items():
        power[f"two heads, {name}"] = [bool(heads.order_kept(2, apart).all()) for _ in range(heads.runs)]
    assert kept[1].all() and heads.order_kept(HEADS, 0.0).all()
    check = Check(
        "RA-B-values", "a value map for each head",
        "Ours: a mean of kernels stands for heads whose value maps differ.",
        all(where.all() for where in kept.values()),
        "with random maps the order of what the last token reads is lost in "
        f"{lost[2]:.0%} of {heads.cases} cases of two heads and in {lost[HEADS]:.1%} of "
        f"cases of {HEADS} heads, although the rows of every head are in order",
        "a prefix of keys brings more although every head moved to recent keys", power,
        "an average of kernels stands for the heads only if their value maps are "
        "non-negative multiples of one map; otherwise order is not kept", {"in_part": True},
    )  # fmt: skip
    return check, {"heads_values_lost": lost[2], "heads_values_lost_many": lost[HEADS], "heads_H": HEADS}
