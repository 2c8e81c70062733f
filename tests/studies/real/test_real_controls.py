"""Controls of fixed attention and value maps: what is right is the rung, what is exchanged is not."""

import numpy as np
import pytest

from posbias.measure.corpus import Corpus
from posbias.measure.run import measure
from posbias.models.loading import Source
from posbias.settings import Settings
from studies.real.controls import CONTROLS, control_table, measure_controls


@pytest.fixture(scope="module")
def settings():
    quantities = ("mixing", "influence", "ladder")
    how = {"batch_size": 2, "pairings": 1, "quantities": quantities}
    return Settings(Source("reference/llama-12"), Corpus("builtin"), 4, 24, **how)


@pytest.fixture(scope="module")
def controls(settings):
    return measure_controls(settings)


def test_nothing_exchanged_is_the_rung_of_the_ladder(controls, settings):
    ladder = measure(settings)
    np.testing.assert_allclose(controls["influence_prompts"], ladder["influence_prompts"], rtol=2e-3)
    for rung, name in (("fixed-attention", "fixed-attention"), ("value-maps", "vectors")):
        found = controls["rung_prompts"].sel(rung=rung, control="right")
        np.testing.assert_allclose(found, ladder["ladder_prompts"].sel(rung=name)[:, 0], rtol=5e-3)


def test_every_exchange_changes_the_rung(controls):
    right = controls["rung_prompts"].sel(control="right").values
    for control in [*CONTROLS][1:]:
        found = controls["rung_prompts"].sel(control=control).values
        given = np.isfinite(found).all((1, 2))
        assert list(given) == [True, control != "prompt"]
        assert not np.isclose(found[given], right[given], rtol=0.02).all()


def test_a_control_that_is_further_away_is_said_to_be(controls):
    p = controls["influence_prompts"].values
    made = controls.copy(deep=True)
    made["rung_prompts"][0, :] = p
    made["rung_prompts"][0, 1] = p[:, ::-1]
    table = control_table(made, "fixed-attention", resamples=200)
    assert table.loc["late", "decided"] == -1 and table.loc["maps", "decided"] == 0
    assert table.loc["right", "W1"] < 1e-12 < table.loc["late", "W1"]
