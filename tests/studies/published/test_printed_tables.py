"""Printed tables against rollouts, on cases that can be counted by hand, and against W1 itself."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.comparison.distances import normalised_wasserstein
from posbias.rollout.profiles import mean_position
from studies.published import numbers, tables


@pytest.mark.parametrize("model", numbers.MODELS)
@pytest.mark.parametrize("variant", "ab")
def test_content_free_variants_are_the_authors_own_files(model, variant):
    own = numbers.config(model, "none", residual=variant == "b")
    assert np.array_equal(tables.variant_profile(model, variant, 32), own.at_length(32).profile())


@given(st.integers(0, 10_000))
def test_a_profile_at_a_distance_has_an_allowed_mean(seed):
    p, q = np.random.default_rng(seed).dirichlet(np.full(7, 0.4), size=2)
    low, high = tables.allowed_means(mean_position(p), normalised_wasserstein(p, q))
    assert low - 1e-12 <= mean_position(q) <= high + 1e-12


PROFILES = {"a": np.array([1.0, 0.0]), "b": np.array([0.5, 0.5]), "c": np.array([0.0, 1.0])}


def about(table, dataset="fineweb-edu", **printed):
    rows = [
        {"table": table, "n": 2, "dataset": dataset, "corpus": dataset, "model": "m", "label": "M", "variant": v}
        | {"printed": w, "low": w - 0.005, "high": w + 0.005, "schedule": dataset, "mean": mean_position(PROFILES[v])}
        for v, w in printed.items()
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("b", "c", "room", "consistent"),
    [
        (0.25, 0.25, True, True),  # rollouts 0.5 apart, and a mean of 0.75 does for both
        (0.20, 0.20, False, False),  # 0.2 + 0.2 < 0.5
        (0.10, 0.80, True, False),  # 0.8 - 0.1 > 0.5
        (0.10, 0.608, True, True),  # two prints are off by half a unit each
        (0.10, 0.612, True, False),
    ],
)
def test_pairs_by_the_triangle_inequality(monkeypatch, b, c, room, consistent):
    monkeypatch.setattr(tables, "variant_profile", lambda model, variant, n, schedule: PROFILES[variant])
    (row,) = tables.pair_frame(about(4, b=b, c=c)).to_dict("records")
    assert row["apart"] == 0.5 and (row["mean_b"], row["mean_c"]) == (0.5, 1.0)
    assert (row["room"], row["consistent"]) == (room, consistent)
    assert row["low"] == pytest.approx(max(0.5 - b, 1 - c) - 0.005)
