import numpy as np
import pytest

from posbias.rollout import masks


def test_hand_computed():
    assert masks.causal().matrix(3).astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert masks.sliding_window(2).matrix(3).astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    assert masks.prefix(2).matrix(3).astype(int).tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    assert masks.full().matrix(2).all()


@pytest.mark.parametrize("n", [1, 5])
def test_limits_agree(n):
    causal = masks.causal().matrix(n)
    assert (masks.sliding_window(n).matrix(n) == causal).all()
    assert (masks.prefix(1).matrix(n) == causal).all()
    assert (masks.prefix(n).matrix(n) == masks.full().matrix(n)).all()
    assert (masks.sliding_window(1).matrix(n) == np.eye(n)).all()


@pytest.mark.parametrize("make", [masks.sliding_window, masks.prefix])
@pytest.mark.parametrize("width", [0, -1, 2.0, True, None])
def test_widths_below_one_are_refused(make, width):
    with pytest.raises((ValueError, TypeError)):
        make(width)


@pytest.mark.parametrize("n", [0, -3])
def test_no_tokens_are_refused(n):
    with pytest.raises(ValueError, match="n: expected an integer of at least 1"):
        masks.causal().matrix(n)
