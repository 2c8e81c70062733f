"""Designed priors: gradients against differences, a search against brute force, and what the command promises."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from conftest import command

from posbias.comparison.distances import normalised_wasserstein
from posbias.configuration import read_config
from posbias.design import designer
from posbias.design.designer import design, least_distance_with_local, rival_heads, rivals, wanted
from posbias.design.profile_gradients import (
    FREE,
    Objective,
    limits,
    sensitivity,
    smooth_distance,
    smooth_kernel,
    to_bias,
)
from posbias.rollout.biased import biased_kernels, dense_kernel
from posbias.rollout.gains import gains_of_mixing
from posbias.rollout.influence import influence_profile
from posbias.rollout.position_bias import described
from posbias.rollout.profiles import read_profile, write_profile
from posbias.rollout.untrained import factored_profile, untrained_profile


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def uniform(n):
    return np.full(n, 1 / n)


def objective(n, lambda_, law, local=(0.5,)):
    kernels = np.array([smooth_kernel("alibi", np.log(slope), n) for slope in local]).reshape(-1, n, n)
    return Objective(uniform(n), np.array(lambda_) if law == "aligned" else gains_of_mixing(lambda_), kernels)


def differences(value, x, h=1e-6):
    """Central differences of a function of an array."""
    out = np.zeros_like(x)
    for k in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[k] = h
        out[k] = (value(x + step) - value(x - step)) / (2 * h)
    return out


@pytest.mark.parametrize("kind", ["log", "alibi"])
@pytest.mark.parametrize("x", [-1.5, 1.2])
def test_smooth_kernels_are_the_engines(kind, x):
    np.testing.assert_allclose(smooth_kernel(kind, x, 30), dense_kernel(to_bias(kind, x), 0.0, 30), atol=1e-14)


@pytest.mark.parametrize("x", [0.0, 1.2])
def test_the_smooth_flat_kernel_lies_between_steps_of_the_engines(x):
    """Each row is a mixture of the engine's rows for two numbers of visible keys, one of them its own."""
    n, bias = 30, to_bias("flat", x)
    smooth, exact = smooth_kernel("flat", x, n), dense_kernel(bias, 0.0, n)
    np.testing.assert_allclose(smooth.sum(1), 1.0, atol=1e-14)
    wanted_keys = (np.arange(n) + 1) * np.exp(-bias.cutoff) - 0.5
    at_steps = np.abs(wanted_keys - np.round(wanted_keys))
    between = np.abs(smooth - exact).sum(1)
    assert (between <= 2 * at_steps + 1e-12).all() and between.max() > 0.01


@pytest.mark.parametrize("kind", FREE)
@pytest.mark.parametrize("x", [-1.1, 0.9])
def test_sensitivity_is_the_derivative(kind, x, rng):
    X = rng.standard_normal((25, 25))
    slope = differences(lambda y: float((smooth_kernel(kind, float(y[0]), 25) * X).sum()), np.array([x]))[0]
    assert sensitivity(kind, x, X) == pytest.approx(slope, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("law", ["aligned", "untrained"])
def test_gradient_is_that_of_differences(law, layers, rng):
    kinds = ("log", "flat", "alibi", "flat")
    x = np.array([0.3, 0.2, -2.0, -0.7]) + 0.1 * rng.standard_normal((layers, 4))
    wish = objective(40, [0.2, 0.5, 0.3], law)
    _, gradient = wish.value_and_gradient(kinds, x, 0.01)
    numeric = differences(lambda y: wish.value_and_gradient(kinds, y, 0.01)[0], x)
    assert np.abs(gradient).max() > 1e-3
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("law", ["aligned", "untrained"])
def test_the_objective_is_the_distance_of_the_engines_profile(law):
    """Without flat heads the smooth kernels are exact; δ = 0 leaves W₁ itself."""
    n, lambda_, slope = 24, np.array([0.2, 0.5, 0.3]), 0.5
    value, _ = objective(n, lambda_, law, (slope,)).value_and_gradient(("log",), np.array([[0.7]]), 0.0)
    heads = [{"kind": "alibi", "slope": slope}, {"kind": "log", "alpha": np.exp(0.7) - 1}]
    p = wanted(uniform(n), lambda_, 2, 1, local_slopes=[slope], law=law).profile(heads)
    assert value == pytest.approx(normalised_wasserstein(p, uniform(n)), abs=1e-9)


def test_smooth_distance_by_hand():
    value, gradient = smooth_distance(np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.5, 0.5]), 0.0)
    assert value == 0.5 and gradient.tolist() == [1.0, 0.5, 0.0]
    assert smooth_distance(uniform(4), uniform(4), 0.1)[0] == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("law", ["aligned", "untrained"])
def test_a_small_search_finds_what_brute_force_finds(law):
    """Two free heads: no pair of a fine grid over all mixtures of kinds is nearer by more than its width allows."""
    n = 24
    task = wanted(uniform(n), [0.4] * 4, 3, 1, law=law)
    choices = [described(to_bias(kind, x)) for kind in FREE for x in np.linspace(*limits(kind, n), 9)]
    pairs = combinations_with_replacement(choices, 2)
    best = min(normalised_wasserstein(task.profile([*task.local, *heads]), task.target) for heads in pairs)
    found = design(task)
    assert found.distance <= best + 0.004
    assert found.distance >= 0.5 * best  # the grid is fine enough to say something


