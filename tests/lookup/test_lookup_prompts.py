"""Lookup: what contexts are made of, where answers stand, how prompts are written, and the verdict."""

import json
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from lookup_worlds import TEMPLATE, byte_tokenizer
from scipy.stats import beta

from posbias.lookup import scores
from posbias.lookup.contexts import choose_contexts, holds, make_contexts, read_rows, row_contexts
from posbias.lookup.file import Found, ends_text, verdict
from posbias.lookup.tasks import Task
from posbias.prompts import LAYOUT, Ask, answer_tokens, pieces, write_prompt


@pytest.mark.parametrize(("task", "places"), [("documents", 8), ("kv", 5), ("documents", 10), ("documents", 12)])
def test_every_part_is_asked_for_in_turn_and_answers_alone(task, places):
    contexts = make_contexts(Task(task, places=places), 3, seed=1)
    arms = {"competing", "closed_book", "oracle"} | ({"not_competing"} if places in (8, 10) else set())
    for context in contexts:
        assert set(context.asks) == arms
        for arm, asks in context.asks.items():
            assert len(asks) == places and len({ask.answer for ask in asks}) == places
            for place, ask in enumerate(asks):
                having = [k for k, text in enumerate(ask.documents) if holds(text, f"{ask.begin} {ask.answer}")]
                assert task == "kv" or having == {"closed_book": [], "oracle": [0]}.get(arm, [place])
                assert [k for k, text in enumerate(ask.documents) if holds(text, ask.answer)] == having or task == "kv"
        kinds = [{ask.begin.split()[1:3][0] for ask in context.asks[arm]} for arm in sorted(arms)]
        assert task == "kv" or len(kinds[1]) == 1, "all documents of a context compete"
    again = make_contexts(Task(task, places=places), 3, seed=1)
    assert contexts == again != make_contexts(Task(task, places=places), 3, seed=2)


def test_pairs_are_json_and_the_first_stands_as_the_others_do():
    asks = make_contexts(Task("kv", places=4), 1, 0)[0].asks["competing"]
    written = "".join(text for _, text in pieces("kv", asks[0]))
    pairs = json.loads(written[written.index("{") : written.index("}") + 1])
    assert list(pairs)[0] in asks[0].begin and f'"{pairs[[*pairs][2]]}' == asks[2].answer
    assert written.startswith("Answer the question from this JSON object.\n\n{")


def test_an_answer_in_two_documents_is_told_and_strange_documents_never_have_it():
    rows = [
        {"documents": ["a 1", "b 1", "c"], "question": "q", "answer": "1", "gold": 0},
        {"documents": ["d 1", "e 2", "f"], "question": "q", "answer": "2"},
        {"documents": ["g 3", "h", "i"], "question": "q", "answer": "3"},
    ]
    contexts = row_contexts(read_rows(rows))
    assert [context.twice for context in contexts] == [True, False, False]
    assert contexts[0].asks["not_competing"][1].documents == ("h", "a 1", "i"), "the next row has a 1"
    assert contexts[1].asks["competing"][2].documents == ("d 1", "f", "e 2")
    alone = row_contexts(read_rows(rows[:1]))
    assert set(alone[0].asks) == {"competing", "closed_book", "oracle"}


def test_an_answer_follows_its_prompt_as_one_text_does():
    tokenizer = byte_tokenizer()
    one = write_prompt(tokenizer, "documents", Ask(("x", "y"), "q", "an answer", "It is"), False, False)
    assert one.text.endswith("Question: q\nAnswer: It is") and one.answer == " an answer"
    assert tokenizer.decode([*one.ids, *one.answer_ids]) == one.text + one.answer
    with pytest.raises(ValueError, match="^answer: expected a token or more, received ' a'"):
        answer_tokens(lambda text: {"input_ids": []}, "q", [], " a")


def test_a_single_row_without_first_words_has_the_models_own_answers_scored():
    begun, bare = Ask(("It is 1.",), "what?", "1", "It is"), Ask(("It is 2.",), "what?", "2")
    given = ([begun, begun], [begun, bare], [bare, bare], None)
    found = [Task("documents").scored(rows).score for rows in given]
    assert found == ["exact", "contains", "contains", "exact"]
    asked = Task("documents", score="exact").scored([begun, bare])
    assert asked.score == "exact", "what is asked for stays"


