"""Gradients that are projected or turned between layers, and the bound on them, of tiny models."""

import numpy as np
import pytest
import torch
from measuring import make, save, write_documents

from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.measure.ladder import Rungs, ring
from posbias.measure.session import Session
from posbias.models.loading import Source
from posbias.settings import Settings
from studies.ladder import bound, turned
from studies.ladder.gradients import read_streams

CLOSE = 2e-3  # 10 bits are kept


def settings(folder, name):
    corpus = Corpus(str(write_documents(folder / "d.jsonl", [40] * 4)))
    return Settings(Source(str(save(folder / "model", name))), corpus, prompts=4, length=12, batch_size=2)


def test_all_directions_are_the_rung_and_fewer_are_not(tmp_path):
    how = settings(tmp_path, "bloom")
    found, session = turned.measure_turned(how), Session(how)
    pairs = [Rungs(ring(2, (how.seed, start, 0))[None], names=("vectors",)) for start in (0, 2)]
    ids = torch.from_numpy(session.prompts.ids)
    own = [session.instrument.measure(ids[2 * k : 2 * k + 2], rungs=rungs) for k, rungs in enumerate(pairs)]
    rung = np.concatenate([reading.ladder[:, 0, 0] for reading in own]).mean(0)
    kept = found["kept"]
    assert kept["directions"].values.tolist() == [1, 2, 4, 8, 16, 24, 32]
    for at in kept["at"].values:
        assert np.allclose(kept.sel(at=at, directions=32), rung, rtol=CLOSE)
        assert not np.allclose(kept.sel(at=at, directions=8), rung, rtol=0.01)
    assert (kept.sel(at="layers and input", directions=1) < kept.sel(at="layers", directions=1)).mean() > 0.8
    first, second = found["turned"].values[:2]
    assert not np.allclose(first, rung, rtol=0.05) and not np.allclose(first, second, rtol=0.05)
    assert np.allclose(found["influence_prompts"], np.concatenate([r.influence for r in own]), rtol=CLOSE)


def test_the_directions_are_those_of_the_exact_gradient():
    instrument = Instrument(make("llama"))
    ids = torch.randint(1, 97, (2, 8), generator=torch.Generator().manual_seed(0))
    moments = turned.gradient_moments(instrument, [ids[:1], ids[1:]])
    assert torch.allclose(moments, turned.gradient_moments(instrument, [ids]), rtol=1e-4, atol=1e-8)
    assert torch.allclose(moments.diagonal(dim1=1, dim2=2).sum(1)[:-1], torch.ones(3).double())
    e = instrument.embeddings(ids).requires_grad_(True)
    p = instrument.logits(e).softmax(-1).amax(-1).sum()
    (g,) = torch.autograd.grad(p, e)
    parts = [x.flatten(0, 1).double() for x in (g[:, -1:], g[:, :-1])]
    expected = sum(x.mT @ x / x.square().sum() for x in parts) / 2
    assert torch.allclose(moments[0], expected, rtol=1e-4, atol=1e-7)
    (P,) = turned.projections(expected[None], [1])
    largest = torch.linalg.eigvalsh(expected)[-1]
    assert torch.allclose(P[0] @ expected @ P[0], largest * P[0], atol=1e-10)


def prompt():
    return torch.randint(1, 97, (1, 10), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ["bloom", "llama", "gpt2", "falcon-alibi", "falcon-alibi-parallel"])
def test_the_bound_holds_at_every_token(name):
    instrument = Instrument(make(name))
    fixed = read_streams(instrument, prompt(), values_only=True)
    over = bound.gradient_bound(instrument, prompt(), fixed.entering[-1, 0]) / fixed.entering[0, 0]
    assert over.min() > 1 - 1e-5 and over.median() < 1e6


def test_without_branches_the_bound_is_the_gradient_above():
    model = make("llama")
    instrument = Instrument(model)
    for layer in model.model.layers:
        layer.mlp.down_proj.weight.data.zero_()
    top = torch.rand(10, generator=torch.Generator().manual_seed(2)).double()
    with_attention = bound.gradient_bound(instrument, prompt(), top)
    assert with_attention[0] > 1.01 * top[0]
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.data.zero_()
    assert torch.allclose(bound.gradient_bound(instrument, prompt(), top), top, rtol=1e-5)


def test_what_is_kept_of_the_bound_does_not_know_the_size_of_the_gradient(tmp_path):
    how = settings(tmp_path, "bloom")
    found, session = bound.measure_bound(how), Session(how)
    assert (found["fixed_prompts"] <= found["bound_prompts"] * (1 + CLOSE)).all()
    exact = read_streams(session.instrument, torch.from_numpy(session.prompts.ids))
    expected = exact.entering[0] / exact.entering[-1].sum(-1, keepdim=True)
    assert np.allclose(found["exact_prompts"], expected, rtol=CLOSE)
