from posbias.rollout import masks


def test_hand_computed():
    assert masks.causal().matrix(3).astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert masks.sliding_window(2).matrix(3).astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    assert masks.prefix(2).matrix(3).astype(int).tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    assert masks.full().matrix(2).all()