@pytest.mark.parametrize("law", ["aligned", "untrained"])
def test_a_uniform_design_is_nearer_than_every_rival(law):
    task = wanted(uniform(64), [0.3] * 6, 4, 2, law=law)
    found = design(task)
    kept = [d for _, d in rivals(task).values()]
    assert found.distance < 0.9 * min(kept)
    assert found.distance == pytest.approx(normalised_wasserstein(found.profile, task.target), abs=1e-15)
    if law == "aligned":
        assert least_distance_with_local(task) <= found.distance


def test_a_longer_prompt_is_designed_for_at_fewer_tokens(monkeypatch):
    """A design is found at 256 tokens and reported at 1,500; ALiBi's slopes go with the length."""
    monkeypatch.setitem(designer.FINEST, ("aligned", False), 256)
    task = wanted(uniform(1500), [0.5] * 8, 4, 2)
    found = design(task)
    assert found.distance < 0.02 < 0.1 < min(d for _, d in rivals(task).values())
    p = influence_profile(biased_kernels(8, found.description), [0.5] * 8, 1500)
    np.testing.assert_array_equal(found.profile, p)


def test_each_layer_does_better_where_one_number_is_too_few():
    target = np.where((np.arange(64) < 6) | (np.arange(64) > 40), 1.0, 0.05)
    task = wanted(target / target.sum(), [0.5] * 4, 2, 1)
    shared, layered = design(task), design(task, each_layer=True)
    assert layered.distance < 0.95 * shared.distance
    assert isinstance(layered.description[0], list) and len(layered.description) == 4
    assert all(layer[0] == task.local[0] for layer in layered.description)


def test_no_free_heads_leave_what_is_given():
    task = wanted(uniform(16), [0.5, 0.5], 2, 2)
    found = design(task)
    assert found.description == task.local == rival_heads(task)["no bias"]
    assert found.distance == pytest.approx(least_distance_with_local(task), abs=1e-12)


@pytest.mark.parametrize("local", [0, 2])
def test_no_kernels_of_free_heads_undercut_the_least_distance(local, rng):
    n, lambda_ = 12, np.array([0.4, 0.7])
    task = wanted(uniform(n), lambda_, 3, local)
    kept = sum((smooth_kernel("alibi", np.log(slope), n) for slope in task.local_slopes), np.zeros((n, n)))
    distances = []
    for power in np.linspace(0, 12, 40):
        free = np.tril(rng.random((n, n)) ** power)
        R = (kept + (3 - local) * free / free.sum(1, keepdims=True)) / 3
        p = influence_profile(np.stack([R, R]), lambda_)
        distances.append(normalised_wasserstein(p, task.target))
    assert min(distances) >= least_distance_with_local(task) - 1e-12


def test_factors_give_the_law_of_untrained_networks():
    heads = [{"kind": "alibi", "slope": 0.3}, {"kind": "flat", "tau": 0.8}, {"kind": "log", "alpha": 2.0}]
    layers = [heads, heads[::-1], [{"kind": "none"}] * 3, heads]
    for description in (heads, layers, [{"kind": "none"}] * 3):
        kernels, gains = biased_kernels(4, description), [0.3, 0.0, 2.0, 0.5]
        exact = untrained_profile(kernels, gains, 90)
        np.testing.assert_allclose(factored_profile(kernels, gains, 90), exact, rtol=1e-5)
        rough = factored_profile(kernels, gains, 90, tolerance=0.05)
        assert np.abs(rough / exact - 1).max() < 0.2


SMALL = ("--depth", 3, "--heads", 2, "--local", 1, "--length", 24)


@pytest.mark.parametrize(
    ("more", "target"),
    [
        (("--each-layer", "--lambda", "0.3,0.1,0.6"), "uniform"),
        (("--lambda", "0.3", "--local-slopes", "0.7", "--target", "t.csv"), "t.csv"),
        (("--lambda", "0.3", "--law", "untrained"), "uniform"),
    ],
)
def test_the_command_promises_what_rollout_gives(tmp_path, monkeypatch, capsys, more, target):
    monkeypatch.chdir(tmp_path)
    wish = np.arange(1.0, 25) if target == "t.csv" else np.ones(24)
    write_profile("t.csv", wish / wish.sum())
    law = "untrained" if "untrained" in more else "aligned"
    assert command("design", *SMALL, *more, "-o", "c.yaml", "--profile", "p.csv", "--plot", "c.svg") == 0
    said = capsys.readouterr().out
    assert command("rollout", "c.yaml", "--law", law, "-o", "q.csv") == 0
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "q.csv").read_bytes()
    distance = normalised_wasserstein(read_profile("q.csv"), wish / wish.sum())
    assert f"{distance:.4f}" in next(line for line in said.splitlines() if line.startswith("designed "))
    text, config = (tmp_path / "c.yaml").read_text(encoding="utf-8"), read_config("c.yaml")
    assert all(f"# {line}" in text.splitlines() for line in said.splitlines()[:-1])
    assert text.startswith(f"# target {target}, law {law}: 24 tokens, 3 layers x 2 heads, 1 of them local")
    assert config.num_layers == 3 and "</svg>" in (tmp_path / "c.svg").read_text()
    assert ('{kind: "alibi", slope: 0.7}' in text) == ("0.7" in more)
    if law == "untrained":
        untrained = untrained_profile(config.kernels(), config.lambdas() / (1 - config.lambdas()), 24)
        np.testing.assert_array_equal(read_profile("p.csv"), untrained)
        aligned = normalised_wasserstein(config.profile(), uniform(24))
        assert f"with --law untrained; without it another, of W1 {aligned:.4f}" in said
