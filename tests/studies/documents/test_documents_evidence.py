"""What is said of real questions before and after they were asked, and that checks notice what they should."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from studies.documents import checks, evidence, figures, questions


def asked(correct):
    """Return evidence of real questions with these right answers."""
    C, P = correct.shape
    entry = xr.Dataset({"correct": (("question", "place"), correct), "tokens": ("question", np.full(C, 1100))})
    entry["rank"] = "question", np.arange(C) % 2
    entry["same"] = ("sample", "place"), np.ones((2, P))
    mixed = xr.Dataset({"correct": entry["correct"].assign_coords(place=range(P)).sel(place=[0, 3, 5, 7])})
    floors = xr.Dataset({"correct": (("question", "given"), np.tile([0, 1], (C, 1)))})
    return evidence.Evidence({}, {"eight": entry, "floors": floors, "mixed": mixed})


ONE = np.eye(8, dtype=int)[np.arange(30) % 8]
ONE[:3, [0, -1]] = 1
U = np.tile([1, 0, 0, 0, 0, 0, 0, 1], (30, 1))


@pytest.mark.parametrize(
    ("correct", "lost", "passed", "undecided"),
    [
        (U, "lost", True, False),
        (np.ones((30, 8), int), "not lost", False, False),
        (ONE, "cannot tell", True, True),
    ],
)
def test_real_questions_are_judged_as_their_threshold_says(correct, lost, passed, undecided):
    seen = asked(correct)
    numbers = questions.question_numbers(seen)
    assert numbers["questions_lost"] == lost and numbers["questions_rank"] == 0.5
    assert (numbers["questions_closed"], numbers["questions_oracle"]) == (0, 1)
    check = checks.real_check(seen, np.random.default_rng(0))
    assert (check.passed, check.how["undecided"]) == (passed, undecided)
    assert not any(check.broken["places of each question shuffled"])
    said = questions.real_answer(seen)
    assert "Of 30 real questions" in said
    assert f"{correct[:, 0].mean():.0%} correctly if the right passage is first" in said


@pytest.mark.parametrize(
    ("correct", "first", "last"),
    [
        (U, (True, False), (True, False)),
        (U * (np.arange(8) > 0), (True, True), (True, False)),  # the first is as the places between
        (1 - U, (False, True), (False, True)),
    ],
)
def test_with_rivals_in_a_drawn_order_each_end_is_judged_by_itself(correct, first, last):
    found = checks.mixed_checks(asked(correct))
    assert [(check.passed, check.how["undecided"]) for check in found] == [first, last]
    assert [check.part for check in found] == ["mixed, first", "mixed, last"]


def test_the_lead_of_the_first_place_is_compared_with_that_in_the_order_of_the_search():
    seen = asked(U)
    flat = seen.questions | {"mixed": seen.questions["mixed"] * 0 + 1}
    found = questions.mixed_numbers(evidence.Evidence({}, flat))
    assert found["mixed_first_said"].startswith("+0.00") and found["mixed_change_said"].startswith("-1.00")
    assert (found["mixed_same_said"][:5], found["mixed_last_share"]) == ("+1.00", 1)
    assert (found["mixed_ends"], found["mixed_same_ends"]) == ("neither", "both")
    assert [questions.ends_shown(U * (np.arange(8) != k)) for k in (0, 7)] == ["last", "first"]


def test_rows_that_show_a_difference_grow_with_its_square():
    spread = np.tile([0.0, 1.0], 500)
    assert evidence.rows_for(0.2, spread) == 50 and evidence.rows_for(0.1, spread) == 195


def test_wrong_answers_are_counted_by_the_document_they_are_from():
    source = np.array([[[0, 3, 1, 3]], [[0, 1, -1, 3]]]).reshape(2, 4)
    correct = np.array([[1, 0, 0, 1], [1, 1, 0, 1]])
    used = xr.Dataset(
        {"source": (("context", "asked"), source), "correct": (("context", "asked"), correct)}, {"document": range(4)}
    )
    found = evidence.used_numbers(evidence.Evidence({"used": used}, {}))
    assert found["documents_between_wrong"] == 3 and found["documents_between_other"] == 2
    assert found["documents_between_last"] == 1


def test_what_is_kept_is_drawn_beside_real_questions():
    kept = evidence.load_evidence()
    fig = figures.draw_answers(evidence.Evidence(kept.kept, asked(U).questions))
    assert len(fig.axes) == 2 and "right passage alone" in fig.axes[1].texts[-1].get_text()
    plt.close(fig)
