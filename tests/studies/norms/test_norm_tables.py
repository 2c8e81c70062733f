"""Tables of the measurements of norms, by hand on two prompts; the kept files; the network with a known answer."""

import numpy as np
import pytest

from studies.norms.control import UNDONE, control_network
from studies.norms.layernorm_simulation import layer_logits, recency_share
from studies.norms.tables import (
    lower_everywhere,
    with_effect,
    with_random_signs,
)


def test_falling_everywhere_is_noticed_and_nothing_else():
    rng = np.random.default_rng(3)
    changes = {name: -0.5 + rng.normal(size=40) for name in "abc"}
    effects = dict.fromkeys("abc", -1.0)
    assert lower_everywhere({name: x - 1 for name, x in changes.items()})
    assert not lower_everywhere({**{name: x - 1 for name, x in changes.items()}, "d": rng.normal(size=40)})
    assert all(lower_everywhere(with_effect(changes, effects, k)) for k in range(5))
    assert not any(lower_everywhere(with_random_signs(changes, k)) for k in range(5))
    drawn = with_effect(changes, effects, 0)["a"]
    assert set(np.round(drawn + 1, 9)) <= set(np.round(changes["a"] - changes["a"].mean(), 9))


def test_the_instrument_finds_the_known_recency_and_undoing_takes_it_away():
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((150, 8, 16)) + rng.standard_normal((150, 1, 16))) / 4
    control = control_network(X, 3)
    known = recency_share(layer_logits(X, 3, residual="pre"))
    for layer in (1, 2, 3):
        p, error = control.of("intact", layer)
        assert p == pytest.approx(known[layer - 1].mean(), abs=2e-3)
        assert error == pytest.approx(known[layer - 1].std() / np.sqrt(150), rel=0.05)
    second, error = control.of("keys, constant", 2)
    assert abs(second - 0.5) < 4 * error and control.of("intact", 2)[0] - 0.5 > 4 * error
    assert len(control.recency) == 3 * (1 + len(UNDONE)) and control.exponents[1] < 0
