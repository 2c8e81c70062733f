"""Real questions and alarms, as their thresholds say, and the page before they were asked."""

import numpy as np
import pytest
import xarray as xr

from studies.remedies import checks, real, searched
from studies.remedies.evidence import Evidence, Signals, gains_shown
from studies.remedies.tables import WORDS
from studies.results import load


def entry(remedies, correct, heads):
    """Return an entry of passages that were chosen, of questions at four places."""
    Q = len(heads)
    found = xr.Dataset(coords={"place": [0, 3, 5, 7], "remedy": remedies})
    each = np.stack([correct] * len(remedies), axis=1)
    for name in ("correct", "kept"):
        found[name] = ("question", "remedy", "place"), each
    for name in ("requests", "tokens_read"):
        found[name] = ("question", "remedy"), np.ones((Q, len(remedies)))
    found["heads"] = ("question", "place", "document"), np.eye(8)[heads]
    found["all_heads"] = ("question", "place"), np.zeros((Q, 4), int)
    found["likelihood"] = ("question", "document"), np.eye(8)[np.zeros(Q, int)]
    found["rank"] = "question", np.arange(Q) % 2
    return found


def asked(as_is):
    """Return what was asked without a remedy, of more questions, at eight places."""
    Q = len(as_is) + 5
    eight = xr.Dataset(coords={"place": range(8)})
    every = np.zeros((Q, 8), int)
    every[: len(as_is), [0, 3, 5, 7]] = as_is
    floors = xr.Dataset(coords={"given": ["none", "right"]})
    for name in ("correct", "tokens", "written"):
        eight[name] = ("question", "place"), every
        floors[name] = ("question", "given"), np.tile([0, 1], (Q, 1))
    eight["source"] = ("question", "place"), every * 0 - 1
    eight["holding"] = ("question", "place"), every * 0
    return {"smollm2.eight": eight, "smollm2.floors": floors}


AT = np.tile([0, 3, 5, 7], (20, 1))
SOME = (np.arange(80).reshape(20, 4) % 3 == 0).astype(int)


@pytest.mark.parametrize(
    ("alone", "heads", "expected", "word"),
    [
        (np.ones((20, 4), int), AT, [(True, False), (True, False)], "helps"),
        (SOME, AT * 0, [(False, False), (True, True)], "undecided"),
        (SOME * 0, AT, [(True, False), (False, False)], "does harm"),
    ],
)
def test_real_questions_are_judged_as_their_thresholds_say(alone, heads, expected, word):
    one = entry(["heads-alone"], alone, heads)
    seen = Evidence({"smollm2.questions": one}, asked(SOME))
    found = checks.real_checks(seen, np.random.default_rng(0))
    assert [(x.passed, x.how.get("undecided", False)) for x in found[:2]] == expected
    assert seen.real.tried["verdict"].to_dict() == {"heads-alone": word}
    assert seen.real.pointed["search"].mean() == 0.5
    assert seen.real.table.loc["oracle", "right"] == 1
    assert real.numbers(seen.real)["real_questions"] == 20


def test_new_questions_are_compared_way_by_way_and_by_planned_pairs():
    right = {"as-is": 10, "search-last": 30, "likely-last": 32, "search-alone": 40, "one-by-one-likely": 70}
    ways = {name: (np.arange(100) < count).astype(int) for name, count in right.items()}
    rows = np.stack(list(ways.values()), 1)
    of_ways = ("question", "remedy")
    arrays = {name: (of_ways, rows) for name in ("correct", "kept", "requests", "tokens_read")}
    arrays["likeliest"] = ("question", ways["one-by-one-likely"])
    one = xr.Dataset(arrays, {"remedy": list(ways)})
    seen = searched.Confirmed(one)
    assert seen.table.loc["one-by-one-likely", ["gain", "verdict"]].tolist() == [pytest.approx(0.6), "helps"]
    assert seen.read_of_chosen("search-alone") == 1, "an answer is right here where its passage was kept"
    found = [checks.pair_check(seen, *pair, "none") for pair in searched.PAIRS_AGAIN]
    assert [(x.passed, x.how["undecided"]) for x in found] == [(True, False), (True, True), (True, False)]
    worse = searched.Confirmed(one.assign(correct=1 - one["correct"]))
    assert not checks.pair_check(worse, *searched.PAIRS_AGAIN[0], "none").passed


