"""Models that accelerate spreads, with weights in memory or on disk for as long as no layer needs them."""

import accelerate
import numpy as np
import pytest
import torch
from measuring import EVERYTHING, VARIED, arguments, make, prompts, save, status, write_documents
from torch import nn
from transformers import AutoModelForCausalLM

from posbias.measure.branches import branch_gains, no_branches, read_branches
from posbias.measure.instrument import Instrument
from posbias.measure.positions import read_positions
from posbias.measure.results import read_results
from posbias.models import weights as memory
from posbias.models.biases import added_biases
from posbias.models.loading import Source
from posbias.models.weights import present, works_on


def on_disk(folder, offload, attention="eager"):
    """Load a saved model with all its weights on disk."""
    options = {"attn_implementation": attention, "offload_folder": offload, "dtype": torch.float32}
    return AutoModelForCausalLM.from_pretrained(folder, device_map={"": "disk"}, **options)


@pytest.mark.parametrize("name", VARIED)
def test_weights_in_memory_give_the_same_numbers(name):
    there, away = Instrument(make(name)), accelerate.cpu_offload(make(name), execution_device=torch.device("cpu"))
    assert all(x.is_meta for x in away.parameters())
    away, ids, kept = Instrument(away), prompts(), []
    one, two = there.measure(ids), away.measure(ids, lambda seen: kept.append(seen.layer))
    assert kept == list(reversed(range(there.T))) and away.devices() == there.devices()
    for field in ("lambda_frobenius", "lambda_token", "influence", "influence_signed", "probability"):
        assert torch.allclose(getattr(one, field), getattr(two, field), rtol=1e-5), field
    np.testing.assert_allclose(read_positions(there, 12).bias, read_positions(away, 12).bias, rtol=1e-6)
    if no_branches(there) is None:
        for t in range(there.T):
            np.testing.assert_allclose(branch_gains(there, t), branch_gains(away, t), rtol=1e-5)
    assert all(x.is_meta for x in away.model.parameters()), "nothing stays"


@pytest.mark.parametrize(("name", "attention"), [("llama", "eager"), ("gpt2", "sdpa")])
def test_weights_on_disk_give_the_same_numbers(tmp_path, name, attention):
    there = Instrument(make(name, attention=attention))
    away = Instrument(on_disk(save(tmp_path / "model", name), tmp_path / "disk", attention))
    assert any(x.is_meta for x in away.model.parameters())
    assert torch.allclose(there.measure(prompts()).influence, away.measure(prompts()).influence, rtol=1e-5)
    one, two = (vars(read_branches(x, prompts())) for x in (there, away))
    assert all(np.allclose(one[key], two[key], rtol=1e-5) for key in one)


@pytest.mark.parametrize(("name", "attention"), [("llama", "sdpa"), ("bloom", "eager")])
def test_added_biases_are_there_with_weights_on_disk(tmp_path, name, attention):
    bias = [{"kind": "flat", "tau": 1.5}, *({"kind": "log", "alpha": a} for a in (0.5, 1.0, 2.0))]
    folder, found = str(save(tmp_path / "model", name)), []
    away = on_disk(folder, tmp_path / "disk", attention)
    for model in (Source(folder).load_model(torch.float32, "cpu", None, attention), away):
        with added_biases(model, bias):
            found.append((Instrument(model).measure(prompts()).influence, read_positions(Instrument(model), 12).bias))
    spread = Instrument(Source(folder).load_model(torch.float32, "cpu", "auto", attention))
    assert torch.allclose(found[0][0], found[1][0], rtol=1e-5)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-6)
    with added_biases(spread.model, bias):
        assert torch.allclose(found[0][0], spread.measure(prompts()).influence, rtol=1e-5)


def test_a_whole_measurement_with_weights_on_disk(tmp_path, capsys, monkeypatch):
    save(tmp_path / "bloom", "bloom"), write_documents(tmp_path / "d.jsonl", [40] * 12)
    plain, spread = (
        arguments(tmp_path, tmp_path / x, "-q", EVERYTHING, batch_size=4) for x in ("plain.nc", "spread.nc")
    )
    assert status(capsys, plain)[0] == 0
    monkeypatch.setattr(Source, "load_model", lambda source, *_: on_disk(source.model, tmp_path / "disk"))
    assert status(capsys, [*spread, "--device-map", "auto"])[0] == 0
    one, two = read_results(tmp_path / "plain.nc"), read_results(tmp_path / "spread.nc")
    assert set(one) == set(two) and all(one[x].values.tobytes() == two[x].values.tobytes() for x in one)
    assert two.attrs["device"] == "auto"


def test_a_model_may_be_larger_than_a_device_if_it_is_spread(tmp_path, capsys, monkeypatch):
    save(tmp_path / "bloom", "bloom"), write_documents(tmp_path / "d.jsonl", [40] * 12)
    monkeypatch.setattr(memory, "memory_available", lambda device: 1000)
    code, _, err = status(capsys, arguments(tmp_path, tmp_path / "m.nc"))
    assert code == 2 and "memory: expected at most" in err and "try --device-map auto" in err
    assert status(capsys, arguments(tmp_path, tmp_path / "m.nc", device_map="auto"))[0] == 0


def test_weights_that_are_nowhere_are_refused():
    with torch.device("meta"):
        nothing = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="module: expected one with weights, received Identity"):
        works_on(nn.Identity())
    with present(nothing):
        assert nothing.weight.is_meta


def test_weights_go_again_when_reading_fails():
    linear = accelerate.cpu_offload(nn.Linear(2, 2), execution_device=torch.device("cpu"))
    with pytest.raises(KeyError), present(linear):
        assert not linear.weight.is_meta
        raise KeyError
    assert linear.weight.is_meta
