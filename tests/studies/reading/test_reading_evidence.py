"""What the page on reading prints: numbers by hand, from answers drawn from a law, and where nothing is kept."""

import numpy as np
import pytest
import xarray as xr

from posbias.lookup.reading import shares
from studies.reading import checks, evidence, network, questions, trained

PULLS = np.array([1.0, 0, 0, 0, 0, 0, 0, 2.0])
LAW = shares(PULLS, 0.8)


def entry(p, sets, seed):
    rng = np.random.default_rng(seed)
    source = np.array([[rng.choice(8, p=row) for row in p] for _ in range(sets)])
    asked = np.tile(np.arange(8), (sets, 1))
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


def test_answers_are_drawn_as_expected():
    found = checks.drawn_from(np.random.default_rng(0), LAW, 4000)
    assert found.shape == (4000, 8, 8) and (found.sum(2) == 1).all()
    assert np.abs(found.mean(0) - LAW).max() < 0.04


def test_a_slot_is_told_from_reading_order():
    slots = np.array([0, 4, 1, 5, 2, 6, 3, 7])
    apart = np.abs(np.subtract.outer(slots, slots))
    order, slot = network.two_gammas(1000 * shares(np.zeros(8), 0.7, apart), slots)
    assert abs(order) < 0.01 and slot == pytest.approx(0.7, abs=0.01)


def test_questions_that_were_not_asked_say_nothing(monkeypatch):
    monkeypatch.setattr(questions, "load", lambda _: {})
    assert questions.said() == ""
    source = np.tile([1, 0, 0, 3], (20, 1))
    kept = {questions.ENTRY: xr.Dataset({"source": (("question", "place"), source)})}
    monkeypatch.setattr(questions, "load", lambda _: kept)
    assert "60 are in one other passage alone. 67% of these" in questions.said() and "blur is" in questions.said()


def test_small_networks_are_sharp():
    found = trained.trained_numbers()
    assert found["trained_gamma"] == pytest.approx(np.log((1 + 0.99067) / (1 - 0.99067)), rel=0.01)
    assert found["trained_alibi"] < found["trained_rope"] < 0.5 < found["trained_others"]
