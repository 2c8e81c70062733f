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


def test_each_letter_changes_one_thing():
    a, b, c = (tables.variant_config("bloom-7b1", v, 16) for v in tables.VARIANTS)
    assert (a.lambdas() == 1).all() and (b.lambdas() == c.lambdas()).all() and b.lambdas().max() < 1
    assert a.content_config == b.content_config and not np.any(b.content_config.diagonal_scores)
    assert np.any(c.content_config.diagonal_scores)
    assert {a.sequence_length, b.sequence_length, c.sequence_length} == {16}


def test_readings_replace_slopes_and_scale():
    kernels = {r: tables.variant_config("falcon-rw-7b", "c", 8, reading=r).kernels() for r in tables.READINGS}
    slopes, content = ({r: getattr(x, name)[0, 0] for r, x in kernels.items()} for name in ("slopes", "diagonal"))
    assert slopes["both"] == slopes["slopes only"] == pytest.approx(slopes["as published"] / 8)  # head size 64
    assert content["both"] == content["content only"] == pytest.approx(content["as published"] / 8)
    assert (slopes["content only"], content["slopes only"]) == (slopes["as published"], content["as published"])


@pytest.fixture(scope="module")
def entries():
    return tables.entry_frame()


def test_every_printed_entry_is_a_row_with_its_rounding(entries):
    assert len(entries) == 75 and not entries.isna().any().any()
    row = entries.query("table == 2 and model == 'bloom' and variant == 'c'").iloc[0]
    assert (row.n, row.printed, row.low, row.high) == (256, 0.01, 0.005, 0.015)


def test_content_is_of_its_own_data_set_and_b_of_fineweb(entries):
    assert (entries.query("variant == 'c'").schedule == entries.query("variant == 'c'").dataset).all()
    assert set(entries.query("variant != 'c'").schedule) == {"fineweb-edu"}
    row = entries.query("table == 3 and model == 'mpt-7b' and variant == 'c' and dataset == 'dclm'").iloc[0]
    assert row["mean"] == mean_position(tables.variant_profile("mpt-7b", "c", 256, "dclm"))


def test_own_schedules_change_b_elsewhere_only(entries):
    own = tables.entry_frame(own_schedule=True)
    changed = own.loc[own["mean"] != entries["mean"]]
    assert set(changed.variant) == {"b"} and set(changed.dataset) == {"dclm", "wikipedia"}
    assert len(changed) == 2 * 2 * 5


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


def test_collapse_gives_the_measured_mean():
    means = tables.means_by_collapse(about(2, a=0.75, b=0.25))
    assert means.loc["m"].tolist() == pytest.approx([0.745, 0.755])
    shifted = about(2, a=0.75).assign(mean=0.1)
    assert tables.means_by_collapse(shifted).loc["m"].tolist() == pytest.approx([0.645, 0.855])


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
