import os

import pytest

from posbias.files import write_whole


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["out.csv"]


def test_missing_folders_and_directories_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "no" / "out.csv", "x")
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, "x")
    assert os.listdir(tmp_path) == []


def test_bytes_and_text_are_written(tmp_path):
    write_whole(tmp_path / "a", "λ")
    write_whole(tmp_path / "b", b"\x00")
    assert (tmp_path / "a").read_text(encoding="utf-8") == "λ" and (tmp_path / "b").read_bytes() == b"\x00"
