"""Tables of untrained networks, on made-up files whose answers are known."""

import numpy as np
import pytest

xr = pytest.importorskip("xarray", reason="xarray is not installed")

from posbias.comparison.distances import normalised_wasserstein
from posbias.rollout.structured import structured_kernels
from posbias.rollout.untrained import untrained_profile
from studies.untrained.tables import (
    by_prediction,
    cesaro_alpha,
    cesaro_profile,
    distance_table,
    measured_profiles,
    over_seeds,
    particulars,
    published,
    read_untrained,
    rotation_table,
    shape_table,
)

N = 40
FALLING = np.linspace(2.0, 1.0, N)
VALLEY = 1.0 + np.abs(np.linspace(-1, 1, N))


def file(profiles, prediction, layers=3):
    """Return a file of networks with these measured profiles and one prediction that is the same for all."""
    profiles = np.asarray([p / p.sum() for p in profiles])
    prediction = prediction / prediction.sum()
    ones = np.ones((len(profiles), layers))
    return xr.Dataset(
        {
            "influence": (("seed", "position"), np.array(profiles)),
            "profile": (("seed", "prediction", "position"), np.stack([[prediction, prediction[::-1]]] * len(profiles))),
            **{name: (("seed", "layer"), ones * k) for k, name in enumerate(("overlap", "content", "branch_gain"))},
            "lambda_frobenius": (("seed", "layer"), ones / 2),
        },
        coords={"prediction": ["untrained", "aligned"]},
    )


@pytest.fixture
def kept():
    return {
        ("one", "random"): file([FALLING, VALLEY], FALLING),
        ("one", "random-unrotated"): file([FALLING, FALLING], FALLING),
        ("two", "random"): file([VALLEY], VALLEY),
    }


def test_entries_are_read_by_model_and_part(kept):
    data = kept["two", "random"]
    entries = {"qwen2-0.5b.random-1024": data, "small-falcon-parallel.random": data.assign(profile=2 * data["profile"])}
    found = read_untrained(entries)
    assert [*found] == [("qwen2-0.5b", "random-1024"), ("falcon-parallel", "small random")]
    for x in found.values():
        np.testing.assert_allclose(x["profile"], data["profile"])


def test_distances_are_those_of_each_network(kept):
    table = distance_table(kept).set_index(["model", "part", "seed", "prediction"])
    assert table.loc[("one", "random", 0, "untrained"), "W1"] == pytest.approx(0, abs=1e-7)
    assert table.loc[("one", "random", 0, "untrained"), "spearman"] == pytest.approx(1)
    assert table.loc[("one", "random", 0, "aligned"), "spearman"] == pytest.approx(-1)
    step = np.abs(np.cumsum(VALLEY / VALLEY.sum() - FALLING / FALLING.sum()))[:-1].sum() / (N - 1)
    assert table.loc[("one", "random", 1, "untrained"), "W1"] == pytest.approx(step)
    assert len(table) == 5 * 6


def test_another_output_is_another_table(kept):
    kept["two", "random"]["influence_random"] = kept["two", "random"]["influence"][..., ::-1]
    table = distance_table(kept, "influence_random")
    assert set(table["model"]) == {"two"}
    assert table.query("prediction == 'untrained'")["W1"].item() == pytest.approx(0, abs=1e-7)  # it is symmetric


@pytest.mark.parametrize("alpha", [0.0, 0.13, 0.5, 0.9])
def test_cesaro_powers_are_those_of_skip_and_average(alpha):
    M = (1 - alpha) * np.eye(N) + alpha * structured_kernels(1).dense(0, N)
    np.testing.assert_allclose(cesaro_profile(4, N, alpha), np.linalg.matrix_power(M, 4)[-1], rtol=1e-12, atol=1e-15)


def test_fitted_alpha_is_that_of_the_profile():
    for T, alpha in ((1, 0.3), (4, 0.13), (24, 0.07), (12, 0.5)):
        assert cesaro_alpha(T, cesaro_profile(T, N, alpha)) == pytest.approx(alpha, abs=1e-3)