@pytest.mark.parametrize(("score", "begun"), [("contains", {""}), ("exact", {"It is"})])
def test_an_answer_of_the_models_own_is_not_begun_for_it(score, begun):
    rows = read_rows([{"documents": ["a 1", "b"], "question": "q", "answer": "1", "begin": "It is"}] * 2)
    for context in choose_contexts(Task("documents", score=score), rows, 2, 0):
        assert {ask.begin for asks in context.asks.values() for ask in asks} == begun


def correct(first, middle, last, C=40, P=6):
    """Return answers by context and place with these shares of right ones."""
    shares = [first, *[middle] * (P - 2), last]
    found = np.array([(np.arange(C) + k * 7) % C < round(share * C) for k, share in enumerate(shares)], dtype=float)
    return found.T


@pytest.mark.parametrize(
    ("shares", "lost"),
    [
        ((1, 0.3, 1), "yes"), ((0.9, 0.5, 0.8), "yes"), ((0.1, 0.3, 1), "no"), ((1, 1, 1), "no"),
        ((0.5, 0.9, 1), "no"), ((0.55, 0.5, 0.9), "open"), ((0.62, 0.5, 0.6), "open"),
    ],
)  # fmt: skip
def test_the_middle_is_lost_if_both_ends_are_found_more_often(shares, lost):
    found = scores.judge(correct(*shares))
    assert found.lost == lost
    assert found.weaker.mean == pytest.approx(min(shares[0], shares[2]) - shares[1], abs=0.01)
    assert found.weaker.low <= found.weaker.mean <= found.weaker.high
    assert (found.first, found.last) == pytest.approx((shares[0], shares[2]), abs=0.02)


def said_of(answers):
    """Return the verdict on answers by context and place."""
    made = xr.DataArray(answers[None], dims=("arm", "context", "place"), coords={"arm": ["competing"]})
    return verdict(xr.Dataset({"correct": made}, attrs={"rows": "given"}))


def test_a_middle_that_is_not_lost_is_so_up_to_the_end_of_the_interval():
    """Of 40 contexts that all agree, 3 / 40 on either side of no difference."""
    said = said_of(np.ones((40, 4)))
    assert "no, at most by 0.07: the weaker end less the middle is 0.00 (-0.07 to 0.07" in said
    assert "; a difference below 0.07 would hardly be seen" in said
    assert "no, at most by 0.00: the weaker end less the middle is -" in said_of(correct(0.1, 0.9, 1))


RIGHT = {"competing": (36, 12, 8, 32), "not_competing": (39, 30, 24, 31), "closed_book": (9,) * 4}
NATS = np.array([-3.0, -1.0, -2.0, -4.0])
"""Right answers of 40 by arm and place; log-probabilities by place, of each arm half a nat less than of the last."""


@pytest.fixture
def found():
    """Return a lookup of 40 contexts in which accuracy and log-probability have other places best and worst."""
    order = np.arange(40)
    right = [[(order + 7 * k) % 40 < x for k, x in enumerate(row)] for row in RIGHT.values()]
    noise = np.sin(2 * np.pi * order / 40)[:, None]
    told = [NATS - arm / 2 + noise * (1 + np.arange(4)) for arm in range(3)]
    dims = ("arm", "context", "place")
    arrays = {"correct": (dims, np.transpose(right, (0, 2, 1)).astype(float)), "log_probability": (dims, told)}
    arrays["twice"] = ("context", (order < 2).astype(np.int8))
    attrs = {"model": "reference/m", "task": "documents", "dataset": "invented facts", "rows": "made up"}
    attrs |= {"form": "plain text", "tokens": 321}
    return Found(xr.Dataset(arrays, {"arm": [*RIGHT]}, attrs))


