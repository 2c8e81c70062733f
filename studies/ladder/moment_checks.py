"""Checks of the theorems on second moments in small networks, and how far each closed form is from the exact one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein
from studies.checks import Check
from studies.ladder import second_moments as moments

SEEDS = range(20)
DEPTHS = (2, 4, 8)
FORMS = ("full recursion", "law", "head gains, added")
KINDS = ("random signs", "rank one, any direction", "one direction kept", "half turn", "one subspace", "nonzero mean")
DEPENDENT = "random signs of one map"
"""The kind of maps that layers share their prompt with."""


def mean_squares(g: Float[np.ndarray, "draws nd"], n: int) -> Float[np.ndarray, "n"]:
    """Return the mean square of the gradient at each position, over draws."""
    return np.asarray((g.reshape(len(g), n, -1) ** 2).sum(axis=2).mean(axis=0))


def profile(squares: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Return the profile in root mean square."""
    sizes = np.sqrt(squares)
    return np.asarray(sizes / sizes.sum())


def predicted(net: moments.Example) -> list[Float[np.ndarray, "n"]]:
    """Return the profiles of :data:`FORMS`."""
    n, top = net.A.shape[-1], net.top
    J = moments.layer_jacobians(net.A, net.maps)
    full = moments.second_moments(J, np.outer(top, top))[0]
    last = np.eye(n)[-1]
    G = moments.law_moments(net.A, net.random_gains, np.diag(last))[0]
    v = moments.aligned_sizes(net.A, net.direction_gains, last)[0]
    return [profile(np.diag(moments.block_traces(full, n))), profile(np.diag(G)), v / v.sum()]


def distances(kind: str, seed: int, same_prompt: bool = False) -> list[float]:
    """Return how far the profiles of :data:`FORMS` are from the exact one, over all choices of prompts."""
    net = moments.example(kind, seed)
    J = moments.layer_jacobians(net.A, net.maps)
    g = moments.gradients_of_draws(J, net.top, same_prompt=same_prompt)
    exact = profile(mean_squares(g, net.A.shape[-1]))
    return [normalised_wasserstein(p, exact) for p in predicted(net)]


@cache
def form_table() -> pd.DataFrame:
    """Return the mean distance of each form over 20 networks, by the kind of their maps."""
    each = {}
    for kind in KINDS:
        each[kind] = np.array([distances(kind, seed) for seed in SEEDS])
    each["dependent layers"] = np.array([distances(DEPENDENT, seed, same_prompt=True) for seed in SEEDS])
    return pd.DataFrame({kind: x.mean(axis=0) for kind, x in each.items()}, index=list(FORMS)).T


def recursion_errors(seed: int, n: int = 6, d: int = 3) -> list[float]:
    """Return how far the recursion is off, with prompts drawn anew in each layer, and with one for all layers."""
    rng = np.random.default_rng(seed)
    J = np.eye(n * d) + rng.standard_normal((4, 4, n * d, n * d)) / n
    top = np.kron(np.eye(n)[-1], rng.standard_normal(d))
    found = np.diag(moments.block_traces(moments.second_moments(J, np.outer(top, top))[0], n))
    anew = mean_squares(moments.gradients_of_draws(J, top), n)
    same = mean_squares(moments.gradients_of_draws(J, top, same_prompt=True), n)
    return [float(np.abs(found / x - 1).max()) for x in (anew, same)]


def recursion_check() -> Check:
    """Return the check of the recursion."""
    errors = np.array([recursion_errors(seed) for seed in SEEDS])
    errors[errors < 1e-12] = 0  # rounding, which differs between processors
    return Check(
        "X-moment", "", "With independent layers the second moment obeys a recursion, exactly in both cases.",
        bool(errors[:, 0].max() < 1e-12),
        f"recursion against the mean over all choices of prompts, {len(errors)} networks: "
        f"{errors[:, 0].max():.0e} off at most; law and added gains exact in their cases",
        "a position's mean square is off by 1e-12 or more",
        {"layers that share their prompt": [bool(x < 1e-12) for x in errors[:, 1]]},
        "a position's mean square is off", {"kind": "proved"}, f"exact in {len(errors)} random networks",
    )  # fmt: skip


def gaussian(seed: int, T: int, d: int = 16) -> moments.Example:
    """Return a network with Gaussian maps, with ‖M‖_F/√d from 0.5 to 1.5 on average."""
    net = moments.example("half turn", seed, T=T, d=d)
    noise = np.random.default_rng(seed).standard_normal(net.maps.shape)
    c = net.random_gains[:, None, :, None, None]
    return replace(net, maps=c * noise / np.sqrt(d))


def is_bounded(net: moments.Example, gains: Float[np.ndarray, "T H"]) -> bool:
    """Say whether added gains bound the gradient of every draw at every position."""
    n = net.A.shape[-1]
    J = moments.layer_jacobians(net.A, net.maps)
    g = moments.gradients_of_draws(J, net.top).reshape(-1, n, net.b.size)
    v = moments.aligned_sizes(net.A, gains, np.eye(n)[-1])[0]
    return bool((np.linalg.norm(g, axis=-1).max(axis=0) <= v * (1 + 1e-12)).all())


def bound_check() -> Check:
    """Return the check that added operator norms bound every gradient."""
    attained = moments.example("one subspace", 0)
    nets = [gaussian(seed, T) for T in DEPTHS for seed in SEEDS] + [attained]
    return Check(
        "X-bound", "", "Added operator norms bound every gradient with fixed attention.",
        all(is_bounded(net, net.operator_norms) for net in nets),
        f"{len(nets) - 1} random networks, attention fixed; attained by maps of rank one",
        "a gradient is larger than its bound at some position",
        {
            "operator norms 1% smaller": [is_bounded(attained, 0.99 * attained.operator_norms)],
            "Frobenius norms over √d": [is_bounded(attained, attained.random_gains)],
        },
        "a gradient is larger than its bound", {"kind": "proved"}, f"{len(nets) - 1} random networks",
    )  # fmt: skip


def moment_checks() -> list[Check]:
    """Return the checks of both theorems."""
    return [recursion_check(), bound_check()]
