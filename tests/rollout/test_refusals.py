"""What functions of numbers refuse: a call a row, and how the message begins."""

import numpy as np
import pytest

import posbias
from posbias import Profile, attention_kernel, influence_profile, structured_kernels, u_shape
from posbias.comparison.resampling import resampled_profiles
from posbias.comparison.scores import paired_gain, score
from posbias.configuration import RolloutConfig
from posbias.rollout import masks, schedules
from posbias.rollout.clock import hop_distribution, poisson_distribution
from posbias.rollout.position_bias import layered_biases
from posbias.rollout.structured import biased_kernels
from posbias.rollout.untrained import untrained_profile

ONE, TWO = structured_kernels(1, slope=0.1), structured_kernels(2, slope=0.1)
LOG, FLAT = {"kind": "log", "alpha": 1.0}, {"kind": "flat", "tau": 2.0}
BAD, EVEN = np.full((2, 2), 0.7), np.full(16, 1 / 16)
G = np.random.default_rng(3).gamma(2.0, size=(40, 16))
A = np.tril(np.ones((4, 3, 9, 9))) / np.arange(1, 10)[:, None]


def untrained(**changes):
    return untrained_profile(**{"kernels": A, "gains": np.ones(4)} | changes)


def configured(**changes):
    short = {"sequence_length": 30, "num_layers": 2, "position_bias": FLAT}
    short["lambda_schedule_config"] = {"schedule_type": "constant", "lambda_const": 0.4}
    return RolloutConfig.model_validate(short | changes).kernels()


