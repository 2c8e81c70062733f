"""Tables of measured influence, on profiles made up so that the answer is known."""

import numpy as np
import pytest

xr = pytest.importorskip("xarray", reason="xarray is not installed")

from posbias.comparison.samples import Sample, u_decisions, u_excess
from posbias.rollout.profiles import u_shape
from studies.reference.influence_tables import (
    cancelled,
    end_dominates,
    lead_turned,
    long_shapes,
    most_have_a_u,
    passes,
    profile_shapes,
    quarters,
    resampling_noise,
    shuffled,
    signed_influence,
    start_moved,
    text_distances,
    with_profile,
)

n = 60


def measured(profile, prompts=20, noise=0.0, seed=0, **attributes):
    p = np.asarray(profile, dtype=float)
    g = p * (1 + noise * np.random.default_rng(seed).uniform(-1, 1, size=(prompts, p.size)))
    arrays = {"influence_prompts": (("prompt", "position"), g), "influence": ("position", g.sum(0) / g.sum())}
    return xr.Dataset(arrays, attrs=attributes)


def sample(profile, prompts=40, noise=0.2, seed=0, length=n):
    """Return prompts, two of each unit, whose influence scatters about a profile."""
    p = np.asarray(profile, dtype=float)[:length]
    g = p * (1 + noise * np.random.default_rng(seed).uniform(-1, 1, size=(prompts, p.size)))
    return Sample(g, np.arange(prompts) // 2)


RISING = np.linspace(1, 2, n)
LATE = np.r_[2.0, np.ones(n - 4), 2.0, 2.0, 9.0]
"""A valley whose last position is left out, and whose other end stands above it."""


def test_shapes_of_a_valley_and_of_a_slope():
    shapes = profile_shapes({"valley": sample(LATE), "rising": sample(RISING)}, resamples=200)
    row = shapes.loc["valley"]
    assert row["depth"] == pytest.approx(0.5, abs=0.1) and row["u"] == "yes" and 0 < row["excess_low"] < row["excess"]
    assert 0 < row["trough_low"] <= row["trough"] <= row["trough_high"] < 1
    assert row["depth_aside"] < 0.2 and row["u_eight"] == "yes" and row["depth_eight"] < 0.3
    assert shapes.loc["rising", ["u", "u_eight"]].tolist() == ["no", "no"] and shapes.loc["rising", "depth_aside"] < 0


def test_the_ends_are_shares_and_the_first_one_is_in_units_of_an_even_share():
    row = profile_shapes({"valley": sample(LATE, noise=0.0)}, resamples=200).loc["valley"]
    assert row["first"] == pytest.approx(2 * n / LATE.sum(), rel=1e-12)
    assert row["last"] == pytest.approx(9 / LATE.sum(), rel=1e-12)
    assert row["mean"] == pytest.approx(LATE @ np.arange(n) / LATE.sum() / (n - 1), rel=1e-12)


def test_a_last_token_alone_is_no_u():
    falling = np.r_[np.linspace(2, 1, n - 1), 9.0]
    assert u_decisions({"atom": sample(falling)}, resamples=200).loc["atom", "u"] == "no"


@pytest.mark.parametrize(("smooth", "ends"), [(1, 1), (9, 1), (9, 8), (5, 3)])
def test_the_excess_is_the_criterion_of_u_shape(smooth, ends):
    profiles = np.random.default_rng(0).gamma(3.0, size=(200, 40)) * (1 + 0.4 * np.cos(np.linspace(0, 2 * np.pi, 40)))
    profiles /= profiles.sum(1, keepdims=True)
    expected = [u_shape(p, smooth=smooth, ends=ends).present for p in profiles]
    assert (u_excess(profiles, smooth=smooth, ends=ends) > 0).tolist() == expected and 0 < sum(expected) < 200


def test_decisions_take_the_number_of_models_into_account():
    weak = np.ones(n)
    weak[0] = weak[-2] = 1.22
    one = sample(weak, prompts=40, noise=0.9, seed=4)
    alone = u_decisions({"0": one}, resamples=400)
    family = u_decisions({str(k): one for k in range(8)}, resamples=400)
    assert family.loc["0", "adjusted"] == pytest.approx(min(1, 8 * alone.loc["0", "adjusted"]))
    with pytest.raises(ValueError, match="resamples: expected at least 320 for 8 models, received 300"):
        u_decisions({str(k): one for k in range(8)}, resamples=300)


def test_broken_samples_are_noticed():
    samples = {name: sample(LATE, seed=k) for k, name in enumerate("abc")}

    def check(found):
        return most_have_a_u(found, smooth=9, resamples=200)

    assert check(samples) and all(passes(check, samples, lambda _, x, r: x, 3))
    flat = np.ones(n)
    assert not any(passes(check, samples, lambda _, x, r: with_profile(x, flat), 3))
    assert not any(passes(check, samples, lambda _, x, r: shuffled(x, r), 3))
    assert not any(passes(check, samples, lambda _, x, r: start_moved(x, -0.5, smooth=9), 3))


def test_what_broken_samples_are():
    one = sample(LATE, noise=0.0)
    assert with_profile(one, RISING).profile == pytest.approx(RISING / RISING.sum())
    p = start_moved(one, 0.0, smooth=1).profile
    assert p[0] == pytest.approx(p[1]) and p[-1] == pytest.approx(9 * p[1])
    assert start_moved(one, -0.5, smooth=1).profile[0] == pytest.approx(p[1] / 2**0.5, rel=0.01)
    order = shuffled(one, np.random.default_rng(0)).influence
    assert np.sort(order[0]).tolist() == sorted(one.influence[0]) and (order[0] != order[1]).any()
    turned = quarters(lead_turned(one).profile)
    lead = quarters(one.profile)[3] / quarters(one.profile)[:3].max()
    assert turned[3] / turned[:3].max() == pytest.approx(lead**-0.5)
    assert end_dominates({"a": one}) and not end_dominates({"a": one, "b": lead_turned(one)})


def test_noise_falls_with_the_root_of_the_units():
    g = np.random.default_rng(0).gamma(1.0, size=(256, n))
    table = resampling_noise(Sample(g, np.arange(256)), (16, 64, 256))
    assert table["distance"].is_monotonic_decreasing and table["units"].tolist() == [16, 64, 256]
    assert table["scaled"].max() < 1.6 * table["scaled"].min()
    assert table.loc[64, "scaled"] == pytest.approx(8 * table.loc[64, "distance"])
    twice = Sample(np.repeat(g[:64], 2, axis=0), np.arange(128) // 2)
    assert resampling_noise(twice, (128,)).loc[128, "distance"] == pytest.approx(table.loc[64, "distance"])


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


def test_quarters_of_long_prompts():
    p = np.repeat([1, 2, 3, 4], 25) / 250
    table = long_shapes({"a": sample(p, prompts=6, length=100)}, resamples=100)
    row = table.loc["a"]
    assert [row[f"quarter_{k}"] for k in (1, 2, 3, 4)] == pytest.approx([0.1, 0.2, 0.3, 0.4], rel=0.05)
    assert (row["prompts"], row["units"], row["u"]) == (6, 3, "no") and row["depth"] < 0.05
    none = np.r_[0, np.full(99, 1 / 99)]
    assert long_shapes({"a": sample(none, length=100)}, resamples=100).loc["a", "depth"] == float("-inf")
