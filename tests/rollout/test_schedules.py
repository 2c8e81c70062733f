import numpy as np
import pytest

from posbias.rollout import schedules


def test_power_decay_by_hand():
    assert np.allclose(schedules.power_decay(3, 0.8, 2.0), [0.8, 0.2, 0.8 / 9])


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: schedules.constant(3, 1.2), "lambda_const"),
        (lambda: schedules.power_decay(3, 1.5, 1.0), "power_decay"),
        (lambda: schedules.constant(0, 0.1), "T: expected"),
    ],
)
def test_values_outside_are_refused_not_clipped(make, field):
    with pytest.raises(ValueError, match=field):
        make()
