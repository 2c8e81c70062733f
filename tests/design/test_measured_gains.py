"""Gains for a design: what a measurement says of them, and that the command promises what a rollout gives."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from conftest import command

from posbias.configuration import read_config
from posbias.design.measured_gains import KNOTS, knotted, measured_gains
from posbias.measure.results import read_results
from posbias.measure.rollouts import measured_rollout
from posbias.rollout.biased import biased_kernels
from posbias.rollout.profiles import read_profile
from posbias.rollout.untrained import profile_of_gains, untrained_profile
from studies.reference.models import reference

LENGTH = 32


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Return the measurement of an untrained Llama of four layers without positions."""
    folder = tmp_path_factory.mktemp("body")
    replace(reference("llama-12"), T=4).biased({"kind": "none"}).config(num_hidden_layers=4).save_pretrained(folder)
    words = ["--untrained", folder, "-o", folder / "m.nc", "-N", 3, "-n", LENGTH, "-q", "mixing,influence,branches"]
    assert command("measure", *words) == 0
    return folder / "m.nc"


def test_a_measurement_gives_gains_that_are_near_its_own_law(measured):
    results = read_results(measured)
    few = measured_gains(results)
    assert few.T == 4 and few.positions.size == KNOTS and few.positions[-1] == LENGTH and not few.parallel
    kernels = biased_kernels(4, [{"kind": "alibi", "slope": 0.25}, *[{"kind": "flat", "tau": 0.5}] * 3])
    branches = measured_rollout(results, "untrained").branches
    exact = untrained_profile(kernels, n=LENGTH, **branches)
    near = profile_of_gains(kernels, few, LENGTH)
    blind = untrained_profile(kernels, branches["gains"], LENGTH, scales=branches["scales"])
    assert np.abs(np.cumsum(near - exact)).max() < 0.02 < np.abs(np.cumsum(blind - exact)).max()


def test_few_tokens_are_kept_as_they_are():
    rng = np.random.default_rng(0)
    J = rng.standard_normal((2, 4, 20))
    K = J @ J.swapaxes(1, 2)
    scales, outputs, c = rng.random((2, 4)), rng.random((2, 4)), rng.random((2, 3))
    few = knotted(c, scales, outputs, K, np.ones(2))
    assert few.positions.tolist() == [1, 2, 3, 4] and few.parallel
    at = few.at(np.arange(1.0, 5))
    np.testing.assert_allclose(at["scales"], scales * np.linalg.norm(c, axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(at["outputs"], outputs, rtol=1e-5)
    np.testing.assert_allclose([np.diag(at["steps"][t]) for t in range(2)], np.diagonal(K, axis1=1, axis2=2), rtol=1e-5)
    with pytest.raises(ValueError, match="parallel: expected all layers or none, received some"):
        knotted(c, scales, outputs, K, np.array([0, 1]))


def test_overlaps_are_means_over_pairs_of_different_tokens():
    n = 40
    K = np.full((1, n, n), 0.5) + 1.5 * np.eye(n)
    few = knotted(np.ones((1, 1)), np.ones((1, n)), np.ones((1, n)), K, np.zeros(1))
    assert few.positions.size == KNOTS
    np.testing.assert_allclose(few.overlaps, 0.25, atol=1e-6)
    np.testing.assert_allclose(few.at(np.arange(1.0, n + 1))["steps"][0], K[0], atol=1e-5)


def test_the_command_promises_what_rollout_gives_with_gains(measured, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--depth", 4, "--heads", 4, "--local", 1, "-n", LENGTH]
    assert (
        command("design", "--law", "untrained", "--gains", measured, *words, "-o", "c.yaml", "--profile", "p.csv") == 0
    )
    assert "posbias rollout gives this profile with --law untrained" in capsys.readouterr().out
    assert command("rollout", "c.yaml", "--law", "untrained", "-o", "q.csv") == 0
    np.testing.assert_allclose(read_profile("q.csv"), read_profile("p.csv"), rtol=1e-12)
    config, few = read_config("c.yaml"), measured_gains(read_results(measured))
    for name in ("positions", "attention", "outputs", "steps", "overlaps"):
        np.testing.assert_array_equal(getattr(config.gains(), name), getattr(few, name))
    np.testing.assert_allclose(config.lambdas(), few.mixing(LENGTH), rtol=1e-15)
    promise = profile_of_gains(config.kernels(), config.gains(), LENGTH)
    np.testing.assert_allclose(read_profile("q.csv"), promise, rtol=0, atol=1e-12)


def test_gains_of_another_network_are_refused(measured, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    start = ["design", "--law", "untrained", "--gains", measured, "-n", LENGTH, "-o", "c.yaml"]
    for words, said in (
        (["--depth", 5, "--heads", 4], "expected 5 layers, as --depth says, received 4"),
        (["--depth", 4, "--heads", 3], "expected 3 heads, as --heads says, received 4"),
    ):
        assert command(*start, *words) == 2
        assert said in capsys.readouterr().err and not [*tmp_path.iterdir()]
    assert command("rollout", measured, "--law", "untrained", "--variant", "b", "-o", "p.csv") == 2
    assert f"--law: expected none for {measured}, received untrained" in capsys.readouterr().err
    with pytest.raises(ValueError, match="variant: expected one of .* received untrained, which needs .*branches"):
        measured_gains(read_results(measured).drop_vars("branch_gain"))
