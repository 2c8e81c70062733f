"""Samples of prompts: whole units drawn again."""

import numpy as np

from posbias.comparison.samples import Sample


def test_a_unit_that_is_drawn_twice_counts_as_two():
    """Each label of a redrawn sample has all the prompts of one unit, and no prompt of another."""
    sample = Sample(np.arange(1.0, 11.0).reshape(5, 2), np.array([4, 4, 7, 9, 9]))
    wholes = [[[1, 2], [3, 4]], [[5, 6]], [[7, 8], [9, 10]]]
    drawn = [sample.redrawn(np.random.default_rng(seed)) for seed in range(20)]
    chosen = [[wholes.index(x.influence[x.units == label].tolist()) for label in np.unique(x.units)] for x in drawn]
    assert all(len(units) == 3 for units in chosen)
    assert {*np.concatenate(chosen)} == {0, 1, 2} and any(len({*units}) < 3 for units in chosen)
