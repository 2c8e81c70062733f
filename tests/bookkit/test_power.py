"""The power of checks: how often they notice what they should."""

import numpy as np

from bookkit.power import PowerCheck, least_power, power_check


def test_a_power_check_counts_failures_of_the_check():
    found = power_check("sums that are off by a tenth", [np.bool_(False), False, True, False])
    assert (found.noticed, found.trials, found.power) == (3, 4, 0.75)
    assert str(found) == "3/4 sums that are off by a tenth"
    assert least_power([found, PowerCheck("x", 1, 1)]) == 0.75
