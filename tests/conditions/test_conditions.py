"""Each condition does what it says, on a tiny model."""

import numpy as np
import pytest
import torch
from lookup_worlds import byte_tokenizer
from measuring import WORDS, make, save

import posbias
from posbias import conditions
from posbias.conditions import NAMES, describe, read_condition, read_conditions
from posbias.conditions.each.headed import with_heading
from posbias.conditions.each.order import arranged
from posbias.engines import Generated, Likelihood
from posbias.engines.local import LocalEngine, Reader
from posbias.heads import attended, point
from posbias.prompts import Ask, write_prompt

ASK = Ask(("one is 1", "two is 22", "three is 3"), "what is two?", "22", "It is")


@pytest.fixture(scope="module")
def world():
    tokenizer = byte_tokenizer()
    return make("llama", vocab_size=len(tokenizer), max_position_embeddings=2048).eval(), tokenizer


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([list(ids)])).logits[0]


def test_windows_leave_documents_without_a_place(world):
    model, tokenizer = world
    prompt = write_prompt(tokenizer, "documents", ASK, False, True)
    spans = prompt.of("document")
    parts = [prompt.ids[span.start : span.stop] for span in spans]
    before, after = prompt.ids[: spans[0].start], prompt.ids[spans[-1].stop :]
    found, plain = [], []
    for order in ((0, 1, 2), (2, 0, 1)):
        at, moved = len(before), []
        for k in order:
            moved.append((at, at + len(parts[k])))
            at = moved[-1][1]
        ids = (*before, *(token for k in order for token in parts[k]), *after)
        plain.append(logits(model, ids)[-1])
        with conditions.parallel_windows(model, moved):
            found.append(logits(model, ids)[-1])
    assert torch.allclose(*found, atol=1e-5) and not torch.allclose(*plain, atol=1e-4)
    assert not torch.allclose(found[0], plain[0], atol=1e-4)
    with conditions.parallel_windows(model, moved):
        first = model(torch.tensor([ids[:-3]]), use_cache=True)
        rest = model(torch.tensor([ids[-3:]]), past_key_values=first.past_key_values).logits[0, -1]
    assert torch.allclose(rest, found[1], atol=1e-5), "a cache holds the positions"


@pytest.mark.parametrize("name", ["llama", "qwen3", "bloom", "gpt2", "stablelm", "deepseek_v3"])
def test_sharper_heads_have_their_own_logits_multiplied(name):
    model, ids = make(name).eval(), torch.arange(3, 15)[None]
    model.set_attn_implementation("eager")

    def attention():
        with torch.no_grad():
            return model(ids, output_attentions=True)

    plain = attention()
    with conditions.sharper(model, 1.0):
        assert torch.equal(attention().logits, plain.logits), "a factor of 1 changes no bit"
    with conditions.sharper(model, 3.0, [(1, 1)]):
        later = attention().attentions
    assert torch.equal(later[0], plain.attentions[0]) and not torch.equal(later[1][:, 1], plain.attentions[1][:, 1])
    with conditions.sharper(model, 3.0, [(0, 1)]):
        changed = attention()
    assert torch.equal(changed.attentions[0][:, 0], plain.attentions[0][:, 0]), "another head"
    assert not torch.allclose(changed.logits, plain.logits)
    with conditions.sharper(model, 0.5, [(0, 1)]):
        blunt = attention()
    assert not torch.equal(blunt.attentions[0][:, 1], plain.attentions[0][:, 1]), "a factor below 1"
    if name != "bloom":  # ALiBi is not multiplied
        for factor, found in ((3.0, changed), (0.5, blunt)):
            own, before = (x.attentions[0][0, 1, -1].log().diff() for x in (found, plain))
            ratio = own / before
            assert torch.allclose(ratio, torch.full_like(ratio, factor), rtol=1e-2)


@pytest.mark.parametrize("name", ["llama", "gpt2", "bloom"])
def test_without_the_sink_its_contribution_is_missing_and_nothing_else(name):
    model, ids = make(name).eval(), torch.arange(3, 15)[None]
    model.set_attn_implementation("eager")
    from posbias.models.families import family_of, output_projection

    family, seen = family_of(model.config), []
    attention = family.attention_of(family.layers(model)[0])
    projection = output_projection(attention)
    handle = projection.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach()))
    with torch.no_grad():
        plain = model(ids, output_attentions=True)
        with conditions.sink_off(model, [0]):
            model(ids)
    handle.remove()
    lost = (seen[0] - seen[1])[0].unflatten(-1, (plain.attentions[0].shape[1], -1))
    weights = plain.attentions[0][0, :, :, 0].T
    value = lost[0]  # the first token sees itself alone
    assert torch.allclose(lost, weights[..., None] * value, atol=1e-5) and lost.abs().max() > 1e-3
    with conditions.sink_off(model), torch.no_grad():
        whole = model(ids).logits[0, -1]
        first = model(ids[:, :-2], use_cache=True)
        rest = model(ids[:, -2:], past_key_values=first.past_key_values).logits[0, -1]
    assert torch.allclose(rest, whole, atol=1e-4), "a cached first token is silent already, the next is not"


