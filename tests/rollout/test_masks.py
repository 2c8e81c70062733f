import pytest

from posbias.rollout import masks


def test_hand_computed():
    assert masks.causal().matrix(3).astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert masks.sliding_window(2).matrix(3).astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    assert masks.prefix(2).matrix(3).astype(int).tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    assert masks.full().matrix(2).all()


def test_sizes_below_one_are_refused():
    for call in (lambda: masks.sliding_window(0), lambda: masks.prefix(-1), lambda: masks.causal().matrix(0)):
        with pytest.raises(ValueError, match="expected an integer of at least 1"):
            call()
