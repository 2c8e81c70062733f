import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from posbias import alibi_slopes, structured_kernels
from posbias.rollout import masks, operators

SLOPES = st.sampled_from([1e-12, 1e-6, 1e-3, 0.1, 0.9, 0.999999, 1.0, 3.0, 60.0, 900.0])
CONTENT = st.sampled_from([-1000.0, -60.0, -1.0, 0.0, 0.5, 40.0, 1000.0])
MASKS = st.one_of(
    st.just(masks.full()),
    st.just(masks.causal()),
    st.integers(1, 50).map(masks.sliding_window),
    st.integers(1, 50).map(masks.prefix),
)


@settings(max_examples=200)
@given(st.data(), st.integers(1, 40), st.integers(1, 3), MASKS)
def test_linear_equals_dense(data, n, H, mask):
    slope = data.draw(st.one_of(st.none(), st.lists(SLOPES, min_size=H, max_size=H)))
    kernels = structured_kernels(
        1,
        slope=slope,
        diagonal=data.draw(st.lists(CONTENT, min_size=H, max_size=H)),
        mask=mask,
        weights=data.draw(st.lists(st.floats(0.1, 3.0), min_size=H, max_size=H)),
        H=H,
    )
    v = np.array(data.draw(st.lists(st.floats(0, 1), min_size=n, max_size=n)))
    A = kernels.dense(0, n)
    assert np.abs(kernels.kernel(0, n).rmatvec(v) - v @ A).max() < 1e-12 * max(1.0, v.sum())


@settings(max_examples=25)
@given(st.integers(1, 40), st.integers(1, 1600), MASKS)
@example(length=7, n=1600, mask=masks.sliding_window(900))
@example(length=512, n=1024, mask=masks.causal())
def test_segments_do_not_show(length, n, mask):
    """The sum is taken in segments: any length of segment gives the same vector."""
    kernels = structured_kernels(1, slope=alibi_slopes(3), diagonal=[0.3, -2.0, 5.0], mask=mask)
    v = np.random.default_rng(n).random(n)
    v /= v.sum()
    whole = kernels.kernel(0, n).rmatvec(v)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "SEGMENT", length)
        assert np.abs(kernels.kernel(0, n).rmatvec(v) - whole).max() < 1e-13


def test_beyond_the_range_where_row_sums_still_change():
    """Far from the start the row sums are taken as constant: the dense row there agrees."""
    n, slopes = 6000, [0.05, 0.3]
    v = np.zeros(n)
    v[-1] = 1.0
    row = np.mean([np.exp(-m * np.arange(n)[::-1]) / np.exp(-m * np.arange(n)).sum() for m in slopes], axis=0)
    assert np.abs(structured_kernels(1, slope=slopes).kernel(0, n).rmatvec(v) - row).max() < 1e-14


def test_layers_take_their_own_numbers():
    kernels = structured_kernels(3, slope=[[0.1], [0.2], [0.3]], diagonal=[1.0, 2.0], weights=[3.0, 1.0])
    assert kernels.H == 2 and not kernels.same_in_every_layer
    slopes, diagonal, weights = kernels.layer(2)
    assert slopes.tolist() == [0.3, 0.3] and diagonal.tolist() == [1.0, 2.0] and weights.tolist() == [0.75, 0.25]
    assert structured_kernels(3, slope=0.1, diagonal=[[1.0]] * 3).same_in_every_layer
    assert not structured_kernels(2, slope=[0.1, 0.2], weights=[[1.0, 3.0], [3.0, 1.0]]).same_in_every_layer
