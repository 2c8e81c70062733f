"""Decoders that find values by their keys: prompts, networks, training, files and the command."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from studies.biased import given_biases
from studies.lookup import network
from studies.lookup.prompts import prompts, vocabulary
from studies.lookup.settings import ENCODINGS, Setting, Training
from studies.lookup.training import VARIABLES, found_by_place, run_settings, train
from studies.results import load

SMALL = Setting("alibi", layers=1, pairs=4, width=16, heads=2, values=4)
SHORT = Training(6, 8)


@pytest.mark.parametrize("tokens", [1, 2])
def test_a_prompt_holds_different_keys_and_asks_for_one_of_them(tokens):
    setting = replace(SMALL, tokens=tokens)
    drawn = prompts(setting, 50, torch.Generator().manual_seed(0))
    names = vocabulary(setting)
    for ids, answer, place in zip(drawn.ids.tolist(), drawn.answers.tolist(), drawn.places.tolist(), strict=True):
        words = [names[i] for i in ids]
        body = words[:-1] if tokens == 1 else [f"{k}={v}" for k, v in zip(words[:-1:2], words[1::2], strict=True)]
        found = dict(pair.split("=") for pair in body)
        assert len(found) == setting.pairs and len(ids) == setting.length
        assert found[words[-1].removesuffix("?")] == f"v{answer}" == body[place].split("=")[1]
    assert set(drawn.places.tolist()) == {0, 1, 2, 3}


def test_answers_stand_where_training_puts_them():
    drawn = prompts(replace(SMALL, places="ends"), 200, torch.Generator().manual_seed(0))
    assert set(drawn.places.tolist()) == {0, 3} and 60 < (drawn.places == 0).sum() < 140
    longer = prompts(SMALL, 12, torch.Generator(), pairs=6, each_place=True)
    assert longer.places.tolist() == [0, 1, 2, 3, 4, 5] * 2 and longer.ids.shape == (12, 7)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_network_has_the_positions_of_its_setting_and_is_loaded_as_it_was(tmp_path, encoding):
    setting = replace(SMALL, encoding=encoding)
    model = network.untrained(setting, 0).eval()
    biases = given_biases(model.config)
    assert (biases is None) == (encoding in ("none", "rope"))
    two = replace(setting, tokens=2).position_bias
    assert [bias["slope"] for bias in two[:1]] == [2.0] and len(two) == 2, "half of the heads are local"
    ids = prompts(setting, 3, torch.Generator().manual_seed(1)).ids
    expected = network.value_logits(model, setting, ids)
    exchanged = network.value_logits(model, setting, ids[:, [1, 0, 2, 3, 4]])
    assert torch.allclose(expected, exchanged, atol=1e-5) == (encoding == "none")
    network.save(model, setting, tmp_path)
    assert torch.allclose(network.value_logits(network.load(tmp_path).eval(), setting, ids), expected, atol=1e-5)


def test_accuracy_is_counted_by_place(monkeypatch):
    """A network that knows the answer where the key is early, and is wrong elsewhere, is found out."""
    from studies.lookup import training

    def knows(model, setting, ids):
        K, V = setting.keys, setting.values
        asked = ids[:, -1:] - K * V
        places = (ids[:, :-1] // V == asked).int().argmax(1)
        answers = ids.gather(1, places[:, None])[:, 0] % V
        wrong = (answers + (places > 1)) % V
        return 20.0 * torch.nn.functional.one_hot(wrong, V)

    monkeypatch.setattr(training, "value_logits", knows)
    found = found_by_place(network.untrained(SMALL, 0), SMALL, 30, 0)
    np.testing.assert_allclose(found.accuracy, [1, 1, 0, 0])
    np.testing.assert_allclose(found.log_probability, [0, 0, -20, -20], atol=1e-6)


def test_training_learns_and_a_run_that_was_killed_goes_on_as_if_it_had_not(tmp_path, monkeypatch):
    whole = train(SMALL, 0, Training(120, 32, 1e-2))
    assert whole.accuracy[-4:].mean() > whole.accuracy[:4].mean() + 0.1 and whole.loss[-1] < whole.loss[0]
    last = found_by_place(whole.network, SMALL, 512, 40 * 1_000_003)
    np.testing.assert_allclose(whole.accuracy[-1], last.accuracy)
    np.testing.assert_allclose(whole.log_probability[-1], last.log_probability, rtol=1e-5)

    from studies.lookup import training

    expected, drawn, steps = train(SMALL, 1, SHORT), training.prompts, []

    def killed(*given, **options):
        steps.append(1)
        if len(steps) == 8:  # four steps and their tests
            raise MemoryError
        return drawn(*given, **options)

    monkeypatch.setattr(training, "prompts", killed)
    with pytest.raises(MemoryError):
        train(SMALL, 1, SHORT, tmp_path / "c", checkpoint_every=1e-9)
    monkeypatch.undo()
    resumed = train(SMALL, 1, SHORT, tmp_path / "c")
    np.testing.assert_array_equal(resumed.log_probability, expected.log_probability)
    np.testing.assert_array_equal(resumed.loss, expected.loss)


def test_an_entry_for_each_setting_and_a_folder_for_each_network(tmp_path):
    settings = {SMALL: SHORT, replace(SMALL, tokens=2): SHORT}
    found = dict(run_settings(settings, [0, 1], tmp_path))
    assert [*found] == ["alibi-T1-n4-one-even-d16-h2-v4", "alibi-T1-n4-two-even-d16-h2-v4"]
    for name, results in found.items():
        kept = load("lookup", tmp_path)[name]
        assert set(kept.data_vars) == set(VARIABLES) - {"log_probability"} and kept.sizes["place_4"] == 16
        np.testing.assert_allclose(kept["accuracy"], results["accuracy"], atol=1e-6)
        assert kept["tested"].values.tolist() == [1, 2, 3, 4, 5, 6] and kept.attrs["iterations"] == 6
        assert {x.name for x in tmp_path.glob(f"{name}.seed*")} == {f"{name}.seed0", f"{name}.seed1"}
    trained = network.load(tmp_path / f"{name}.seed1")
    again = found_by_place(trained, replace(SMALL, tokens=2), 2048, 1 - 1_000_003)
    np.testing.assert_allclose(kept["accuracy_1"][1], again.accuracy, atol=1e-6)