def test_a_remedy_of_fewer_questions_is_compared_with_those_it_has():
    fewer = entry(["x"], SOME[:6], AT[:6]).isel(remedy=0)
    one = entry(["heads-alone"], SOME, AT)
    kept = {"smollm2.questions": one, "smollm2.questions-numbered": fewer}
    table = Evidence(kept, asked(SOME)).real.table
    assert table.loc["numbered", ["sets", "gain"]].tolist() == [6, 0]


def test_an_alarm_is_judged_on_the_second_half_of_the_sets():
    wrong = np.tile([True, False], (8, 4))
    pointed = np.zeros((8, 8), int)
    costly = np.where(wrong, 1, 0)
    costly[:4] = 1 - costly[:4]
    judged = Signals(wrong, pointed, costly, costly).judged
    assert judged.alarm[:2] == (1, 0) and checks.is_alarm(judged.rings, judged.wrong)
    first = Signals(wrong[:4], pointed[:4], costly[:4], costly[:4])
    assert first.alarm[:2] == (0, 1) and not checks.is_alarm(first.rings, first.wrong)


def test_what_a_search_hands_over_is_what_others_are_compared_with():
    one = entry([*searched.ALONE], SOME, AT)
    one["correct"][:, 1:] = 0
    one["rank"] = "question", np.arange(20) % 8
    questions = asked(SOME)
    questions["smollm2.eight"]["correct"][0, 0] = 1  # the search has it first for this question
    questions["smollm2.eight"]["correct"][1, 0] = 1  # and second for this one
    last = one.sel(remedy="heads-alone").isel(question=slice(10))
    last["correct"] = xr.ones_like(last["correct"])
    found = searched.Searched(
        Evidence({"smollm2.questions": one, "smollm2.questions-search-last": last}, questions).real
    )
    by_hand = np.array([questions["smollm2.eight"]["correct"].values[q, q % 8] for q in range(20)])
    assert (found.right["as-is"][:, 0] == by_hand).all() and by_hand[0] == 1 and by_hand[1] == 0
    assert found.table.loc["search-last", "gain"] == pytest.approx(1 - by_hand[:10].mean())
    assert found.table.loc["search-alone", "right"] == pytest.approx(SOME.mean())
    assert found.pairs["gain"].tolist() == pytest.approx([SOME.mean(), SOME.mean(), 0])
    assert found.pairs["p"].iloc[2] == 1 and (found.pairs["p"].iloc[:2] <= 0.05).all()


def test_an_alarm_on_real_questions_counts_answers_that_one_passage_holds():
    one = entry(["heads-alone"], SOME, AT)
    questions = asked(SOME)
    eight = questions["smollm2.eight"]
    source = np.full(eight["correct"].shape, -1)
    source[0, [0, 3, 5, 7]] = [0, 3, 2, -1]
    source[1, [0, 3]] = [4, 1]
    eight["source"] = ("question", "place"), source
    found = real.count_alarms(Evidence({"smollm2.questions": one}, questions).real)
    right = SOME[[0, 0, 0, 1, 1], [0, 1, 2, 0, 1]]
    rings = np.array([0, 0, 1, 1, 1])
    counts = ((1 - right).sum(), ((1 - right) * rings).sum(), right.sum(), (right * rings).sum())
    assert found == (80, *map(int, counts))