def test_what_a_lookup_says(found):
    """Every number by hand: shares of 40, differences of 40 contexts, p values that no permutation undercuts."""
    right = found.results["correct"].values[0]
    apart = right[:, -1] - right[:, 1:-1].mean(1)
    spread = apart.std(ddof=1) / 40**0.5
    lines = repr(found).splitlines()
    facts = "4 documents in a prompt of 321 tokens (invented facts, plain text), 40 sets"
    assert lines[0] == f"m, questions about documents: {facts}"
    told = re.fullmatch(
        r"The middle is lost: yes, by 0\.55 \((\S+) to (\S+); p 0\.0005, paired over 40 sets\)\. "
        r"Right are 0\.90 at the first place, 0\.25 at places 2 to 3, 0\.80 at the last\.",
        lines[1],
    )
    expected = [0.55 - 1.96 * spread, 0.55 + 1.96 * spread]
    np.testing.assert_allclose([float(x) for x in told.groups()], expected, atol=0.02)
    assert lines[2:] == [
        "With all documents: accuracy 0.90 0.30 0.20 0.80; log-probability -3.00 -1.00 -2.00 -4.00",
        "Among documents of other questions: accuracy 0.97 0.75 0.60 0.78; log-probability -3.50 -1.50 -2.50 -4.50",
        "Without documents: accuracy 0.23; log-probability -3.50",
        "By accuracy places differ (p 0.0005): best document 1 (0.90), worst document 3 (0.20). By log-probability "
        "places differ (p 0.0005): best document 2 (-1.00), worst document 4 (-4.00).",
        "Where wrong answers are from: cannot tell (reading: expected a lookup that kept which document each answer "
        "is from, received an older one)",
        "Many answers are known without documents: where they stand matters less than it could",
        "Another document holds the answer too, so that its source cannot be told, in 2 of 40 sets",
    ]
    found.results["correct"][2] *= np.arange(40)[:, None] > 2  # 15 % are known
    found.results["log_probability"][:] = found.results["correct"]
    found.results.attrs.update(task="kv", rows="given", without_begin=3)
    found.results["twice"][:] = 0
    lines = repr(found).splitlines()
    assert lines[0] == facts.join(("m, key-value lookup: ", "")).replace(
        "documents", "pairs").replace("invented facts", "rows given").replace("sets", "rows")  # fmt: skip
    assert len(lines) == 7 and lines[5].endswith("best pair 1 (0.90), worst pair 3 (0.20).")
    found.results["log_probability"][:] = np.arange(40)[:, None]
    assert "By log-probability places differ at the ends alone, not all at once (p 1)" in repr(found)
    found.results["correct"][0] = np.outer(np.arange(40) < 4, [1, 0, 0, 0])
    assert "cannot tell, since 2% of the answers are right, fewer than 5%; 3 rows lack `begin`" in found.verdict
    assert "By log-probability places are not told apart (p 1)" in repr(found)


@pytest.mark.parametrize(("p", "said"), [(0.05, "differ (p 0.05)"), (0.051, "are not told apart (p 0.051)")])
def test_places_are_told_apart_at_a_level_of_5_percent(found, monkeypatch, p, said):
    found.results["correct"][:] = 1
    monkeypatch.setattr("posbias.lookup.file.difference_p_value", lambda *_: p)
    assert f"By accuracy places {said}: " in ends_text(found.results)


def test_a_middle_that_is_lost_is_not_said_to_be_like_the_ends(found):
    """Eight rows of eight places: the ends are told apart from the middle (p 0.02), not all places (p 0.077)."""
    right = np.unpackbits(np.array([[0xC1, 0x9F, 0, 0, 1, 0xA0, 0xF1, 0x85]], np.uint8)).reshape(1, 8, 8)
    arrays = {"correct": (("arm", "context", "place"), right.astype(float)), "twice": ("context", np.zeros(8))}
    attrs = found.results.attrs | {"score": "contains", "cut": 0}
    said = repr(Found(xr.Dataset(arrays, {"arm": ["competing"]}, attrs)))
    assert "The middle is lost: yes, by 0.42 (0.15 to 0.65; p 0.02, paired over 8 sets). Right are" in said
    assert "By accuracy places differ at the ends alone, not all at once (p 0.077): " in said


def clopper_pearson(right):
    """Return the ends of 95% intervals of shares of 40, by quantiles of beta distributions."""
    k = np.array(right)
    return np.nan_to_num(beta.ppf(0.025, k, 41 - k)), np.nan_to_num(beta.ppf(0.975, k + 1, 40 - k), nan=1.0)


