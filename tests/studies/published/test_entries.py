"""The frame of printed distances: complete, beside the right rollout."""

import pytest

from posbias.published import numbers
from posbias.rollout.profiles import mean_position
from studies.published.entries import entry_frame
from studies.published.variants import variant_profile


@pytest.fixture(scope="module")
def entries():
    return entry_frame()


def test_every_printed_entry_is_a_row(entries):
    assert len(entries) == numbers.ENTRIES and not entries.isna().any().any()
    kept = {(r.table, r.model, r.variant, r.dataset): (r.n, r.printed, r.low, r.high) for r in entries.itertuples()}
    for e in numbers.printed_tables():
        assert kept[e.table, e.model, e.variant, e.dataset] == (e.n, e.wasserstein, e.low, e.high)


def test_content_is_of_its_own_data_set_and_b_of_fineweb(entries):
    assert (entries.query("variant == 'c'").schedule == entries.query("variant == 'c'").dataset).all()
    assert set(entries.query("variant != 'c'").schedule) == {"fineweb-edu"}
    row = entries.query("table == 3 and model == 'mpt-7b' and variant == 'c' and dataset == 'dclm'").iloc[0]
    assert row["mean"] == mean_position(variant_profile("mpt-7b", "c", 256, "dclm"))


def test_own_schedules_change_b_elsewhere_only(entries):
    own = entry_frame(own_schedule=True)
    changed = own.loc[own["mean"] != entries["mean"]]
    assert set(changed.variant) == {"b"} and set(changed.dataset) == {"dclm", "wikipedia"}
    assert len(changed) == 2 * 2 * 5


def test_reading_changes_means(entries):
    faithful = entry_frame(reading="both")
    same = faithful["mean"] == entries["mean"]
    assert same[(entries.model == "mpt-7b") & (entries.variant == "b")].all()
    assert not same[(entries.model == "falcon-rw-7b") & (entries.variant != "a")].any()
