"""What the page on reading prints: numbers by hand, from answers drawn from a law."""

import numpy as np
import pytest
import xarray as xr

from posbias.lookup.reading import fit_choices, shares
from studies.reading import (
    checks,
    evidence,
    foretold,
    kinds,
    network,
    predicted,
    questions,
    rivals,
    tables,
    trained,
    wrong,
)

PULLS = np.array([1.0, 0, 0, 0, 0, 0, 0, 2.0])
LAW = shares(PULLS, 0.8)


def entry(p, sets, seed):
    rng = np.random.default_rng(seed)
    source = np.array([[rng.choice(len(p), p=row) for row in p] for _ in range(sets)])
    asked = np.tile(np.arange(len(p)), (sets, 1))
    return xr.Dataset({"asked": (("set", "question"), asked), "source": (("set", "question"), source)})


@pytest.fixture(scope="module")
def drawn():
    """Return evidence of two halves of 60 sets that follow a law."""
    return evidence.Evidence({"eight": entry(LAW, 60, 0), "eight-new": entry(LAW, 60, 1)})


def test_shares_drawn_from_a_law_are_calibrated_and_others_are_not(drawn):
    table = evidence.calibration(drawn)
    assert (table["expected"].diff()[1:] > 0).all()
    inside = (table["low"] <= table["expected"]) & (table["expected"] <= table["high"])
    assert inside.sum() >= 7 and np.abs(table["expected"] - table["seen"]).max() < 0.05
    other = evidence.Evidence({"eight": entry(LAW, 60, 0), "eight-new": entry(shares(-PULLS, 0.1), 60, 1)})
    assert np.abs(evidence.calibration(other).eval("expected - seen")).max() > 0.1


def test_the_law_holds_where_it_is_drawn_and_not_where_documents_are_exchanged(drawn):
    rng = np.random.default_rng(0)
    assert checks.law_holds(drawn.first, drawn.new)
    assert not checks.law_holds(checks.exchanged(rng, drawn.first), checks.exchanged(rng, drawn.new))
    assert evidence.deviance(drawn.first, drawn.new) < checks.LIMIT
    assert checks.both_pull(drawn.sets["eight"], 60) and checks.none_left(drawn.sets["eight"], 60)


def test_tables_are_fitted_at_once_as_one_by_one():
    several = 1e4 * np.stack([LAW, shares(PULLS[::-1], 0.4)])
    first = [tables.pull(several, 0), [tables.pull(x, 0) for x in several], [1, 2]]
    last = [tables.pull(several, -1), [tables.pull(x, -1) for x in several], [2, 1]]
    for together, alone, known in (first, last):
        np.testing.assert_allclose(together, alone, rtol=1e-6)
        np.testing.assert_allclose(together, known, atol=0.01)
    near = [evidence.near_share(several), [evidence.near_share(x) for x in several]]
    np.testing.assert_allclose(*near, rtol=1e-12)
    drawn = checks.drawn_from(np.random.default_rng(1), LAW, 30)
    middle, low, high = tables.of_resamples(drawn, lambda counts: tables.pull(counts, -1), 100)
    assert low < middle < high and middle == pytest.approx(float(tables.pull(drawn.sum(0), -1)))


def test_answers_are_drawn_as_expected():
    found = checks.drawn_from(np.random.default_rng(0), LAW, 4000)
    assert found.shape == (4000, 8, 8) and (found.sum(2) == 1).all()
    assert np.abs(found.mean(0) - LAW).max() < 0.04


def test_a_slot_is_told_from_reading_order():
    slots = np.array([0, 4, 1, 5, 2, 6, 3, 7])
    apart = np.abs(np.subtract.outer(slots, slots))
    order, slot = network.two_gammas(1000 * shares(np.zeros(8), 0.7, apart), slots)
    assert abs(order) < 0.01 and slot == pytest.approx(0.7, abs=0.01)


