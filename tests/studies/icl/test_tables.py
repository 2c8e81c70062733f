"""Tables of trained networks' results, on results made up so that the answer is known."""

import pandas as pd
import pytest

from studies.icl.settings import preset
from studies.icl.tables import agreement_intervals, agreement_scores, described


def fields(groups):
    """Return the fields of a setting for each letter, one setting a letter."""
    settings = dict(zip("abcd", preset("figure4"), strict=False))
    return pd.DataFrame([described(settings[group]) for group in groups])


POINTS = pd.DataFrame(
    {
        "group": list("aabc"),
        "pair": ["x", "y", "x", "x"],
        "difference": [0.3, -0.1, 0.2, 0.1],
        "gap": [0.2, -0.2, -0.1, 0.001],
        "guess": [1, -1, 1, 1],
    }
)
POINTS = POINTS.join(fields(POINTS["group"]))
GROUPS = {"all": "", "a": "group == 'a'"}


def test_scores_by_hand():
    scores = agreement_scores(POINTS, GROUPS, least=0.01)
    every = scores.loc["all"]
    assert every["gaps"] == 3 and every["sign"] == pytest.approx(2 / 3) and every["guess"] == pytest.approx(2 / 3)
    assert scores.loc["a", "sign"] == 1


def test_the_lead_is_over_the_guess_and_settings_are_resampled():
    found = agreement_intervals(POINTS.assign(guess=[1, 1, 1, 1]), GROUPS, least=0.01)
    assert found.loc["all", "ahead"] == pytest.approx(1 / 3)  # right for both of a, the guess for one
    assert found.loc["a", ["ahead_low", "ahead_high"]].tolist() == [0.5, 0.5]  # one setting: nothing to resample
    assert found.loc["all", "ahead_low"] == 0 and found.loc["all", "ahead_high"] == 0.5
