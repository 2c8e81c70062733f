"""Answers that are made side by side are those that are made one by one."""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lookup_worlds import byte_tokenizer
from measuring import HYBRIDS, make

from posbias.conditions.each.parallel_windows import Condition
from posbias.engines import has_ended
from posbias.engines.local import BATCH, TOKENS, LocalEngine, Reader, batched
from posbias.prompts import Ask, Prompt, write_prompt

MOST = 6


def prompts(tokenizer, count):
    words = ["short", "a document that is longer than others", "7", "two words"]
    asks = [Ask((words[k % 4], "it is 8" * (k % 3 + 1)), "what?", "8") for k in range(count)]
    return [write_prompt(tokenizer, "documents", ask, False, True) for ask in asks]


def both(name, count=3, until=""):
    """Return answers made side by side and one by one."""
    tokenizer = byte_tokenizer()
    model = make(name, vocab_size=len(tokenizer), max_position_embeddings=512).eval()
    asked = prompts(tokenizer, count)
    one = LocalEngine(model, tokenizer, changed=lambda *_: nullcontext())
    batch = LocalEngine(model, tokenizer)
    found = list(batch.generate(asked, MOST, until)), list(one.generate(asked, MOST, until))
    assert batch.requests == one.requests == count and batch.tokens == one.tokens
    return found


@pytest.mark.parametrize(
    "name", ["llama", "gpt2", "bloom", "falcon-alibi", "falcon-new", "gemma2", "opt", "qwen3", *HYBRIDS]
)
def test_a_batch_answers_as_one_prompt_after_another(name):
    batch, single = both(name)
    assert [x.ids for x in batch] == [x.ids for x in single]
    told = np.array([[x.log_probability for x in some] for some in (batch, single)])
    # lfm2's convolution reads the bias of its own projection where there is padding
    np.testing.assert_allclose(*told, rtol=1e-3 if name == "lfm2" else 1e-5, equal_nan=True)


def test_more_prompts_than_a_batch_holds_are_answered_in_their_order():
    batch, single = both("llama", 2 * BATCH + 1)
    assert [x.text for x in batch] == [x.text for x in single] and len(batch) == 2 * BATCH + 1


def test_an_answer_ends_before_a_letter_that_ends_it():
    plain, _ = both("llama")
    letter = plain[0].text[2]
    batch, single = both("llama", until=letter)
    assert [x.ids for x in batch] == [x.ids for x in single]
    assert all(not has_ended(x.text, letter) for x in batch) and len(batch[0].text) < len(plain[0].text)
    assert [x.is_cut for x in batch] == [x.is_cut for x in single] and plain[0].is_cut
    assert not any(some[0].is_cut for some in both("llama", 1, until=letter)), "it has ended by itself"


def test_penalties_of_a_models_author_do_not_count():
    tokenizer = byte_tokenizer()
    model = make("llama", vocab_size=len(tokenizer), max_position_embeddings=512).eval()
    asked = prompts(tokenizer, 3)
    plain = list(LocalEngine(model, tokenizer).generate(asked, MOST))
    model.generation_config.repetition_penalty = 50.0
    model.generation_config.do_sample = True
    again = list(LocalEngine(model, tokenizer).generate(asked, MOST))
    assert plain == again and model.generation_config.repetition_penalty == 50.0
    with torch.no_grad():
        first = model(torch.tensor([asked[0].ids])).logits[0, -1].argmax()
    assert plain[0].ids[0] == int(first)


def test_what_is_read_and_written_is_counted():
    tokenizer = byte_tokenizer()
    model = make("llama", vocab_size=len(tokenizer), max_position_embeddings=512).eval()
    asked = prompts(tokenizer, 3)
    read = sum(len(one.ids) for one in asked)
    for changed in ({}, {"changed": lambda *_: nullcontext()}):
        engine = LocalEngine(model, tokenizer, **changed)
        given = list(engine.generate(asked, MOST))
        assert sum(one.length for one in given) > 0
        assert engine.tokens == read + sum(one.length for one in given) and engine.requests == 3
    engine = LocalEngine(model, tokenizer)
    list(engine.loglikelihood(asked))
    assert engine.tokens == read + sum(len(one.answer_ids) - 1 for one in asked)


def test_as_many_prompts_are_answered_side_by_side_as_have_so_many_tokens():
    sizes = {TOKENS: 1, TOKENS // 2: 2, TOKENS // 3 + 1: 2, 2 * TOKENS: 1, 10: BATCH}
    for length, size in sizes.items():
        asked = [Prompt("", "", (1,) * n) for n in (*[5] * BATCH, length, 5)]
        assert [len(some) for some in batched(asked)][0] == size and sum(map(len, batched(asked))) == len(asked)
    assert list(batched([])) == []


def test_an_answer_does_not_end_before_its_first_word():
    assert not has_ended("\n", "\n") and not has_ended(" \n", "\n") and has_ended("a\n", "\n")


def changed_answer(changed, until=""):
    """Return an answer, the one with all read whole, how many tokens were read each time, and those of the prompt."""
    tokenizer, read = byte_tokenizer(), []
    model = make("llama", vocab_size=len(tokenizer), max_position_embeddings=512).eval()
    (asked,) = prompts(tokenizer, 1)
    with changed(model, asked):
        whole = Reader(model, shared=False).greedy(asked.ids, MOST, lambda *_: False)
    model.get_input_embeddings().register_forward_hook(lambda _, args, out: read.append(out.shape[1]))
    (found,) = LocalEngine(model, tokenizer, changed=changed).generate([asked], MOST, until)
    return found, whole, read, len(asked.ids)


def test_a_changed_model_reads_its_prompt_twice_and_each_token_of_its_answer_once(monkeypatch):
    monkeypatch.setattr("posbias.engines.local.PIECE", 8)  # a piece ends within a document
    condition = Condition()
    found, whole, read, size = changed_answer(condition.changed)
    assert [*found.ids] == whole and len(whole) == MOST
    assert read[-MOST:] == [1] * (MOST - 1) + [size + MOST] and sum(read[:-MOST]) == size


def test_a_changed_model_that_ends_its_answer_is_not_read_again():
    changed = Condition().changed
    whole, *_ = changed_answer(changed)
    found, _, read, size = changed_answer(changed, until=whole.text[2])
    assert whole.text.startswith(found.text) and 0 < len(found.ids) < MOST
    assert read == [size, *[1] * len(found.ids), size + len(found.ids)]


def test_a_change_that_a_cache_cannot_follow_is_read_whole():
    @contextmanager
    def changed(model, prompt):
        def lie(_, args, out):
            return out.flip(-1) if out.shape[1] == 1 else out

        handle = model.get_input_embeddings().register_forward_hook(lie)
        yield
        handle.remove()

    found, whole, read, size = changed_answer(changed)
    assert [*found.ids] == whole
    assert read.count(size) == 2, "the prompt was read whole again"


def test_a_changed_model_without_a_cache_answers_too():
    @contextmanager
    def changed(model, prompt):
        handle = model.register_forward_hook(lambda _, args, out: SimpleNamespace(logits=out.logits))
        yield
        handle.remove()

    found, whole, *_ = changed_answer(changed)
    assert [*found.ids] == whole
