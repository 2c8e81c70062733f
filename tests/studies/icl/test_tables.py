"""Tables of trained networks' results, on results made up so that the answer is known."""

import numpy as np
import pandas as pd
import pytest

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from posbias.rollout.influence import rollout_matrix
from studies.icl.outcomes import VARIABLES, gaps, labelled, preferences
from studies.icl.settings import Setting, Task, preset
from studies.icl.tables import (
    PAIR_NAMES,
    SOURCES,
    agreement_intervals,
    agreement_points,
    agreement_scores,
    constant_preferences,
    described,
    differences,
    even_sinks,
    gap_table,
    guesses,
    joined,
    kept_runs,
    outcome_table,
    predicted_profiles,
    shares,
    sink_table,
    tables_by_seed,
)  # fmt: skip
from studies.results import save

SIZES = {"seed": 2, "pair": 3, "order": 2, "layer": 2, "query": 17, "key": 17, "logged": 4, "judged": 1}
MADE = {"iterations": 40_000, "precision": "float32", "device": "cpu", "torch": "2"}


def results(accuracy=0.5, seeds=(0, 5), **attributes):
    arrays = {name: np.zeros([SIZES[d] for d in dims]) for name, (dims, _) in VARIABLES.items()}
    arrays["accuracy"] += accuracy
    arrays["loss"] += [4, 3, 2, 1]
    arrays["accuracy_novel"] += [0.25, 0.75]
    arrays["stopped"] = np.array([-1, 7])
    return labelled(arrays, list(seeds), MADE | attributes)


def test_a_row_for_each_network_and_pair():
    accuracy = np.zeros((2, 3, 2))
    accuracy[1, 2] = 0.6, 0.2
    setting = preset("figure8")[1]
    table = gap_table({setting: results(accuracy)})
    assert len(table) == 6 and table["seed"].tolist() == [0, 0, 0, 5, 5, 5]
    (row,) = table.query("gap != 0").to_dict("records")
    assert row["seed"] == 5 and row["pair"] == "middle vs last"
    assert row["gap"] == pytest.approx(0.4) and row["preference"] == pytest.approx(0.5)
    assert (row["mask"], row["width"], row["layers"], row["residual"]) == ("window", 5, 2, False)
    assert table["pair"].cat.categories.tolist() == list(PAIR_NAMES)


def test_no_runs_are_an_empty_table():
    assert gap_table({}).empty and outcome_table({}).empty


def test_a_folder_s_results_take_the_place_of_those_that_are_kept(tmp_path):
    first, second, *_ = preset("figure4")
    save(tmp_path / "icl.nc", {second.name: results(0.25)})
    kept, mine = kept_runs(), kept_runs(str(tmp_path))
    assert list(mine) == list(kept) and list(mine["figure4"]) == preset("figure4")
    assert (mine["figure4"][second]["accuracy"] == 0.25).all()
    assert (kept["figure4"][second]["accuracy"] != 0.25).any()
    assert mine["figure4"][first].identical(kept["figure4"][first])
    both = joined(mine, "figure4", "figure5")
    assert list(both) == preset("figure4") + preset("figure5")


def test_losses_at_the_end_and_earlier():
    table = outcome_table({Setting(): results()})
    assert table["loss"].tolist() == [1, 1] and table["novel"].tolist() == [0.25, 0.75]
    for early, loss in ((10_000, 4), (30_000, 2), (90_000, 1)):  # logged after 10,000, 20,000, …
        assert outcome_table({Setting(): results()}, early=early)["early_loss"].tolist() == [loss, loss]


def with_sinks(metric):
    """Return results of three seeds whose sink metric is this."""
    return xr.Dataset({"sinks": (("seed", "layer", "key"), np.broadcast_to(metric, (3, 2, 17)))})


def test_the_sink_metric_by_layer_and_seed_and_beyond_even_attention():
    setting = preset("figure7")[0]
    sinks = np.stack([np.full(17, 0.5), np.arange(17) / 100])
    runs = {setting: with_sinks(sinks)}
    causal = ("causal", 0)
    np.testing.assert_allclose(sink_table(runs).loc[causal], (0.5 + np.arange(16) / 100) / 2)
    np.testing.assert_allclose(sink_table(runs, last_layer=True).loc[causal], np.arange(16) / 100)
    beyond = sink_table(runs, last_layer=True, beyond_even=True).loc[causal]
    np.testing.assert_allclose(beyond, np.arange(16) / 100 - even_sinks(setting)[:-1])
    assert list(sink_table(runs).columns) == list(range(1, 17))
    x = with_sinks(np.arange(17) / 100)
    x["sinks"] = x["sinks"] + xr.DataArray([0.0, 0.1, 0.2], dims="seed")
    found = tables_by_seed({setting: x}, last_layer=True)
    assert [t.loc[causal, 1] for t in found] == pytest.approx([0, 0.1, 0.2])


def test_even_attention_exceeds_a_fifth_where_a_query_sees_fewer_than_five_tokens():
    for setting in preset("figure8"):
        mask, expected = setting.network.mask.matrix(17), np.zeros(17)
        for j in range(17):
            queries = [i for i in range(17) if mask[i, j]]
            expected[j] = sum(1 / mask[i].sum() > 0.2 for i in queries) / len(queries)
        np.testing.assert_allclose(even_sinks(setting), expected)


def test_differences_and_shares_of_places_take_item_and_label_together():
    p = np.arange(17) / 100
    expected = [(0 + 1) - (6 + 7), (0 + 1) - (14 + 15), (6 + 7) - (14 + 15)]
    np.testing.assert_allclose(differences(np.stack([p, p]), 8)[1], np.array(expected) / 100)
    assert np.isnan(shares(np.eye(17)[16], 8)).all()  # on neither place; else as the doctest


