"""The first token hidden from all later queries, against a plain computation."""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import xarray as xr
from measuring import make, prompts

from studies.sink import measure
from studies.sink.measure import hidden_first
from studies.sink.tables import change_table, loss_table


def logits(model, ids, **more):
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False, **more).logits


def test_a_hidden_token_is_as_good_as_absent():
    """Rotary positions are relative: without its first token a prompt says the same, one place earlier."""
    model, ids = make("llama").eval(), prompts(2)
    with hidden_first(model):
        found = logits(model, ids)
    assert np.allclose(found[:, 1:], logits(model, ids[:, 1:]), atol=1e-5)
    assert np.allclose(found[:, 0], logits(model, ids)[:, 0], atol=1e-6)
    assert not np.allclose(logits(model, ids)[:, 1:], logits(model, ids[:, 1:]), atol=1e-3)


def test_a_cache_does_not_bring_it_back():
    model, ids = make("llama").eval(), prompts(1)
    with hidden_first(model), torch.no_grad():
        whole = logits(model, ids)
        start = model(input_ids=ids[:, :5], use_cache=True)
        rest = model(input_ids=ids[:, 5:], past_key_values=start.past_key_values, use_cache=True)
    assert np.allclose(rest.logits, whole[:, 5:], atol=1e-5)


def test_attention_without_a_mask_is_refused():
    model = make("llama", attention="sdpa").eval()
    with hidden_first(model), pytest.raises(ValueError, match="eager"):
        logits(model, prompts(1))


def kept(silent):
    """Return an entry of two arms, in which every place but the last has the same gradient as it is."""
    g = np.ones((6, 2, 34))
    g[:, 1, 1:3] += silent
    loss = np.zeros((6, 2)) + [1.0, 1.5]
    names = {"arm": ["whole", "silent"]}
    arrays = {"gradient": (("prompt", "arm", "position"), g), "loss": (("prompt", "arm"), loss)}
    return xr.Dataset(arrays, names)


def test_tables_say_what_was_put_in():
    table = change_table(kept(3.0), "gradient")
    first = 4 * 16 / 19 - 1  # one part of sixteen is four times the others
    assert np.isclose(table.loc["silent", "first"], (first + 16 / 19 - 1) / 2)
    assert np.isclose(table.loc["silent", "last"], 16 / 19 - 1)
    assert table.loc["silent", "apart"] > 0.05
    assert np.isclose(loss_table(kept(0.0)).loc["silent", "loss"], 0.5)
    assert np.isclose(change_table(kept(0.0), "gradient").loc["silent", "apart"], 0)


def test_the_worst_layer_has_a_row():
    from studies.sink import evidence

    names = {"arm": ["whole", "0", "1"]}
    g, loss = np.ones((6, 3, 34)), np.zeros((6, 3)) + [1.0, 1.01, 1.5]
    layers = xr.Dataset({"gradient": (("prompt", "arm", "position"), g), "loss": (("prompt", "arm"), loss)}, names)
    seen = {"text": kept(0.0), "layers": layers}
    assert np.isclose(evidence.rows_shown(seen).loc["silent in layer 2 alone", "loss"], 0.5)


def test_each_arm_is_entered_while_a_prompt_is_measured(monkeypatch, tmp_path):
    model = SimpleNamespace(silent=0.0)

    @contextmanager
    def silence():
        model.silent = 1.0
        yield
        model.silent = 0.0

    prompts = SimpleNamespace(origins=np.arange(2))
    instrument = SimpleNamespace(model=model)
    session = SimpleNamespace(instrument=instrument, ids=[[0], [1]], prompts=prompts, provenance=dict)
    monkeypatch.setattr(measure, "measure_gradient", lambda model, ids: np.array([model.silent, ids[0]]))
    monkeypatch.setattr(measure, "_loss", lambda model, ids: model.silent + ids[0])
    monkeypatch.setattr(measure, "_place", lambda settings, part: tmp_path / f"{part}.npz")
    arms = {"whole": nullcontext, "silent": silence}
    found = measure._measure_arms(SimpleNamespace(prompts=2), session, arms, "text")
    np.testing.assert_array_equal(found["loss"], [[0, 1], [1, 2]])
    np.testing.assert_array_equal(found["gradient"][1], [[0, 1], [1, 1]])
    assert model.silent == 0.0
