"""Remedies on retrieval networks: what is tested, what the engine chooses, what is not used, and the files."""

import json
import shutil
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")
xr = pytest.importorskip("xarray")
pytest.importorskip("transformers")

from posbias import cli
from posbias.design.choice import Attended, chosen_bias
from posbias.measure.instrument import Instrument
from posbias.networks.added_biases import added_biases
from posbias.rollout.position_bias import layered_biases
from studies.lookup import remedies
from studies.lookup import runs as lookup_runs
from studies.lookup.network import load, save, untrained
from studies.lookup.prompts import prompts
from studies.lookup.settings import Setting
from studies.lookup.training import found_by_place

SETTING = Setting("steep", layers=1, pairs=8)
WORDS = ["train-retrieval", "-e", "steep", "--pairs", "8", "--layers", "1", "--iterations", "4", "--batch-size", "4"]
EVALUATIONS = 4


@pytest.fixture(scope="module", autouse=True)
def few():
    """Draw few prompts, and try few settings."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("AT_THE_END", 64), ("SEARCHED", 32), ("SEEN", 32)):
            patch.setattr(remedies, name, value)
        patch.setattr(lookup_runs, "AT_THE_END", 64)
        short = partial(remedies.measure_lookup_remedies, evaluations=EVALUATIONS)
        patch.setattr(remedies, "measure_lookup_remedies", short)
        yield


def command(folder, *more):
    with pytest.raises(SystemExit) as ended:
        cli.main([*WORDS, "-o", str(folder), "--seeds", "2", *more])
    assert not ended.value.code


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with two networks, trained for a moment, and their remedies, which were measured later."""
    root = tmp_path_factory.mktemp("runs")
    command(root)
    assert not list(root.glob("*.remedies.nc"))
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    command(root, "--resume", "--remedies")
    assert before == {path: path.stat().st_mtime_ns for path in before}, "networks and results are kept"
    return root


@pytest.fixture(scope="module")
def found(folder):
    return remedies.read_lookup_remedies(remedies.remedies_path(folder / f"{SETTING.name}.nc"))


def of(found, name, condition, seed=0, times=4):
    """Return what a file holds of a condition."""
    return found[name].sel(seed=seed, times=times, condition=condition).values


