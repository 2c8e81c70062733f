import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.theorems.depth import sharp_attention_floor
from studies.theorems.network_bounds import Network, opposed_network, random_network


@given(st.integers(0, 200), st.floats(0, 1), st.sampled_from([None, [0.3, 1.1]]))
def test_a_random_network_stays_within_its_bounds(seed, slope, theta):
    rng = np.random.default_rng(seed)
    drawn = random_network(5, 4, rng.uniform(0.5, 2, 6), rng.uniform(0, 1, 6), rng, logit_norm=3.0)
    theta = None if theta is None else np.array(theta)
    net = Network(drawn.X, drawn.W_qk, drawn.W_v, drawn.lambda_, slope, theta)
    run, (C, floors) = net.run(), net.bounds(floor=sharp_attention_floor)
    assert (run.norms <= C[1:] * (1 + 1e-12)).all() and (run.floors >= floors * (1 - 1e-12)).all()
    assert (net.bounds()[1] <= floors).all()


@pytest.mark.parametrize(("n", "slope", "theta"), [(2, 0.0, None), (6, 0.0, None), (2, 1.5, None), (6, 0.0, 0.7)])
def test_the_opposed_network_attains_both_bounds(n, slope, theta):
    net = opposed_network(n, [1.5, 1.0, 2.0], [0.3, 0.9, 0.5], logit=1.2, slope=slope, theta=theta)
    run, (C, floors) = net.run(), net.bounds(floor=sharp_attention_floor)
    assert run.norms[-1] == pytest.approx(C[-1]) == pytest.approx(1.15 * 1.5)
    assert run.floors[0] == pytest.approx(floors[0])
    assert net.run(logit_factor=1.05).floors[0] < floors[0] * 0.95


def test_bounds_by_hand():
    """States twice as long after layer 1: logits of layer 2 may be four times as large."""
    net = opposed_network(2, [3.0, 1.0], [0.5, 0.5], logit=0.25, slope=0.5)
    C, floors = net.bounds()
    assert C.tolist() == pytest.approx([1, 2, 2])
    assert floors.tolist() == pytest.approx([0.5 * np.exp(-1), 0.5 * np.exp(-2.5)])


@pytest.mark.parametrize(
    "call",
    [
        lambda: opposed_network(2, [-1.0], [0.5], logit=1.0),
        lambda: opposed_network(2, [1.0], [0.5], logit=-1.0),
        lambda: opposed_network(2, [1.0], [0.5, 0.5], logit=1.0),
        lambda: opposed_network(0, [1.0], [0.5], logit=1.0),
        lambda: random_network(2, 2, [[1.0]], [0.5], np.random.default_rng(0)),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(ValueError, match="expected .* received"):
        call()
