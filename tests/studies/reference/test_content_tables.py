"""Tables of content logits and kernels, on measurements made up so that the answer is known."""

import numpy as np
import pytest

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from posbias.comparison.distances import total_variation
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.logits import position_logits
from posbias.rollout.masks import causal, sliding_window
from studies.reference.content_tables import (
    constant_plus_diagonal,
    diagonal_stands_out,
    fits_by_head,
    fits_by_layer,
    kernel_distances,
    leaning_back,
    quarter_diagonal,
    scaling_by_model,
    second_softmax,
    shuffled_keys,
    similarity_of_means,
    with_logits,
    without_diagonal,
    without_noise,
)

T, H, n = 2, 2, 6
VISIBLE = np.tril(np.ones((n, n), dtype=bool))


def measured(offset=1.0, noise=0.0, slope=0.3, window=0, seed=0):
    """Return content logits of a constant and a diagonal with noise, and the kernels that follow from them."""
    rng = np.random.default_rng(seed)
    content = 2 + offset * np.eye(n) + noise * rng.normal(size=(T, H, n, n))
    content[..., ~VISIBLE] = np.nan
    mask = sliding_window(window) if window else causal()
    kernel = attention_kernel(position_logits(n, slope) + offset * np.eye(n), mask)
    return xr.Dataset(
        {
            "content_logits": (("layer", "head", "query", "key"), content),
            "content_diagonal": (("layer", "head"), np.full((T, H), 2 + offset)),
            "content_offdiagonal": (("layer", "head"), np.full((T, H), 2.0)),
            "attention": (("layer", "query", "key"), np.stack([kernel] * T)),
            "slopes": (("layer", "head"), np.full((T, H), slope)),
            "window": (("layer",), np.full(T, window)),
        }
    )


def test_the_fit_is_that_of_least_squares():
    rng = np.random.default_rng(0)
    C = np.where(np.tril(np.ones((7, 7))) > 0, rng.normal(size=(7, 7)) + 2 * np.eye(7), np.nan)
    C[6, 0] = np.nan  # a band that is masked further counts only what is seen
    rows, columns = np.nonzero(~np.isnan(C))
    design = np.column_stack([np.ones(rows.size), rows == columns])
    (c, d), *_ = np.linalg.lstsq(design, C[rows, columns], rcond=None)
    left = C[rows, columns] - design @ [c, d]
    assert constant_plus_diagonal(C) == pytest.approx((c, d, left.var()))


def test_what_is_left_without_noise_by_simulation():
    rng = np.random.default_rng(0)
    prompts = rng.normal(size=(64, 20_000)) * 2 + rng.normal(size=20_000) * 0.5
    left = without_noise(*(x.mean(0).var(keepdims=True) for x in (prompts, prompts[:16])), 0.25)
    assert left == pytest.approx(0.25, abs=0.02)
    assert without_noise(np.array([1.0]), np.array([9.0]), 0.25) == 0


def test_fits_by_head_and_layer():
    heads = fits_by_head(measured(noise=0.1), measured(noise=0.2, seed=1), 0.25)
    assert heads.index.tolist() == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert heads["diagonal"].to_numpy() == pytest.approx(1.0, abs=0.3)
    assert (heads["variance"] < heads["variance_few"]).all()
    layers = fits_by_layer(heads)
    assert layers.loc[1, "lowest"] == heads.loc[1, "diagonal"].min()
    assert layers.loc[2, "std"] == pytest.approx(heads.loc[2, "variance"].mean() ** 0.5)
    exact = fits_by_head(measured(), measured(), 0.25)
    assert exact["diagonal"].to_numpy() == pytest.approx(1.0) and exact["structure"].max() < 1e-20


@pytest.mark.parametrize("window", [0, 3])
def test_kernels_from_what_made_them_are_at_no_distance(window):
    distances = kernel_distances(measured(window=window))
    assert distances[["constant and diagonal", "mean content"]].to_numpy() == pytest.approx(0, abs=1e-12)
    assert (distances["position only"] > 0.05).all() and distances.index.tolist() == [1, 2]
    mask = sliding_window(window) if window else causal()
    bare, made = attention_kernel(position_logits(n, 0.3), mask), measured(window=window)["attention"].values[0]
    apart = [total_variation(p, q) for p, q in zip(bare, made, strict=True)]
    assert distances["position only"].to_numpy() == pytest.approx(np.mean(apart))


def test_similarity_of_mean_matrices():
    assert similarity_of_means(measured()).to_dict() == {"diagonal": 1.0, "offdiagonal": 1.0}
    noisy = similarity_of_means(measured(noise=1.0))
    assert noisy["offdiagonal"] < 0.8


def test_unscaled_content_inflates_the_diagonal(monkeypatch):
    from studies.reference import content_tables

    seen = []

    def predict(x, variant):
        seen.append(float((x["content_diagonal"] - x["content_offdiagonal"])[0, 0]))
        return np.array([0.5, 0.5])

    monkeypatch.setattr(content_tables, "predict", predict)
    rollout = (("variant", "position"), [[1.0, 0.0], [0.0, 1.0]])
    x = measured().assign_coords(variant=["b", "c"]).assign(rollout=rollout, influence=("position", [0.5, 0.5]))
    table = scaling_by_model({"a": x.assign_attrs(head_dim=16)})
    assert table.loc["a"].tolist() == pytest.approx([4, 0.5, 0.5, 0]) and seen == [pytest.approx(4.0)]


def test_a_second_softmax_hides_violations():
    x = measured()
    order = np.arange(n)
    mixed = x["attention"].values.copy()
    mixed[0, 4], mixed[0, 5] = np.where(order == 4, 1.0, 0), np.where(order == 0, 1.0, 0)
    found = second_softmax(x.assign(attention=(("layer", "query", "key"), mixed)))
    assert found.loc["violated", "measured"] > found.loc["violated", "again"]
    assert found.loc["shortfall", "measured"] > 0.01
    assert (second_softmax(x)["measured"] < 1e-9).all()


def test_a_diagonal_stands_out_or_not():
    many, few = measured(noise=0.1), measured(noise=0.2, seed=1)
    assert diagonal_stands_out(many, few, 0.25)
    logits, fewer = many["content_logits"].values, few["content_logits"].values
    for broken in (without_diagonal, shuffled_keys):
        assert not diagonal_stands_out(with_logits(many, broken(logits)), with_logits(few, broken(fewer)), 0.25)
    band = np.tril(np.ones((n, n)), -1) * 0.9  # next to the diagonal as high as on it
    raised = [with_logits(x, x["content_logits"].values + band - np.tril(band, -2)) for x in (many, few)]
    assert not diagonal_stands_out(*raised, 0.25)


def test_what_broken_logits_and_kernels_are():
    logits = measured()["content_logits"].values
    lower = quarter_diagonal(logits)
    assert np.allclose(np.diagonal(lower, axis1=-2, axis2=-1), 2.25) and np.nanmin(lower) == 2
    shuffled = shuffled_keys(logits)
    assert np.array_equal(np.isnan(shuffled), np.isnan(logits)) and not np.array_equal(shuffled, logits, equal_nan=True)
    assert np.allclose(np.nansum(shuffled, -1), np.nansum(logits, -1))
    A = measured()["attention"].values[0]
    moved = leaning_back(A, 0.2)
    assert np.allclose(moved.sum(1), 1) and moved[-1, 0] == pytest.approx(0.8 * A[-1, 0] + 0.2)
    assert np.array_equal(moved[0], A[0])