def test_an_adapter_is_there_in_the_block_alone(world, tmp_path):
    peft = pytest.importorskip("peft")
    model, tokenizer = world
    ids = tuple(range(3, 15))
    plain, learned = logits(model, ids), [x.requires_grad for x in model.parameters()]
    other = peft.get_peft_model(
        make("llama", vocab_size=len(tokenizer), max_position_embeddings=2048),
        peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False),
    )
    other.save_pretrained(tmp_path)
    with conditions.adapter(model, tmp_path):
        assert not torch.allclose(logits(model, ids), plain, atol=1e-4)
    assert torch.equal(logits(model, ids), plain) and [x.requires_grad for x in model.parameters()] == learned
    model.train()
    with conditions.adapter(model, tmp_path):
        assert not model.training, "an adapter is read without dropout"
    assert model.training
    model.eval()


def test_adapters_of_one_name_are_told_apart_by_what_is_in_them(tmp_path):
    """Partial sums under one must not go on under the other."""
    found = []
    for k in range(2):
        folder = tmp_path / str(k) / "mine"
        folder.mkdir(parents=True)
        (folder / "adapter_config.json").write_text("{}")
        (folder / "adapter_model.safetensors").write_bytes(bytes([k]))
        text = f"adapter:{folder}"
        found.append(read_condition(text)[1].resolved(text, None))
    assert found[0] != found[1] and all(one.startswith("adapter:mine ") for one in found)


def written(ask):
    return write_prompt(byte_tokenizer(), "documents", ask, False, True).text


def test_what_is_asked_is_rewritten_as_it_is_called():
    def changed(name):
        return written(read_condition(name)[1].rewrite(ASK))

    assert changed("order:reversed").index("three is 3") < changed("order:reversed").index("one is 1")
    scored = Ask(ASK.documents, "q", "1", scores=(1.0, 3.0, 2.0))
    kept = read_condition("order:best-last,keep=2")[1].rewrite(scored)
    assert kept.documents == (ASK.documents[2], ASK.documents[1]), "the best two, the best last"
    found = {kind: read_condition(f"order:{kind}")[1].rewrite(scored).scores for kind in ("ends", "best-last")}
    assert found == {"ends": (3.0, 1.0, 2.0), "best-last": (1.0, 2.0, 3.0)}
    assert changed("repeated:everything").count("Question:") == changed("repeated:everything").count("one is 1") == 2
    assert changed("repeated:question").startswith("Question:") and changed("repeated:question").count("one is 1") == 1
    assert "Document 2 of 3: two is 22" in changed("numbered")


@pytest.mark.parametrize("by", ["likelihood", "confident"])
def test_one_by_one_keeps_the_document_that_scores_best(world, by):
    model, tokenizer = world
    engine = LocalEngine(model, tokenizer)

    def write(ask):
        return write_prompt(tokenizer, "documents", ask, False, True)

    kept = read_condition(f"one-by-one:{by}")[1].choose(ASK, engine, write)
    assert len(kept.documents) == 1 and engine.requests == 3
    scores = []
    for document in ASK.documents:
        if by == "likelihood":
            text = f"Answer the question from these documents.\n\nDocument 1: {document}\n Question:"
            ids, answer = tokenizer(text).input_ids, tokenizer(f" {ASK.question}").input_ids
            scores.append(Reader(model, shared=False).answer([0, *ids], answer)[0])
        else:
            (one,) = engine.generate([write(Ask((document,), ASK.question, "1", ASK.begin))], 12, "\n")
            scores.append(one.log_probability / len(one.ids))
    assert kept.documents[0] == ASK.documents[int(np.argmax(scores))]


