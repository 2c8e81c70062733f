"""Rotary kernels: their tables, the nearest ALiBi kernel, and the distance of kernels."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("pandas", reason="pandas is not installed")

from posbias import influence_profile
from posbias.rollout import masks
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.logits import position_logits
from studies.ladder import rotary_tables
from studies.ladder.rotary import kernel_variation, nearest_slope

T, H, D, N = 2, 3, 4, 5
LAMBDA = np.array([0.2, 0.5])
UNIFORM = np.tril(np.ones((N, N))) / np.arange(1, N + 1)[:, None]


def study(query):
    """Return a study whose kernels all have the profile of uniform attention but the last-named, which is exact."""
    uniform = influence_profile(np.stack([UNIFORM] * T), LAMBDA)
    profile = np.stack([uniform] * (len(rotary_tables.LABELS) - 1) + [INFLUENCE])
    kernels = list(rotary_tables.LABELS)
    return xr.Dataset(
        {
            "profile": (("kernel", "position"), profile),
            "variation": (("kernel", "layer"), np.arange(len(kernels))[:, None] + np.zeros(T)),
            "first": (("kernel", "layer"), np.full((len(kernels), T), 0.25)),
            "variance": (("source", "layer", "position"), np.ones((2, T, N)) * np.arange(N)),
            "query": (("layer", "head", "feature"), np.broadcast_to(query, (T, H, D))),
            "key": (("layer", "head", "feature"), np.ones((T, H, D))),
            "theta": (("pair",), np.array([1.0, 0.1])),
            "scale": (("layer",), np.ones(T)),
        },
        coords={"kernel": kernels, "source": ["keys", "both"]},
    )


INFLUENCE = np.array([0.1, 0.1, 0.1, 0.2, 0.5])


@pytest.fixture
def kept():
    fields = {
        "influence": (("position",), INFLUENCE),
        "influence_prompts": (("prompt", "position"), np.stack([INFLUENCE, 2 * INFLUENCE])),
        "lambda_frobenius": (("layer",), LAMBDA),
        "window": (("layer",), np.array([0, 2])),
    }
    return {"one.builtin": xr.Dataset(fields)}


def test_without_a_mean_query_attention_is_uniform_in_its_window(kept):
    A = rotary_tables.mean_kernels(study(np.zeros(D)), kept["one.builtin"])
    assert np.allclose(A[0], UNIFORM)
    assert np.allclose(A[1], np.diag([1, *[0.5] * (N - 1)]) + np.diag([0.5] * (N - 1), -1))


def test_mean_queries_make_waves_and_heads_are_averaged(kept):
    heads = np.zeros((H, D))
    heads[0, 0] = 1  # ⟨Θ_x (1, 0), (1, 1)⟩ = cos x + sin x; the other heads attend evenly
    A = rotary_tables.mean_kernels(study(heads), kept["one.builtin"])
    waves = np.exp(np.cos(np.arange(N)) + np.sin(np.arange(N)))[::-1]
    assert np.allclose(A[0, -1], (waves / waves.sum() + 2 / N) / 3)


def test_scores_and_baselines(kept):
    table = rotary_tables.rotary_scores({("one", 256): study(np.zeros(D))}, kept)
    W1 = table.set_index("kernel")["W1"]
    assert list(W1.index) == [*rotary_tables.LABELS, "last", "recency"]
    assert W1["measured"] == 0 and W1["last"] == pytest.approx(1 - INFLUENCE @ np.arange(N) / (N - 1))
    assert W1["mean"] == W1["uniform"] > 0 and W1["recency"] < W1["last"]
    own = table.set_index("kernel")
    assert own["variation"]["mean"] == 1 and np.isnan(own["variation"]["measured"]) and own["sink"]["mean"] == 0.25


def test_gains_of_kernels(kept):
    pairs = [("mean", "measured"), ("measured", "mean")]
    table = rotary_tables.rotary_gains({("one", 256): study(np.zeros(D))}, kept, pairs, resamples=20)
    assert table["gain"].iloc[0] == -table["gain"].iloc[1] > 0


def test_lengths_of_a_pair_are_one_family(kept):
    """50 resamples give p ≥ 2/51: enough for one comparison at 5%, not for two."""
    both = kept | {"one.builtin-1024": kept["one.builtin"]}
    studies = {("one", n): study(np.zeros(D)) for n in (256, 1024)}
    pairs = [("mean", "measured")]
    table = rotary_tables.rotary_gains(studies, both, pairs, resamples=50)
    assert (table["p_value"] == 2 / 51).all() and not table["decided"].any()
    alone = rotary_tables.rotary_gains({("one", 256): study(np.zeros(D))}, kept, pairs, resamples=50)
    assert alone["decided"].tolist() == [1]


def test_studies_by_model_then_length():
    kept = {name: xr.Dataset() for name in ("one.rotary-1024", "one.rotary", "two.rotary", "three.rotary", "one.gap")}
    found = rotary_tables.read_rotary(kept, ["two", "none", "one"])
    assert list(found) == [("two", 256), ("one", 256), ("one", 1024)]


RNG = np.random.default_rng(0)


def test_two_tokens_by_hand():
    """Row 2 holds 1/4 and 3/4: e^-m = 1/3."""
    A = np.array([[1.0, 0.0], [0.25, 0.75]])
    assert nearest_slope(A, masks.causal()) == pytest.approx(np.log(3))
    assert kernel_variation(A, np.array([[1.0, 0.0], [0.5, 0.5]])) == pytest.approx(0.25)


@pytest.mark.parametrize("mask", [masks.causal(), masks.sliding_window(4)])
@pytest.mark.parametrize("slope", [0.0, 0.03, 0.7, 5.0])
def test_a_slope_is_found_again(mask, slope):
    A = attention_kernel(position_logits(300, slope), mask)
    assert nearest_slope(A, mask) == pytest.approx(slope, abs=1e-6)
    backwards = attention_kernel(-position_logits(300, slope), mask)
    assert nearest_slope(backwards, mask) == pytest.approx(-slope, abs=1e-6)


def test_no_other_slope_is_nearer():
    """The divergence itself, minimised by another route."""
    A = attention_kernel(RNG.normal(size=(9, 9)), masks.causal())
    seen = np.tri(9, dtype=bool)

    def divergence(m):
        x = np.subtract.outer(np.arange(9), np.arange(9))
        B = attention_kernel(-m * x.astype(float), masks.causal())
        return (A[seen] * np.log(A[seen] / B[seen])).sum()

    assert nearest_slope(A, masks.causal()) == pytest.approx(minimize_scalar(divergence).x, abs=1e-5)


def test_variation_is_a_distance():
    A, B, C = attention_kernel(RNG.normal(size=(3, 4, 7, 7)), masks.causal())
    assert kernel_variation(A, B).shape == (4,)
    assert (kernel_variation(A, A) == 0).all() and (kernel_variation(A, B) == kernel_variation(B, A)).all()
    assert (kernel_variation(A, C) <= kernel_variation(A, B) + kernel_variation(B, C) + 1e-15).all()
    last, first = np.eye(5), np.eye(5)[[0] * 5]
    assert kernel_variation(last, first) == 1.0
