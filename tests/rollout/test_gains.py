"""Gains and gates in designs: the law against its definition, gradients against differences, and files that promise."""

import re

import numpy as np
import pytest
import yaml
from conftest import command
from rollout_config import changed

from posbias.comparison.distances import normalised_wasserstein
from posbias.configuration import RolloutConfig, config_text, read_config
from posbias.design.designer import design, wanted
from posbias.design.profile_gradients import Objective, smooth_kernel
from posbias.rollout.biased import biased_kernels
from posbias.rollout.gains import gains
from posbias.rollout.profiles import read_profile
from posbias.rollout.two_sided import two_sided
from posbias.rollout.untrained import factored_profile, profile_of_gains, untrained_profile

HEADS = [{"kind": "alibi", "slope": 0.3}, {"kind": "flat", "tau": 0.8}, {"kind": "log", "alpha": 2.0}, {"kind": "none"}]


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def gated(rng, T=3, knots=(1, 3, 12), parallel=False, outputs=True):
    """Return gains of every kind, none of them even."""
    g = len(knots)
    factors = rng.random((T, g, 4))
    factors /= np.linalg.norm(factors, axis=-1, keepdims=True)
    overlaps = (factors @ factors.swapaxes(1, 2)) * 0.9
    overlaps = (overlaps + overlaps.swapaxes(1, 2)) / 2
    parts = {"steps": 0.5 + rng.random((T, g)), "overlaps": overlaps, "parallel": parallel}
    if outputs:
        parts["outputs"] = 0.5 + rng.random((T, g))
    return gains(knots, 0.3 + rng.random((T, g)), **parts)


def by_definition(few, kernels, n):
    """Apply the law to numbers that are interpolated one by one."""
    x, knots = np.log(np.arange(1, n + 1)), np.log(few.positions)
    weights = [[max(0.0, 1 - abs(np.interp(u, knots, range(knots.size)) - k)) for k in range(knots.size)] for u in x]
    c, o, m = ([np.interp(x, knots, row) for row in part] for part in (few.attention, few.outputs, few.steps))
    K = np.empty((few.T, n, n))
    for t in range(few.T):
        for i in range(n):
            for j in range(n):
                rho = 1.0 if i == j else np.array(weights[i]) @ few.overlaps[t] @ np.array(weights[j])
                K[t, i, j] = rho * (weights[i] @ few.steps[t]) * (weights[j] @ few.steps[t])
    assert np.allclose([np.diag(k) for k in K], np.square(m))
    return untrained_profile(kernels, np.ones(few.T), n, scales=c, outputs=o, steps=K, parallel=int(few.parallel))


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("n", [1, 12])
def test_the_law_of_gains_is_the_law_of_untrained_networks(parallel, n, rng):
    few, kernels = gated(rng, parallel=parallel), biased_kernels(3, HEADS)
    np.testing.assert_allclose(profile_of_gains(kernels, few, n), by_definition(few, kernels, n), rtol=1e-10)


def test_two_tokens_and_two_layers_by_hand():
    """Gates tell the two tokens' gradients apart only below a layer that has mixed them."""
    c, m, rho = 0.8, 1.5, 0.25
    few = gains([1], [[c]] * 2, steps=[[m]] * 2, overlaps=[[[rho]]] * 2)
    q, gain = c**2 / 4, 1 + m**2
    a, b, d = q * gain, q * (1 + rho * m**2), (1 + q) * gain
    first, last = a + c**2 * (a + b + d / 4), d + c**2 * d / 4
    expected = np.sqrt([first, last]) / np.sqrt([first, last]).sum()
    np.testing.assert_allclose(profile_of_gains(biased_kernels(2, {"kind": "none"}), few, 2), expected, rtol=1e-13)