def test_what_is_kept_of_a_searchs_order_answers_as_the_same_prompts_did_before():
    """Half of these questions were asked at every place, too; 16 bits and other batches move an answer or two."""
    kept, before = load("remedies")[searched.NEW], load("questions")["smollm2.eight"]
    first = int(kept.attrs["first"])
    both = range(len(before["question"]) - first)
    same = [
        before["correct"].values[first + k, kept["rank"].values[k]] == kept["correct"].sel(remedy="as-is").values[k]
        for k in both
    ]
    assert len(same) == 50 and sum(same) >= 46
    assert ((kept["rank"] == 0) == kept["kept"].sel(remedy="search-alone")).all(), "a search's first passage"


def explained(right, named, pointed):
    """Return an entry of answers that deletion explained, of as many passages as are named."""
    named = np.array(named)
    falls = -np.eye(named.max() + 1)[named]
    found = {"right": ("answer", right), "fetched": ("answer", pointed), "removed": (("answer", "document"), falls)}
    return xr.Dataset(found)


def test_an_alarm_on_real_questions_counts_right_answers_of_one_file_and_wrong_ones_of_the_other():
    known = explained([1, 1, 0], named=[0, 1, 1], pointed=[0, 0, 0])
    drawn = explained([0, 0, 1], named=[1, 1, 1], pointed=[1, 0, 0])
    seen = Evidence({"smollm2.real-sources": known, "smollm2.real-alarm": drawn}, {})
    rings, wrong = real.read_alarms(seen.real)
    assert rings.tolist() == [False, True, False, True] and wrong.tolist() == [False, False, True, True]
    check = checks.deletion_alarm_check(seen, np.random.default_rng(0))
    assert not check.passed and check.how["in_part"]
    quiet = explained([1] * 20, named=[0, 1] * 10, pointed=[0, 1] * 10)
    loud = explained([0] * 20, named=[0, 1] * 10, pointed=[1, 0] * 10)
    seen = Evidence({"smollm2.real-sources": quiet, "smollm2.real-alarm": loud}, {})
    check = checks.deletion_alarm_check(seen, np.random.default_rng(0))
    assert check.passed and not any(check.broken["rings exchanged"])


def test_a_gain_that_was_looked_at_three_times_is_open_where_three_times_p_is_large():
    table = real.Real({"smollm2.questions": entry(["heads-alone"], np.ones((20, 4), int), AT)}, asked(SOME)).table
    sure, open_ = table.copy(), table.copy()
    sure.loc["heads-alone", ["verdict", "p"]] = "helps", 0.016
    open_.loc["heads-alone", ["verdict", "p"]] = "helps", 0.017
    said = [gains_shown(x, "questions", looks=looks)["verdict"] for x, looks in ((sure, 3), (open_, 3), (open_, 1))]
    assert [x[WORDS["heads-alone"]] for x in said] == ["helps", "open (3 looks)", "helps"]


def test_right_answers_are_counted_where_the_first_hit_is_right_and_where_it_is_wrong():
    ways = ["search-last", "search-alone", "one-by-one-likely"]
    correct = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 0], [0, 0, 1]])
    new = xr.Dataset(
        {"correct": (("question", "remedy"), correct), "rank": ("question", [0, 0, 1, 3])}, {"remedy": ways}
    )
    floors = xr.Dataset({"correct": (("question", "given"), np.ones((6, 1)))}, {"given": ["right"]})
    seen = real.Real({searched.NEW: new.assign_attrs(first=2)}, {"smollm2.floors": floors})
    found = searched.new_numbers(seen)
    assert (found["ordered_found"], found["ordered_missed"]) == (2, 2)
    assert [found[f"ordered_found_search_{x}"] for x in ("last", "alone")] == [1, 2]
    assert [found[f"ordered_missed_search_{x}"] for x in ("last", "alone")] == [1, 0]
    assert found["ordered_left"].startswith("0.25") and found["ordered_likely_over_last"].startswith("+0.25")