ROWS = [
    (lambda: masks.sliding_window(0), "window: expected an integer of at least 1"),
    (lambda: masks.prefix(-1), "prefix: expected an integer of at least 1"),
    (lambda: masks.causal().matrix(0), "n: expected an integer of at least 1"),
    (lambda: schedules.constant(3, 1.2), "lambda_const: expected values in"),
    (lambda: schedules.power_decay(3, 1.5, 1.0), "power_decay: expected values in"),
    (lambda: schedules.constant(0, 0.1), "T: expected an integer of at least 1"),
    (lambda: posbias.position_logits(3, -0.1), "slope: expected a number"),
    (lambda: posbias.alibi_slopes(0), "H: expected an integer of at least 1"),
    (lambda: attention_kernel(np.full((2, 2), np.nan), masks.causal()), "logits: expected finite numbers"),
    (lambda: structured_kernels(2, weights=np.zeros(2)), "head_weights: expected weights"),
    (lambda: posbias.mix_heads([[[0.5, 0.4], [0.5, 0.5]]]), "A: expected rows that sum to 1"),
    (lambda: posbias.mix_heads([[[1.5, -0.5], [0.5, 0.5]]]), "A: expected no negative weight"),
    (lambda: hop_distribution([0.5, 1.5]), "lambda_: expected values in"),
    (lambda: poisson_distribution(-1.0), "tau: expected total mixing"),
    (lambda: poisson_distribution(np.inf), "tau: expected total mixing"),
    (lambda: influence_profile(np.full((2, 2), 0.4), [0.5]), "kernels: expected rows"),
    (lambda: influence_profile(np.stack([np.eye(3)] * 2), [0.5]), "lambda_: expected 2 values"),
    (lambda: influence_profile(np.eye(3), [1.5]), "lambda_: expected values in"),
    (lambda: influence_profile(np.eye(3), [0.5], 4), "n: expected 3, the size of the kernels"),
    (lambda: influence_profile(TWO, [0.5, 0.5]), "n: expected an integer"),
    (lambda: influence_profile(TWO, [0.5], 4), "lambda_: expected 2 values"),
    (lambda: influence_profile(np.eye(3), [0.5], 3, row=3), "row: expected a position"),
    (lambda: structured_kernels(2, slope=0.0), "slope: expected numbers above 0"),
    (lambda: structured_kernels(2, slope=[[0.1, 0.2], [0.3]]), "slope: expected a rectangular array"),
    (lambda: structured_kernels(2, slope=np.full(2, 0.1), diagonal=np.zeros((1, 3))), "slope: expected one number"),
    (lambda: structured_kernels(2, weights=[1.0, -1.0]), "head_weights: expected weights"),
    (lambda: biased_kernels(2, [LOG] * 3, diagonal=[1.0, 2.0]), "diagonal: expected one number, (3,)"),
    (lambda: biased_kernels(2, [LOG] * 3, H=2), "position_bias: expected one bias, or one for each of 2 heads"),
    (lambda: layered_biases([LOG], 3, 2), "position_bias: expected one bias, or one for each of 2 heads"),
    (lambda: layered_biases(3, 3, 2), "position_bias: expected a mapping, a list for heads, or a list of lists"),
    (lambda: layered_biases({"kind": "log", "alpha": np.nan}, 3), "position_bias.alpha: expected finite numbers"),
    (lambda: layered_biases({"kind": "log", "tau": 1.0}, 3), "position_bias: expected kind and alpha for log"),
    (lambda: configured(mask_config={"mask_type": "full"}), "mask_config.mask_type: expected causal"),
    (
        lambda: configured(attention_config={"num_heads": 1, "alibi_slopes": [[0.1]]}),
        "attention_config.alibi_slopes: expected []",
    ),
    (
        lambda: configured(attention_config={"num_heads": 1, "softmax_temperature": 2.0}),
        "attention_config.softmax_temperature: expected 1",
    ),
    (lambda: posbias.dominates([1.0], [0.5, 0.5]), "profiles: expected the same number"),
    (lambda: posbias.stochastic_monotonicity(BAD), "K: expected rows"),
    (lambda: u_shape(np.full(5, 0.2), ends=3), "profile: expected at least 8 positions"),
    (lambda: u_shape(np.full(5, 0.2), smooth=2), "smooth: expected an odd width"),
    (lambda: posbias.mean_position([0.5, 0.4]), "profile: expected probabilities that sum to 1"),
    (lambda: u_shape([np.nan, 1.0]), "profile: expected finite numbers"),
    (lambda: posbias.normalised_wasserstein([1.5, -0.5], [0.5, 0.5]), "first profile: expected no negative"),
    (lambda: Profile([0.5, 0.6]), "profile: expected probabilities that sum to 1"),
    (lambda: Profile(["a"]), "profile: expected a rectangular array of numbers"),
    (
        lambda: Profile([0.5, 0.5], prompts=[[1.0, 2.0, 3.0]]),
        "prompts: expected an array (N, 2), received shape (1, 3)",
    ),
    (lambda: resampled_profiles(-G, 3), "influence: expected"),
    (lambda: resampled_profiles(np.where(G > 3, np.nan, G), 3), "influence: expected finite numbers"),
    (lambda: resampled_profiles(G * (np.arange(40) > 0)[:, None], 3), "influence: expected"),
    (lambda: score(G, np.full(3, 1 / 3)), "prediction: expected 16 positions, as measured, received 3"),
    (lambda: paired_gain(G, np.ones(1), EVEN), "before: expected 16 positions, as measured"),
    (lambda: paired_gain(G, EVEN, np.full(17, 1 / 17)), "after: expected 16 positions, as measured"),
    (lambda: untrained(gains=np.ones((4, 4))), "gains: expected (4,) or (4, 3) numbers"),
    (lambda: untrained(gains=np.ones(3)), "gains: expected (4,) or (4, 3) numbers"),
    (lambda: untrained(gains=[]), "gains: expected (4,) or (4, 3) numbers"),
    (lambda: untrained(gains=np.full(4, 1e200)), "gains: expected (4,) or (4, 3) numbers from 0 to 1e+40"),
    (lambda: untrained(outputs=-np.ones((4, 9))), "outputs: expected (4, 9) numbers from 0"),
    (lambda: untrained(kernels=structured_kernels(4)), "n: expected an integer"),
]


@pytest.mark.parametrize("row", range(len(ROWS)))
def test_it_is_refused_with_the_field_and_what_was_expected(row):
    call, begins = ROWS[row]
    with pytest.raises(ValueError) as refused:
        call()
    said = str(refused.value)
    assert said.startswith(begins) and ", received " in said and "\n" not in said