def test_gains_alone_take_the_paths_without_steps(rng):
    c = rng.random(4)
    kernels = biased_kernels(4, HEADS)
    even = gains([1, 9], np.stack([c, c], 1), steps=[[2.0, 2.0]] * 4)
    np.testing.assert_array_equal(even.alone, c)
    assert gated(rng).alone is None and gains([1, 9], [[1.0, 2.0]]).alone is None
    assert gains([1], [[1.0]], steps=[[1.0]], overlaps=[[[0.5]]]).alone is None
    assert gains([1], [[1.0]], steps=[[1.0]], parallel=True).alone is None
    np.testing.assert_array_equal(profile_of_gains(kernels, even, 40), untrained_profile(kernels, c, 40))
    stepped = untrained_profile(kernels, n=40, **even.at(np.arange(1.0, 41)))
    np.testing.assert_allclose(profile_of_gains(kernels, even, 40), stepped, rtol=1e-10)
    np.testing.assert_allclose(profile_of_gains(kernels, even, 300), untrained_profile(kernels, c, 300), rtol=1e-5)


def test_layers_of_one_bias_and_their_own_content_have_kernels_of_their_own():
    kernels = biased_kernels(3, {"kind": "log", "alpha": 1.0}, diagonal=[[0.0], [2.0], [-1.0]])
    factored, plain = factored_profile(kernels, [0.5] * 3, 60), untrained_profile(kernels, [0.5] * 3, 60)
    np.testing.assert_allclose(factored, plain, rtol=1e-5)


def test_the_mixing_of_uneven_gains_is_that_of_their_root_mean_squares():
    """Of two tokens with gains 1 and 7, and outputs 1 and 7: c = 5 · 5, where means would make it 4 · 4."""
    few = gains([1, 2], [[1.0, 7.0]], outputs=[[1.0, 7.0]])
    np.testing.assert_allclose(few.mixing(2), [25 / 26])


@pytest.mark.parametrize("kept", [16, 1024])
def test_kernels_written_out_are_pushed_as_they_are(kept, rng, monkeypatch):
    monkeypatch.setattr("posbias.rollout.two_sided.KEPT", kept)
    n = 30
    kernels, X = biased_kernels(1, HEADS), rng.standard_normal((n, n))
    X, weights = X + X.T, np.array([0.1, 0.5, 0.2, 0.7])
    dense = [biased_kernels(1, [head]).dense(0, n) for head in HEADS]
    expected = sum(w * A.T @ X @ A for w, A in zip(weights, dense, strict=True))
    np.testing.assert_allclose(two_sided(kernels, 0, X, weights), expected, atol=1e-9)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
def test_gradient_with_gates_is_that_of_differences(parallel, layers, rng):
    kinds, n = ("log", "flat", "alibi", "flat"), 30
    x = np.array([0.3, 0.2, -2.0, -0.7]) + 0.1 * rng.standard_normal((layers, 4))
    local = smooth_kernel("alibi", np.log(0.5), n)[None]
    wish = Objective(np.full(n, 1 / n), gated(rng, parallel=parallel), local, np.arange(1.0, n + 1) * 2)
    _, gradient = wish.value_and_gradient(kinds, x, 0.01)
    assert np.abs(gradient).max() > 1e-3
    for k in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[k] = 1e-6
        up, down = (wish.value_and_gradient(kinds, y, 0.01)[0] for y in (x + step, x - step))
        assert gradient[k] == pytest.approx((up - down) / 2e-6, rel=1e-4, abs=1e-8)


def test_the_objective_with_gates_is_the_distance_of_the_law(rng):
    """Without flat heads the smooth kernels are exact; δ = 0 leaves W₁ itself."""
    n, few = 24, gated(rng)
    local = smooth_kernel("alibi", np.log(0.5), n)[None]
    value, _ = Objective(np.full(n, 1 / n), few, local).value_and_gradient(("log",), np.array([[0.7]]), 0.0)
    heads = [{"kind": "alibi", "slope": 0.5}, {"kind": "log", "alpha": np.exp(0.7) - 1}]
    p = profile_of_gains(biased_kernels(3, heads), few, n)
    assert value == pytest.approx(normalised_wasserstein(p, np.full(n, 1 / n)), abs=1e-10)