def asked(monkeypatch, source):
    right = (source == np.arange(source.shape[1])).astype(float)
    arrays = {"source": (("question", "place"), source), "correct": (("question", "place"), right)}
    kept = {questions.ENTRY: xr.Dataset(arrays)}
    monkeypatch.setattr(questions, "load", lambda _: kept)
    found = questions.texts(0.7)
    assert found["questions_scope"].startswith(questions.SCOPE[found["questions_verdict"]])
    return found["questions_said"], found["questions_verdict"]


def test_of_questions_it_is_said_where_wrong_answers_are_from(monkeypatch):
    text, verdict = asked(monkeypatch, np.tile([1, 0, 0, 3], (20, 1)))
    assert "67% of 60 mistakes are from a neighbour (67%" in text and "γ is" in text and verdict == "yes"
    text, verdict = asked(monkeypatch, np.tile([3, 1, 2, 0], (20, 1)))
    assert " 0% of 40 mistakes" in text and verdict == "no"
    few = np.full((20, 4), -1)
    few[:12, 0] = 1
    text, verdict = asked(monkeypatch, few)
    assert text.endswith("too few to fit the law.") and verdict == "open"
    text, verdict = asked(monkeypatch, np.tile([-1, -1, -1, 3], (20, 1)))
    assert text.endswith("too few to say from where.") and verdict == "open"


def test_facts_of_eight_kinds_are_told_from_competing_ones():
    special = np.exp(np.log(LAW) + 3 * np.eye(8))
    for p, bonus, near in ((special, True, False), (LAW, False, False), (np.eye(8) * 0.9 + 0.0125, True, True)):
        found = checks.other_checks(evidence.Evidence({"others": entry(p / p.sum(1, keepdims=True), 60, 0)} | halves()))
        assert [check.passed for check in found] == [bonus, near]


def halves():
    return {"eight": entry(LAW, 20, 0), "eight-new": entry(LAW, 20, 1)}


def test_each_threshold_has_its_verdict():
    def made(passed, how):
        return checks.Check("L-apart", "", "", passed, "", "", {}, "", how)

    said = [foretold.verdict(made(*x)) for x in ((1, {}), (1, {"undecided": True}), (0, {"in_part": True}), (0, {}))]
    assert said == ["yes", "open", "in part", "no"]
    with pytest.raises(KeyError, match="kinds"):
        foretold.foretold_table([made(True, {})], {})
    ends = {"x_low": 0.1, "x_high": 0.2}
    assert [foretold.size_met(x, "x", ends) for x in (0.15, 0.25)] == ["yes", "no"]
    assert foretold.size_met(0.15, "x", {"x_low": 0.05, "x_high": 0.4}) == foretold.WIDE


def test_chance_is_weighted_by_mistakes():
    counts = np.zeros((8, 8))
    counts[0, 7] = counts[3, 4] = 1  # the first document has one neighbour, the fourth two and an end that is none
    found = evidence.wrong_numbers(counts)
    assert wrong.SHARES["near"](wrong.alike(counts)) == pytest.approx(3 / 14)
    assert found["later"] == 1 and found["later_chance"] == pytest.approx(11 / 14)
    assert wrong.SHARES["inner"](wrong.alike(counts)) == pytest.approx(2 / 7)


def test_pulls_alone_know_no_distance():
    pulls = np.array([1.0, 2, 4, 1, 1, 1, 1, 8])
    shares = pulls / (pulls.sum() - pulls[:, None])  # of wrong answers, whatever the distance
    counts = 1000 * shares * (1 - np.eye(8)) + 300 * np.eye(8)
    np.testing.assert_allclose(tables.by_pulls(counts), counts * (1 - np.eye(8)), rtol=1e-3)
    near = np.abs(np.subtract.outer(range(8), range(8))) == 1
    assert tables.by_pulls(counts + 500 * near)[near].sum() < (counts + 500 * near)[near].sum()


