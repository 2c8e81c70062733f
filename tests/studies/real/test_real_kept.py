"""What results/real.nc keeps: numbers that the study's page rests on, and that others found in a trial."""

import numpy as np
import pytest

from studies.real import tables
from studies.results import load

KEPT = load("real")


def test_entries_name_their_text_and_the_rounding_of_their_weights():
    for name, entry in KEPT.items():
        assert ("quantisation" in entry.attrs) == name.startswith("smollm2.")
        assert entry.attrs["dataset"] == ("builtin" if "builtin" in name else "wikitext-2.txt")


def test_the_first_token_is_a_sink_from_the_thirteenth_layer_on():
    sinks = KEPT["smollm2.sinks"]
    norm, share = sinks.norm.median("prompt").values, sinks.attention.mean("prompt").values
    assert norm[:12].max() < 15 and 140 < norm[12] < 200 and 10 < norm[29] < 16
    assert 0.25 < share[12:].min() and share[12:].max() < 0.7 and share[10:12].max() < 0.02


def test_a_repeated_token_has_a_sink_only_behind_a_start_token():
    heads = KEPT["smollm2.sinks"].heads.mean(("prompt", "layer"))
    repeated = heads.sel(text="repeated")
    assert repeated.sel(front="none") == pytest.approx(0, abs=1e-6) and repeated.sel(front="end-of-text") > 0.5


@pytest.mark.parametrize("model", ["bloom-12", "llama-12"])
def test_in_small_models_use_and_gradient_agree_but_for_the_first_token(model):
    entry = KEPT[f"{model}.use-64-builtin"]
    table, shares = tables.distance_table(entry), tables.share_table({model: entry}).loc[model]
    assert table.loc["gradient", "W1"] < 0.06 and table.loc["gradient", "spearman"] > 0.8
    assert shares.loc["gradient", "first"] > shares.loc["replaced", "first"]
    assert np.isfinite(entry.replaced).all() and entry.replaced.min() >= 0 and entry.replaced.max() <= 1


@pytest.mark.parametrize("name", ["smollm2.use-64", "smollm2.use-64-end-of-text"])
def test_in_smollm2_a_power_law_is_nearer_to_use_than_the_gradient_is(name):
    table, shares = tables.distance_table(KEPT[name]), tables.share_table({name: KEPT[name]}).loc[name]
    assert table.loc["power law", "W1"] < table.loc["gradient", "W1"] / 2 and table.loc["half", "W1"] < 0.05
    assert shares.loc["gradient", "first"] > 1.5 * shares.loc["replaced", "first"]
    assert shares.loc["replaced", "high"] < 1, "by replacement the first token has less than an equal share"
