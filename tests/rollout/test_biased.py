"""Kernels with position biases: fast paths against written-out matrices."""

import numpy as np
import pytest

from posbias.configuration import RolloutConfig
from posbias.rollout import masks
from posbias.rollout.influence import influence_profile, rollout_matrix
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.position_bias import AlibiBias, FlatBias, LogBias, NoBias, describe
from posbias.rollout.structured import biased_kernels, head_kernel
from posbias.rollout.untrained import aligned_profile, untrained_profile

HEADS = [
    (NoBias(), 0.0), (NoBias(), 2.0), (AlibiBias(0.1), 0.5), (AlibiBias(-0.1), 0.5), (LogBias(1.4), 0.0),
    (LogBias(-0.9), -3.0), (LogBias(30.0), 700.0), (LogBias(100.0), 0.0),
    *((FlatBias(tau), 0.0) for tau in (0.05, 1.0, 4.8, 12.0, 60.0)), (LogBias(-2.5), 0.3),
]  # fmt: skip
MASKS = [masks.causal(), masks.sliding_window(2), masks.prefix(2), masks.full()]


def written_out(bias, diagonal, n, mask=MASKS[0]):
    return attention_kernel(bias.logits(n) + diagonal * np.eye(n), mask)


@pytest.mark.parametrize("n", [1, 3, 700])
@pytest.mark.parametrize(("bias", "diagonal"), HEADS)
def test_rows_and_columns_go_through_as_through_the_matrix(bias, diagonal, n):
    X = np.random.default_rng(n).standard_normal((n, 3))
    for mask in MASKS if n < 700 else MASKS[:1]:
        A, kernel = written_out(bias, diagonal, n, mask), head_kernel(bias, n, diagonal, mask)
        assert np.allclose(A.sum(1), 1) and not (A * ~mask.matrix(n)).any()
        assert abs(kernel.rmatmat(X) - A.T @ X).max() < 1e-12
        assert abs(kernel.rmatvec(X[:, 0]) - X[:, 0] @ A).max() < 1e-12
        assert n == 700 or abs(kernel @ X - A @ X).max() < 1e-12


def test_heads_are_mixed_by_their_weights(n=300):
    heads = [
        {"kind": "flat", "tau": 0.5},
        {"kind": "none"},
        {"kind": "alibi", "slope": 0.2},
        {"kind": "flat", "tau": 9.0},
    ]
    kernels = biased_kernels(2, heads, weights=np.arange(1.0, 5))
    v = np.random.default_rng(0).random(n)
    assert abs(kernels.kernel(1, n).rmatvec(v) - v @ kernels.dense(1, n)).max() < 1e-12


MIXED = [
    [describe(FlatBias(2.0)), describe(AlibiBias(0.3)), describe(LogBias(1.0))],
    [describe(NoBias()), describe(FlatBias(3.0)), describe(LogBias(2.0))],
]


@pytest.mark.parametrize("biases", [describe(LogBias(1.2)), describe(FlatBias(2.0)), MIXED[0], MIXED])
def test_profiles_and_both_laws_against_matrices(biases, n=40):
    lambda_ = [0.3, 0.6]
    kernels = biased_kernels(2, biases, weights=None)
    dense = np.stack([kernels.dense(t, n) for t in range(2)])
    assert abs(influence_profile(kernels, lambda_, n) - rollout_matrix(dense, lambda_)[-1]).max() < 1e-14
    rows = kernels.biases if len(kernels.biases) == 2 else kernels.biases * 2
    heads = np.array([[written_out(bias, 0.0, n) for bias in row] for row in rows])
    for law in (untrained_profile, aligned_profile):
        assert abs(law(kernels, [0.5, 0.8], n) - law(heads, [0.5, 0.8], n)).max() < 1e-13


def test_one_kernel_for_all_layers_is_seen():
    assert biased_kernels(3, MIXED[0]).same_in_every_layer
    assert biased_kernels(3, [MIXED[0]] * 3).same_in_every_layer
    assert not biased_kernels(2, MIXED).same_in_every_layer
    for first, second in ((LogBias(1.0), LogBias(2.0)), (FlatBias(2.0), FlatBias(3.0))):  # nothing but their numbers
        assert not biased_kernels(2, [[describe(first)], [describe(second)]]).same_in_every_layer
    assert not biased_kernels(2, MIXED[0], diagonal=[[0.0], [1.0]]).same_in_every_layer


SHORT = {"sequence_length": 30, "num_layers": 2, "position_bias": describe(FlatBias(2.0))}
SHORT["lambda_schedule_config"] = {"schedule_type": "constant", "lambda_const": 0.4}


def test_a_configuration_with_a_bias_alone():
    p = RolloutConfig.model_validate(SHORT).profile()
    assert (p == influence_profile(biased_kernels(2, SHORT["position_bias"]), [0.4, 0.4], 30)).all()