def test_a_trend_reads_later_documents_if_later_ones_are_asked_for():
    along = np.linspace(-1, 1, 8)
    shares = np.exp(0.8 * np.outer(along, along)) * (1 - np.eye(8))
    counts = 1000 * shares / shares.sum(1, keepdims=True) + 300 * np.eye(8)
    np.testing.assert_allclose(tables.by_pulls(counts, "trend"), counts * (1 - np.eye(8)), rtol=1e-3)
    assert np.abs(tables.by_pulls(counts) - counts * (1 - np.eye(8))).max() > 10
    assert np.abs(tables.by_pulls(counts, "distance") - counts * (1 - np.eye(8))).max() > 3


def test_wrong_answers_are_counted_near_away_from_the_ends_later_and_last():
    counts = np.zeros((8, 8))
    counts[0, 1] = counts[3, 4] = counts[4, 1] = counts[2, 7] = 1
    counts[5, 5] = 9
    assert {name: share(counts) for name, share in wrong.SHARES.items()} == {
        "near": 0.5, "inner": pytest.approx(1 / 3), "later": 0.75, "last": 0.25,
    }  # fmt: skip
    assert wrong.SHARES["near"](wrong.alike(counts)) == pytest.approx((1 + 2 + 2 + 2) / 28)


def test_of_sixteen_documents_wrong_and_right_answers_are_counted(drawn):
    counts = np.zeros((16, 16))
    counts[1, 0] = counts[2, 8] = counts[10, 9] = counts[11, 15] = counts[6, 6] = counts[0, 0] = 1
    counts[0, 1] = counts[7:12, 0] = 3
    counts[12:, 12] = 1
    share = {name: of(counts) for name, of in wrong.OF_SIXTEEN.items()}
    assert share["wrong: from a neighbour"] == pytest.approx(6 / 25)  # 2 from 1, 11 from 10, 14 from 13, 1 from 2
    assert share["wrong: from documents 7 to 12"] == pytest.approx(2 / 25)
    assert share["wrong, asked for 2 to 8: from the first six"] == pytest.approx(4 / 5)
    assert share["wrong, asked for 9: from the first six"] == 1 and share["wrong, asked for 9: from the last four"] == 0
    assert share["wrong, asked for 10 to 15: from the last four"] == pytest.approx(3 / 13)
    assert share["asked for the first: right"] == pytest.approx(1 / 4)
    assert share["asked for 7 to 12: right"] == pytest.approx(1 / 6)
    table = wrong.sixteen_table(counts)
    assert table["wrong answers"].tolist() == ["5", "3", "13"]
    table = table[list(wrong.READ)]
    assert table.loc["9"].tolist() == [1, 0, 0, 0] and table.sum(axis=1).tolist() == pytest.approx([1, 1, 1])
    assert table.loc["10 to 15", "16"] == pytest.approx(1 / 13)
    assert table.loc["2 to 8", "7 to 12"] == pytest.approx(1 / 5)
    long = evidence.Evidence(dict(drawn.kept) | {"sixteen": entry(shares(np.zeros(16), 0.3), 20, 2)})
    shown = wrong.sixteen_shown(long)
    assert shown["seen"].tolist() == pytest.approx([of(long.totals["sixteen"]) for of in wrong.OF_SIXTEEN.values()])
    assert shown["law, fitted to sixteen"]["wrong: from a neighbour"] == pytest.approx(shown["seen"].iloc[0], abs=0.05)
    assert shown["all others alike"]["wrong: from documents 7 to 12"] == pytest.approx(0.375, abs=0.02)
    assert shown[["all others alike", "places"]].tail(2).isna().all(axis=None)
    assert shown["places"].iloc[0] < shown["seen"].iloc[0], "distance is more than places"
    found = wrong.sixteen_numbers(long)
    assert found["sixteen_first"] == pytest.approx(found["sixteen_first_fitted"], abs=0.1), "drawn from the law itself"
    assert found["sixteen_early"] == shown["seen"].iloc[2] and found["sixteen_late"] == shown["seen"].iloc[5]