@pytest.mark.parametrize("n", [12, 25])
def test_a_search_with_fewer_tokens_is_finished_with_more(n, monkeypatch):
    from posbias.design import designer

    few = gains([1], [[0.6]] * 2, steps=[[1.0]] * 2, overlaps=[[[0.2]]] * 2)
    monkeypatch.setitem(designer.FINEST, ("untrained", False), 16)
    monkeypatch.setattr(designer, "POLISHED", 32)
    sizes = []
    search = designer._Search
    monkeypatch.setattr(designer, "_Search", lambda task, size: sizes.append(size) or search(task, size))
    design(wanted(np.full(n, 1 / n), None, 2, law="untrained", gains=few))
    assert sizes == ([12] if n == 12 else [16, 25])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"positions": [0, 2]}, "gains.positions: expected increasing numbers from 1 on"),
        ({"attention": [[-0.5, 1.0]] * 2}, "gains.attention: expected numbers from 0 to 1e+20, received -0.5"),
        ({"steps": [[1.0, 1.0]]}, "gains.steps: expected (2, 2) numbers, a row for each layer, received shape (1, 2)"),
        ({"overlaps": [[[1.0, 0.5], [0.4, 1.0]]] * 2}, "symmetric numbers in [-1, 1], received others"),
        ({"overlaps": [[[0.1, 0.9], [0.9, 0.1]]] * 2}, "semidefinite matrices, received an eigenvalue of -0.8"),
    ],
)
def test_gains_are_checked(change, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        gains(**{"positions": [1, 4], "attention": [[1.0, 1.0]] * 2, **change})


def test_what_a_design_is_given_is_one_of_both():
    few, even = gains([1], [[1.0]] * 2), np.full(4, 0.25)
    with pytest.raises(ValueError, match="lambda: expected values, or gains in their place, received both"):
        wanted(even, [0.2, 0.2], 2, law="untrained", gains=few)
    with pytest.raises(ValueError, match="gains: expected none, or the law untrained, received aligned"):
        wanted(even, None, 2, gains=few)


BRANCHES = {
    "positions": [1, 4],
    "attention": [[0.5, 0.25], [1.0, 2.0]],
    "steps": [[0.5, 0.5], [1.0, 1e-7]],
    "overlaps": [[[1.0, 0.5], [0.5, 1.0]], [[0.75, 0.0], [0.0, 0.5]]],
}


def test_branches_of_a_configuration_come_back(tmp_path):
    config = RolloutConfig.model_validate(changed(branches=BRANCHES))
    (tmp_path / "c.yaml").write_text(config_text(config))
    again = read_config(tmp_path / "c.yaml")
    assert again == config and again.gains().overlaps[1, 1, 1] == 0.5 and again.gains().steps[1, 1] == 1e-7
    plain = RolloutConfig.model_validate(changed())
    np.testing.assert_allclose(plain.gains().alone, [0.3 / 0.7, 1.5])
    np.testing.assert_array_equal(config.profile(), plain.profile())


def test_rollout_computes_either_law_of_a_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = RolloutConfig.model_validate(changed(branches=BRANCHES))
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(changed(branches=BRANCHES)))
    untrained = profile_of_gains(config.kernels(), config.gains(), config.sequence_length)
    assert np.abs(untrained - config.profile()).max() > 1e-3
    for law, wish in (
        ([], config.profile()),
        (["--law", "aligned"], config.profile()),
        (["--law", "untrained"], untrained),
    ):
        assert command("rollout", "c.yaml", *law, "-o", "p.csv", "--overwrite") == 0
        np.testing.assert_allclose(read_profile("p.csv"), wish, rtol=0, atol=1e-12)
    assert command("rollout", "c.yaml", "--law", "untrained", "-n", 9, "-o", "longer.csv") == 0
    assert read_profile("longer.csv").size == 9
