"""Fine-tuning goes on where it was and learns what it is asked for; what is measured is the model's own."""

import numpy as np
import pytest
import torch
from lookup_worlds import TEMPLATE, byte_tokenizer, save_network

from posbias.lookup import contexts
from posbias.models.loading import Source
from posbias.prompts import write_prompts
from studies.results import Results
from studies.tune import facts, training
from studies.tune.__main__ import main
from studies.tune.measure import TRIAL, document_of, give_answer, measure_heads, open_world

TEXTS = [f"The tower of village {k} is old, and {k * 7} people live there. " * 8 for k in range(12)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    return save_network(tmp_path_factory.mktemp("tiny"), tokenizer, max_position_embeddings=4096)


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(training, "score_by_place", lambda model, tokenizer: np.zeros((2, facts.PLACES)))


@pytest.fixture
def articles(tmp_path):
    path = tmp_path / "articles.txt"
    path.write_text("".join(f" = Article {k} = \n{text}\n" for k, text in enumerate(TEXTS)))
    return path


def tuning(arm="every", **changes):
    return training.Tuning(arm, 0, **{"steps": 4, "sets": 1, "rank": 2, "length": 64, "autocast": False} | changes)


def test_no_kind_and_no_name_of_training_is_tested():
    assert not {*facts.NAMES} & {name.title() for name in contexts.NAMES} and len({*facts.NAMES}) == 2048
    assert not {kind for kind, _ in facts.KINDS} & {kind for kind, _ in contexts.KINDS}
    assert not {*facts.NEUTRAL} & {*contexts.NEUTRAL}


@pytest.mark.parametrize("arm", ["every", "ends", "middle", "apart"])
def test_the_answer_stands_where_the_arm_asks_for_it(arm):
    asked = []
    for number in range(8):
        asks, places = facts.make_set(arm, 3, number), facts.places_of(arm, 3, number)
        for ask, place in zip(asks, places, strict=True):
            holding = [k for k, text in enumerate(ask.documents) if ask.begin in text]
            assert holding == [place] and f"{ask.begin} {ask.answer}." in ask.documents[place]
            kinds = {kind for text in ask.documents for kind, _ in facts.KINDS if kind.split("{}")[0] in text}
            assert len(kinds) == (8 if arm == "apart" else 1)
            asked.append(place)
    counts = np.bincount(asked, minlength=8)
    assert [k for k, count in enumerate(counts) if count] == sorted(facts.WHERE[arm])
    assert np.ptp(counts[counts > 0]) == 0


def test_questions_in_one_row_are_read_as_apart(folder):
    source = Source(str(folder))
    model, tokenizer = source.read_model(torch.float32, "cpu", None, "sdpa"), source.load_tokenizer()
    prompts = write_prompts(tokenizer, "documents", facts.make_set("every", 0, 1), True, False)
    packed = training.pack(prompts)
    assert packed.ids.shape[1] < 0.7 * sum(len(prompt.ids) for prompt in prompts)
    expected = []
    for prompt in prompts:
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt.ids, *prompt.answer_ids[:-1]]])).logits[0]
        logits = logits[len(prompt.ids) - 1 :]
        expected.append(torch.nn.functional.cross_entropy(logits, torch.tensor(prompt.answer_ids)))
    found = training.packed_loss(model, packed)
    assert float(found.detach()) == pytest.approx(float(torch.stack(expected).mean()), rel=1e-5)
    assert float(expected[0]) != pytest.approx(float(expected[1]), rel=1e-3)


def test_the_gradient_of_a_step_is_that_of_the_mean():
    w = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    found = training.mean_loss(lambda k: (k * w**2).sum(), [1, 2, 3], [w])
    found.backward()
    assert float(found.detach()) == pytest.approx(10.0) and w.grad.tolist() == [4.0, -8.0]


def test_what_was_stopped_goes_on_to_the_same_adapter(folder, monkeypatch):
    source, text = Source(str(folder)), "\n".join(TEXTS)
    whole = training.train(source, tuning("text"), text)
    weights = [x.detach().clone() for x in whole.network.parameters()]
    training.checkpoint_of(tuning("text")).unlink()
    stepped, step = [], training.trainer.Run.step

    def stop(self, number):
        stepped.append(number)
        if stepped == [0, 1, 2]:
            raise KeyboardInterrupt
        return step(self, number)

    monkeypatch.setattr(training.trainer.Run, "step", stop)
    with pytest.raises(KeyboardInterrupt):
        training.train(source, tuning("text"), text, every=0.0)
    again = training.train(source, tuning("text"), text, every=0.0)
    assert stepped == [0, 1, 2, 2, 3]
    for x, y in zip(weights, again.network.parameters(), strict=True):
        assert torch.equal(x, y) and x.abs().max() > 0


