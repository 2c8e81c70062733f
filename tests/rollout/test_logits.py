import numpy as np
import pytest

from posbias import alibi_slopes, geometric_slopes
from studies.rotation import rope_logits


@pytest.mark.parametrize("H", [1, 8])
def test_both_rules_agree_for_powers_of_two(H):
    assert np.allclose(alibi_slopes(H), geometric_slopes(H), rtol=1e-15)


@pytest.mark.parametrize("H", [3, 112])
def test_rule_for_other_numbers_of_heads(H):
    slopes, p = alibi_slopes(H), 2 ** int(np.log2(H))
    assert slopes.size == H
    assert np.allclose(slopes[:p], [2 ** (-8 * h / p) for h in range(1, p + 1)])
    assert np.allclose(slopes[p:], [2 ** (-4 * h / p) for h in range(1, 2 * (H - p), 2)])
    assert not np.allclose(np.sort(slopes), np.sort(geometric_slopes(H)))


def test_rope_turns_queries_and_keys_by_the_printed_matrix():
    rng, theta, n = np.random.default_rng(0), [0.3, 1.1], 4
    q, k = rng.normal(size=(2, n, 4))
    for i in range(n):
        for j in range(n):
            R = np.zeros((4, 4))
            for pair, angle in enumerate(theta):
                c, s = np.cos((i - j) * angle), np.sin((i - j) * angle)
                R[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = [[c, s], [-s, c]]
            assert rope_logits(q, k, theta)[i, j] == pytest.approx(q[i] @ R @ k[j])
