"""Heads and positions: passes against the model read whole, and each change against what it says it does."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import xarray as xr
from lookup_worlds import TEMPLATE, byte_tokenizer, save_network

from posbias.engines.local import Reader
from posbias.measure.corpus import Corpus
from posbias.models.loading import Source
from posbias.settings import Settings
from studies.reading import blur, heads, passes


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    folder = save_network(tmp_path_factory.mktemp("tiny"), tokenizer, max_position_embeddings=8192)
    settings = Settings(Source(str(folder)), Corpus("builtin"), 2, 400, 8)
    session, read = heads.open_passes(settings)
    asks = heads.competing(1, 0)[0][:3]
    asks = tuple(type(ask)(ask.documents[:3], ask.question, ask.answer, ask.begin) for ask in asks)
    documents = passes.lay_out(session.tokenizer, asks)
    return SimpleNamespace(
        settings=settings, session=session, read=read, asks=asks, documents=documents, model=session.instrument.model
    )


def told(world, change=passes.AS_IT_IS, seen=None, question=1):
    world.read.read_documents(world.documents.ids)
    return world.read.ask(world.documents.questions[question], change, seen)


def test_answers_are_as_likely_as_if_all_were_read_whole(world):
    reader = Reader(world.model, shared=False)
    for question, found in enumerate(world.documents.questions):
        whole = (*world.documents.ids, *found.tail)
        expected = [reader.answer(whole, rest)[0] for rest in found.rests]
        assert np.allclose(told(world, question=question), expected, atol=1e-4)
    assert np.ptp(expected) > 1e-3


def test_what_is_seen_changes_nothing_and_is_the_models(world):
    seen = passes.Seen()
    assert np.allclose(told(world, seen=seen), told(world), atol=1e-5)
    question = world.documents.questions[1]
    whole = torch.tensor([[*world.documents.ids, *question.tail]])
    with torch.no_grad():
        out = world.model(whole, output_attentions=True, output_hidden_states=True)
    n, tail = len(world.documents.ids), len(question.tail)
    for layer, weights in enumerate(seen.weights):
        assert torch.allclose(weights[:, :tail, : n + tail], out.attentions[layer][0, :, n:], atol=1e-5)
        assert torch.allclose(seen.streams[layer], out.hidden_states[layer][0, -1], atol=1e-4)
    by_document = heads.attended(seen, world.documents.segment, tail)
    own = torch.from_numpy(world.documents.segment == 2)
    expected = out.attentions[1][0, :, -1, :n][:, own].sum(-1).numpy()
    assert np.allclose(by_document[1, 1, :, 1], expected, atol=1e-5)
    lens = world.read.lens(torch.stack(seen.streams), [3, 5])[-1].numpy()
    assert np.allclose(lens, out.logits[0, -1, [3, 5]].numpy(), atol=1e-3)


def test_changes_do_what_they_say(world):
    as_it_is, seen = told(world), passes.Seen()
    told(world, seen=seen)
    every = [(layer, head) for layer in range(len(seen.outputs)) for head in range(len(seen.outputs[0]))]
    assert np.allclose(told(world, passes.Change(1.0, every)), as_it_is)
    sharper = told(world, passes.Change(3.0, every))
    assert np.abs(sharper - as_it_is).max() > 1e-4 and np.allclose(sharper, told(world, passes.Change(3.0)), atol=1e-6)
    same = {head: seen.outputs[head[0]][head[1]] for head in every}
    assert np.allclose(told(world, passes.Change(outputs=same)), as_it_is, atol=1e-5)
    off = {head: 0 * x for head, x in same.items()}
    assert np.abs(told(world, passes.Change(outputs=off)) - as_it_is).max() > 1e-4
    assert np.allclose(told(world, passes.Change(stream=(1, seen.streams[1]))), as_it_is, atol=1e-5)
    other = passes.Seen()
    told(world, seen=other, question=2)
    assert np.abs(told(world, passes.Change(stream=(1, other.streams[1]))) - as_it_is).max() > 1e-4


def test_means_stand_at_their_distance_from_the_end(world):
    question = world.documents.questions[0]
    means = {(0, 1): torch.arange(heads.STEPS_BACK, dtype=torch.float32)[:, None]}
    rows = heads.ablation(question, [(0, 1)], means).outputs[0, 1][:, 0].tolist()
    n = len(question.tail)
    assert rows[n - 1] == 0 and rows[n - 2] == 1 and rows[0] == min(n - 1, heads.STEPS_BACK - 1)
    assert set(rows[n:]) <= {0.0} and len(rows) == n + sum(len(rest) - 1 for rest in question.rests)


def test_positions_are_read_as_given(world):
    segment = world.documents.segment
    read, question = world.read, world.documents.questions[0]
    as_it_is = told(world, question=0)
    for where in (blur.as_read(segment), blur.dealt(segment, (0, 1, 2)), blur.apart(segment, 0)):
        read.read_documents(world.documents.ids, where[0], None, where[1])
        assert np.allclose(read.ask(question), as_it_is, atol=1e-4)
    read.read_documents(world.documents.ids, blur.as_read(segment)[0] + 7, None, (len(segment) + 7.0, 1.0))
    assert np.allclose(read.ask(question), as_it_is, atol=1e-3)  # rotary positions are relative
    read.read_documents(world.documents.ids, *(blur.dealt(segment, (2, 0, 1))[0], blur.alone(segment)))
    assert np.abs(read.ask(question) - as_it_is).max() > 1e-4
    assert sorted(blur.dealt(segment, (2, 0, 1))[0].tolist()) == list(range(len(segment)))


def test_scores_grow_with_the_logarithm_of_the_list(world, monkeypatch, tmp_path):
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path))
    monkeypatch.setattr(heads, "LONG", 3)
    monkeypatch.setattr(heads, "PLACES", 2)
    found = heads.measure_diluted(world.settings)
    documents = passes.lay_out(world.session.tokenizer, heads.competing(1, heads.JUDGE, 3)[0])
    n, m = len(documents.ids), int((documents.segment < 3).sum())
    assert found["factor"].values[0] == pytest.approx(np.log(n) / np.log(m))
    world.read.read_documents(documents.ids)
    for k, change in enumerate((passes.AS_IT_IS, passes.Change(np.log(n) / np.log(m)))):
        expected = [world.read.ask(question, change) for question in documents.questions]
        assert np.allclose(found["told"].values[k, 0], expected, atol=1e-4)
    assert np.abs(np.diff(found["told"].values, axis=0)).max() > 1e-3


def test_a_probe_finds_what_is_there_and_no_more():
    rng = np.random.default_rng(0)
    goal = rng.integers(0, 4, (30, 8))
    x = rng.normal(size=(30, 8, 2, 16))
    x[:, :, 1, :4] += 4 * np.eye(4)[goal]
    found = heads.probe(x[:20], goal[:20], x[20:])
    right = (found == goal[20:, :, None]).mean((0, 1))
    assert right[1] > 0.9 and right[0] < 0.5


def test_heads_are_chosen_on_the_first_half():
    pointed = np.random.default_rng(0).integers(0, heads.PLACES, (4, heads.PLACES, 2, 30, 9))
    pointed[:2, :, 0, 3, 5] = np.arange(heads.PLACES)
    pointed[2:, :, 0, 1, 1] = np.arange(heads.PLACES)
    entry = xr.Dataset(
        {"pointed": (("context", "asked", "where", "layer", "head"), pointed)}, {"where": list(heads.WHERE)}
    )
    assert heads.choose_heads(entry, 1) == [(3, 5)]
    others = heads.other_heads(entry, 4)
    chosen = heads.choose_heads(entry, 4)
    assert not {*others} & {*heads.choose_heads(entry, heads.SPARED)}
    assert sorted(t for t, _ in others) == sorted(t for t, _ in chosen)


def test_documents_are_turned_and_renamed(world):
    asks = heads.turned(world.asks, 1)
    assert asks[0].question == world.asks[1].question and asks[0].documents[0] == world.asks[0].documents[1]
    renamed = passes.lay_out(world.session.tokenizer, world.asks, (3, 1, 2))
    text = world.session.tokenizer.decode(list(renamed.ids))
    assert [text.index(f"Document {k}: {x}") for k, x in zip((3, 1, 2), world.asks[0].documents, strict=True)]
    assert renamed.questions == world.documents.questions
