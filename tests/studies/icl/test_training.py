"""Networks of the retrieval task in training: setting and seed, one that fails, what is tested; and the command."""

import numpy as np
import pytest
import torch

from posbias.cli import main
from posbias.rollout.masks import causal, full
from studies.icl import training as module
from studies.icl.outcomes import VARIABLES
from studies.icl.settings import PRESETS, Network, Setting, Task, Training
from studies.icl.training import run_settings, train
from studies.results import load

TASK = Task(items=4, classes=40, labels=8, burstiness=2, dimension=8)
PAIR = [Setting(TASK, Network(2, mask, residual=True)) for mask in (causal(), full())]
SHORT = Training(12, batch_size=4)


@pytest.fixture(autouse=True)
def few_trials(monkeypatch):
    monkeypatch.setattr(module, "TRIALS", 20)


def same(one, other):
    theirs = dict(other.named_parameters())
    return all(torch.equal(x, theirs[name]) for name, x in one.named_parameters())


def test_setting_seed_and_precision_decide_a_network():
    one, again = (train(PAIR[0], 1, SHORT) for _ in range(2))
    assert same(one.network, again.network) and (one.loss == again.loss).all()
    half = Training(12, batch_size=4, precision="bfloat16")
    for other in (train(PAIR[1], 1, SHORT), train(PAIR[0], 2, SHORT), train(PAIR[0], 1, half)):
        assert not same(one.network, other.network) and (one.loss != other.loss).all()


def test_the_loss_falls_and_gaps_are_those_of_the_network_at_the_time(monkeypatch):
    learned = train(PAIR[0], 0, Training(60, batch_size=16, rate=1e-2))
    assert learned.loss[-1] < np.log(8) - 0.3 and learned.gaps.shape == (20, 3)
    apart = learned.stream.apart(module.evaluation_seed(0, 20))
    accuracy = module.accuracies(learned.network, apart, 20)
    np.testing.assert_allclose(learned.gaps[-1], accuracy[:, 0] - accuracy[:, 1], atol=1e-6)


def test_the_data_of_a_run_that_goes_on_are_those_that_come_next(tmp_path, monkeypatch):
    whole, loss = train(PAIR[1], 1, SHORT), torch.nn.functional.cross_entropy
    steps = []

    def killed(*given):
        steps.append(1)
        if len(steps) == 6:
            raise MemoryError
        return loss(*given)

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", killed)
    with pytest.raises(MemoryError):
        train(PAIR[1], 1, SHORT, tmp_path / "c", checkpoint_every=0.0)
    monkeypatch.undo()
    resumed = train(PAIR[1], 1, SHORT, tmp_path / "c")
    assert same(whole.network, resumed.network)
    np.testing.assert_array_equal(whole.loss, resumed.loss)


def test_entries_are_labelled_and_one_network_may_fail(monkeypatch, tmp_path):
    real = module.AttentionOnly

    def broken(setting, seed, **options):
        network = real(setting, seed, **options)
        if seed == 7:
            network.weights["value_0"].data.fill_(torch.inf)
        return network

    monkeypatch.setattr(module, "AttentionOnly", broken)
    ((name, _),) = run_settings(PAIR[1:], [0, 7], SHORT, tmp_path, size=30)
    kept = load("icl", tmp_path)[name]
    assert set(kept) == set(VARIABLES) and kept.sizes["key"] == TASK.tokens and kept["seed"].values.tolist() == [0, 7]
    assert kept["stopped"].values.tolist() == [-1, 0]
    assert np.isfinite(kept["accuracy"][0]).all() and np.isnan(kept["accuracy"][1]).all()
    np.testing.assert_allclose(kept["kernels"][0].sum("key"), 1, rtol=1e-5)
    assert kept.attrs["mask"] == "full" and kept.attrs["iterations"] == 12 and kept.attrs["tested"] == 30


SMALL = "--seeds 1 --iterations 4 --tested 20".split()


def command(*words):
    with pytest.raises(SystemExit) as ended:
        main(["train", *map(str, words)], ["studies.icl.commands"], "python -m studies.icl")
    return ended.value.code


def test_the_command_makes_an_entry_for_each_setting_and_keeps_what_is_there(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(PRESETS, "figure7", lambda: PAIR[:1])
    monkeypatch.setitem(PRESETS, "deep", lambda: PAIR)
    assert command("--preset", "figure7", "--preset", "deep", *SMALL, "-o", tmp_path) == 0
    said = capsys.readouterr().out
    assert "1 seeds, first vs middle" in said and "icl.nc: 2 entries made, 0 kept" in said
    assert [x.name for x in tmp_path.iterdir()] == ["icl.nc"] and len(load("icl", tmp_path)) == 2
    before = (tmp_path / "icl.nc").read_bytes()
    assert command("--preset", "figure7", *SMALL, "-o", tmp_path) == 0
    assert "icl.nc: 0 entries made, 1 kept" in capsys.readouterr().out
    assert command("--preset", "figure7", *SMALL, "--batch-size", "8", "-o", tmp_path) == 2
    assert "residual: batch_size: expected 8, received 128" in capsys.readouterr().err
    assert (tmp_path / "icl.nc").read_bytes() == before