def test_every_condition_says_what_it_does_needs_and_costs():
    said = describe()
    assert all(f"{name.replace('_', '-')}: " in said for name in NAMES) and said.count("; costs ") == len(NAMES)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["nothing"], "condition: expected one of adapter, bias"),
        ([3], "condition: expected a name, with arguments behind a colon, received 3"),
        (["numbered", "numbered"], "condition: expected each one once, received numbered twice"),
        (["order"], "condition order: expected one of reversed, ends, best-first, best-last, received none"),
        (["order:ends,keep=0"], "condition order: keep: expected an integer of at least 1, received 0"),
        (["sharper:-1"], "condition: factor: expected a number above 0, received -1"),
        (["sharper:x"], "condition: factor: expected a value that can be read"),
        (["sharper:size=2"], "condition: expected arguments among factor, heads, received size=2"),
        (["bias"], "condition bias: expected a description in JSON, or a file that ends in .yaml"),
        (["adapter:nowhere"], "condition adapter: expected a folder with adapter_config.json, received nowhere"),
        (["one-by-one:by=luck"], "condition one-by-one: by: expected one of likelihood, confident, received luck"),
        (["one-by-one:keep=0"], "condition one-by-one: keep: expected an integer of at least 1, received 0"),
        (["numbered:5"], "condition numbered: expected no arguments, received 5"),
    ],
)
def test_bad_conditions_are_refused_in_one_line(texts, expected):
    with pytest.raises(ValueError) as error:
        read_conditions(texts)
    assert str(error.value).startswith(expected) and "\n" not in str(error.value)


def test_a_model_that_cannot_be_changed_so_says_so():
    bloom = make("bloom")
    with pytest.raises(ValueError, match="rotary or learned positions, received bloom with ALiBi"):
        read_condition("parallel-windows")[1].check(bloom.config)
    for name in ("mistral", "qwen2"):  # of which qwen2 alone names the layers that have windows
        with pytest.raises(ValueError, match=f"without windows of its own, received {name}"):
            read_condition("parallel-windows")[1].check(make(name).config)
    read_condition("parallel-windows")[1].check(make("mistral", sliding_window=None).config)
    with pytest.raises(ValueError, match="layers from 0 to 2, received 9"):
        read_condition("sink-off:layers=9")[1].check(make("llama").config)
    with pytest.raises(ValueError, match="heads from 0 to 3, received 0.9"):
        read_condition("sharper:heads=0.9")[1].check(make("llama").config)


def test_heads_keep_or_order_what_they_point_at(world):
    model, tokenizer = world
    engine = LocalEngine(model, tokenizer)

    def write(ask):
        return write_prompt(tokenizer, "documents", ask, False, True)

    heads = [(0, 1), (1, 0)]
    scores = point(attended(engine.reader, write(ASK)), heads)
    best, worst = ASK.documents[int(scores.argmax())], ASK.documents[int(scores.argmin())]
    found = {}
    for how in ("alone", "first", "last", "alone,keep=2", "ends", "last,keep=3"):
        name = f"fetched:{how.split(',')[0]},heads=0.1+1.0,{how.partition(',')[2] or 'keep=1'}"
        found[how] = read_condition(name)[1].choose(ASK, engine, write).documents
    assert engine.requests == 6 and engine.tokens == 6 * len(write(ASK).ids)
    assert found["alone"] == (best,) and found["first"][0] == found["last"][-1] == best
    assert found["alone,keep=2"] == tuple(x for x in ASK.documents if x != worst)
    assert found["ends"] == (best, worst, found["last"][1]) and found["last,keep=3"] == found["last"] != ASK.documents
    for text in ("fetched", "fetched:alone,heads=0.1,keep=0", "fetched:often,heads=0.1"):
        with pytest.raises(ValueError, match="condition fetched"):
            read_condition(text)
    with pytest.raises(ValueError, match="layers from 0 to 2 and heads from 0 to 3, received 3.0"):
        read_condition("fetched:heads=3.0")[1].check(model.config)
    read_condition("fetched:heads=2.3")[1].check(model.config)


class Turning:
    """An engine that answers by the first document, and finds some answers likelier than others, in some turns."""

    has_loglikelihood = has_gradients = True

    def __init__(self, said, likely):
        self.said, self.likely = said, likely

    def generate(self, prompts, most, until=""):
        for prompt in prompts:
            text = self.said[prompt.documents[0]]
            yield Generated(text, (1,), -1.0, 1)

    def loglikelihood(self, prompts):
        for prompt in prompts:
            found = self.likely[prompt.answer]
            yield Likelihood(np.log(found.get(prompt.documents[0], 0.01) if isinstance(found, dict) else found), False)


def test_turns_vote_or_are_averaged():
    ask = Ask(("a", "b", "c", "d"), "q", "1")
    engine = Turning({"a": "x", "b": "y", "c": " y ", "d": "z"}, {"x": 0.5, "y": 0.1, "z": 0.7})

    def asked(name, engine=engine):
        return read_condition(name)[1].choose(ask, engine, lambda one: one).documents

    assert asked("rotated:4") == ("b", "c", "d", "a"), "two of four say y"
    assert asked("rotated:2") == ("a", "b", "c", "d"), "of equals the first"
    assert asked("rotated:4,by=mean") == ("d", "a", "b", "c"), "z is likeliest of all"
    once = Turning(engine.said, {"x": {"a": 0.9}, "y": 0.1, "z": 0.2})
    assert asked("rotated:4,by=mean", once) == ("a", "b", "c", "d"), "a mean of probabilities, not of their logarithms"
    for text in ("rotated:1", "rotated:4,by=force"):
        with pytest.raises(ValueError, match="condition rotated"):
            read_condition(text)


