"""When the start is said to have too much by the gradient; what tables say, the chapter prints."""

import numpy as np
import pytest
import xarray as xr

from studies.real import tables
from studies.real.checks import overstates_start


def test_the_start_has_too_much_if_it_has_more_than_its_use_and_the_end_has_less():
    values = np.ones((3, 16))
    entry = xr.Dataset({
        "gradient": (("prompt", "position"), values * [4, 2, *[1] * 14]),
        "replaced": (("prompt", "position"), values * [*[1] * 14, 3, 5]),
    })  # fmt: skip
    assert overstates_start(entry) and not overstates_start(entry.isel(position=slice(None, None, -1)))
    place = xr.DataArray(np.arange(16), dims="position")
    both = entry.gradient * xr.where(place == 1, 4, xr.where(place > 13, 10, 1))
    assert not overstates_start(entry.assign(gradient=both)), "the end has too much, too"


def test_within_a_prompt_only_places_that_both_have_count():
    entry = xr.Dataset({
        "gradient": (("prompt", "position"), np.array([[4.0, 1, 1, 2], [2, 3, 3, 4]])),
        "replaced": (("prompt", "position"), np.array([[1.0, np.nan, 1, 4], [1, 2, np.nan, 4]])),
    })  # fmt: skip
    ranks = np.array([3.0, 1, 2]), np.array([1.5, 1.5, 3])
    assert tables.within_prompts(entry)[0] == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert tables.within_prompts(entry).shape == (2,)
