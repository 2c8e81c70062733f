"""Tables of trained networks' results, on results made up so that the answer is known."""

import numpy as np
import pandas as pd
import pytest

from studies.icl.settings import preset
from studies.icl.tables import agreement_scores, described


def fields(groups):
    """Return the fields of a setting for each letter, one setting a letter."""
    settings = dict(zip("abcd", preset("figure4"), strict=False))
    return pd.DataFrame([described(settings[group]) for group in groups])


POINTS = pd.DataFrame(
    {
        "source": ["rollout"] * 4 + ["gradient"] * 4,
        "group": list("aabc") * 2,
        "pair": ["x", "y", "x", "x"] * 2,
        "difference": [0.3, -0.1, 0.2, 0.1, 0.1, 0.2, 0.3, 0.4],
        "share": [0.5, -0.5, np.nan, 0.5, 0.1, 0.2, 0.3, 0.4],
        "gap": [0.2, -0.2, -0.1, 0.001] * 2,
        "preference": [0.7, -0.5, 0.9, 0.1] * 2,
        "guess": [1, -1, 1, 1] * 2,
    }
)
POINTS = POINTS.join(fields(POINTS["group"]))


def test_scores_by_hand():
    scores = agreement_scores(POINTS, {"all": "", "a": "group == 'a'"}, least=0.01)
    every = scores.loc["rollout", "all"]
    assert every["gaps"] == 3 and every["sign"] == pytest.approx(2 / 3) and every["guess"] == pytest.approx(2 / 3)
    assert every["rank"] == pytest.approx(1 - 6 * (0 + 0 + 1 + 1) / (4 * 15))  # ranks 4 1 3 2 against 4 1 2 3
    assert every["off"] == pytest.approx((0.2 + 0.4) / 2)  # of a and c at x: b has no share, and y is a's alone
    assert every["constant_off"] == pytest.approx(0.6)  # a is told c's 0.1, and c is told a's 0.7
    assert scores.loc[("rollout", "a"), "sign"] == 1 and scores.loc[("gradient", "a"), "sign"] == 0.5