def test_the_smallest_effect_is_seen_in_four_of_five_tests():
    numbers = {}
    for _, _, stem in foretold.SOUGHT:
        numbers |= {f"{stem}_low": -1.96, f"{stem}_high": 1.96}
    smallest = foretold.smallest_table(numbers)["smallest effect"].iloc[0]
    draws = np.random.default_rng(0).normal(smallest, 1, 20_000)
    assert (draws > 1.96).mean() == pytest.approx(0.8, abs=0.01)


def test_dilution_is_told_from_none():
    def said(sharpness):
        told = [np.eye(8)[entry(shares(PULLS, x), 40, k)["source"].values] for k, x in enumerate((0.4, sharpness))]
        kept = xr.Dataset(
            {"told": (("change", "context", "asked", "document"), np.stack(told)), "factor": ("context", np.ones(40))},
            {"change": ["as it is", "log n"]},
        )
        return evidence.Evidence({"diluted": kept})

    assert network.dilution_check(said(1.6)).passed and not network.dilution_check(said(0.4)).passed
    numbers = network.dilution_numbers(said(1.6))
    assert numbers["dilution_right"] > numbers["dilution_before"] and 2 < numbers["dilution_ratio"] < 8


def test_the_head_that_reads_is_where_the_answer_is_from():
    rng = np.random.default_rng(0)
    source = rng.integers(8, size=(10, 8))
    pointed = rng.integers(8, size=(10, 8, 2, 3, 2))
    pointed[:, :, 1, 2, 1] = source
    kept = xr.Dataset(
        {
            "told": (("context", "asked", "document"), np.eye(8)[source]),
            "pointed": (("context", "asked", "where", "layer", "head"), pointed),
        },
        {"where": ["question", "last"]},
    )
    seen = evidence.Evidence({"heads": kept})
    name, found = network.reader(seen)
    assert name == "2.1" and found.shape == (5, 8) and found.all()
    numbers = network.reader_numbers(seen)
    assert numbers["reader_wrong"] == 1 and numbers["reader_asked"] == 0
    wrong = source[5:] != np.arange(8)
    assert numbers["reader_more_low"] > 0
    assert numbers["reader_guess"] == pytest.approx((source[5:] == 7)[wrong].mean())


def test_small_networks_are_sharp():
    found = trained.trained_numbers()
    assert found["trained_gamma"] == pytest.approx(np.log((1 + 0.99067) / (1 - 0.99067)), rel=0.01)
    assert found["trained_alibi"] < found["trained_rope"] < 0.5 < found["trained_others"]


def test_laws_by_kind_gain_where_kinds_differ():
    sets = np.concatenate([evidence.tables.count_answers(entry(p, 30, 0)) for p in (LAW, shares(-PULLS, 0.3))])
    names = np.repeat(["name", "year"], 30)
    gain = kinds.gain_of_kinds(sets, names)
    assert gain > 100 > 5 * kinds.gain_of_kinds(sets, np.tile(["name", "year"], 30)) > 0
    assert kinds.kind_of("The Vanlin tower was restored in") == "year"


def test_a_finger_that_slips_is_not_told_from_pulls_that_fall():
    slip = 0.6 * np.subtract.outer(np.arange(8), np.arange(8)).T
    weights = np.exp(PULLS - 0.6 * np.arange(8) + slip - 0.8 * np.abs(slip / 0.6))
    assert weights / weights.sum(1, keepdims=True) == pytest.approx(LAW)
    assert kinds.both_ends(1000 * LAW) == pytest.approx(3, abs=0.01)


def test_a_bonus_of_the_first_document_is_told_from_its_pull():
    own = np.zeros((8, 8))
    own[0, 0] = 2
    p = np.exp(np.log(LAW) + own)
    p /= p.sum(1, keepdims=True)
    assert rivals.own(0)(2000 * p) == pytest.approx(2, abs=0.01)
    assert rivals.own(-1)(2000 * p[::-1, ::-1]) == pytest.approx(2, abs=0.01)
    assert rivals.own(-1)(2000 * LAW) == pytest.approx(0, abs=0.01)
    assert rivals.first_pull(2000 * p) == pytest.approx(1, abs=0.01)
    sets = checks.drawn_from(np.random.default_rng(0), p, 200)
    assert rivals.sum_over_sets(rivals.ahead(sets[:100], sets[100:]))[1] > 0
    assert rivals.led_by(sets).sum() > 100
    assert 0 < rivals.led_by(sets, rivals.TREND).sum() < rivals.led_by(sets).sum(), "a trend is nearer to the law"


