"""What is measured of lookup networks: profiles, what the engine chooses, what is not used, and the command."""

import json
import shutil
from functools import partial

import numpy as np
import pytest
import torch

from posbias import cli
from posbias.conditions.each.sharper import sharper
from posbias.design import Attended, choose_bias
from posbias.measure.instrument import Instrument
from posbias.models.biases import added_biases
from posbias.rollout.influence import influence_profile
from posbias.rollout.position_bias import layered_biases
from posbias.rollout.structured import biased_kernels
from studies.additions import TEMPERATURES
from studies.lookup import measure, settings, training
from studies.lookup.network import load, save, untrained
from studies.lookup.prompts import prompts
from studies.lookup.settings import Setting
from studies.lookup.tables import finished, read_runs
from studies.lookup.training import found_by_place
from studies.results import Results

SETTING = Setting("steep", layers=1, pairs=8)
EVALUATIONS = 4


@pytest.fixture(scope="module", autouse=True)
def few():
    """Draw few prompts, and try few settings."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("AT_THE_END", 64), ("SEARCHED", 32), ("SEEN", 32)):
            patch.setattr(measure, name, value)
        patch.setattr(training, "AT_THE_END", 64)
        patch.setattr(
            measure, "measure_lookup_remedies", partial(measure.measure_lookup_remedies, evaluations=EVALUATIONS)
        )
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with two networks that are as they were drawn."""
    root = tmp_path_factory.mktemp("networks")
    for seed in (0, 1):
        save(untrained(SETTING, seed), SETTING, root / f"{SETTING.name}.seed{seed}")
    return root


@pytest.fixture(scope="module")
def found(folder):
    return measure.measure_lookup_remedies(SETTING, [0, 1], folder)


def test_profiles_are_those_of_the_networks(folder):
    """These were not trained: what is measured before and after is the same, and the engine says the rollout."""
    profiles = measure.measure_profiles(SETTING, [0, 1], folder)
    kernels = biased_kernels(1, SETTING.position_bias, H=4)
    for seed in range(2):
        mixing = profiles["lambda_born"].values[seed].astype(float)
        expected = influence_profile(kernels, mixing, SETTING.length)
        np.testing.assert_allclose(profiles["rollout_born"].values[seed], expected, atol=1e-6)
    np.testing.assert_allclose(profiles["influence_trained"], profiles["influence_born"], atol=1e-4)
    np.testing.assert_allclose(profiles["lambda_trained"], profiles["lambda_born"], rtol=1e-4)
    for name, (dims, _) in measure.PROFILES.items():
        if not name.startswith("lambda"):
            np.testing.assert_allclose(profiles[name].sum(dims[1]), 1, atol=1e-4)
    assert profiles.sizes["position_4"] == 33
    model, ids, weights = load(folder / f"{SETTING.name}.seed1"), measure._asking(SETTING, 8, 64, 78), []
    instrument = Instrument(model)
    instrument.forward(ids, lambda reading: weights.append(reading.probabilities.double().mean((0, 1)).numpy()))
    mixing = profiles["lambda_trained"].values[1].astype(float)
    expected = influence_profile(np.stack(weights), mixing)
    np.testing.assert_allclose(profiles["rollout_trained"].values[1], expected, atol=1e-5)


def of(found, name, condition, seed=0, times=4):
    """Return what an entry holds of a condition."""
    return found[name].sel(seed=seed, times=times, condition=condition).values


