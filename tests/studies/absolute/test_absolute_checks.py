"""Checks of absolute position: each on what it should pass, and on what it should reject."""

import numpy as np
import pandas as pd
import pytest

from studies.absolute.checks import (
    anchored,
    balances_differ,
    contents_agree,
    depth_is_of_architectures,
    estimator_sound,
    order_as_published,
    sinks_pass_on,
    weakened,
    within,
    without_anchor,
)
from studies.absolute.tables import (
    Estimate,
)


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


def test_agreement_by_hand():
    a = {"total": estimate(0.10), "balance": estimate(0.2)}
    assert contents_agree(a, {"total": estimate(0.08), "balance": estimate(0.11)})
    assert not contents_agree(a, {"total": estimate(0.07), "balance": estimate(0.2)})
    assert not contents_agree(a, {"total": estimate(0.10), "balance": estimate(0.09)})
    assert within(estimate(1.0), estimate(1.9)) and not within(estimate(1.0), estimate(2.1))
    assert not within(estimate(-1.0), estimate(-1.0))
    one = estimate(2.0, 1.0, 3.0)
    assert weakened(one, 0.25).value == 0.5 and weakened(one, 0.25).high - weakened(one, 0.25).low == pytest.approx(1.9)


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
