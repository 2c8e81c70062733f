"""Second moments of gradients: the full recursion, where it closes on less, and the bound."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from posbias import influence_profile, normalised_wasserstein
from posbias.rollout.untrained import aligned_profile, untrained_profile
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


def test_dependent_layers_turn_the_law_into_nearly_the_aligned_sum():
    net = sm.example("random signs of one map", 0, H=1)
    g = sm.gradients_of_draws(sm.layer_jacobians(net.A, net.maps), net.top, same_prompt=True)
    together = unit(np.sqrt((g.reshape(2, 8, -1) ** 2).sum((0, 2))))
    aligned = unit(sm.aligned_sizes(net.A, net.random_gains, at_last(net))[0])
    law_profile = unit(np.sqrt(np.diag(law(net)[0])))
    assert normalised_wasserstein(together, law_profile) > 0.03
    assert normalised_wasserstein(together, aligned) < normalised_wasserstein(law_profile, aligned) / 2


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


def test_without_isotropy_no_rule_on_inner_products_can_be_right():
    """Two gradients with the same inner products at the top have others at the input."""
    net = sm.example("one subspace", 0)
    across = np.linalg.qr(np.stack([net.b, np.ones(4)], axis=1))[0][:, 1]
    inside, outside = moments(net)[1], moments(replace(net, b=across))[1]
    assert off(inside[-1], outside[-1]) < 1e-12
    assert off(outside[0], outside[-1]) < 1e-12  # no map sees it
    assert off(inside[0], outside[0]) > 0.5


def turned(net, shifts):
    """Jacobians with every signed shift of two features above them: with all shifts, E Q X Qᵀ = (tr X / 2) I."""
    J, one = sm.layer_jacobians(net.A, net.maps), np.eye(net.A.shape[-1])
    turns = [np.roll(np.diag(signs), k, 0) for signs in product((1.0, -1.0), repeat=2) for k in shifts]
    return np.concatenate([np.kron(one, Q) @ J for Q in turns], axis=1)


@pytest.mark.parametrize("kind", ["half turn", "one subspace", "nonzero mean", "one direction kept"])
def test_gradients_turned_between_layers_need_traces_alone(kind):
    net = sm.example(kind, 1, n=5, d=2, T=3)
    last = np.diag(at_last(net))
    ours, away = sm.turned_moments(net.A, net.maps, last), {}
    for shifts in ((0, 1), (0,)):
        full = sm.second_moments(turned(net, shifts), np.outer(net.top, net.top))
        away[len(shifts)] = off(ours, np.stack([sm.block_traces(x, 5) for x in full]))
    assert away[2] < 1e-12
    assert (away[1] < 1e-12) == (kind in ("half turn", "nonzero mean"))  # whose maps are multiples of I
    assert (off(law(net), ours) < 1e-12) == (kind == "one subspace")  # whose signs are random


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


def test_the_package_adds_the_heads_of_a_layer_as_squares():
    """With one head it has the aligned sum; with two it takes (c_1² + c_2²)^½ where aligned heads have c_1 + c_2."""
    for H, agree in ((1, True), (2, False)):
        net = sm.example("one direction kept", 0, H=H)
        v = unit(sm.aligned_sizes(net.A, net.direction_gains, at_last(net))[0])
        assert (np.abs(aligned_profile(net.A, net.direction_gains) - v).max() < 1e-12) == agree


@pytest.mark.parametrize("kind", OF["neither"])
def test_elsewhere_both_closed_forms_are_wrong_and_the_full_recursion_right(kind):
    net = sm.example(kind, 0)
    g = sm.gradients_of_draws(sm.layer_jacobians(net.A, net.maps), net.top)
    squares = (g.reshape(len(g), 8, -1) ** 2).sum(-1).mean(0)
    assert off(np.diag(moments(net)[1][0]), squares) < 1e-12
    p = unit(np.sqrt(squares))
    of_law = unit(np.sqrt(np.diag(law(net)[0])))
    assert normalised_wasserstein(of_law, p) > 0.01
    aligned = sm.aligned_sizes(net.A, net.direction_gains, at_last(net))[0]
    assert normalised_wasserstein(unit(aligned), p) > 0.01


@pytest.mark.parametrize("kind", ["random maps", *KINDS])
def test_the_bound_holds(kind):
    for seed in range(5):
        net = sm.example("random signs" if kind == "random maps" else kind, seed, T=3)
        if kind == "random maps":
            net = replace(net, maps=np.random.default_rng(seed).standard_normal(net.maps.shape))
        bound = sm.aligned_sizes(net.A, net.operator_norms, at_last(net))[0]
        assert (largest_size(net) <= bound * (1 + 1e-12)).all()


def test_a_smaller_constant_is_no_bound():
    net = sm.example("one subspace", 0)
    sizes = largest_size(net)
    assert off(sm.aligned_sizes(net.A, net.operator_norms, at_last(net))[0], sizes) < 1e-12  # it is attained
    for gains in (0.99 * net.operator_norms, net.random_gains):
        assert (sm.aligned_sizes(net.A, gains, at_last(net))[0] < sizes).any()


def test_law_is_below_the_aligned_sum_of_the_same_gains_and_that_below_the_bound():
    for kind in OF["law"]:
        net = sm.example(kind, 0)
        aligned = sm.aligned_sizes(net.A, net.random_gains, at_last(net))[0]
        assert (np.sqrt(np.diag(law(net)[0])) <= aligned * (1 + 1e-12)).all()
        assert (aligned <= sm.aligned_sizes(net.A, net.operator_norms, at_last(net))[0] * (1 + 1e-12)).all()


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="one subspace"):
        sm.example("gaussian", 0)
