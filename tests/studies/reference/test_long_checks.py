"""Checks of long prompts, on profiles made up so that the answer is known."""

import numpy as np

from posbias.comparison.samples import Sample
from studies.reference.fall_checks import closer_without_last, head_means, made_exponential
from studies.reference.long_checks import end_dominates, lead_turned, quarters

n = 64


def sample(profile):
    noise = np.random.default_rng(0).uniform(0.9, 1.1, (12, n))
    return Sample(profile / profile.sum() * noise, np.arange(12))


def test_the_end_dominates_until_its_lead_is_turned_around():
    rising = sample(np.linspace(1.0, 9.0, n))
    assert end_dominates({"a": rising}) and not end_dominates({"a": rising, "b": lead_turned(rising)})
    assert quarters(np.arange(4.0)).tolist() == [0, 1, 2, 3]


def test_a_power_law_is_told_from_an_exponential():
    power = sample((np.arange(n)[::-1] + 1.0) ** -0.9)
    assert closer_without_last(power) and not closer_without_last(made_exponential(power))


def test_heads_are_averaged():
    assert np.allclose(head_means(np.log([2.0, 4.0]), np.array([1.0])), (0.25 + 0.1875) / 2)
