"""Real questions and alarms, as their thresholds say, and the page before they were asked."""

import numpy as np
import pytest
import xarray as xr

from studies.remedies import checks, evidence
from studies.remedies.evidence import Evidence, Signals


def questions(alone, as_is, heads):
    """Return an entry of real questions at four places."""
    at = np.array([0, 3, 5, 7])
    arrays = {"alone": alone, "as_is": as_is, "oracle": np.ones_like(alone), "heads": heads}
    entry = xr.Dataset({name: (("question", "place"), x) for name, x in arrays.items()}, {"place": at})
    entry["all_heads"] = ("question", "place"), np.zeros((len(alone), 4), int)
    entry["rank"] = "question", np.arange(len(alone)) % 2
    return Evidence({"smollm2.questions": entry}, {})


AT = np.tile([0, 3, 5, 7], (20, 1))
SOME = (np.arange(80).reshape(20, 4) % 3 == 0).astype(int)


@pytest.mark.parametrize(
    ("alone", "heads", "expected", "word"),
    [
        (np.ones((20, 4), int), AT, [(True, False), (True, False)], "helps"),
        (SOME, AT * 0, [(False, False), (True, True)], "does not clearly help"),
        (SOME * 0, AT, [(True, False), (False, False)], "does harm"),
    ],
)
def test_real_questions_are_judged_as_their_thresholds_say(alone, heads, expected, word):
    seen = questions(alone, SOME, heads)
    found = checks.real_checks(seen, np.random.default_rng(0))
    assert [(x.passed, x.how.get("undecided", False)) for x in found] == expected
    assert word in evidence.real_said(seen)["remedies_real_answer"]
    assert not any(any(runs) for runs in found[1].broken.values())
    assert evidence.real_pointed(seen.real)["search"].mean() == 0.5


def test_before_real_questions_were_asked_the_page_says_so():
    seen = Evidence({}, {})
    assert checks.real_checks(seen, np.random.default_rng(0)) == []
    assert evidence.real_said(seen)["remedies_real_said"] == "This was not run yet."


def test_an_alarm_is_judged_on_the_second_half_of_the_sets():
    wrong = np.tile([True, False], (8, 4))
    pointed = np.zeros((8, 8), int)
    costly = np.where(wrong, 1, 0)
    costly[:4] = 1 - costly[:4]
    judged = Signals(wrong, pointed, costly, costly).judged
    assert judged.alarm[:2] == (1, 0) and checks.is_alarm(judged.rings, judged.wrong)
    first = Signals(wrong[:4], pointed[:4], costly[:4], costly[:4])
    assert first.alarm[:2] == (0, 1) and not checks.is_alarm(first.rings, first.wrong)
