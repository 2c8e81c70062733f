"""What the study measures of a model, against the model itself without caches or hooks."""

import re
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lookup_worlds import TEMPLATE, byte_tokenizer, save_network

from posbias.engines.local import Reader
from posbias.lookup.contexts import make_contexts
from posbias.lookup.tasks import Task
from posbias.measure.corpus import Corpus
from posbias.measure.quantities.contributions import LayerContributions
from posbias.models.loading import Source
from posbias.prompts import write_prompts
from posbias.settings import Settings
from studies.documents import measure

PLACES = 3


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    folder = save_network(tmp_path_factory.mktemp("tiny"), tokenizer, max_position_embeddings=4096)
    return Settings(Source(str(folder)), Corpus("builtin"), 2, 400, 8)


@pytest.fixture(scope="module")
def world(settings):
    session = measure.open_session(settings.source)
    instrument, _ = measure.open_model(session)
    asks = make_contexts(Task("documents", PLACES), 1, 0)[0].asks["competing"]
    prompts = write_prompts(session.tokenizer, "documents", asks, True, False)
    return SimpleNamespace(session=session, instrument=instrument, model=instrument.model, asks=asks, prompts=prompts)


def log_probability(model, ids, answer):
    with torch.no_grad():
        logits = model(torch.tensor([[*ids, *answer[:-1]]])).logits[0, len(ids) - 1 :].double()
    return float(logits.log_softmax(-1).gather(-1, torch.tensor(answer)[:, None]).sum())


def test_a_document_is_removed_from_the_text(world):
    cut = [prompt.segment for prompt in world.prompts]
    answers = [p.answer_ids for p in world.prompts]
    found = measure.remove_documents(Reader(world.model), world.prompts, answers, cut, PLACES)
    bare = world.session.tokenizer
    for k, (p, ask) in enumerate(zip(world.prompts, world.asks, strict=True)):
        for document, text in enumerate(ask.documents):
            gap = "\n\n" if document < PLACES - 1 else ""  # the last one's belongs to the question
            shorter = p.text.replace(f"Document {document + 1}: {text}{gap}", "")
            left = bare(shorter, add_special_tokens=False)["input_ids"]
            assert len(left) < len(p.ids) - len(text)
            expected = log_probability(world.model, left, answers[k]) - log_probability(world.model, p.ids, answers[k])
            assert found[k, document] == pytest.approx(expected, abs=1e-4)
    assert np.abs(found).min() > 1e-5


def test_shares_are_those_of_the_model_itself(world):
    ids, answer = world.prompts[1].ids, world.prompts[1].answer_ids
    found = measure.read_shares(world.instrument, ids, answer)
    assert all(x.shape == (len(ids),) and x.sum() == pytest.approx(1) for x in found.values())
    x = world.model.get_input_embeddings()(torch.tensor([[*ids, *answer[:-1]]])).detach().requires_grad_()
    logits = world.model(inputs_embeds=x).logits[0, len(ids) - 1 :]
    logits.log_softmax(-1).gather(-1, torch.tensor(answer)[:, None]).sum().backward()
    sizes = {"influence": x.grad[0].norm(dim=-1), "gradient × input": (x.grad * x).sum(-1)[0].abs()}
    for way, size in sizes.items():
        expected = size[: len(ids)].detach().numpy()
        assert np.allclose(found[way], expected / expected.sum(), rtol=1e-3, atol=1e-7), way
    with torch.no_grad():
        weights = world.model(torch.tensor([ids]), output_attentions=True).attentions
    expected = torch.stack(weights)[:, 0, :, -1].mean((0, 1)).numpy()
    assert np.allclose(found["attention"], expected, rtol=1e-3, atol=1e-7)


def test_contributions_end_at_the_last_token_of_the_prompt(world):
    ids, answer = world.prompts[0].ids[:40], world.prompts[0].answer_ids
    longer = measure.read_shares(world.instrument, ids, answer)["contributions"]
    alone = measure.read_shares(world.instrument, ids, answer[:1])["contributions"]
    assert np.allclose(longer, alone, rtol=1e-4, atol=1e-8)
    kernels = {}

    def see(reading):
        layer, kernel = LayerContributions(world.instrument, reading.layer, 40, whole=False), torch.zeros(40, 40)
        for _, queries, weights in layer.kernels(reading):
            kernel[queries, : queries.stop] = weights
        kernels[reading.layer] = kernel

    world.instrument.measure(torch.tensor([ids]), see)
    product = torch.linalg.multi_dot([kernels[layer] for layer in sorted(kernels, reverse=True)])
    assert np.allclose(longer, product[-1], rtol=1e-4, atol=1e-7)


