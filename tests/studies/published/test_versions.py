"""Which version of the paper each of our copies is from."""

from dataclasses import replace

import pytest

from studies.published.versions import FIGURES_MADE, MARKS, VERSIONS, one_misread, versions_of


def test_the_text_is_the_second_version_and_the_files_are_the_first():
    assert versions_of(MARKS) == {"text of the paper": "v2", "README beside the files": "v1"}
    assert FIGURES_MADE < VERSIONS["v1"] < VERSIONS["v2"]


def test_every_misread_mark_is_noticed():
    misread = list(one_misread(MARKS))
    assert len(misread) == len(MARKS) == 6
    assert all("undecided" in versions_of(marks).values() for marks in misread)


def test_a_mark_of_neither_version_decides_nothing():
    assert versions_of([replace(MARKS[0], found="another title")]) == {"text of the paper": "undecided"}
    with pytest.raises(ValueError, match="marks: expected at least one"):
        versions_of([])
