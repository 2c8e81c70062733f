"""Profiles of networks that look values up, and the tables of how soon they find them by place."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
xr = pytest.importorskip("xarray")
pytest.importorskip("transformers")

from posbias import cli
from posbias.rollout.biased import biased_kernels
from posbias.rollout.influence import influence_profile
from studies.lookup import profiles as retrieval_profiles
from studies.lookup import runs as lookup_runs
from studies.lookup import tables
from studies.lookup.results import make_results
from studies.lookup.settings import Setting, Training

SETTING = Setting("steep", layers=1, pairs=8, width=16, heads=2, values=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the results and profiles of a setting of two seeds, trained for a moment."""
    root = tmp_path_factory.mktemp("runs")
    words = ["train-retrieval", "-o", str(root), "-e", "steep", "--pairs", "8", "--layers", "1"]
    with pytest.raises(SystemExit) as ended:
        cli.main([*words, "--iterations", "4", "--batch-size", "4", "--seeds", "2"])
    assert not ended.value.code
    return root


def run_of(accuracy, profile, tokens=1, values=4):
    """Return a run with this accuracy by test and place, for one seed, and this profile by place and the query's."""
    accuracy = np.asarray(accuracy, dtype=float)[None]
    _, times, n = accuracy.shape
    arrays = {"loss": np.zeros((1, times)), "accuracy": accuracy, "log_probability": np.log(accuracy + 1e-9)}
    for k in (1, 2, 4):
        end = np.repeat(accuracy[:, -1], k, axis=1)
        arrays |= {f"accuracy_{k}": end, f"log_probability_{k}": np.log(end + 1e-9)}
    attributes = {"setting": "made", "encoding": "none", "tokens": tokens, "pairs": n, "values": values}
    attributes |= {"layers": 1, "heads": 4, "places": "even"}
    born = np.append(np.repeat(np.asarray(profile, dtype=float) / tokens, tokens), 0.5)[None]
    names = ("squares_born", "rollout_born", "influence_born", "influence_trained", "rollout_trained")
    profiles = {name: (("seed", "position"), born) for name in names}
    for k in (2, 4):
        longer = np.append(np.repeat(np.repeat(np.asarray(profile, dtype=float) / tokens, k), tokens), 0.5)[None]
        profiles |= {f"{name}_{k}": (("seed", f"position_{k}"), longer) for name in names[3:]}
    return tables.Run(make_results(arrays, [0], 10 * times, attributes), xr.Dataset(profiles))


def test_a_place_that_is_found_from_a_step_on_took_as_many_steps():
    accuracy = np.full((5, 8), 0.25)
    for place in range(8):
        accuracy[2 if place < 4 else 4 :, place] = 1.0
    times = tables.learning_times(run_of(accuracy, np.ones(8)), parts=2)
    np.testing.assert_allclose(times, [[20, 40]])


@pytest.mark.parametrize("tokens", [1, 2])
def test_order_and_size_of_what_is_learned_where_the_profile_is_high(tokens):
    """Times inverse to the profile give a correlation of 1 and the profile's own ends; a reversed profile gives -1."""
    profile = np.array([4, 3, 2, 1.5, 1, 1.2, 2.5, 5])
    accuracy = np.array([[min(1.0, 0.25 + 0.75 * (k + 1) * p / 40) for p in profile] for k in range(40)])
    run = run_of(accuracy, profile, tokens)
    row = tables.order_table([run]).loc["made"]
    assert row["squares_born"] == pytest.approx(1) and row["spread"] > 2
    assert tables.order_table([run_of(accuracy, 1 / profile, tokens)]).loc["made", "squares_born"] == pytest.approx(-1)
    sizes = tables.tilt_table([run]).loc["made"]
    assert np.sign(sizes["measured"]) == np.sign(sizes["squares_born"]) == 1 and np.isnan(sizes["spread"])
    assert sizes["squares_born"] == pytest.approx(tables.tilt(profile))
    ends = tables.end_table([run])
    assert (ends["rollout_trained"] <= 1).all() and set(ends.index.get_level_values("times")) == {1, 2, 4}


def test_an_even_profile_gives_no_order():
    accuracy = np.linspace(0.3, 0.9, 8)[None].repeat(3, 0)
    assert tables.order_table([run_of(accuracy, np.ones(8))]).loc["made", "squares_born"] == 0
    with pytest.raises(ValueError, match="places: expected a multiple of 8, received 12"):
        tables.parted(np.ones(12))


def test_profiles_are_those_of_the_networks(folder):
    """The rollout before training is the engine's with the network's own biases and its measured mixing."""
    (run,) = tables.read_runs(folder)
    setting = replace(SETTING, width=64, heads=4, values=16)
    kernels = biased_kernels(1, setting.position_bias, H=4)
    for seed in range(2):
        mixing = run.profiles["lambda_born"].values[seed].astype(float)
        expected = influence_profile(kernels, mixing, setting.length)
        np.testing.assert_allclose(run.profiles["rollout_born"].values[seed], expected, atol=1e-6)
    for name in retrieval_profiles.VARIABLES:
        if not name.startswith("lambda"):
            np.testing.assert_allclose(run.profiles[name].sum(run.profiles[name].dims[1]), 1, atol=1e-4)
    assert run.profiles.sizes["position_4"] == 33 and 0.02 < float(run.results["accuracy_1"].mean()) < 0.2
    assert run.learned == [False, False] and tables.finished([run]) == []


def test_resumed_profiles_that_are_missing_are_measured(folder):
    (path,) = folder.glob("*.profiles.nc")
    before = retrieval_profiles.read_profiles(path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="profiles"):
        tables.read_runs(folder)
    words = ["train-retrieval", "-o", str(folder), "-e", "steep", "--pairs", "8", "--layers", "1", "--resume"]
    with pytest.raises(SystemExit):
        cli.main([*words, "--iterations", "4", "--batch-size", "4", "--seeds", "2"])
    after = retrieval_profiles.read_profiles(path)
    np.testing.assert_allclose(after["influence_trained"], before["influence_trained"], atol=1e-6)
    assert lookup_runs.is_done(next(x for x in folder.glob("*even.nc")), Setting("steep", 1, 8), [0, 1], Training(4, 4))


def test_a_hop_is_a_row_of_the_kernel(folder):
    (run,) = tables.read_runs(folder)
    weights = np.exp(0.125 * np.arange(9))  # of the keys, for the last query of nine tokens
    np.testing.assert_allclose(tables.predicted(run, "one hop"), weights[:8] / weights.sum())
    kernel = np.tril(np.exp(0.125 * (np.arange(9) - np.arange(9)[:, None])))
    kernel /= kernel.sum(1, keepdims=True)
    np.testing.assert_allclose(tables.predicted(run, "two hops"), (kernel @ kernel)[-1, :8])


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected results of posbias train-retrieval, received none"):
        tables.read_runs(tmp_path)
