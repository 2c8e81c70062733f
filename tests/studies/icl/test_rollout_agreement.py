"""The rollout's agreement with trained networks, on results made up so that the answer is known."""

import numpy as np
import pandas as pd
import pytest

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from studies.icl.rollout_agreement import agreement_points, agreement_scores, depth_orders
from studies.icl.settings import preset


def results(gap, weight, layers=2):
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
            "kernels": (("seed", "layer", "query", "key"), kernels),
            "lambda_frobenius": (("seed", "layer"), np.ones((2, layers))),
            "influence": (("seed", "key"), influence),
        },
        coords={"seed": [0, 1]},
    )


def test_points_have_influence_and_accuracy_of_each_pair():
    points = agreement_points({preset("figure4")[0]: results(0.2, 0.52)})
    assert len(points) == 6
    rollout = points.query("source == 'rollout'").set_index("pair")
    difference = 0.52 - 0.03
    assert rollout["difference"].tolist() == pytest.approx([difference, difference, 0])
    assert rollout.loc["first vs last", "share"] == pytest.approx(difference / (0.52 + 0.09))
    assert rollout.loc["first vs last", "preference"] == pytest.approx(0.2) and rollout[
        "gap"
    ].tolist() == pytest.approx([0.2] * 3)
    assert points.query("source == 'gradient'")["difference"].tolist() == pytest.approx([0, 0, 0])


POINTS = pd.DataFrame(
    {
        "source": ["rollout"] * 4 + ["gradient"] * 4,
        "group": list("aabb") * 2,
        "difference": [0.3, -0.1, 0.2, 0.1, 0.1, 0.2, 0.3, 0.4],
        "share": [0.5, -0.5, np.nan, 0.5, 0.1, 0.2, 0.3, 0.4],
        "gap": [0.2, -0.2, -0.1, 0.001] * 2,
        "preference": [0.7, -0.5, 0.9, 0.1] * 2,
    }
)


def test_scores_by_hand():
    scores = agreement_scores(POINTS, {"all": "", "a": "group == 'a'"}, least=0.01)
    every = scores.loc["rollout", "all"]
    assert every["gaps"] == 3 and every["sign"] == pytest.approx(2 / 3) and every["earlier"] == pytest.approx(1 / 3)
    assert every["rank"] == pytest.approx(1 - 6 * (0 + 0 + 1 + 1) / (4 * 15))  # ranks 4 1 3 2 against 4 1 2 3
    assert every["off"] == pytest.approx((0.2 + 0 + 0.4) / 3)  # a share that is missing is left out
    assert every["zero_off"] == pytest.approx((0.7 + 0.5 + 0.1) / 3)
    assert scores.loc[("rollout", "a"), "sign"] == 1 and scores.loc[("gradient", "a"), "sign"] == 0.5
    with pytest.raises(ValueError, match="groups: expected queries that select results, received group == 'c'"):
        agreement_scores(POINTS, {"c": "group == 'c'"}, least=0.01)


def test_orders_of_depths():
    settings = [s for s in preset("figure4") if s.network.encoding == "none"]
    gaps, weights = (0.1, 0.3, 0.2), (0.4, 0.6, 0.5)
    runs = {s: results(g, w, s.network.layers) for s, g, w in zip(settings, gaps, weights, strict=True)}
    orders = depth_orders(agreement_points(runs)).set_index(["pair", "measure"])["same"]
    assert orders["first vs last", "gap"] and orders["first vs last", "preference"]
    runs[settings[0]] = results(0.25, 0.4)
    assert not depth_orders(agreement_points(runs)).query("pair == 'first vs last'")["same"].any()
    (one,) = [s for s in preset("figure4") if s.network.encoding == "rope" and s.network.layers == 2]
    assert set(depth_orders(agreement_points(runs | {one: results(0, 0.5)}))["encoding"]) == {"none"}
