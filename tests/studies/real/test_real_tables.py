"""When the start is said to have too much by the gradient; what tables say, the chapter prints."""

import numpy as np
import xarray as xr

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