def test_a_heading_is_the_first_name():
    assert with_heading("It is here. The Old Mill bridge was opened.").startswith("Old Mill\nIt")
    assert with_heading("Nothing. Is named here.") == "Nothing. Is named here."
    assert "Document 1: one is 1" in written(read_condition("headed")[1].rewrite(ASK))


def test_shuffled_tokens_are_measured_and_said_to_be(tmp_path, undrawn):
    """As if the text had been written so; start tokens stay, and the file says what its profile is."""
    save(tmp_path / "llama")
    (tmp_path / "d.txt").write_text(" ".join(WORDS[k % 40] for k in range(60)))
    opened = posbias.open(tmp_path / "llama")
    how = {"prompts": 1, "length": 40, "dataset": tmp_path / "d.txt"}
    plain = opened.measure(**how).results
    found = opened.measure(**how, condition="order-shuffled", seed=1)
    ids, before = found.results["tokens"].values, plain["tokens"].values
    assert (ids[:, 0] == before[:, 0]).all() and (ids != before).any() and sorted(ids[0]) == sorted(before[0])
    assert np.array_equal(ids, conditions.order_shuffled(before, seed=1, front=1))
    words = opened.source.load_tokenizer().decode(ids[0, 1:])
    again = opened.measure(texts=[words], length=40).results
    assert np.array_equal(again["tokens"], ids) and np.allclose(again["influence"], found.results["influence"])
    assert "profile: bias proper" in repr(found) and "profile" not in plain.attrs
    assert "of it earned by the order" in found.report(tmp_path / "r.html").read_text()
    bare = how | {"special_tokens": False, "quantities": "influence"}
    first, moved = (opened.measure(**bare, **more).results["tokens"] for more in ({}, {"condition": "order-shuffled"}))
    assert np.array_equal(moved, conditions.order_shuffled(first.values)), "without start tokens none stays"
    inside = opened.measure(**how, condition="order-shuffled:inside")
    assert "what the order that is left earns" in repr(inside)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"condition": "order-shuffled:sorted"}, "condition order-shuffled: expected one of blocks, inside"),
        ({"condition": "order-shuffled:blocks"}, "order: expected prompts of at least 32 tokens, a block, received 15"),
        ({"condition": "parallel-windows"}, "condition: expected one that changes the model or its tokens"),
        ({"condition": ["sharper", "numbered"]}, "condition: expected one, for a measurement is of one, received 2"),
    ],
)
def test_what_a_measurement_cannot_change_is_refused_in_a_line(tmp_path, monkeypatch, asked, expected):
    save(tmp_path / "llama")
    (tmp_path / "d.txt").write_text(" ".join(WORDS[k % 40] for k in range(60)))
    monkeypatch.setattr("posbias.models.loading.Source.load_model", None)
    with pytest.raises(ValueError) as error:
        posbias.open(tmp_path / "llama").measure(1, 16, tmp_path / "d.txt", **asked)
    assert str(error.value).startswith(expected) and "\n" not in str(error.value)


class Answering:
    """An engine that answers each document alone with so many tokens of so many nats in all."""

    has_loglikelihood = has_gradients = True

    def __init__(self, *answers):
        self.answers = answers

    def generate(self, prompts, most, until=""):
        for _, (tokens, nats) in zip(prompts, self.answers, strict=True):
            yield Generated("so", tuple(range(tokens)), nats, tokens)


def test_confidence_is_that_of_a_token():
    engine = Answering((1, -1.0), (4, -2.0), (0, float("nan")))
    kept = read_condition("one-by-one:confident")[1].choose(ASK, engine, lambda ask: ask)
    assert kept.documents == ASK.documents[1:2], "-.5 a token; an empty answer is none"


def test_the_best_stand_at_both_ends():
    assert arranged(5, [5, 4, 3, 2, 1], "ends") == [0, 2, 4, 3, 1]


@pytest.mark.parametrize("name", ["qwen3", "gemma3_text"])
def test_as_many_tokens_as_heads_are_refused_where_one_cannot_tell_them_apart(name):
    model = make(name).eval()
    H = model.config.num_attention_heads
    ids = tuple(range(3, 3 + H))
    plain = logits(model, ids)
    with conditions.sharper(model, factor=2.0):
        assert not torch.allclose(logits(model, ids), plain, atol=1e-5), "all heads alike leave no doubt"
    with conditions.sharper(model, 2.0, [(0, 1)]), pytest.raises(ValueError, match="as many tokens as heads"):
        logits(model, ids)
