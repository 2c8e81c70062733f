"""Designs for networks at birth: what a measurement says of gains, what the command promises, what networks keep."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("xarray", reason="xarray is not installed")

from measuring import settings as tiny

from posbias.cli import main
from posbias.design.measured_gains import KNOTS, knotted, measured_gains
from posbias.measure.corpus import Corpus
from posbias.measure.loading import Source
from posbias.measure.results import read_results
from posbias.measure.rollouts import measured_rollout
from posbias.measure.session import Session
from posbias.measure.settings import Settings
from posbias.measure.untrained import Untrained
from posbias.published.configuration import read_config
from posbias.rollout.biased import biased_kernels
from posbias.rollout.profiles import read_profile
from posbias.rollout.untrained import profile_of_gains, untrained_profile
from studies.design.gated_designs import (
    CONTENTS,
    DESIGNS,
    gated_table,
    measure_gated,
    quieten,
)
from studies.reference.models import reference

LENGTH = 32


def body(folder, name):
    """Write the configuration of a reference model without positions, of four layers; return where."""
    row = reference(name)
    layers = {"num_hidden_layers" if row.family == "llama" else "n_layer": 4}
    replace(row, T=4).biased({"kind": "none"}).config(**layers).save_pretrained(folder / name)
    return folder / name


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bodies")


@pytest.fixture(scope="module", params=["llama-12", "bloom-12"])
def found(folder, request):
    settings = Settings(Untrained(str(body(folder, request.param))), Corpus("builtin"), 8, LENGTH, 4, rule="random")
    return request.param, measure_gated(settings, "unit", seeds=2)


def test_networks_keep_what_a_design_for_gates_promises(found):
    """With queries of zero, so that positions are all that attention knows, and with gains of the networks' own."""
    name, data = found
    table = gated_table(data).groupby(["design", "content"])[["to promise", "to own", "sampling"]].mean()
    gates, alone, again = (table.loc[x, "none"]["to promise"] for x in ("gates", "gains", "again"))
    assert again < 0.04 and gates < 0.05
    assert table["to own"].xs("none", level="content").max() < 0.04
    if name == "llama-12":
        assert alone > 0.08 and table.loc["gains", "as drawn"]["to promise"] > 0.08
        assert table.loc["gates", "as drawn"]["to promise"] < 0.06


def test_a_file_holds_designs_contents_and_seeds(found):
    _, data = found
    assert dict(data["influence_prompts"].sizes) == {
        "design": 3, "content": 2, "seed": 2, "prompt": 8, "position": LENGTH
    }  # fmt: skip
    assert [*data["design"].values] == [*DESIGNS] and [*data["content"].values] == [*CONTENTS]
    np.testing.assert_allclose((data["influence_prompts"] ** 2).sum("position"), 1, rtol=3e-3)
    np.testing.assert_allclose(data["promise"].sum("position"), 1, rtol=1e-5)
    assert data.attrs["init"] == "unit" and data.attrs["seed"] == "0 to 1"
    assert all("long_name" in x.attrs for x in data.data_vars.values())
    assert len(gated_table(data)) == 12 and (gated_table(data)["sampling"] > 0).all()


@pytest.mark.parametrize("family", ["llama", "bloom", "gpt2"])
def test_queries_of_zero_leave_attention_to_positions(family, tmp_path):
    tiny(family).save_pretrained(tmp_path / family)
    study = Session(Settings(Untrained(str(tmp_path / family), spread=0.5), Corpus("builtin"), 2, 12, 2, rule="random"))

    def sizes():
        found = []
        study.instrument.forward(study.ids[:1], lambda x: found.append(x.content()[..., x.allowed].abs().max().item()))
        return found

    assert min(sizes()) > 1e-3
    quieten(study.instrument)
    assert max(sizes()) == 0.0


@pytest.fixture(scope="module")
def measured(folder):
    """Return the measurement of a small Llama at birth."""
    path = folder / "llama.nc"
    words = ["--init", body(folder, "llama-12"), "-o", path, "-N", 3, "-n", LENGTH, "-q", "mixing,influence,branches"]
    assert command("measure", *words) == 0
    return path


def command(*words):
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    return ended.value.code


def test_a_measurement_gives_gains_that_are_near_its_own_law(measured):
    results = read_results(measured)
    few = measured_gains(results)
    assert few.T == 4 and few.positions.size == KNOTS and few.positions[-1] == LENGTH and not few.parallel
    kernels = biased_kernels(4, [{"kind": "alibi", "slope": 0.25}, *[{"kind": "flat", "tau": 0.5}] * 3])
    branches = measured_rollout(results, "birth").branches
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
    assert command("design", "--law", "birth", "--gains", measured, *words, "-o", "c.yaml", "--profile", "p.csv") == 0
    assert "posbias rollout gives this profile with --law birth" in capsys.readouterr().out
    assert command("rollout", "c.yaml", "--law", "birth", "-o", "q.csv") == 0
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "q.csv").read_bytes()
    config, few = read_config("c.yaml"), measured_gains(read_results(measured))
    for name in ("positions", "attention", "outputs", "steps", "overlaps"):
        np.testing.assert_array_equal(getattr(config.gains(), name), getattr(few, name))
    np.testing.assert_allclose(config.lambdas(), few.mixing(LENGTH), rtol=1e-15)
    promise = profile_of_gains(config.kernels(), config.gains(), LENGTH)
    np.testing.assert_allclose(read_profile("q.csv"), promise, rtol=0, atol=1e-12)


def test_what_cannot_be_is_refused(measured, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    start = ["design", "--law", "birth", "--gains", measured, "-n", LENGTH, "-o", "c.yaml"]
    for words, said in (
        (["--depth", 5, "--heads", 4], "expected 5 layers, as --depth says, received 4"),
        (["--depth", 4, "--heads", 3], "expected 3 heads, as --heads says, received 4"),
    ):
        assert command(*start, *words) == 2
        assert said in capsys.readouterr().err and not [*tmp_path.iterdir()]
    assert command("rollout", measured, "--law", "birth", "--variant", "b", "-o", "p.csv") == 2
    assert "--law: expected none for a measurement, but --variant" in capsys.readouterr().err
    with pytest.raises(ValueError, match="variant: expected one of .* received birth, which needs .*branches"):
        measured_gains(read_results(measured).drop_vars("branch_gain"))
    settings = Settings(Source("reference/llama-12"), Corpus("builtin"), 2, 8, 2)
    with pytest.raises(ValueError, match="source: expected a network at birth, received reference/llama-12"):
        measure_gated(settings, "unit")
    with pytest.raises(ValueError, match="init: expected default or unit, received zero"):
        measure_gated(settings, "zero")
