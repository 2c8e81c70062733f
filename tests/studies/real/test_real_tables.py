"""Tables of use by hand: means over the prompts that have a place, ends in equal shares, three distances."""

import numpy as np
import pytest
import xarray as xr

from studies.real import tables
from studies.real.checks import overstates_start

GRADIENT = np.array([[4.0, 1, 1, 2], [2, 3, 3, 4]])
REPLACED = np.array([[1.0, np.nan, 1, 4], [1, 2, np.nan, 4]])


@pytest.fixture
def entry():
    return xr.Dataset({"gradient": (("prompt", "position"), GRADIENT), "replaced": (("prompt", "position"), REPLACED)})


def test_profiles_are_means_of_what_is_there(entry):
    assert tables.profile_of(REPLACED).tolist() == [1 / 8, 2 / 8, 1 / 8, 4 / 8]
    assert tables.profile_of(-GRADIENT).tolist() == [6 / 20, 4 / 20, 4 / 20, 6 / 20]


def test_three_distances_by_hand(entry):
    entry = xr.concat([entry.isel(prompt=[k]) for k in (0, 0, 1, 1)], "prompt")  # both halves have every place
    table = tables.distance_table(entry)
    shares = np.array([6, 4, 4, 6]) / 20, np.array([1, 2, 1, 4]) / 8
    off = np.cumsum(shares[0] - shares[1])
    assert table.loc["gradient", "W1"] == pytest.approx(np.abs(off).sum() / 3)
    assert table.loc["gradient", "total_variation"] == pytest.approx(np.abs(shares[0] - shares[1]).sum() / 2)
    ranks = np.array([3.5, 1.5, 1.5, 3.5]), np.array([1.5, 3, 1.5, 4])
    assert table.loc["gradient", "spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert table.loc["last", "W1"] == pytest.approx((1 / 8 + 3 / 8 + 4 / 8) / 3) and np.isnan(
        table.loc["even", "spearman"]
    )
    back = tables.distance_table(entry, to="gradient")
    assert back.loc["replaced", "W1"] == table.loc["gradient", "W1"] and back.loc["half", "W1"] == 0


def test_ends_are_equal_shares_with_an_interval_over_prompts(entry):
    table = tables.share_table({"m": entry})
    first = table.loc[("m", "gradient")]
    assert (
        first["prompts"] == 2 and first["first"] == pytest.approx(4 * 0.3) and first["last"] == pytest.approx(4 * 0.3)
    )
    assert first["low"] == pytest.approx(4 * 2 / 12) and first["high"] == pytest.approx(4 * 4 / 8)


def test_within_a_prompt_only_places_that_both_have_count(entry):
    ranks = np.array([3.0, 1, 2]), np.array([1.5, 1.5, 3])
    assert tables.within_prompts(entry)[0] == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert tables.within_prompts(entry).shape == (2,)


def test_gaps_are_means_of_parts_over_their_use():
    values = np.ones((3, 16))
    entry = xr.Dataset({
        "gradient": (("prompt", "position"), values * [4, 2, *[1] * 14]),
        "replaced": (("prompt", "position"), values * [*[1] * 14, 3, 5]),
    })  # fmt: skip
    gaps = tables.gap_table({"m": entry}).loc["m"]
    assert list(gaps["gradient"]) == pytest.approx([16 * 4 / 20, 16 * 2 / 20, 16 / 20, 16 / 20])
    assert list(gaps["replaced"]) == pytest.approx([16 / 22, 16 / 22, 16 / 22, 16 * 4 / 22])
    assert list(gaps["times"]) == pytest.approx([4 * 1.1, 2 * 1.1, 1.1, 1.1 / 4])
    assert overstates_start(entry) and not overstates_start(entry.isel(position=slice(None, None, -1)))
    place = xr.DataArray(np.arange(16), dims="position")
    both = entry.gradient * xr.where(place == 1, 4, xr.where(place > 13, 10, 1))
    assert not overstates_start(entry.assign(gradient=both)), "the end has too much, too"
