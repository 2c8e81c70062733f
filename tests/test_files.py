import os

import pytest

from posbias.files import data_folder, write_whole


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["out.csv"]


def test_others_may_read_what_is_written(tmp_path):
    write_whole(tmp_path / "out.csv", "new")
    assert (tmp_path / "out.csv").stat().st_mode & 0o044 == 0o044


def test_a_way_through_a_folder_that_is_not_there_is_refused(tmp_path):
    file = tmp_path / "m.nc"
    file.write_text("kept")
    with pytest.raises(FileNotFoundError, match="m.nc"):
        write_whole(tmp_path / "x" / ".." / "m.nc", "new")
    assert file.read_text() == "kept"


def test_a_link_is_written_through_and_stays_one(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "new"


def test_the_folder_of_data_can_be_given(tmp_path, monkeypatch):
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("POSBIAS_DATA", "~/of-mine")
    assert data_folder() == tmp_path / "of-mine"
