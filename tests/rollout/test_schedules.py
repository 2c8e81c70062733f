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
        (lambda: schedules.power_decay(3, 0.5, float("nan")), "beta"),
        (lambda: schedules.custom([0.1, 1.1]), "lambdas_custom"),
        (lambda: schedules.custom([0.1, float("nan")]), "lambdas_custom"),
    ],
)
def test_values_outside_are_refused_not_clipped(make, field):
    with pytest.raises(ValueError, match=field):
        make()


def test_a_schedule_of_another_length_is_refused():
    with pytest.raises(ValueError, match="expected 3 values, one for each layer, received 2"):
        schedules.custom([0.1, 0.2], T=3)


@pytest.mark.parametrize("T", [0, -1])
def test_no_layers_are_refused(T):
    with pytest.raises(ValueError, match="T: expected"):
        schedules.constant(T, 0.1)
