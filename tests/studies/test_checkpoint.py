"""Checkpoints that are damaged, or of other runs, are refused; that they hold a run is tried where one is killed."""

import errno
from pathlib import Path

import pytest
import torch

from studies.checkpoint import restore, save, settings_of


def test_other_settings_damage_and_code_are_refused(tmp_path):
    path, state = tmp_path / "c", {"x": torch.ones(5)}
    save(path, state, 1, "seed=0\nrate=1")
    assert settings_of(path) == {"seed": "0", "rate": "1"}
    with pytest.raises(ValueError, match="the same settings, received rate=1"):
        restore(path, state, "seed=0\nrate=2")
    whole = path.read_bytes()
    torn = (b"", whole[: len(whole) // 2], b"no archive", b"junk", whole.replace(b"fingerprint", b"fingerprinz"))
    for content in torn:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{path}: expected an intact checkpoint"):
            restore(path, state, "seed=0\nrate=1")
    torch.save({"state": {}, "done": 1, "fingerprint": Path}, path)
    with pytest.raises(ValueError, match="expected an intact checkpoint"):
        restore(path, {}, "")


def test_a_full_disk_keeps_the_previous_checkpoint(tmp_path, monkeypatch):
    path, real = tmp_path / "c", Path.write_bytes
    save(path, {"x": torch.zeros(10)}, 1, "seed=0")

    def full(file, content):
        real(file, bytes(content)[:100])
        raise OSError(errno.ENOSPC, "No space left on device", str(file))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device"):
        save(path, {"x": torch.zeros(1_000)}, 2, "seed=0")
    assert restore(path, {"x": torch.ones(10)}, "seed=0") == 1 and [x.name for x in tmp_path.iterdir()] == ["c"]