def test_tables_and_figures_have_each_arms_own_intervals(found, tmp_path, monkeypatch):
    table = found.to_pandas()
    assert table.index.names == ["arm", "place"]
    spread = 1.96 * (1 + np.arange(4)) / 80**0.5  # of a sine, whose variance is 1/2
    for k, (arm, right) in enumerate(RIGHT.items()):
        one, (low, high) = table.loc[arm], clopper_pearson(right)
        assert one.index.tolist() == [0, 1, 2, 3]
        np.testing.assert_allclose(one[["correct", "correct_low", "correct_high"]].T, [np.array(right) / 40, low, high])
        mean = NATS - k / 2
        ends = one[["log_probability", "log_probability_low", "log_probability_high"]].T
        np.testing.assert_allclose(ends, [mean, mean - spread, mean + spread], atol=0.1)
    drawn = []
    monkeypatch.setattr("matplotlib.pyplot.close", lambda figure=None: drawn.append(figure))
    found.figure(tmp_path / "f.svg")
    (axes,) = drawn[0].axes
    lines = {line.get_label(): line for line in axes.lines}
    assert [*lines] == ["with all documents", "among documents of other questions", "without documents"]
    assert [*lines["without documents"].get_ydata()] == [9 / 40] * 2 and axes.get_ylabel() == "share of right answers"
    assert axes.get_ylim()[0] < 0 and axes.get_ylim()[1] > 1 and axes.get_xticks().tolist() == [1, 2, 3, 4]
    for arm, line, bars in zip(RIGHT, lines.values(), axes.collections, strict=False):
        np.testing.assert_allclose(line.get_xydata(), np.c_[1:5, np.array(RIGHT[arm]) / 40])
        ends = np.stack(clopper_pearson(RIGHT[arm]), 1)
        np.testing.assert_allclose(bars.get_segments(), [[(k, a), (k, b)] for k, (a, b) in enumerate(ends, 1)])
        assert np.allclose(bars.get_color()[0][:3], plt.matplotlib.colors.to_rgb(line.get_color()))
    assert (
        drawn[0].get_suptitle().replace("\n", " ")
        == f"{repr(found).splitlines()[0].replace(': ', '. ')}. Bars: 95% intervals."
    )
    assert drawn[0].get_supxlabel().replace("\n", " ") == found.verdict
    found.results.attrs["task"] = "kv"
    assert found.figure(tmp_path / "f.svg") and drawn[1].axes[0].lines[0].get_label() == "with all pairs"


def test_as_many_contexts_as_it_says_would_show_the_difference():
    few = correct(0.8, 0.5, 0.7, C=10)
    wanted = int(re.search(r"takes about (\d+) rows", said_of(few))[1])
    found = scores.judge(np.tile(few, (round(wanted / 10), 1))).weaker
    assert found.visible == pytest.approx(found.mean, rel=0.1)


def test_intervals_of_contexts_are_those_of_their_mean():
    """Of 40 contexts resampled, about 1.96 standard errors on either side; of places, and of a difference of two."""
    values = np.random.default_rng(0).normal(3, 1, size=(40, 2))
    ends = 1.96 * values.std(0) / 40**0.5
    mean, low, high = scores.mean_with_interval(values, is_share=False)
    np.testing.assert_allclose([low, high], [mean - ends, mean + ends], atol=0.03)
    one = scores.paired_difference(values[:, 0])
    np.testing.assert_allclose([one.low, one.high], [mean[0] - ends[0], mean[0] + ends[0]], atol=0.03)


def test_few_contexts_lose_no_middle():
    assert [scores.judge(correct(1, 0, 1, C=C)).lost for C in (2, 5, 6)] == ["open", "open", "yes"]


def test_the_verdict_is_as_often_wrong_as_it_says():
    """Of places that do not differ hardly any sample shows a lost middle; of a loss as large as is visible, most do."""
    rng, wrong, seen, visible = np.random.default_rng(0), 0, 0, []
    for _ in range(60):
        level = scores.judge((rng.random((40, 6)) < 0.6).astype(float))
        wrong += level.lost == "yes"
        visible.append(level.weaker.visible)
    for _ in range(60):
        middle = 0.9 - np.mean(visible)
        chances = [0.9, *[middle] * 4, 0.9]
        found = scores.paired_difference(
            (x := (rng.random((40, 6)) < chances).astype(float))[:, 0] - x[:, 1:-1].mean(1)
        )
        seen += found.low > 0
    assert wrong <= 4 and seen >= 40 and 0.15 < np.mean(visible) < 0.35


@pytest.mark.parametrize("right", [0.3, 0.85])
def test_few_contexts_that_happen_to_be_right_at_one_end_do_not_mislead(right):
    """The first place is always found, the last one as often as the middle: intervals alone said yes in a quarter."""
    rng, chances = np.random.default_rng(0), [1, *[right] * 7]
    said = [scores.judge((rng.random((8, 8)) < chances).astype(float)).lost for _ in range(60)]
    assert said.count("yes") <= 4


