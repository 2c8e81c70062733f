"""A search for a prior: smooth kernels against the engine's, gains against the law, a search against brute force."""

from itertools import combinations_with_replacement
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from posbias.rollout.position_bias import describe
from posbias.rollout.structured import biased_kernels
from posbias.rollout.untrained import untrained_profile
from studies.design import search
from studies.design.gains import Gains, even_gains, mean_gains
from studies.design.search import Task, design, limits, smooth_kernel, to_bias


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def uniform(n):
    return np.full(n, 1 / n)


def gated(rng, T=3, knots=(1.0, 3.0, 12.0), parallel=False):
    """Return gains of every kind, none of them even."""
    g = len(knots)
    factors = rng.random((T, g, 4))
    factors /= np.linalg.norm(factors, axis=-1, keepdims=True)
    c, outputs, steps = rng.random((3, T, g)) + np.array([0.3, 0.5, 0.5])[:, None, None]
    return Gains(np.array(knots), c, outputs, steps, 0.9 * factors @ factors.swapaxes(1, 2), parallel)


@pytest.mark.parametrize("kind", ["log", "alibi"])
@pytest.mark.parametrize("x", [-1.5, 1.2])
def test_smooth_kernels_are_the_engines(kind, x):
    found = smooth_kernel(kind, torch.tensor(x, dtype=torch.float64), 30)
    np.testing.assert_allclose(found, biased_kernels(1, describe(to_bias(kind, x))).dense(0, 30), atol=1e-14)


@pytest.mark.parametrize("x", [0.0, 1.2])
def test_the_smooth_flat_kernel_lies_between_steps_of_the_engines(x):
    """Each row is a mixture of the engine's rows for two numbers of visible keys, one of them its own."""
    n, bias = 30, to_bias("flat", x)
    smooth, exact = (
        smooth_kernel("flat", torch.tensor(x, dtype=torch.float64), n).numpy(),
        biased_kernels(1, describe(bias)).dense(0, n),
    )
    np.testing.assert_allclose(smooth.sum(1), 1.0, atol=1e-14)
    keys = (np.arange(n) + 1) * np.exp(-bias.cutoff) - 0.5
    between = np.abs(smooth - exact).sum(1)
    assert (between <= 2 * np.abs(keys - np.round(keys)) + 1e-12).all() and between.max() > 0.01


@pytest.mark.parametrize("layers", ["mixing", "gates", "gates beside"])
def test_the_objective_is_the_distance_of_the_engines_profile(layers, rng):
    """Without flat heads the smooth kernels are exact; δ = 0 leaves W₁ itself."""
    task = Task(uniform(24), np.array([0.2, 0.5, 0.3]), 2, 1)
    if layers != "mixing":
        task = Task(uniform(24), gated(rng, parallel=layers != "gates"), 2, 1)
    value = search._Search(task, 24).value(("log",), torch.tensor([0.7], dtype=torch.float64), 0.0)
    heads = [{"kind": "alibi", "slope": float(task.slopes[0])}, {"kind": "log", "alpha": np.exp(0.7) - 1}]
    assert float(value) == pytest.approx(task.distance(heads), abs=1e-9)


@pytest.mark.parametrize("law", ["sizes", "squares"])
def test_a_small_search_finds_what_brute_force_finds(law):
    """Two free heads: no pair of a fine grid over all mixtures of kinds is nearer by more than its width allows."""
    n, lambda_ = 24, np.full(4, 0.4)
    task = Task(uniform(n), lambda_ if law == "sizes" else even_gains(lambda_ / (1 - lambda_)), 3, 1)
    choices = [describe(to_bias(kind, x)) for kind in search.KINDS for x in np.linspace(*limits(kind, n), 9)]
    local = search.closed(task)["no bias"][:1]
    best = min(task.distance([*local, *heads]) for heads in combinations_with_replacement(choices, 2))
    found = task.distance(design(task))
    assert 0.5 * best <= found <= best + 0.004  # the grid is fine enough to say something
    assert found < 0.9 * min(map(task.distance, search.closed(task).values()))


@pytest.mark.parametrize("parallel", [False, True])
def test_gains_between_positions_are_straight_in_the_logarithm(parallel, rng):
    few, n = gated(rng, parallel=parallel), 12
    x, knots = np.log(np.arange(1, n + 1)), np.log(few.positions)
    c, o, m = ([np.interp(x, knots, row) for row in part] for part in (few.attention, few.outputs, few.steps))
    K = np.empty((3, n, n))
    for t in range(3):
        weights = np.stack([np.interp(x, knots, one) for one in np.eye(3)], 1)
        for i in range(n):
            for j in range(n):
                rho = 1.0 if i == j else weights[i] @ few.overlaps[t] @ weights[j]
                K[t, i, j] = rho * m[t][i] * m[t][j]
    heads = [{"kind": "flat", "tau": 0.8}, {"kind": "log", "alpha": 2.0}]
    kernels = biased_kernels(3, heads)
    by_hand = untrained_profile(kernels, np.ones(3), n, scales=c, outputs=o, steps=K, parallel=int(parallel))
    np.testing.assert_allclose(Task(uniform(n), few, 2).profile(heads), by_hand, rtol=1e-10)


def test_few_tokens_are_kept_as_they_are_and_networks_are_averaged(rng):
    J = rng.standard_normal((2, 2, 4, 20))
    networks = [
        SimpleNamespace(
            branch_gain=rng.random((2, 3)),
            branch_scale=rng.random((2, 4)),
            output_scale=rng.random((2, 4)),
            step_gain=j @ j.swapaxes(1, 2),
            parallel=np.ones(2),
        )
        for j in J
    ]
    few = mean_gains(networks)
    assert few.positions.tolist() == [1, 2, 3, 4] and few.parallel

    def rms(name):
        return np.sqrt(np.mean([getattr(x, name) ** 2 for x in networks], axis=0))

    at = few.at(np.arange(1.0, 5))
    size = np.linalg.norm(rms("branch_gain"), axis=1, keepdims=True)
    np.testing.assert_allclose(at["scales"], rms("branch_scale") * size, rtol=1e-5)
    np.testing.assert_allclose(at["outputs"], rms("output_scale"), rtol=1e-5)
    K = np.mean([x.step_gain for x in networks], axis=0)
    np.testing.assert_allclose(np.diagonal(at["steps"], axis1=1, axis2=2), np.diagonal(K, axis1=1, axis2=2), rtol=1e-5)
