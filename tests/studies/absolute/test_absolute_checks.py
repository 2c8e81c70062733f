"""Checks of absolute position: each on what it should pass, and on what it should reject."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch", reason="torch is not installed")
xr = pytest.importorskip("xarray", reason="xarray is not installed")

from studies.absolute import checks
from studies.absolute.checks import (
    anchored,
    balances_differ,
    contents_agree,
    depth_is_of_architectures,
    detection,
    estimator_sound,
    linear_baseline,
    mostly_significant,
    order_as_published,
    shrunken,
    sinks_pass_on,
    stream_alone,
    weakened,
    within,
    without_anchor,
)
from studies.absolute.leakage import leakage, position_basis, sample_pairs
from studies.absolute.tables import (
    Estimate,
    Kept,
    seed_table,
    start_table,
)
from studies.results import load

KEPT = load("absolute")
BASIS = position_basis(sample_pairs(24, 12, first_key=0))
I, J = BASIS.pairs  # noqa: E741 - i and j of the page


def estimate(value, low=None, high=None):
    ends = (value if low is None else low, value if high is None else high)
    return Estimate(value, np.linspace(*ends, 201))


def found(**changes):
    row = {"true": 0.0, "estimate": Estimate(0.01, np.array([-0.1, 0.1])), "raw": 0.05, "covered": 0.95}
    other = {"true": 1.0, "estimate": Estimate(1.0, np.array([0.9, 1.1])), "raw": 1.0, "covered": 0.5}
    return pd.DataFrame([row | changes, other])


def test_an_estimator_is_judged_by_hand():
    assert estimator_sound(found())
    for wrong in ({"raw": 0.11}, {"covered": 0.99}, {"covered": 0.89}, {"true": 0.5}):
        assert not estimator_sound(found(**wrong)), wrong


def test_a_line_is_no_saturated_baseline():
    offsets = I - J
    line, saturated = linear_baseline(BASIS.pairs).both, BASIS.both
    assert np.allclose(line.T @ line, np.eye(line.shape[1])) and abs(line.T @ np.ones(I.size)).max() < 1e-9
    assert abs(saturated.T @ offsets**2).max() < 1e-9 < abs(line.T @ offsets**2).max()


def test_more_leakage_is_found_more_often_and_is_a_share_of_all_variance(monkeypatch):
    shares = []

    def spy(*given):
        shares.append(float(leakage(*given).pooled(0).share))
        return leakage(*given)

    monkeypatch.setattr(checks, "leakage", spy)
    table = detection(BASIS, (0.0, 0.3), 16, 30)
    assert table["detected"].tolist()[1] == 1 and table["detected"][0] < 0.2 and table["covered"][0] > 0.8
    assert shares == pytest.approx([0, 0.3], abs=0.03)


def test_flipped_and_shrunken_effects():
    y = np.random.default_rng(0).normal(size=(16, 12, I.size)) + np.sqrt(J + 1.0)
    whole = leakage(BASIS.both, y)
    assert mostly_significant(whole)
    assert np.allclose(shrunken(whole, 1.0).gram, whole.gram)
    directly = leakage(BASIS.both, y - 0.7 * y.mean(0))
    assert np.allclose(shrunken(whole, 0.3).gram, directly.gram)
    assert not mostly_significant(shrunken(whole, 0.0))


def test_agreement_by_hand():
    a = {"total": estimate(0.10), "balance": estimate(0.2)}
    assert contents_agree(a, {"total": estimate(0.08), "balance": estimate(0.11)})
    assert not contents_agree(a, {"total": estimate(0.07), "balance": estimate(0.2)})
    assert not contents_agree(a, {"total": estimate(0.10), "balance": estimate(0.09)})
    assert within(estimate(1.0), estimate(1.9)) and not within(estimate(1.0), estimate(2.1))
    assert not within(estimate(-1.0), estimate(-1.0))
    one = estimate(2.0, 1.0, 3.0)
    assert weakened(one, 0.25).value == 0.5 and weakened(one, 0.25).high - weakened(one, 0.25).low == pytest.approx(1.9)


def test_the_stream_alone_by_hand():
    nothing = np.full((8, 4), 0.3)
    leaks = nothing.copy()
    leaks[0, 0] = 0.001
    assert stream_alone(nothing, estimate(1.0, 0.5, 1.5))
    assert not stream_alone(leaks, estimate(1.0, 0.5, 1.5)) and not stream_alone(nothing, estimate(1.0, -0.5, 1.5))


def sinks(with_sink=0.3, without=0.6, other=0.8):
    rows = [("with", "sink", with_sink), ("with", "other", other), ("without", "sink", without)]
    return pd.DataFrame([(a, b, estimate(x)) for a, b, x in rows], columns=["start", "heads", "varies"])


def test_sinks_that_pass_on_a_fingerprint():
    assert sinks_pass_on(sinks())
    assert not sinks_pass_on(sinks(with_sink=0.55)) and not sinks_pass_on(sinks(without=0.2))
    assert not sinks_pass_on(sinks(other=0.25)) and not sinks_pass_on(sinks()[:2])
    unsure = sinks()
    unsure.loc[2, "varies"] = estimate(0.6, -0.1, 1.3)
    assert not sinks_pass_on(unsure), "a rise whose interval holds 0"


def networks(**changes):
    models = ["llama-12"] * 3 + ["mistral-12"] * 3 + ["llama-ntk-12"]
    table = {"model": models, "balance": [2.0, 2.1, 1.9, 3.0, 3.1, 2.9, 1.0], "rise": [1.0, 2, 1, 2, 2, 3, 1]}
    return pd.DataFrame(table | changes)


def test_networks_are_the_units():
    assert balances_differ(networks())
    assert not balances_differ(networks(balance=[2.0, 3.1, 1.0, 3.0, 2.1, 1.1, 2.0])), "as far apart, within each"
    assert depth_is_of_architectures(networks())
    assert not depth_is_of_architectures(networks(rise=[1.0, -2, 1, 2, 2, 3, 1]))
    assert order_as_published(networks()) and not order_as_published(networks(balance=[2.0] * 3 + [1.5] * 3 + [1.0]))
    assert not order_as_published(networks(rise=[1.0] * 3 + [-1.0] * 3 + [1.0]))


def test_networks_of_the_kept_files():
    table = seed_table({k: Kept(KEPT[name]) for k, name in enumerate(("components", "seed-1", "seed-2"))})
    assert table.query("model == 'llama-12'")["seed"].tolist() == [0, 1, 2]
    first = table.query("model == 'llama-12' and seed == 0")["balance"].iloc[0]
    kept = KEPT["components"].sel(condition="llama-12 text near")["variance"].sum("head")
    stream, mask = (kept.sel(part=x).values for x in ("residual", "denominators"))
    assert first.value == pytest.approx(stream.sum() / (stream + mask).sum())
    ends = [stream[x].sum() / (stream + mask)[x].sum() for x in (slice(0, 4), slice(8, 12))]
    rise = table.query("model == 'llama-12' and seed == 0")["rise"].iloc[0]
    assert rise.value == pytest.approx(ends[1] - ends[0]) and rise.low < rise.value < rise.high


def test_start_table_by_hand():
    """Two layers of two heads, one a sink: 0.5 where uniform attention gives 0.1."""
    data = xr.Dataset(
        {
            "path": (("reading", "place"), [[0.0, 0.2, 0.4]]),
            "peers": (("reading",), [0.0]),
            "first": (("reading", "prompt", "layer", "head"), np.array([[[[0.5, 0.1], [0.1, np.nan]]]])),
            "uniform": (("reading", "layer"), [[0.1, 0.1]]),
            "varies": (("reading", "layer", "head"), [[[0.25, 0.9], [0.9, np.nan]]]),
        },
        coords={"reading": ["m-12 bare"]},
    )
    (row,) = start_table(data).itertuples()
    assert (row.model, row.start, row.first_layer, row.middle, row.last) == ("m-12", "bare", 0.2, 0.2, 0.4)
    assert row.sinks == pytest.approx(1 / 3) and row.attention == 0.5 and row.varies == 0.25


def test_an_anchor_by_hand():
    rows = [("m", "start", 0.4), ("m", "bare", 0.3), ("other", "bare", 0.0)]
    starts = pd.DataFrame(rows, columns=["model", "start", "sinks"])
    balances = {"m": (estimate(0.2, 0.1, 0.3), estimate(0.15, 0.1, 0.2))}
    assert anchored(starts, balances)
    assert not anchored(starts.replace(0.3, 0.1), balances)
    assert not anchored(starts, {"m": (balances["m"][0], estimate(0.15, -0.1, 0.4))})
    wrong = without_anchor(starts, balances, 0.4)
    assert len(wrong) == 2 and not any(anchored(*x) for x in wrong)
    assert all(anchored(*x) for x in without_anchor(starts, balances, 1.0))