def test_the_deviance_by_chance_is_that_of_a_law_that_holds(drawn):
    found = rivals.deviance_by_chance(drawn, 60)
    assert found["chance_low"] < evidence.deviance(drawn.first, drawn.new) < found["chance_high"]
    assert 0.02 < found["chance_reached"] < 0.98
    other = evidence.Evidence({"eight": entry(LAW, 60, 0), "eight-new": entry(shares(-PULLS, 0.1), 60, 1)})
    assert rivals.deviance_by_chance(other, 20)["chance_reached"] == 0


def test_rollouts_from_forward_passes_alone_are_marked():
    found = predicted.predicted_shown(predicted.predicted_table(evidence.load_evidence()))
    marked = found.index[found.iloc[:, 0] == "✓"]
    assert len(marked) == len(predicted.rollout_labels()) and not any("influence" in x or "use" in x for x in marked)


def test_of_small_networks_it_is_said_where_answers_are_from(monkeypatch):
    rng = np.random.default_rng(0)
    blurred = np.stack([[rng.choice(8, p=row) for row in LAW] for _ in range(90)]).reshape(3, 30, 8)
    known = np.where(rng.random((3, 30, 8)) < 0.5, np.arange(8), rng.integers(8, size=(3, 30, 8)))
    kept = {}
    for name, source in (("alibi.ends", blurred), ("rope.half", known)):
        entry_of = xr.Dataset({"source": (("seed", "set", "asked"), source)})
        kept[f"{name}.sources"] = entry_of.assign(
            rollout_trained=(("seed", "position"), np.tile(np.arange(9.0), (3, 1)))
        )
    monkeypatch.setattr(trained, "load", lambda _: kept)
    found = trained.source_numbers()
    finger, match = found["the two ends alone, ALiBi"], found["every place, half learned, RoPE"]
    assert finger["lead_low"] > 0 > match["lead_high"] and finger["last"] == pytest.approx(2, abs=0.5)
    assert match["ends"] == pytest.approx(match["ends_chance"], abs=0.08) and abs(match["near"] - 0.25) < 0.08
    assert list(trained.source_table(found).index) == list(found)


def test_drawn_halves_fit_where_the_law_is_true_and_not_where_places_read_are_mixed(drawn):
    high = rivals.deviance_by_chance(drawn, 100)["chance_high"]
    sets = drawn.sets["eight"]
    found = rivals.random_halves(sets, high, 40)
    assert found["halves_low"] < found["halves"] < high and found["halves_above"] <= 0.1
    assert not any(rivals.mixed_fits(sets, high, seed) for seed in range(3))
    check = rivals.halves_check(drawn)
    assert check.passed and not any(check.broken["places read mixed"])


def test_intervals_are_wider_if_sentences_are_drawn(drawn):
    found = kinds.over_sentences(drawn, 60)
    assert found["kinds_sentences"] == 10
    assert found["kinds_drawn_sharpness_low"] < drawn.law.sharpness < found["kinds_drawn_sharpness_high"]


def test_a_trend_is_a_gaussian_of_distance_that_names_none(drawn):
    """With a pull for each place -(q - j)² differs from 2qj by what is q's or j's alone."""
    counts = drawn.first.sum(0)
    trend = tables.rival_shares(counts)["place, trend, bonus"]
    gaussian = tables.rival_features(8)["place, Gaussian fall"]
    w, _ = fit_choices(np.concatenate([gaussian, np.eye(8)[..., None]], -1), counts)
    weights = np.exp(gaussian @ w[:-1] + w[-1] * np.eye(8))
    np.testing.assert_allclose(trend, weights / weights.sum(1, keepdims=True), atol=2e-3)
