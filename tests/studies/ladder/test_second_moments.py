"""Second moments of gradients: the full recursion, where it closes on less, and the bound."""

from dataclasses import replace

import numpy as np
import pytest

from posbias import influence_profile
from posbias.rollout.untrained import untrained_profile
from studies.ladder import second_moments as sm

KINDS = sm.EXAMPLES
OF = {form: [kind for kind in KINDS if KINDS[kind] == form] for form in KINDS.values()}


def moments(net):
    """All second moments of an example, and their block traces."""
    full = sm.second_moments(sm.layer_jacobians(net.A, net.maps), np.outer(net.top, net.top))
    return full, np.stack([sm.block_traces(x, net.A.shape[-1]) for x in full])


def at_last(net):
    return np.eye(net.A.shape[-1])[-1]


def law(net, gains=None, A=None):
    gains = net.random_gains if gains is None else gains
    return sm.law_moments(net.A if A is None else A, gains, np.diag(at_last(net)))


def unit(x):
    return x / x.sum()


def off(found, expected):
    """Largest difference, relative to the largest number."""
    return np.abs(found - expected).max() / np.abs(expected).max()


def largest_size(net):
    """Largest size of each position's gradient over all choices of prompts."""
    g = sm.gradients_of_draws(sm.layer_jacobians(net.A, net.maps), net.top)
    return np.linalg.norm(g.reshape(len(g), *net.A.shape[-1:], -1), axis=-1).max(0)


@pytest.mark.parametrize("seed", range(3))
def test_full_recursion_is_the_mean_over_all_draws(seed):
    rng = np.random.default_rng(seed)
    J, top = rng.standard_normal((3, 4, 6, 6)), rng.standard_normal(6)
    found = sm.second_moments(J, np.outer(top, top))[0]
    independent = sm.gradients_of_draws(J, top)
    assert len(independent) == 4**3
    assert off(found, independent.T @ independent / 4**3) < 1e-12
    together = sm.gradients_of_draws(J, top, same_prompt=True)
    assert off(found, together.T @ together / 4) > 0.05


@pytest.mark.parametrize("kind", OF["law"])
def test_the_law_has_every_inner_product_at_every_depth(kind):
    net = sm.example(kind, 0)
    _, traces = moments(net)
    assert off(law(net), traces) < 1e-12
    assert np.abs(untrained_profile(net.A, net.random_gains) - unit(np.sqrt(np.diag(traces[0])))).max() < 1e-12
    wrong = (law(net, 1.01 * net.random_gains), law(net, net.random_gains**2), law(net, A=net.A**2))
    assert min(off(x, traces) for x in wrong) > 0.01


def test_norms_and_gated_steps_close_too():
    """A layer of two: attention between factors of a norm, then gates times one random map of mean zero."""
    net, rng = sm.example("random signs", 1, n=5, d=2, T=2), np.random.default_rng(1)
    scales, outputs = rng.uniform(0.5, 2, (2, 2, 5))
    gates, V = rng.integers(0, 2, (2, 3, 5)), np.linalg.qr(rng.standard_normal((2, 2, 2)))[0]
    G = np.outer(net.top, net.top)
    for t in (1, 0):
        steps = [np.eye(10) + sign * np.kron(np.diag(gate), V[t]) for sign in (1, -1) for gate in gates[t]]
        scaled = outputs[t][:, None] * net.A[t] * scales[t]
        J = sm.layer_jacobians(scaled[None], net.maps[t][None])
        G = sm.second_moments(J, sm.second_moments(np.stack(steps)[None], G)[0])[0]
    inside = {"scales": scales, "outputs": outputs, "steps": gates.swapaxes(1, 2) @ gates / 3}
    p = unit(np.sqrt(np.diag(sm.block_traces(G, 5))))
    assert np.abs(untrained_profile(net.A, net.random_gains, **inside) - p).max() < 1e-12


def test_one_direction_kept_gives_the_aligned_sum():
    net = sm.example("one direction kept", 0)
    c = net.direction_gains
    v, (full, _) = sm.aligned_sizes(net.A, c, at_last(net)), moments(net)
    for size, moment in zip(v, full, strict=True):
        assert off(moment, np.kron(np.outer(size, size), np.outer(net.b, net.b))) < 1e-12
    whole = c.sum(1)
    mixed = np.einsum("th,thij->tij", c / whole[:, None], net.A)
    assert np.abs(influence_profile(mixed, whole / (1 + whole)) - unit(v[0])).max() < 1e-12
    assert off(sm.aligned_sizes(net.A, 1.01 * c, at_last(net)), v) > 0.01


@pytest.mark.parametrize("kind", ["random maps", *KINDS])
def test_the_bound_holds(kind):
    for seed in range(5):
        net = sm.example("random signs" if kind == "random maps" else kind, seed, T=3)
        if kind == "random maps":
            net = replace(net, maps=np.random.default_rng(seed).standard_normal(net.maps.shape))
        bound = sm.aligned_sizes(net.A, net.operator_norms, at_last(net))[0]
        assert (largest_size(net) <= bound * (1 + 1e-12)).all()
