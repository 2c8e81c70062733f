"""Samples of prompts: whole units drawn again."""

import numpy as np
import pytest

pytest.importorskip("pandas", reason="pandas is not installed")

from posbias.comparison.samples import Sample


def test_a_unit_that_is_drawn_twice_counts_as_two():
    sample = Sample(np.arange(1.0, 11.0).reshape(5, 2), np.array([4, 4, 7, 9, 9]))
    for seed in range(5):
        drawn = sample.redrawn(np.random.default_rng(seed))
        chosen = np.random.default_rng(seed).choice([4, 7, 9], 3)
        expected = np.concatenate([sample.influence[sample.units == name] for name in chosen])
        assert (drawn.influence == expected).all() and np.unique(drawn.units).tolist() == [0, 1, 2]
        assert np.bincount(drawn.units).tolist() == [(sample.units == name).sum() for name in chosen]
