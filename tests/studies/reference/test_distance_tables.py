"""Forms that are fitted to the fall of influence with distance."""

import numpy as np
import pytest

from posbias.comparison.samples import Sample
from studies.reference import distance_tables as falls

R = np.arange(112.0)
TRUE = {"power": 0.001 + 0.3 * (R + 1) ** -0.8, "exponential": 0.001 + 0.3 * np.exp(-R / 9), "constant": 0.02 + 0 * R}


def sample(form, noise=0.02):
    p = np.concatenate([np.full(16, 0.05), TRUE[form][::-1]])
    rng = np.random.default_rng(0)
    return Sample(p * np.exp(noise * rng.standard_normal((12, p.size))), np.arange(12))


@pytest.mark.parametrize("form", falls.FORMS)
def test_a_form_is_found_again_and_the_others_are_further_away(form):
    found = falls.fit(form, R, TRUE[form])
    assert found.error(R, TRUE[form]) < 1e-4
    assert falls.fit(form, R, TRUE[form], found if found.beta else None).error(R, TRUE[form]) < 1e-4
    if form != "constant":
        other = {"power": "exponential", "exponential": "power"}[form]
        assert falls.fit(other, R, TRUE[form]).error(R, TRUE[form]) > 0.05


def test_the_table_says_which_form_is_nearer_and_what_lies_beyond():
    table = falls.fall_table({name: sample(name) for name in ("power", "exponential")}, resamples=20)
    assert table.loc["power", "low"] > 0 and table.loc["exponential", "high"] < 0
    assert table.loc["power", "p"] == pytest.approx(0.8, abs=0.05)
    assert table.loc["power", "power beyond"] < table.loc["power", "exponential beyond"]
    assert table.loc["exponential", "exponential"] < 0.02, "the start of the prompt is left out"
