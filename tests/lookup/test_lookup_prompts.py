"""Lookup: what prompts are made of, where answers stand, how they are scored, and how places compare."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("xarray", reason="xarray is not installed")

from lookup_worlds import byte_tokenizer, named_tokenizer, word_tokenizer
from measuring import WORDS, make, save, write_documents
from scipy.stats import binomtest, spearmanr
from transformers import AutoTokenizer

from posbias.lookup import scores
from posbias.lookup.prompts import PlacedPrompts, copy_prompts, key_value_prompts, spread, words_of
from posbias.lookup.tasks import SCORES, Task
from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.shipped import model_folder


@pytest.fixture(scope="module")
def reference():
    """Return a byte-level BPE tokenizer of 2,048 tokens."""
    return AutoTokenizer.from_pretrained(model_folder("reference/bloom-8"))


def parsed(words, row, pairs):
    """Return the pairs of a prompt and the key that is asked, read back from its tokens."""
    body, found = list(row[len(words.start) :]), {}
    for _ in range(pairs):
        piece, body = body[: words.pair_tokens], body[words.pair_tokens :]
        s = len(words.separator)
        assert tuple(piece[1 : 1 + s]) == words.separator and tuple(piece[2 + s :]) == words.end
        found[piece[0]] = piece[1 + s]
    assert tuple(body[1:]) == words.separator
    return found, body[0]


def test_words_of_a_byte_pair_vocabulary_are_whole_words_with_separators_of_their_own(reference):
    words = words_of(reference, 64, len(reference))
    assert words.marks == (":", "\n") and words.start == ()
    texts = [reference.decode([k]) for k in words.words]
    assert len(texts) >= 128 and all(text[0] == " " and text[1:].isalpha() and len(text) >= 4 for text in texts)
    assert words.described == 'keys of 1 token, values of 1 token, ":" and "\\n" between'
    row = key_value_prompts(words, 8, 1).ids[0]
    assert reference(reference.decode(row))["input_ids"] == row.tolist(), "the prompt is what its text gives"


def test_a_vocabulary_with_too_few_words_is_refused():
    with pytest.raises(ValueError, match=r"expected one with words of one token for 3 keys .*, received 5 that can"):
        words_of(word_tokenizer(["ban", "bem", "ker", "dir", "x"]), 3, 100)


def test_words_whose_text_does_not_come_back_and_tokens_beyond_the_model_are_left_out():
    tokenizer = word_tokenizer(["Ban", "bem", "two words", "x!", "ker", "dir", "<s>"], lower=True)
    words = words_of(tokenizer, 1, 100)
    assert tokenizer.convert_ids_to_tokens(words.words.tolist()) == ["bem", "ker", "dir"]
    assert len(words_of(tokenizer, 1, tokenizer.convert_tokens_to_ids("dir")).words) == 2


@pytest.mark.parametrize("kind", ["bpe", "letters", "names", "words"])
def test_keys_are_distinct_and_the_answer_is_the_value_of_the_key_at_the_place(reference, kind, pairs=5):
    tokenizer = {"bpe": lambda: reference, "letters": byte_tokenizer, "names": named_tokenizer}
    tokenizer = tokenizer.get(kind, lambda: word_tokenizer(WORDS))()
    words = words_of(tokenizer, pairs, len(tokenizer))
    prompts = key_value_prompts(words, pairs, 7, seed=3)
    for row, answer, place, values in zip(prompts.ids, prompts.answers, prompts.places, prompts.values, strict=True):
        found, asked = parsed(words, row, pairs)
        assert len({*found, *found.values()}) == 2 * pairs and list(found)[place] == asked
        assert [found[asked]] == list(answer) and list(found.values()) == list(values)
        assert row[prompts.starts[place]] == asked
    same, other = key_value_prompts(words, pairs, 7, seed=3), key_value_prompts(words, pairs, 7, seed=4)
    assert prompts.sha256 == same.sha256 != other.sha256


def test_places_are_swept_evenly():
    for prompts, places in product((1, 5, 16, 40), (1, 7, 16)):
        counts = np.bincount(spread(prompts, places, np.random.default_rng(0)), minlength=places)
        assert counts.sum() == prompts and counts.max() - counts.min() <= 1
    assert sorted(spread(4, 16, np.random.default_rng(0))) == [2, 6, 10, 14]


def test_a_subset_has_places_as_evenly_and_profiles_are_summed_over_tokens():
    prompts = key_value_prompts(words_of(word_tokenizer(WORDS), 4, 100), 4, 40)
    assert np.bincount(prompts.places[prompts.subset(8)]).tolist() == [2, 2, 2, 2]
    profile = np.arange(prompts.asked.shape[1], dtype=float)
    expected = [profile[s : s + prompts.width].sum() for s in prompts.starts]
    assert np.allclose(prompts.by_place(profile), expected)


def test_more_pairs_than_the_context_holds_are_refused_with_the_most_that_fit():
    words = words_of(word_tokenizer(WORDS), 3, 100)
    length = key_value_prompts(words, 3, 1).ids.shape[1] + 1
    words.check_fits(3, length), words.check_fits(3, None)
    with pytest.raises(ValueError, match=r"pairs: expected at most 2, of 2 tokens each, in the model's context of"):
        words.check_fits(3, length - 1)
    with pytest.raises(ValueError, match="pairs: expected none"):
        words.check_fits(2, 2)


@pytest.mark.parametrize("start", [True, False])
def test_copying_repeats_a_stretch_and_the_control_has_other_text_in_its_first_place(tmp_path, start):
    tokenizer = AutoTokenizer.from_pretrained(save(tmp_path / "m", start=start))
    corpus = Corpus(str(write_documents(tmp_path / "d.jsonl", [40] * 6)))
    task = Task("copy", length=28, segment=5, cue=2)
    prompts = copy_prompts(task, corpus, tokenizer, 6, seed=1)
    text = task.text_tokens
    assert prompts.ids.shape == (6, 27) and text == 21 and prompts.starts[0] == int(start)
    assert prompts.starts[-1] == text - 7 and prompts.asked.shape[1] == text + 2
    for row, control, answer, place in zip(prompts.ids, prompts.controls, prompts.answers, prompts.places, strict=True):
        at = prompts.starts[place]
        assert row[text:].tolist() == row[at : at + 6].tolist() and answer.tolist() == row[at + 2 : at + 7].tolist()
        changed = np.flatnonzero(row != control)
        assert changed.size and changed.min() >= at and changed.max() < at + 7
    assert prompts.units.tolist() == list(range(6))


def test_a_text_of_unknown_words_is_not_copied():
    with pytest.raises(ValueError, match="tokenizer: expected one that knows the text's words, received 100% of them"):
        copy_prompts(Task("copy", length=60), Corpus("builtin"), word_tokenizer(WORDS), 2)
    with pytest.raises(ValueError, match="tokenizer: expected one that makes tokens of text"):
        copy_prompts(Task("copy", length=60), Corpus("builtin"), named_tokenizer(), 2)


class Answering(Instrument):
    """Stand in for an instrument: its model says the right value, loudly, if the answer stands at a known place."""

    def __init__(self, prompts, known, size=100):
        self.prompts, self.known, self.size = prompts, known, size

    def tail(self, ids, keep):
        logits = torch.zeros(len(ids), keep, self.size)
        for b, row in enumerate(ids):
            k = next(k for k, other in enumerate(self.prompts.ids) if (other == row.numpy()).all())
            for step, token in enumerate(self.prompts.answers[k]):
                logits[b, step, int(token)] = 20.0 if self.prompts.places[k] in self.known else -20.0
        return logits


def test_scores_follow_what_the_model_finds():
    words = words_of(word_tokenizer(WORDS), 4, 100)
    prompts = key_value_prompts(words, 4, 12)
    found = scores.read_scores(Answering(prompts, {1, 2}), prompts, slice(0, 12))
    right = np.isin(prompts.places, [1, 2])
    assert found["accuracy"].bool().tolist() == right.tolist() == found["accuracy_among"].bool().tolist()
    assert np.allclose(found["log_probability"][right], 0, atol=1e-5) and (found["log_probability"][~right] < -20).all()
    assert set(found) <= set(SCORES)


def test_the_choice_among_values_is_the_likeliest_of_them():
    rng = np.random.default_rng(0)
    values, logits = rng.integers(0, 9, size=(40, 5)), rng.normal(size=(40, 9))
    answers = values[np.arange(40), rng.integers(0, 5, 40)][:, None]
    prompts = PlacedPrompts(answers, answers, np.zeros(40, int), np.arange(5), 1, np.arange(40), values)
    instrument = SimpleNamespace(tail=lambda ids, keep: torch.from_numpy(logits[:, None]))
    found = scores.read_scores(instrument, prompts, slice(0, 40))["accuracy_among"]
    expected = [max(values[k], key=lambda v: logits[k, v]) == answers[k, 0] for k in range(40)]
    assert found.bool().tolist() == expected and 0 < sum(expected) < 40


def test_scores_are_those_of_the_whole_sequence():
    model = make("bloom")
    prompts = key_value_prompts(words_of(word_tokenizer(WORDS), 3, 97), 3, 4)
    found = scores.read_scores(Instrument(model), prompts, slice(0, 4))
    whole = torch.from_numpy(np.hstack([prompts.ids, prompts.answers[:, -1:]]))
    with torch.no_grad():
        losses = model(whole).logits[:, -2].double().log_softmax(-1)
    expected = losses[torch.arange(4), whole[:, -1]]
    assert torch.allclose(found["log_probability"], expected, atol=1e-4)


def test_groups_hold_neighbours_and_means_have_intervals():
    places = np.repeat(np.arange(8), 5)
    groups = scores.groups_of(places, 8, np.arange(40), resamples=400)
    assert groups.count == 8 and groups.edges.tolist() == list(range(9))
    values = places + np.random.default_rng(0).normal(size=40)
    means = scores.group_means(values, groups)
    assert np.allclose(means.mean, values.reshape(8, 5).mean(1)) and np.isclose(means.overall[0], values.mean())
    assert (means.low < means.mean).all() and (means.mean < means.high).all()
    assert scores.groups_of(places, 200, np.arange(40)).count == 10, "four prompts in a group"
    ends = scores.group_means((places > 3).astype(float), groups, is_share=True)
    exact = binomtest(0, 5).proportion_ci(0.95)
    assert (ends.low[0], ends.high[0]) == (exact.low, exact.high) and ends.high[0] > 0.4


def test_whole_documents_are_drawn_again():
    places, units = np.tile(np.arange(2), 20), np.repeat(np.arange(4), 10)
    values = np.repeat([0.0, 0.0, 1.0, 1.0], 10)
    whole, single = (scores.group_means(values, scores.groups_of(places, 2, u)) for u in (units, np.arange(40)))
    assert np.ptp(whole.overall[1:]) > 1.5 * np.ptp(single.overall[1:])


def test_a_resampled_mean_is_over_the_prompts_that_were_drawn():
    groups = scores.groups_of(np.repeat(np.arange(4), 8), 4, np.arange(32), resamples=99)
    means = scores.group_means(np.repeat([-3.0, 1.0, 2.0, 5.0], 8), groups)
    assert np.allclose(means.low, means.mean) and np.allclose(means.high, means.mean)


def test_rank_correlations_over_groups():
    places = np.repeat(np.arange(8), 6)
    groups = scores.groups_of(places, 8, np.arange(48), resamples=300)
    rng = np.random.default_rng(1)
    means = scores.group_means(places + rng.normal(size=48), groups)
    rising, other = np.arange(8.0) ** 2, rng.permutation(8).astype(float)
    estimate, low, high = scores.rank_correlation(means, scores.grouped_profile(rising, groups))
    assert estimate > 0.9 and low > 0.5 and high <= 1
    assert np.isclose(scores.rank_correlation(means, other)[0], spearmanr(means.mean, other).statistic)
    assert np.isnan(scores.rank_correlation(means, np.ones(8))).all()
    two = scores.groups_of(places, 2, np.arange(48), resamples=10)
    few = scores.groups_of(places[:8], 8, np.arange(8), resamples=10)
    assert two.count == 2 and few.count == 2
    assert np.isnan(scores.rank_correlation(scores.group_means(places[:8] * 1.0, few), np.arange(2.0))).all()


def test_places_differ_only_where_they_do():
    rng = np.random.default_rng(2)
    places = np.repeat(np.arange(8), 6)
    groups = scores.groups_of(places, 8, np.arange(48), resamples=500)
    assert scores.difference_p_value(places + rng.normal(size=48), groups) == 1 / 501
    nothing = [scores.difference_p_value(rng.normal(size=48), groups, seed=k) for k in range(40)]
    assert np.mean(np.array(nothing) <= 0.05) <= 0.15 and np.std(nothing) > 0.15
    assert scores.difference_p_value(np.zeros(48), groups) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "count"}, "task: expected one of kv, copy, received count"),
        ({"name": "kv", "pairs": 1}, "pairs: expected an integer of at least 2, received 1"),
        ({"name": "kv", "length": 64}, "length: expected none with the task kv, received 64"),
        ({"name": "copy", "length": 39}, "length: expected at least 40, for a text that has cue and segment"),
    ],
)
def test_a_task_out_of_range_is_refused(arguments, message):
    with pytest.raises(ValueError) as refused:
        Task(**arguments)
    assert str(refused.value).startswith(message)