def test_the_prediction_is_the_last_row_of_the_rollout():
    rng = np.random.default_rng(0)
    kernels = np.tril(rng.random((2, 3, 5, 5)))
    kernels /= kernels.sum(-1, keepdims=True)
    lambdas = rng.random((2, 3))
    x = xr.Dataset(
        {
            "kernels": (("seed", "layer", "query", "key"), kernels.astype(np.float32)),
            "lambda_frobenius": (("seed", "layer"), lambdas.astype(np.float32)),
        }
    )
    for p, A, lambda_ in zip(predicted_profiles(x), kernels, lambdas, strict=True):
        np.testing.assert_allclose(p, rollout_matrix(A, lambda_)[-1], atol=1e-6)


def test_a_preference_is_the_gap_over_all_that_is_told():
    accuracy = np.array([[[0.1, 0.0], [0.3, 0.9], [0.0, 0.0]]])
    x = xr.Dataset({"accuracy": (("seed", "pair", "order"), accuracy)})
    np.testing.assert_allclose(gaps(x), [[0.1, -0.6, 0.0]])
    np.testing.assert_allclose(preferences(x), [[1, -0.5, np.nan]])


def of_weight(gap, weight, layers=2):
    """Return results of two seeds: the gap of every pair, and the rollout's weight on the first of 17 tokens."""
    accuracy = np.full((2, 3, 2), 0.4)
    accuracy[..., 0] += gap
    last = np.full(17, (1 - weight) / 16)
    last[0] = weight
    kernels = np.broadcast_to(np.eye(17), (2, layers, 17, 17)).copy()
    kernels[:, -1, -1] = last
    influence = np.full((2, 17), 1 / 17)
    return xr.Dataset(
        {
            "accuracy": (("seed", "pair", "order"), accuracy),
            "accuracy_novel": (("seed",), [0.5, 0.9]),
            "kernels": (("seed", "layer", "query", "key"), kernels),
            "lambda_frobenius": (("seed", "layer"), np.ones((2, layers))),
            "influence": (("seed", "key"), influence),
        },
        coords={"seed": [0, 1]},
    )


def test_points_have_influence_and_accuracy_of_each_pair():
    points = agreement_points({preset("figure4")[0]: of_weight(0.2, 0.52)})
    assert len(points) == 6
    rollout = points.query("source == 'rollout'").set_index("pair")
    difference = 0.52 - 0.03
    assert rollout["difference"].tolist() == pytest.approx([difference, difference, 0])
    assert rollout.loc["first vs last", "share"] == pytest.approx(difference / (0.52 + 0.09))
    assert rollout.loc["first vs last", "preference"] == pytest.approx(0.2)
    assert rollout["gap"].tolist() == pytest.approx([0.2] * 3)
    assert points.query("source == 'gradient'")["difference"].tolist() == pytest.approx([0, 0, 0])
    assert points["novel"].tolist() == pytest.approx([0.7] * 6), "of the network, the mean over seeds"


def test_a_guess_knows_the_data_and_not_the_network():
    expected = {"none": [1, 1, 1], "first": [1, 1, 1], "middle": [-1, 1, 1], "last": [1, -1, -1], "ends": [1, 1, -1]}
    assert {bias: guesses(Task(bias=bias)) for bias in expected} == expected
    points = agreement_points({Setting(Task(bias="last")): of_weight(0.2, 0.52)})
    assert points.query("source == 'rollout'")["guess"].tolist() == expected["last"]


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


def test_a_constant_preference_is_that_of_other_settings_between_the_same_places_in_the_guess_s_direction():
    points = fields("abcd").assign(pair="x", guess=[1, 1, -1, 1], preference=[0.2, 0.4, -0.9, np.nan])
    assert constant_preferences(points).tolist() == pytest.approx([0.65, 0.55, -0.3, 0.4])
    assert np.isnan(constant_preferences(points.assign(pair=list("wxyz")))).all()


def points_of(signs, settings):
    """Return points of settings whose rollout names the sign of a gap (1) or not (0); the earlier is ahead in all."""
    rows = []
    for source in SOURCES:
        for setting, right in zip(settings, signs, strict=True):
            row = described(setting) | {"source": source, "difference": 1.0 if right else -1.0, "gap": 0.3}
            row |= {"guess": 1, "share": 0.5 if right else -0.5, "preference": 0.4}
            rows += [row | {"pair": pair} for pair in range(3)]
    return pd.DataFrame(rows)


def test_intervals_of_signs_take_settings_as_units():
    settings = preset("figure4")
    points = points_of([1, 1, 0, 1, 1, 0, 1, 1, 1], settings)
    found = agreement_intervals(points, {"all": ""}, least=0.01).loc["rollout", "all"]
    assert found["sign"] == pytest.approx(7 / 9) and found["settings"] == 9
    assert found["ahead"] == pytest.approx(7 / 9 - 1)  # the guess is always right
    width = found["sign_high"] - found["sign_low"]
    assert width == pytest.approx(2 * 1.96 * np.sqrt(7 / 9 * 2 / 9 / 9), rel=0.2)  # of 9 settings, not 27 gaps
    assert found["closer"] == pytest.approx(0 - (7 * 0.1 + 2 * 0.9) / 9)  # the constant is 0.4 for every setting
    assert found["closer_low"] < found["closer"] < found["closer_high"] < 0
    every = agreement_intervals(points_of([1] * 9, settings), {"all": ""}, least=0.01).loc["rollout", "all"]
    assert every[["sign_low", "sign_high", "p"]].tolist() == pytest.approx([1, 1, 1])
    wrong = points_of([1] * 9, settings).assign(guess=-1)
    assert agreement_intervals(wrong, {"all": ""}, least=0.01).loc["rollout", "all"]["ahead"] == 1
