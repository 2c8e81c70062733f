"""Printed distances held against profiles of two and three tokens, where every number can be seen."""

import numpy as np
import pandas as pd
import pytest

from posbias.rollout.profiles import mean_position
from studies.published.printed_distances import identity_frame, judged_frame, means_by_collapse, pair_frame

FIRST, EVEN, LAST = np.array([1.0, 0.0]), np.array([0.5, 0.5]), np.array([0.0, 1.0])
PROFILES = {"a": FIRST, "b": EVEN, "c": LAST}


def profile(model, variant, n, schedule):
    return PROFILES[variant]


def entries(table, dataset="fineweb-edu", **printed):
    rows = [
        {"table": table, "n": 2, "dataset": dataset, "corpus": dataset, "model": "m", "label": "M", "variant": v}
        | {"printed": w, "low": w - 0.005, "high": w + 0.005, "schedule": dataset, "mean": mean_position(PROFILES[v])}
        for v, w in printed.items()
    ]
    return pd.DataFrame(rows)


def test_collapse_gives_the_measured_mean():
    means = means_by_collapse(entries(2, a=0.75, b=0.25))
    assert means.loc["m"].tolist() == pytest.approx([0.745, 0.755])
    shifted = entries(2, a=0.75).assign(mean=0.1)
    assert means_by_collapse(shifted).loc["m"].tolist() == pytest.approx([0.645, 0.855])


@pytest.mark.parametrize(
    ("b", "verdict", "short"), [(0.25, "meets", -0.01), (0.3, "if they cross", -0.06), (0.2, "impossible", 0.04)]
)
def test_identity_by_the_range_of_differences(b, verdict, short):
    of_2 = entries(2, a=0.75, b=b)
    row = identity_frame(of_2, means_by_collapse(of_2)).iloc[0]
    assert (row["variant"], row["identity"]) == ("b", verdict)
    assert row["short"] == pytest.approx(short)
    assert (row["least"], row["largest"]) == (pytest.approx(0.245), pytest.approx(0.255))


@pytest.mark.parametrize(
    ("b", "c", "room", "rigid", "consistent"),
    [
        (0.25, 0.25, True, True, True),  # rollouts 0.5 apart, and a mean of 0.75 does for both
        (0.20, 0.20, False, True, False),  # 0.2 + 0.2 < 0.5
        (0.10, 0.80, True, False, False),  # 0.8 - 0.1 > 0.5
    ],
)
def test_pairs_by_the_triangle_inequality(b, c, room, rigid, consistent):
    (row,) = pair_frame(entries(4, b=b, c=c), profile).to_dict("records")
    assert row["apart"] == 0.5 and (row["mean_b"], row["mean_c"]) == (0.5, 1.0)
    assert (row["room"], row["rigid"], row["consistent"]) == (room, rigid, consistent)


def test_rounding_counts_for_the_printed_numbers():
    (row,) = pair_frame(entries(4, b=0.24, c=0.255), profile).to_dict("records")
    assert row["room"] and row["consistent"]
    assert row["high"] - row["low"] == pytest.approx(0.005)
    far = [pair_frame(entries(4, b=0.1, c=c), profile)["rigid"].item() for c in (0.608, 0.612)]
    assert far == [True, False]  # two prints are off by half a unit each


def test_strongest_test_decides():
    two = entries(2, a=0.75, b=0.25, c=0.25)
    three = pd.concat([entries(3, b=0.25, c=0.1), entries(3, "dclm", b=0.2, c=0.2)])
    every = pd.concat([two, three, entries(4, b=0.25, c=0.25)], ignore_index=True)
    found = judged_frame(every, profile, {}).set_index(["table", "dataset", "variant"])
    assert list(found["verdict"].str.startswith("not")) == [False, False, True, True, False, False]
    assert found.loc[(3, "fineweb-edu", "b"), "why"] == "by the mean that (a) gives: meets"
    assert found.loc[(3, "dclm", "c"), "why"] == "(b), (c) exclude each other: rollouts 0.500 apart"
    assert found.loc[(4, "fineweb-edu", "c"), "why"] == "(b) and (c) allow means from 0.745 to 0.755"
    curve = judged_frame(every, profile, {"m": np.array([0.25, 0.75])}).set_index(["table", "dataset", "variant"])
    assert curve.loc[(3, "fineweb-edu", "c"), ["verdict", "why"]].tolist() == [
        "not consistent",
        "the distance is 0.2500",
    ]
    assert curve.loc[(3, "fineweb-edu", "b"), "verdict"] == "consistent"
