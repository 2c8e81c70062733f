"""Closed forms of the page ``design`` against rollouts that are short enough to be quick, and checks that notice."""

import numpy as np
import pandas as pd
import pytest

from studies.design import closed_forms as c
from studies.design import trained


def test_the_mean_position_under_log_is_the_product():
    mixing = np.full(3, 0.5)
    p = c.profile({"kind": "log", "alpha": 1.0}, mixing, 20_000)
    assert (np.arange(p.size) @ p) / p.size == pytest.approx(c.product(mixing, 1.0), abs=1e-3)


def test_a_flat_bias_for_another_mixing_is_noticed():
    row = c.flat_distances(2.4, lengths=(8192,))
    right = pd.DataFrame({2.4: row}).T
    assert c.agrees(right) and not c.agrees(right.assign(formula=2 * right["formula"]))
    wrong = c.flat_distances(2.4, {"kind": "flat", "tau": 2.5}, lengths=(8192,))
    assert not c.agrees(pd.DataFrame({2.4: wrong}).T)


def test_the_share_of_the_last_token_is_at_the_turn_of_a_cubic():
    ratio, atom = c.largest_share()
    assert ratio == pytest.approx(-np.log1p(-atom) / atom, rel=1e-9) and 1.1 < ratio < 1.4


def test_two_distances_exchanged_are_noticed():
    table = pd.DataFrame({"to_untrained": [0.1] * 20, "to_b": [0.2] * 20})
    assert trained.squares_win(table)
    assert not trained.squares_win(trained.exchanged(table, np.ones(20, bool)))
    flat = pd.DataFrame({"kind": ["flat"], "to squares": [0.1], "to rollout": [0.2]})
    assert trained.no_flatter(flat.assign(flatness=0.5, rollout=0.2))
    assert not trained.no_flatter(flat.assign(flatness=0.3, rollout=0.2))