def scored(model, setting, seed=0, times=4):
    """Return accuracy and log-probability by part on the prompts of the test, from those by place."""
    n = times * setting.pairs
    by_place = found_by_place(model, setting, remedies.AT_THE_END, remedies.SEED + 2 * seed + 1, pairs=n)
    parts = {name: x.reshape(8, n // 8).mean(1) for name, x in vars(by_place).items()}
    return {name: parts[name] for name in ("accuracy", "log_probability")}


def slopes(description):
    """Return the slopes of all heads of a network of one layer, NaN for a bias that has none."""
    ((*heads,),) = layered_biases(description, 1, 1)
    return [getattr(bias, "slope", np.nan) for bias in heads]


def test_a_file_has_every_condition_at_both_lengths(found):
    assert dict(found.sizes) == {"seed": 2, "times": 2, "condition": 6, "part": 8}
    conditions = ["intact", "engine", "removed", "chosen", "temperatures", "temperature"]
    assert found["condition"].values.tolist() == conditions
    assert found["times"].values.tolist() == [1, 4] and found["seed"].values.tolist() == [0, 1]
    assert set(found.data_vars) == set(remedies.VARIABLES)
    for name, (dims, _) in remedies.VARIABLES.items():
        assert found[name].dims == dims, name
    assert (found["log_probability"] < 0).all() and (found["log_probability"].std("part") > 0).all()
    assert found.attrs["setting"] == SETTING.name and found.attrs["evaluations"] == EVALUATIONS
    assert (found.attrs["search_prompts"], found.attrs["test_prompts"]) == (32, 64)


@pytest.mark.parametrize(("seed", "times"), [(0, 1), (1, 4)])
def test_intact_is_the_network_as_it_is_on_the_prompts_of_the_test(folder, found, seed, times):
    expected = scored(load(folder / f"{SETTING.name}.seed{seed}"), SETTING, seed, times)
    for name, values in expected.items():
        np.testing.assert_allclose(of(found, name, "intact", seed, times), values, rtol=1e-5)
    assert json.loads(str(of(found, "applied", "intact", seed, times))) == []


@pytest.mark.parametrize("times", [1, 4])
def test_engine_is_what_is_chosen_from_attention_alone(folder, found, times):
    """Attention and λ are read here by the instrument that measures any model."""
    model = load(folder / f"{SETTING.name}.seed1")
    n = times * SETTING.pairs
    ids = prompts(SETTING, 32, torch.Generator().manual_seed(remedies.SEED - 1), pairs=n, each_place=True).ids
    instrument, weights = Instrument(model), []
    instrument.forward(ids, lambda reading: weights.append(reading.probabilities.double().mean(0).numpy()))
    seen = Attended(np.stack(weights), instrument.measure(ids).lambda_frobenius.double().mean(0).numpy(), 4)
    applied = json.loads(str(of(found, "applied", "engine", 1, times)))
    expected = seen.profile(layered_biases(chosen_bias(seen).description, 1, 4))
    np.testing.assert_allclose(seen.profile(layered_biases(applied, 1, 4)), expected, atol=1e-4)
    assert np.abs(seen.profile(layered_biases({"kind": "none"}, 1, 4)) - expected).max() > 5e-3
    with added_biases(model, applied):
        for name, values in scored(model, SETTING, 1, times).items():
            np.testing.assert_allclose(of(found, name, "engine", 1, times), values, rtol=1e-5)


def test_removed_is_the_network_without_the_bias_that_it_was_trained_with(folder, found, tmp_path):
    shutil.copytree(folder / f"{SETTING.name}.seed0", tmp_path / "network")
    config = json.loads((tmp_path / "network" / "config.json").read_text())
    config["position_bias"] = [{"kind": "none"}] * 4
    (tmp_path / "network" / "config.json").write_text(json.dumps(config))
    for name, values in scored(load(tmp_path / "network"), SETTING, 0, 4).items():
        np.testing.assert_allclose(of(found, name, "removed"), values, rtol=1e-4)
    assert not np.allclose(of(found, "log_probability", "intact"), of(found, "log_probability", "removed"), rtol=1e-4)


@pytest.mark.parametrize("encoding", ["none", "rope", "flat"])
def test_nothing_is_removed_where_nothing_can_be(encoding):
    assert remedies.taken_back(Setting(encoding)) == {"kind": "none"}
    assert remedies.taken_back(Setting("steep", tokens=2)) == {"kind": "none"}


def test_what_is_used_is_better_than_nothing_on_the_prompts_that_are_searched(folder, found):
    """What is applied is one of the settings of the search, and for one temperature the best of them."""
    from posbias.networks.added_biases import divided_logits
    from studies.design.remedies import TEMPERATURES

    model, n = load(folder / f"{SETTING.name}.seed0"), 4 * SETTING.pairs

    def worst(temperature):
        with divided_logits(model, temperature):
            by_place = found_by_place(model, SETTING, 32, remedies.SEED, pairs=n).log_probability
        return by_place.reshape(8, 4).mean(1).min()

    tried = {float(x): worst(float(x)) for x in np.geomspace(*TEMPERATURES, EVALUATIONS)}
    best = max(tried, key=tried.get)
    expected = [best] if tried[best] > worst(1.0) else []
    np.testing.assert_allclose(json.loads(str(of(found, "applied", "temperature"))), expected)


def test_resumed_remedies_that_are_missing_are_measured_and_those_that_are_there_kept(folder, found):
    path = remedies.remedies_path(folder / f"{SETTING.name}.nc")
    written = path.stat().st_mtime_ns
    command(folder, "--resume", "--remedies")
    assert path.stat().st_mtime_ns == written
    path.unlink()
    command(folder, "--resume")
    assert not path.exists(), "they were not asked for"
    command(folder, "--resume", "--remedies")
    again = remedies.read_lookup_remedies(path)
    np.testing.assert_allclose(again["log_probability"], found["log_probability"], rtol=1e-5)
    assert again["applied"].equals(found["applied"])


def test_other_files_are_refused(folder):
    path = folder / f"{SETTING.name}.nc"
    with pytest.raises(ValueError, match="even.nc: expected remedies of retrieval networks of layout 1, received no"):
        remedies.read_lookup_remedies(path)
    (folder / "text.nc").write_text("text")
    with pytest.raises(ValueError, match="text.nc: expected a netCDF file written by posbias, received another format"):
        remedies.read_lookup_remedies(folder / "text.nc")


MADE = Setting("steep", layers=1, pairs=8, width=72, heads=1, values=4)


def made(folder, match):
    """Save a network whose weights are written down: asked keys match those of pairs by so many logits.

    Of the width, 32 numbers are the key of a pair, 32 the key that is asked, and 4 the value.
    """
    model = untrained(MADE, 0)
    K, V, d = MADE.keys, MADE.values, MADE.width
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0 if parameter.dim() == 1 else 0.0)  # norms stay
        embedding = model.get_input_embeddings().weight
        for k in range(K):
            embedding[k * V : k * V + V, k] = 1.0
            embedding[K * V + k, K + k] = 1.0
            for v in range(V):
                embedding[k * V + v, 2 * K + v] = 1.0
        attention, keys = model.model.layers[0].self_attn, torch.arange(K)
        attention.q_proj.weight[keys, K + keys] = match / (d / 2) ** 0.5  # rows of norm √d, pairs' split in two
        attention.k_proj.weight[keys, keys] = 1.0
        values = 2 * K + torch.arange(V)
        attention.v_proj.weight[values, values] = attention.o_proj.weight[values, values] = 1.0
        model.get_output_embeddings().weight[-V:, 2 * K :][:, :V] = 4 * torch.eye(V)
    save(model, MADE, folder / f"{MADE.name}.seed0")
    return remedies.measure_lookup_remedies(MADE, [0], folder, evaluations=8)


def test_a_slope_that_hides_early_places_of_long_prompts_is_taken_back(tmp_path):
    """A match of 4 logits is lost over 32 pairs; the bias that the engine chooses is one of negative slopes."""
    found = made(tmp_path, match=4.0)
    intact, engine, chosen = (of(found, "log_probability", name) for name in ("intact", "engine", "chosen"))
    assert intact[0] < intact[-1] - 0.5, "early places are hidden"
    assert max(slopes(json.loads(str(of(found, "applied", "engine"))))) < -0.05
    assert engine[0] > intact[0] + 0.2 and engine.min() > intact.min() + 0.2
    assert chosen.min() > intact.min() + 0.2 and json.loads(str(of(found, "applied", "chosen"))) != []


def test_a_remedy_that_is_no_better_than_nothing_is_not_used(tmp_path, monkeypatch):
    """Where attention moves nothing, all settings are equally good."""
    monkeypatch.setattr(remedies, "load", lambda folder: silent(load(folder)))
    found = made(tmp_path, match=4.0)
    for condition in remedies.SEARCHES:
        for times in remedies.LENGTHS:
            assert json.loads(str(of(found, "applied", condition, 0, times))) == [], condition
    assert (found["log_probability"] == found["log_probability"].sel(condition="intact")).all()


def silent(model):
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.zero_()
    return model


def test_a_mean_slope_is_over_seeds_first_and_of_slopes_alone():
    """A seed with one slope for all counts as much as one with a slope for each head of each layer."""
    one, each = {"kind": "alibi", "slope": -0.1}, [[{"kind": "alibi", "slope": s} for s in (-0.2, -0.4)]] * 2
    said = np.array([json.dumps(one), json.dumps(each)])[:, None, None]
    found = xr.Dataset({"applied": (("seed", "times", "condition"), said)}, {"times": [4], "condition": ["engine"]})
    assert remedies.mean_slope(found, 2, 4) == pytest.approx(-0.2)
    found["applied"][0] = json.dumps({"kind": "log", "alpha": 1.0})
    with pytest.raises(ValueError, match="engine: expected slopes alone"):
        remedies.mean_slope(found, 2, 4)
