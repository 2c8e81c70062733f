"""Controls of every rung: what is right is the rung, what is exchanged is not."""

import numpy as np
import pytest

from posbias.comparison.distances import unit
from posbias.measure.corpus import Corpus
from posbias.measure.run import measure
from posbias.models.loading import Source
from posbias.predict import predict
from posbias.settings import Settings
from studies.real.controls import CONTROLS, RUNGS, control_table, measure_controls

LACKING = ["norms steps"] * 2 + ["prompt norms steps", "layer prompt norms steps"] + ["layer gates prompt"] * 2


@pytest.fixture(scope="module")
def settings():
    how = {"batch_size": 3, "pairings": 1, "quantities": ("mixing", "influence", "branches", "ladder")}
    return Settings(Source("reference/llama-12"), Corpus("builtin"), 5, 24, **how)


@pytest.fixture(scope="module")
def controls(settings, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSBIAS_DATA", str(tmp_path_factory.mktemp("controls")))
        return measure_controls(settings)


def test_nothing_exchanged_is_the_rung(controls, settings):
    plain = measure(settings)
    np.testing.assert_allclose(controls["influence_prompts"], plain["influence_prompts"], rtol=2e-3)
    for rung, found in zip(RUNGS, controls["rung_profiles"].sel(control="right").values, strict=True):
        np.testing.assert_allclose(unit(found), predict(plain, rung), rtol=1e-4, err_msg=rung)


def test_every_exchange_changes_the_rung(controls):
    for rung, rows, lacking in zip(RUNGS, controls["rung_profiles"].values, map(str.split, LACKING), strict=True):
        for control, found in zip(CONTROLS, rows, strict=True):
            assert np.isfinite(found).all() == (control not in lacking), (rung, control)
            assert control in ("right", *lacking) or not np.allclose(unit(found), unit(rows[0]), rtol=0.02)


def test_a_control_that_is_further_away_is_said_to_be(controls):
    made, exact = controls.copy(deep=True), controls["influence_prompts"].values.mean(0)
    made["rung_profiles"][1, :] = exact
    made["rung_profiles"][1, 1] = exact[::-1]
    table = control_table(made, "fixed-attention", resamples=400)
    assert table.loc["late", "decided"] == -1 and table.loc["maps", "decided"] == 0
    assert table.loc["right", "W1"] < 1e-7 < table.loc["late", "W1"]
