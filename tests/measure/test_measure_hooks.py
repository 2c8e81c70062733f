"""Hooks are attached in one place, and always taken off again."""

from dataclasses import replace

import pytest
import torch
from conftest import ROOT
from measuring import make, prompts

from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.measure.session import Session
from posbias.models.hooks import hooked
from posbias.models.loading import Source
from posbias.settings import Settings
from studies.interventions import replaced_rope


def left(model):
    return [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]


def test_only_one_module_registers_hooks():
    found = [p.name for p in (ROOT / "posbias").rglob("*.py") if "register_forward" in p.read_text()]
    assert found == ["hooks.py"]


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
    real = Source.read_model
    monkeypatch.setattr(Source, "read_model", lambda self, *rest: loaded.append(1) or real(self, *rest))
    study = Session(Settings(Source("reference/bloom-8"), Corpus("builtin"), 3, 16, batch_size=2))
    assert [(rows.start, rows.stop, len(ids)) for rows, ids in study.batches()] == [(0, 2, 2), (2, 3, 1)]
    assert not loaded, "prompts need no model"
    instrument = study.instrument
    other = Session(replace(study.settings, rule="random", prompts=2))
    assert other.instrument.model is instrument.model and other.tokenizer is study.tokenizer and loaded == [1]
    assert other.ids.shape == (2, 16) and study.ids.shape == (3, 16)
    assert other.provenance()["dataset"] == "random tokens" and study.provenance()["dataset"] == "builtin"
    assert other.provenance()["revision"] == study.provenance()["revision"]