def test_cesaro_powers_are_fitted_and_matched_to_the_law():
    law = cesaro_profile(3, N, 0.2)
    table = distance_table({("one", "random"): file([cesaro_profile(3, N, 0.4)], law)}).set_index("prediction")
    assert table.loc["cesaro", "W1"] < 1e-3
    assert table.loc["cesaro last", "W1"] == pytest.approx(table.loc["untrained", "W1"], abs=1e-6)
    assert table.loc["cesaro law", "W1"] == pytest.approx(table.loc["untrained", "W1"], abs=1e-3)


def test_cesaro_powers_are_matched_to_the_laws_last_two_tokens():
    gains, n = np.array([0.2, 0.6, 0.1, 0.5]), 2000
    law = untrained_profile(structured_kernels(4), gains, n)
    measured = np.full(n, 1 / n)
    kept = {("one", "random"): file([measured], law, layers=4)}
    found = distance_table(kept).set_index("prediction").loc["cesaro squares", "W1"]
    odds = np.sqrt((gains**2).sum()) / 4  # sizes of equal layers with the squares' sum
    expected = normalised_wasserstein(cesaro_profile(4, n, odds / (1 + odds)), measured)
    assert found == pytest.approx(expected, abs=1e-3)


def test_a_column_for_each_prediction_and_a_row_for_each_architecture(kept):
    table = distance_table(kept)
    wide = by_prediction(published(table), {"aligned": "sizes", "untrained": "law"}, ["two", "one"])
    assert [*wide.columns] == ["sizes", "law"] and [*wide.index] == [("random", "two"), ("random", "one")]
    both = table.query("model == 'one' and part == 'random' and prediction == 'aligned'")["W1"]
    assert wide.loc[("random", "one"), "sizes"] == pytest.approx(both.mean())


def test_means_over_seeds_have_students_interval(kept):
    table = over_seeds(distance_table(kept)).set_index(["model", "part", "prediction"])
    both = distance_table(kept).query("model == 'one' and part == 'random' and prediction == 'untrained'")["W1"]
    row = table.loc["one", "random", "untrained"]
    assert row["mean"] == pytest.approx(both.mean()) and row["most"] == both.max()
    half = 12.706 * both.std() / np.sqrt(2)
    assert (row["low"], row["high"]) == pytest.approx((both.mean() - half, both.mean() + half), rel=1e-3)
    assert np.isnan(table.loc[("two", "random", "untrained"), "low"])


def test_valleys_are_found_and_falls_are_none(kept):
    table = shape_table(kept).set_index(["model", "part", "seed", "profile"])
    assert table["present"].to_dict()[("one", "random", 0, "measured")] is False
    assert table["present"].to_dict()[("one", "random", 1, "measured")] is True
    assert table.loc[("two", "random", 0, "untrained"), "where"] == pytest.approx(0.5, abs=0.05)
    assert not table.loc[("one", "random", 0, "measured"), "with_last"]
    assert table.loc[("one", "random", 0, "measured"), "first"] == pytest.approx(N * 2 / FALLING.sum())


def test_rotations_are_compared_with_the_same_network(kept):
    table = rotation_table(kept).set_index("seed")
    assert [*table["model"]] == ["one", "one"]
    assert table.loc[0, "moved"] == pytest.approx(0, abs=1e-7) and table.loc[1, "moved"] > 0.01
    assert table.loc[0, "between"] == pytest.approx(table.loc[1, "between"]) == pytest.approx(table.loc[1, "moved"])


def test_particulars_and_profiles(kept):
    row = particulars(kept).iloc[0]
    assert (row["layers"], row["overlap"], row["content"], row["gain"], row["tau"]) == (3, 0, 1, 2, 1.5)
    np.testing.assert_allclose(measured_profiles(kept["one", "random"])[0], FALLING / FALLING.sum())
