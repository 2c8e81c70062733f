"""The residual mixing's checks and the example of the page ``rollout``, on numbers whose answer is known."""

import numpy as np

from studies.published import mixing
from studies.published.example import profile, shifted


def test_a_trend_of_ten_models_is_told_from_none():
    falling = {str(k): np.linspace(1, 0.1, 12) for k in range(10)}
    rng = np.random.default_rng(0)
    assert mixing.may_mostly_fall(falling) and not mixing.may_mostly_fall(mixing.shuffled(falling, rng))
    assert (mixing.trends({name: x[::-1] for name, x in falling.items()}) == "rises").all()


def test_half_is_not_below_half():
    small = {"a": np.full(10, 0.4), "b": np.full(10, 0.4)}
    assert mixing.below_half([small])
    assert not mixing.below_half([small, {"c": np.full(10, 0.5)}])
    assert mixing.share_below({"a": np.array([0.1, 0.9])}) == 0.5


def test_the_example_is_a_distribution_that_the_residual_holds_at_the_end():
    assert np.isclose(profile(0.1).sum(), 1) and profile(0.1)[-1] > profile(0.5)[-1] > profile(1.0)[-1]
    assert np.isclose(shifted(profile(0.1)).sum(), 1)