def scored(model, setting, seed=0, times=4):
    """Return accuracy and log-probability by part on the prompts of the test, from those by place."""
    n = times * setting.pairs
    by_place = found_by_place(model, setting, 64, measure.SEARCH_SEED + 2 * seed + 1, pairs=n)
    return {name: x.reshape(8, n // 8).mean(1) for name, x in vars(by_place).items()}


def test_intact_is_the_network_as_it_is_on_the_prompts_of_the_test(folder, found):
    for seed, times in ((0, 1), (1, 4)):
        expected = scored(load(folder / f"{SETTING.name}.seed{seed}"), SETTING, seed, times)
        for name, values in expected.items():
            np.testing.assert_allclose(of(found, name, "intact", seed, times), values, rtol=1e-5)
        assert json.loads(str(of(found, "applied", "intact", seed, times))) == []


def test_engine_is_what_is_chosen_from_attention_alone(folder, found):
    """Attention and λ are read here by the instrument that measures any model."""
    model = load(folder / f"{SETTING.name}.seed1")
    generator = torch.Generator().manual_seed(measure.SEARCH_SEED - 1)
    ids = prompts(SETTING, 32, generator, pairs=32, each_place=True).ids
    instrument, weights = Instrument(model), []
    instrument.forward(ids, lambda reading: weights.append(reading.probabilities.double().mean(0).numpy()))
    seen = Attended(np.stack(weights), instrument.measure(ids).lambda_frobenius.double().mean(0).numpy(), 4)
    applied = json.loads(str(of(found, "applied", "engine", 1)))
    expected = seen.profile(layered_biases(choose_bias(seen).description, 1, 4))
    np.testing.assert_allclose(seen.profile(layered_biases(applied, 1, 4)), expected, atol=1e-4)
    assert np.abs(seen.profile(layered_biases({"kind": "none"}, 1, 4)) - expected).max() > 5e-3
    with added_biases(model, applied):
        for name, values in scored(model, SETTING, 1).items():
            np.testing.assert_allclose(of(found, name, "engine", 1), values, rtol=1e-5)


def test_removed_is_the_network_without_the_bias_that_it_was_trained_with(folder, found, tmp_path):
    shutil.copytree(folder / f"{SETTING.name}.seed0", tmp_path / "network")
    config = json.loads((tmp_path / "network" / "config.json").read_text())
    config["position_bias"] = [{"kind": "none"}] * 4
    (tmp_path / "network" / "config.json").write_text(json.dumps(config))
    for name, values in scored(load(tmp_path / "network"), SETTING).items():
        np.testing.assert_allclose(of(found, name, "removed"), values, rtol=1e-4)
    assert not np.allclose(of(found, "log_probability", "intact"), of(found, "log_probability", "removed"), rtol=1e-4)
    for other in (Setting("none"), Setting("rope"), Setting("flat"), Setting("steep", tokens=2)):
        assert measure.taken_back(other) == {"kind": "none"}


def test_what_is_used_is_the_best_of_the_search_if_it_is_better_than_nothing(folder, found):
    model, n = load(folder / f"{SETTING.name}.seed0"), 4 * SETTING.pairs

    def worst(temperature):
        with sharper(model, 1 / temperature):
            by_place = found_by_place(model, SETTING, 32, measure.SEARCH_SEED, pairs=n).log_probability
        return by_place.reshape(8, 4).mean(1).min()

    tried = {float(x): worst(float(x)) for x in np.geomspace(*TEMPERATURES, EVALUATIONS)}
    best = max(tried, key=tried.get)
    expected = [best] if tried[best] > worst(1.0) else []
    np.testing.assert_allclose(json.loads(str(of(found, "applied", "temperature"))), expected)


def test_the_command_trains_measures_what_is_missing_and_keeps_what_is_there(tmp_path, monkeypatch):
    small = {Setting("steep", layers=1, pairs=8): settings.Training(4, 4)}
    monkeypatch.setattr(settings, "grid", lambda: small)

    def command(*more):
        words = ["train", "-o", str(tmp_path), "--seeds", "1"]
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, *more], groups=["studies.lookup.commands"])
        assert not ended.value.code
        return Results(tmp_path / "lookup.nc")

    name = "steep-T1-n8-one-even"
    first = command()
    assert [*first] == [name, f"{name}.profiles"]
    (run,) = read_runs(first)
    assert run.results.sizes["seed"] == run.profiles.sizes["seed"] == 1
    assert run.learned == [False] and finished([run]) == []
    assert 0.02 < float(run.results["accuracy_1"].mean()) < 0.2
    second = command("--remedies")
    assert [*second] == [name, f"{name}.profiles", f"{name}.remedies"]
    for entry in first:
        assert second[entry].equals(first[entry])
