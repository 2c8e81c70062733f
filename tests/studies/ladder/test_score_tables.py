"""Tables of scores: predictions of one measurement, of many models, and through training."""

import numpy as np
import pytest

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("pandas", reason="pandas is not installed")

from scipy.linalg import expm

from posbias.comparison.distances import normalised_wasserstein, unit
from posbias.predict import position_kernels, predict
from posbias.rollout.profiles import mean_position
from studies.ladder import scores as scoring
from studies.reference.trained import training_record

T, H, N = 3, 2, 6


def summary(seed=0, n=N, lambdas=(0.2, 0.3, 0.4)):
    """Return a summary of a made-up model with ALiBi slopes."""
    prompts = np.random.default_rng(seed).gamma(2.0, size=(8, n)) * np.linspace(1, 3, n)
    measured = xr.Dataset(
        {
            "influence": (("position",), prompts.sum(0) / prompts.sum()),
            "influence_prompts": (("prompt", "position"), prompts),
            "lambda_frobenius": (("layer",), np.array(lambdas)),
            "slopes": (("layer", "head"), np.full((T, H), [0.5, 0.1])),
            "window": (("layer",), np.zeros(T, dtype=int)),
            "content_offdiagonal": (("layer", "head"), np.zeros((T, H))),
            "content_diagonal": (("layer", "head"), np.ones((T, H))),
        },
        attrs={"length": n},
    )
    rows = [predict(measured, variant) for variant in "abc"]
    measured["rollout"] = (("variant", "position"), np.stack([*rows, rows[0]]))
    return measured.assign_coords(variant=["a", "b", "c", "kernels"])


@pytest.fixture
def kept():
    return {
        "one.builtin": summary(0),
        "two.builtin": summary(1),
        "one.random": summary(2),
        "one-untrained-unit.builtin": summary(3),
        "one-untrained-default.builtin": summary(4, n=N + 1),
    }


def test_baselines_by_hand(kept):
    found = scoring.predictions(kept["one.builtin"])
    assert set(found) == set(scoring.LABELS) - {"untrained-default", "untrained-unit", "own", "untrained", "aligned"}
    assert found["uniform"].tolist() == [1 / N] * N
    assert found["first"].tolist() == [1.0, 0, 0, 0, 0, 0] and found["last"].tolist() == [0.0, 0, 0, 0, 0, 1]
    A = position_kernels(kept["one.builtin"]).dense(0, N)
    assert np.allclose(found["clock"], expm(0.9 * (A - np.eye(N)))[-1])


def test_twins_of_another_length_are_no_prediction(kept):
    twins = scoring.twins_of(kept, "one")
    assert set(twins) == {"unit", "default"} and scoring.twins_of(kept, "two") == {}
    found = scoring.predictions(kept["one.builtin"], twins)
    assert "untrained-unit" in found and "untrained-default" not in found


def test_one_row_for_each_model_and_prediction(kept):
    table = scoring.score_table(kept, ["one", "two"], resamples=50)
    assert table.groupby("model").size().to_dict() == {"one": 11, "two": 10}
    assert set(table["corpus"]) == {"builtin"} and (table["low"] < table["high"]).all()
    last = table.query("model == 'two' and prediction == 'last'").iloc[0]
    assert last["W1"] == pytest.approx(1 - mean_position(kept["two.builtin"]["influence"].values))
    assert scoring.score_table(kept, ["one", "two"], corpus="random", resamples=5)["model"].unique().tolist() == ["one"]


def test_gains_are_differences_of_distances(kept):
    W1 = scoring.score_table(kept, ["two"], resamples=5).set_index("prediction")["W1"]
    table = scoring.gain_table(kept, ["two"], [("a", "b"), ("last", "b")], resamples=50)
    assert table[["before", "after"]].values.tolist() == [["a", "b"], ["last", "b"]]
    assert table["gain"].tolist() == pytest.approx([W1["a"] - W1["b"], W1["last"] - W1["b"]])


def test_a_gain_is_decided_among_all_models_with_its_pair(kept):
    """50 resamples give p ≥ 2/51: enough for one comparison at 5%, not for two."""
    table = scoring.gain_table(kept, ["two"], [("a", "b"), ("last", "b")], resamples=50)
    assert (table["p_value"] == 2 / 51).all() and (table["decided"] == np.sign(table["gain"])).all()
    both = scoring.gain_table(kept, ["one", "two"], [("last", "b")], resamples=50)
    assert (both["p_value"] == 2 / 51).all() and not both["decided"].any()


def test_distances_of_every_summary(kept):
    table = scoring.rollout_distances(kept)
    assert len(table) == 4 * len(kept) and "one-untrained-unit" in set(table["model"])
    row = table.query("model == 'one' and corpus == 'random' and prediction == 'a'").iloc[0]
    x = kept["one.random"]
    assert row["difference"] == pytest.approx(
        mean_position(x["rollout"].values[0]) - mean_position(x["influence"].values)
    )
    assert row["difference"] < 0 and row["W1"] == pytest.approx(-row["difference"])


def test_the_last_token_as_a_baseline_of_every_summary(kept):
    table = scoring.last_token_distances(kept).set_index(["model", "corpus"])["W1"]
    assert len(table) == len(kept)
    for stem, x in kept.items():
        end = unit(np.eye(x.sizes["position"])[-1])
        p = unit(x["influence"].values)
        assert table[tuple(stem.split(".", 1))] == pytest.approx(normalised_wasserstein(end, p))


def test_training_ends_with_the_finished_model():
    stages = {"bloom-8.step-000030": summary(1), "bloom-8.step-000000": summary(0), "mpt-12.step-000000": summary(2)}
    finished = {"bloom-8.builtin": summary(5), "mpt-12.builtin": summary(6)}
    table = scoring.training_distances(stages, finished, without=["mpt-12"])
    assert set(table["model"]) == {"bloom-8"}
    assert table["step"].tolist() == [0, 30, training_record("bloom-8")["steps"]]
    done = scoring.rollout_distances(finished).query("model == 'bloom-8' and prediction == 'b'")
    assert table["W1"].iloc[-1] == done["W1"].item()


def test_another_order_moves_the_measured_side_alone(kept):
    x, order = kept["one.builtin"], np.arange(N)[::-1]
    moved = scoring.rearranged(x, order)
    assert (moved["influence"].values == x["influence"].values[::-1]).all()
    assert (moved["influence_prompts"].values == x["influence_prompts"].values[:, ::-1]).all()
    assert moved["rollout"].identical(x["rollout"]) and scoring.rearranged(moved, order).identical(x)


def test_further_predictions_are_scored_beside_the_others(kept):
    p = kept["one.builtin"]["influence"].values
    exact = {"one": {"untrained": p / p.sum(dtype=float), "aligned": np.ones(3) / 3}}
    found = scoring.score_table(kept, ["one"], others=exact, resamples=20).set_index("prediction")
    assert found.loc["untrained", "W1"] < 1e-6 and "aligned" not in found.index  # of another length
    gains = scoring.gain_table(kept, ["one"], [("b", "untrained")], others=exact, resamples=50)
    assert gains["gain"].item() == pytest.approx(found.loc["b", "W1"], abs=1e-6)


def test_a_summary_with_the_law_of_untrained_networks_is_scored_by_it(kept):
    x = kept["one.builtin"]
    law = x["rollout"].isel(variant=[1]).assign_coords(variant=["untrained"])
    longer = xr.concat([x["rollout"], law], "variant")
    found = scoring.predictions(x.drop_vars(["rollout", "variant"]).assign(rollout=longer))
    assert np.array_equal(found["untrained"], found["b"])