def test_both_ends_must_pass_the_exact_test():
    """Of these both intervals are above 0, and the exact test finds the first place alone, the last with p = .11."""
    rows = "10011001 10101001 11001001 10100111 10010010 10001000 10000100 10010001"
    found = scores.judge(np.array([list(row) for row in rows.split()], float))
    assert found.lost == "open" and found.weaker.low > 0 and found.p == pytest.approx(0.11, abs=0.02)


def test_an_end_is_exchanged_with_the_others_of_its_context():
    """By hand: of two contexts with one right answer of three, both are at the first place in a ninth of all draws."""
    assert scores.exchange_p_value(np.array([[1.0, 0, 0], [1, 0, 0]])) == pytest.approx(1 / 9, abs=0.03)
    assert scores.exchange_p_value(np.array([[0.0, 1, 1]] * 9)) < 0.01, "an end that is worse differs, too"


def test_places_differ_only_where_they_do():
    rng = np.random.default_rng(2)
    assert scores.difference_p_value(np.arange(8) + rng.normal(size=(12, 8))) == 1 / 2001
    nothing = [scores.difference_p_value(rng.normal(size=(12, 8)), seed=k) for k in range(20)]
    assert np.mean(np.array(nothing) <= 0.05) <= 0.2 and np.std(nothing) > 0.15
    assert scores.difference_p_value(rng.normal(size=(12, 1)) * np.ones(8)) == 1, "a context's own level is no place"


@pytest.mark.parametrize("template", [False, True])
@pytest.mark.parametrize("task", ["documents", "kv"])
def test_spans_say_where_the_parts_of_a_prompt_are(task, template):
    """Of a tokenizer of bytes each token is a letter, so that a span's text is the part's own."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    ask = Ask(("a: 1", "b: 2"), "which?", "1", "It is", layout=("question", *LAYOUT))
    prompt = write_prompt(tokenizer, task, ask, template, True)
    texts = [(span.part, tokenizer.decode(prompt.ids[span.start : span.stop])) for span in prompt.spans]
    front = {False: [], True: ["<user>"]}[template]
    documents = {"documents": ["Document 1: a: 1\n\n", "Document 2: b: 2"], "kv": ["a: 1,\n ", "b: 2}"]}[task]
    told = "Answer the question from these documents.\n\n" if task == "documents" else None
    assert [part for part, _ in texts if part != "start"] == [
        "question", "instruction", "document", "document", "question", "begin",
    ]  # fmt: skip
    assert [text for part, text in texts if part == "document"] == documents
    assert "".join(text for part, text in texts if part != "start") == prompt.text
    assert dict(texts)["begin"].strip() == "It is" and dict(texts)["question"].startswith("\n\nQuestion: which?")
    assert told is None or dict(texts)["instruction"].strip() == told.strip()
    assert prompt.texts[0].startswith("".join([*front, "Question: which?"])) and len(prompt.texts) == 5
    assert prompt.message == (prompt.text[len("<user>") :].split("\n<assistant>")[0] if template else "")
    gone = prompt.without(2)
    assert documents[0] not in gone.text and len(gone.ids) == len(prompt.ids) - len(documents[0])
    assert tokenizer.decode(gone.ids).removeprefix("<s>") == gone.text
    assert gone.texts == (*prompt.texts[:2], *prompt.texts[3:]), "what stands behind moved up, in text as in tokens"
    again = gone.without(1)
    assert again.texts == (prompt.texts[0], *prompt.texts[3:])
    assert tokenizer.decode(again.ids).removeprefix("<s>") == again.text


@pytest.mark.parametrize(
    ("template", "begin", "answer"), [(True, "", "1"), (True, "It is", " 1"), (False, "", " 1"), (False, "It is", " 1")]
)
def test_a_space_stands_before_an_answer_unless_a_template_ends_before_it(template, begin, answer):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    assert write_prompt(tokenizer, "documents", Ask(("x", "y"), "q", "1", begin), template, True).answer == answer


def test_a_template_that_rewrites_the_message_leaves_no_spans():
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE.replace("m['content']", "m['content'] | upper")
    assert not write_prompt(tokenizer, "documents", Ask(("x", "y"), "q", "a"), True, False).spans