def test_an_answer_ends_before_the_full_stop():
    said = {0: "4", 1: "2", 2: ".", 3: "x"}
    sequence = [0, 1, 2, 3]

    def logits(ids, keep):
        out = torch.zeros(keep, 4)
        out[-1, sequence[len(ids) - 2]] = 1
        return out

    tokenizer = SimpleNamespace(decode=lambda tokens: "".join(said[t] for t in tokens))
    reader = SimpleNamespace(greedy=partial(Reader.greedy, SimpleNamespace(logits=logits)))
    assert measure.give_answer(tokenizer, reader, (9, 9)) == ("42", [0, 1])


def test_remedies_are_written_as_they_are_called(world):
    ask, written = world.asks[0], {}
    for name, layout in measure.REMEDIES.items():
        (prompt,) = write_prompts(world.session.tokenizer, "documents", [replace(ask, layout=layout)], True, False)
        asked, documents = (prompt.text.count(x) for x in (f"Question: {ask.question}", ask.documents[0]))
        assert (asked, documents) == {"as it is": (1, 1), "question first and last": (2, 1), "twice": (2, 2)}[name]
        written[name] = prompt
    assert written["as it is"] == world.prompts[0]
    first = written["question first and last"]
    assert first.text.index("Question:") < first.text.index("Document 1:")


def test_what_is_kept_of_all_and_gone_on_with(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "data_folder", lambda: tmp_path)
    used = measure.measure_used(settings, PLACES)
    assert dict(used.sizes) == {"context": 2, "asked": PLACES, "document": PLACES}
    looked = measure.measure_lookup(settings, Task("documents", PLACES))
    assert np.allclose(used["log_probability"], looked["log_probability"].sel(arm="competing"), atol=1e-4)
    assert ((used["source"] == np.arange(PLACES)) == (used["correct"] == 1)).all()
    remedies = measure.measure_remedies(settings, PLACES)
    asked = remedies["asked"].values[:, 0].astype(int)
    own = looked["log_probability"].sel(arm="competing").values[np.arange(2), asked]
    assert np.allclose(remedies["log_probability"].sel(remedy="as it is")[:, 0], own, atol=1e-4)
    monkeypatch.setattr(measure, "read_shares", None)  # what is there is not read again
    assert measure.measure_used(settings, PLACES).identical(used)


def test_a_second_run_deletes_beside_the_document_that_costs_most(settings, world, tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "data_folder", lambda: tmp_path)
    found = measure.measure_exceptions(replace(settings, prompts=1), PLACES)
    own, other = (f"{ask.begin} {ask.answer}" for ask in world.asks[:2])
    text, encode = world.prompts[0].text.replace(other, own), partial(world.session.tokenizer, add_special_tokens=False)
    _, answer = measure.give_answer(world.session.tokenizer, Reader(world.model), ids := encode(text)["input_ids"])
    whole = log_probability(world.model, ids, answer)
    alone, again = found["twice"][0].values, found["twice_again"].values[0]
    both = [int(alone.argmin()), int(alone.argmin() == 0)]
    for gone, expected in (([0], alone[0]), (both, alone.min() + again[both[1]])):
        left = encode(re.sub(rf"Document [{''.join(str(k + 1) for k in gone)}]: .*(\n\n(?=D))?", "", text))["input_ids"]
        assert log_probability(world.model, left, answer) - whole == pytest.approx(float(expected), abs=1e-4)


def test_other_tools_say_what_each_document_gives(settings, tmp_path, monkeypatch):
    for tool in ("captum", "inseq"):
        pytest.importorskip(tool, exc_type=ImportError)
    monkeypatch.setattr(measure, "data_folder", lambda: tmp_path)
    found = measure.measure_others(replace(settings, prompts=1), PLACES)
    signed = found["integrated gradients, signed"]
    assert np.allclose(signed.sum("document") - found["missing"], found["change"], atol=1e-3)
    assert (found["integrated gradients"] >= np.abs(signed)).all() and (found["attention, inseq"] > 0).all()
    assert found.attrs["captum"] and found.attrs["inseq"]


def test_without_the_other_tools_it_is_said(settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "captum", None)
    with pytest.raises(ValueError, match="others: expected captum and inseq, installed, received"):
        measure.measure_others(settings, PLACES)
