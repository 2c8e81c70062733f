"""Hooks are attached in one place, and always taken off again."""

import pytest
import torch
from conftest import ROOT
from measuring import make, prompts

from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.measure.session import Session
from posbias.models.hooks import given, hooked, regiven, rereturned, returned
from posbias.models.loading import Source
from posbias.settings import Settings
from studies.interventions import replaced_rope


def left(model):
    return [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]


def test_only_one_module_registers_hooks():
    found = [p.name for p in (ROOT / "posbias").rglob("*.py") if "register_forward" in p.read_text()]
    assert found == ["hooks.py"]


def test_hooks_change_what_goes_in_and_out_until_the_block_ends():
    module, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    plain, order = module(x), []

    def enter(module, args, kwargs):
        order.append("enter")
        return regiven(args, kwargs, 0 * given(args, kwargs))

    def leave(module, args, output):
        order.append("leave")
        return rereturned(output, returned(output) + 1)

    with hooked([(module, enter)], [(module, leave)]):
        assert torch.equal(module(x), module.bias[None] + 1)
    assert torch.equal(module(x), plain) and order == ["enter", "leave"] and not left(module)


def test_states_are_found_under_both_names_and_in_tuples():
    x, y = torch.zeros(1), torch.ones(1)
    assert given((x, 1), {}) is x and given((), {"hidden_states": x}) is x
    assert regiven((x, 1), {"a": 2}, y) == ((y, 1), {"a": 2})
    assert regiven((), {"hidden_states": x, "a": 2}, y) == ((), {"hidden_states": y, "a": 2})
    assert returned((x, None)) is x and returned(x) is x
    assert rereturned((x, None), y) == (y, None) and rereturned(x, y) is y


@pytest.mark.parametrize("bad", ["hook", "block"])
def test_nothing_is_left_after_an_error(bad):
    model = make("llama")
    instrument, ids = Instrument(model), prompts(B=1)
    before = instrument.measure(ids).influence

    def fail(module, args, output):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        with (
            replaced_rope(instrument, "identity"),
            hooked(after=[(instrument.layers[1], fail)] if bad == "hook" else []),
        ):
            instrument.forward(ids, lambda reading: None)
            raise RuntimeError("no")
    assert not left(model)
    torch.testing.assert_close(instrument.measure(ids).influence, before)


def test_a_study_opens_its_model_once(monkeypatch):
    loaded = []
    real = Source.load_model
    monkeypatch.setattr(Source, "load_model", lambda self, *rest: loaded.append(1) or real(self, *rest))
    study = Session(Settings(Source("reference/bloom-8"), Corpus("builtin"), 3, 16, batch_size=2))
    assert [(rows.start, rows.stop, len(ids)) for rows, ids in study.batches()] == [(0, 2, 2), (2, 3, 1)]
    assert not loaded, "prompts need no model"
    instrument = study.instrument
    other = study.with_prompts(rule="random", prompts=2)
    assert other.instrument is instrument and other.tokenizer is study.tokenizer and loaded == [1]
    assert other.ids.shape == (2, 16) and study.ids.shape == (3, 16)
    assert other.provenance()["dataset"] == "random tokens" and study.provenance()["dataset"] == "builtin"
    assert other.provenance()["revision"] == study.provenance()["revision"]
