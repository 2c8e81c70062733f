"""Broken results are broken in the one way that their name says."""

import numpy as np
import pytest

from studies.icl import broken
from studies.icl.outcomes import gaps
from studies.icl.tables import kept_runs


@pytest.fixture(scope="module")
def runs():
    return kept_runs()["figure5"]


def test_swapped_ends_turn_the_gaps_of_some_networks_around(runs):
    found = broken.swapped_ends(runs, np.random.default_rng(0))
    turned = 0
    for setting, x in runs.items():
        for before, after in zip(gaps(x), gaps(found[setting]), strict=True):
            kept = np.allclose(after, before)
            assert kept or np.allclose(after, -before[::-1])  # first for last, and last for first
            turned += not kept
    assert 5 < turned < 22  # of 27


def test_noise_of_seeds_has_no_gap_on_average(runs):
    found = broken.noise_of_seeds(runs, np.random.default_rng(0))
    noise = np.concatenate([gaps(x) for x in found.values()])
    real = np.concatenate([gaps(x) for x in runs.values()])
    assert np.abs(noise.mean(0)).max() < 0.1 < np.abs(real.mean(0)).max()


def test_exchanged_settings_and_tokens_keep_all_numbers(runs):
    found = broken.shuffled_settings(runs, np.random.default_rng(0))
    assert {id(x) for x in found.values()} == {id(x) for x in runs.values()}
    sinks = broken.shuffled_tokens(runs, np.random.default_rng(0))
    for setting, x in runs.items():
        before, after = x["sinks"].values, sinks[setting]["sinks"].values
        assert (np.sort(before) == np.sort(after)).all() and (before[..., -1] == after[..., -1]).all()
