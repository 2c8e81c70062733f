"""Contributions: shares by hand, and parts that add up to what each family's layers really make."""

import numpy as np
import pytest
import torch
from measuring import CONFIGS, N, make, prompts

import posbias
from posbias.measure.instrument import Instrument
from posbias.measure.quantities import contributions
from posbias.measure.quantities.contributions import LayerContributions, Quantity, contribution_shares
from posbias.models.hooks import given, hooked, returned

NAMES = [name for name in CONFIGS if name != "gemma3"]  # whose decoder is gemma3_text


def test_shares_are_those_of_the_published_implementation():
    """Its rule: the size of the sum less the distance from it, both by the 1-norm, cut at 0, rows made 1."""
    parts = torch.tensor([[[1.0, -2.0]], [[0.5, 3.0]], [[-1.0, 0.5]]])  # of three keys, for the last query
    y = parts.sum(0)  # (0.5, 1.5), 2 long
    distances = [0.5 + 3.5, 0.0 + 1.5, 1.5 + 1.0]
    expected = np.clip(2 - np.array(distances), 0, None)
    seen, own = torch.ones(1, 3, dtype=torch.bool), torch.tensor([2])
    assert contribution_shares(y - parts, y, seen, own)[0].tolist() == pytest.approx(list(expected / expected.sum()))


def test_a_query_to_which_nothing_contributes_keeps_itself():
    parts = torch.tensor([[[1.0, 0.0]], [[-1.0, 0.0]]])
    seen, own = torch.ones(1, 2, dtype=torch.bool), torch.tensor([1])
    y = parts.sum(0)
    assert contribution_shares(y - parts, y, seen, own).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("name", NAMES)
def test_parts_add_up_to_what_layers_make(name, monkeypatch):
    model, ids, summed, made = make(name), prompts(2), {}, {}
    instrument = Instrument(model)
    assert Quantity.lacking(instrument) is None
    monkeypatch.setitem(contributions.ENTRIES, "cpu", 5 * N * 32)  # so that there are several blocks of queries

    def kept(without, y, seen, own):
        summed.setdefault(layer, []).append(((y - without).sum(0), y))
        return contribution_shares(without, y, seen, own)

    monkeypatch.setattr(contributions, "contribution_shares", kept)
    kernels = [np.zeros((2, N, N)) for _ in range(instrument.T)]

    def observe(reading):
        nonlocal layer
        layer = reading.layer
        for prompt, queries, kernel in LayerContributions(instrument, layer, N, whole=False).kernels(reading):
            kernels[layer][prompt, queries, : queries.stop] = kernel.numpy()

    layer = 0
    instrument.measure(ids, observe)
    family = instrument.family
    for t, module in enumerate(instrument.layers):
        stream, times = family.stream_of(module), family.multiplier(module)
        before = [] if stream else [(module, lambda m, args, kwargs: made.update(x=given(args, kwargs)))]
        after = [(stream, lambda m, args, out: made.update(x=returned(out)))] if stream else []
        after += [(family.output_of(module), lambda m, args, out: made.update(a=returned(out)))]
        with hooked(before, after):
            instrument.forward(ids, lambda reading: None)
        y = torch.cat([y for _, y in summed[t]])
        own = (made["x"] + made["a"] * times).flatten(0, 1)
        torch.testing.assert_close(y, own, rtol=1e-4, atol=1e-4 * float(own.abs().max()))
        total = torch.cat([total for total, _ in summed[t]])
        nobody = (y - total)[0]  # a bias, the same for all
        torch.testing.assert_close(total + nobody, y, rtol=1e-4, atol=1e-4 * float(own.abs().max()))
    for kernel in kernels:
        np.testing.assert_allclose(kernel.sum(-1), 1, rtol=1e-6)
        assert (kernel >= 0).all() and not np.triu(kernel, 1).any()


def test_a_measurement_has_them_and_predicts_by_them():
    m = posbias.open(make("llama")).measure(
        prompts=3, length=N, batch_size=2, rule="random", quantities="contributions", attention="eager"
    )
    C = m.results["contributions"].values
    np.testing.assert_allclose(C.sum(-1), 1, rtol=1e-5)
    row = np.eye(N)[-1]
    for kernel in C[::-1]:
        row = row @ kernel
    np.testing.assert_allclose(m.rollout("contributions").values, row, rtol=1e-5)
    own = m.results["contributions_own"].values
    assert own.shape == (3, N)
    np.testing.assert_allclose(m.rollout("contributions-own").values, own.mean(0), rtol=1e-6)


@pytest.mark.parametrize("name", ["bloom", "llama"])
def test_blocks_of_queries_give_the_contributions_of_all_at_once(name, monkeypatch):
    asked = {"prompts": 2, "length": 8, "rule": "random", "quantities": "contributions"}
    whole = posbias.open(make(name)).measure(**asked).results
    monkeypatch.setitem(contributions.ENTRIES, "cpu", 3 * 8 * 32)
    parts = posbias.open(make(name)).measure(**asked).results
    for key in ("contributions", "contributions_own"):
        np.testing.assert_allclose(parts[key], whole[key], rtol=1e-5, atol=1e-7, err_msg=key)