def test_another_setting_or_model_is_refused(folder, tmp_path):
    source, text = Source(str(folder)), "\n".join(TEXTS)
    training.train(source, tuning("text"), text)
    with pytest.raises(ValueError, match="expected a checkpoint of a run with the same settings, received rate=0.0005"):
        training.train(source, tuning("text", rate=1e-3), text)
    other = save_network(tmp_path / "other", byte_tokenizer(), hidden_size=16)
    with pytest.raises(ValueError, match="model: expected file"):
        training.load_tuned(Source(str(other)), "text", 0)
    with pytest.raises(ValueError, match="every, seed 0: expected a run of python -m studies.tune train every"):
        training.load_tuned(source, "every", 0)


def test_a_run_that_has_not_ended_is_not_measured(folder, monkeypatch):
    source = Source(str(folder))
    step = training.trainer.Run.step

    def stop(self, number):
        if number == 2:
            raise KeyboardInterrupt
        return step(self, number)

    monkeypatch.setattr(training.trainer.Run, "step", stop)
    with pytest.raises(KeyboardInterrupt):
        training.train(source, tuning("text"), "\n".join(TEXTS), every=0.0)
    with pytest.raises(ValueError, match="text, seed 0: expected 4 steps of training, received 2"):
        training.load_tuned(source, "text", 0)


def test_entries_are_made_once(folder, articles, tmp_path, capsys):
    words = ["--model", str(folder), "--wikitext", str(articles), "-o", str(tmp_path / "tune.nc"), "--small"]
    training.train(Source(str(folder)), tuning("text", rate=0.05), "\n".join(TEXTS))
    main(["measure", "before", "text", *words])
    kept = Results(tmp_path / "tune.nc")
    parts = {"answers", "heads", "text"}
    assert {*kept} == {f"before.{x}" for x in parts} | {f"text.seed-0.{x}" for x in (*parts, "training")}
    before, after = kept["before.text"], kept["text.seed-0.text"]
    assert before["influence"].shape == (4, 64) and np.isfinite(before["use"]).sum("position").min() >= 2
    assert not np.allclose(before["loss"], after["loss"], atol=1e-4)
    assert np.allclose(before["contributions"].sum("position"), 1, atol=1e-3)
    assert kept["text.seed-0.training"].attrs["training_arm"] == "text"
    assert kept["before.answers"]["source"].shape == (TRIAL.sets, facts.PLACES)
    capsys.readouterr()
    main(["measure", "before", *words])
    assert "before is there" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["measure", "both", *words])
    assert "arm: expected one of every, middle, ends, apart, text, received both" in capsys.readouterr().err


def test_heads_are_the_models_own(folder):
    world = open_world(Source(str(folder)), None, 0, TEXTS, TRIAL)
    found = measure_heads(world)
    task = contexts.Task("documents", facts.PLACES)
    asks = contexts.make_contexts(task, 1, 0)[0].asks["competing"]
    prompt = write_prompts(world.tokenizer, "documents", asks, True, False)[2]
    document = document_of(world.tokenizer, prompt, asks[2])
    text = [world.tokenizer.decode([prompt.ids[k] for k in np.flatnonzero(document == d)]) for d in range(8)]
    assert all(f"Document {d + 1}: {asks[2].documents[d]}" in text[d] for d in range(8))
    world.model.set_attn_implementation("eager")
    with torch.no_grad():
        attention = world.model(torch.tensor([prompt.ids]), output_attentions=True).attentions
    expected = float(attention[1][0, 2, -1, torch.from_numpy(document == 5)].sum())
    assert float(found["attended"][1, 2, 2, 5]) == pytest.approx(expected, rel=1e-4)
    assert found["influence"].sum("document").max() < 1 and found["influence"].min() > 0


def test_scores_by_place_are_the_readers(folder, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(training, "TEST_SETS", 1)
    world = open_world(Source(str(folder)), None, 0, TEXTS, TRIAL)
    found = training.score_by_place(world.model, world.tokenizer)
    asks = contexts.make_contexts(contexts.Task("documents", facts.PLACES), 1, training.TEST_SEED)[0].asks["competing"]
    prompt = write_prompts(world.tokenizer, "documents", [asks[4]], True, False)[0]
    expected = training.Reader(world.model, shared=False).answer(prompt.ids, prompt.answer_ids)[0]
    assert found.shape == (2, facts.PLACES) and found[0, 4] == pytest.approx(expected, abs=1e-3)


def test_an_answer_ends_with_its_sentence(folder):
    world = open_world(Source(str(folder)), None, 0, TEXTS, TRIAL)

    class Told:
        def greedy(self, ids, most, ends):
            tokens = []
            for token in world.tokenizer(" Bo Ta. It", add_special_tokens=False)["input_ids"]:
                if ends(tokens, token):
                    return tokens
                tokens.append(token)

    assert give_answer(world.tokenizer, Told(), ()) == "Bo Ta"
