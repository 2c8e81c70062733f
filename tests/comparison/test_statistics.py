"""Coverage, and families of comparisons."""

import itertools

import numpy as np
import pytest
from scipy import stats

from posbias.comparison.multiplicity import decide, holm, sign_p_value
from studies.statistics.coverage import coverage


def test_coverage_counts_and_brackets_its_share():
    def z_interval(rng, half=1.96):
        x = rng.normal(3.0, size=25).mean()
        return x - half / 5, x + half / 5

    found = coverage(z_interval, 3.0, 2000)
    assert found.share == found.contained / 2000 and found.low <= 0.95 <= found.high
    assert (found.low, found.high) == pytest.approx(stats.beta.ppf(
        [0.025, 0.975], [found.contained, found.contained + 1], [2001 - found.contained, 2000 - found.contained]
    ))  # fmt: skip
    assert coverage(lambda rng: z_interval(rng, 1.0), 3.0, 2000).high < 0.72
    assert coverage(z_interval, 3.0, 50) == coverage(z_interval, 3.0, 50)
    assert [coverage(lambda rng: (0.0, 1.0), truth, 4).share for truth in (0.0, 1.0, 1.001)] == [1, 1, 0]  # ends count
    with pytest.raises(ValueError, match="interval: expected low ≤ high, received 1.0 to 0.0"):
        coverage(lambda rng: (1.0, 0.0), 0.5, 3)


def closed_testing(p):
    """Holm's rule as it is derived: a claim stands if every family that holds it rejects by Bonferroni."""
    m = len(p)
    families = [set(f) for k in range(1, m + 1) for f in itertools.combinations(range(m), k)]
    return [max(min(1, len(f) * min(p[k] for k in f)) for f in families if i in f) for i in range(m)]


def test_holm_is_the_closure_of_bonferroni():
    rng = np.random.default_rng(0)
    for m in (1, 2, 5):
        for _ in range(20):
            p = rng.uniform(size=m) ** 2
            assert holm(p) == pytest.approx(closed_testing(p))


def test_families_make_a_false_claim_no_more_often_than_they_say():
    p = np.random.default_rng(1).uniform(size=(2000, 10))
    assert np.mean([(decide(np.ones(10), row) != 0).any() for row in p]) < 0.065
    assert (p <= 0.05).any(1).mean() > 0.3


def test_the_p_value_is_the_level_at_which_the_interval_reaches_zero():
    x = np.random.default_rng(2).normal(1.5, size=4999)
    p = sign_p_value(x)
    assert p == pytest.approx(2 * stats.norm.sf(1.5), rel=0.1)
    assert np.quantile(x, p / 2) == pytest.approx(0, abs=0.01)
    assert sign_p_value(-x) == p and sign_p_value(np.ones(99)) == 0.02 and sign_p_value(np.zeros(9)) == 1
