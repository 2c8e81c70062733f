"""Tables of measured influence, on profiles made up so that the answer is known."""

import numpy as np
import pytest

xr = pytest.importorskip("xarray", reason="xarray is not installed")

from posbias.measure.studies.influence_tables import (  # noqa: E402
    cancelled,
    flat_depth,
    long_shapes,
    profile_shapes,
    random_cancelled,
    resampling_noise,
    signed_influence,
    text_distances,
)

n = 60


def measured(profile, prompts=20, noise=0.0, seed=0, **attributes):
    p = np.asarray(profile, dtype=float)
    g = p * (1 + noise * np.random.default_rng(seed).uniform(-1, 1, size=(prompts, p.size)))
    arrays = {"influence_prompts": (("prompt", "position"), g), "influence": ("position", g.sum(0) / g.sum())}
    return xr.Dataset(arrays, attrs=attributes)


def valley(start, end=4.0):
    """Return a profile that is 1 but at the first and the last token."""
    p = np.ones(n)
    p[0], p[-1] = start, end
    return p / p.sum()


def test_shapes_of_a_valley_and_of_a_slope():
    rising = np.linspace(1, 2, n) / np.linspace(1, 2, n).sum()
    shapes = profile_shapes({"valley": measured(valley(2.0), noise=0.2), "rising": measured(rising)})
    row = shapes.loc["valley"]
    assert row["depth"] == pytest.approx(0.5, abs=0.1) and row["low"] > 0.3 and row["low"] < row["depth"] < row["high"]
    assert 0 < row["trough_low"] <= row["trough"] <= row["trough_high"] < 1
    assert row["first"] == pytest.approx(2 * n / (n + 4), rel=0.05) and row["last"] == pytest.approx(
        4 / (n + 4), rel=0.1
    )
    assert row["depth_aside"] < 0.2 and row["depth_eight"] < 0.3
    assert shapes.loc["rising", "high"] < 0 and shapes.loc["rising", "depth_aside"] < 0


def test_noise_falls_with_the_root_of_the_prompts():
    g = np.random.default_rng(0).gamma(1.0, size=(256, n))
    table = resampling_noise(g, (16, 64, 256))
    assert table["distance"].is_monotonic_decreasing
    assert table["scaled"].max() < 1.6 * table["scaled"].min()
    assert table.loc[64, "scaled"] == pytest.approx(8 * table.loc[64, "distance"])


def test_noise_alone_has_a_little_depth():
    assert abs(flat_depth(4096, 64, repeats=50)) < 0.01  # many prompts, little noise
    assert 0 < flat_depth(256, 512, repeats=50) < 0.1  # the lowest of many noisy means is low


def test_distances_to_other_texts():
    kept = {"a.wikitext-2": measured(np.eye(5)[4]), "a.random": measured(np.eye(5)[0])}
    table = text_distances(kept, {"a": measured([0.5, 0, 0, 0, 0.5])})
    assert table.loc["a"].tolist() == pytest.approx([1.0, 0.5, 0.5])


def test_signs_cancel():
    signed = np.array([[1.0, -1.0, 2.0], [-1.0, -1.0, 2.0]])
    x = measured([0.2, 0.2, 0.6], prompts=2).assign(influence_signed_prompts=(("prompt", "position"), signed))
    row = signed_influence({"a": x}).loc["a"]
    assert row["cancels"] == pytest.approx(0.25) == cancelled(signed) and row["positive"] == 0.5
    assert row["distance"] == pytest.approx((0.05 + 0.1) / 2)
    many = np.ones((100, 50))
    assert cancelled(many) == 0 and random_cancelled(many) == pytest.approx(1 - np.sqrt(2 / np.pi) / 10, abs=0.02)


def test_quarters_of_long_prompts():
    p = np.repeat([1, 2, 3, 4], 25) / 250
    table = long_shapes({"a": measured(p, prompts=3).assign_attrs(prompts=3)})
    row = table.loc["a"]
    assert [row[f"quarter_{k}"] for k in (1, 2, 3, 4)] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert row["prompts"] == 3 and row["first"] == pytest.approx(0.4) and row["depth"] < 0
    none = measured(np.r_[0, np.full(99, 1 / 99)]).assign_attrs(prompts=3)
    assert long_shapes({"a": none}).loc["a", "depth"] == float("-inf")
