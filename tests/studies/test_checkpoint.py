"""Checkpoints hold a run to the last bit; damaged ones, and those of other runs, are refused."""

import errno
from pathlib import Path

import pytest
import torch

from studies.checkpoint import restore, save, settings_of


class Run:
    def __init__(self, fused):
        self.model = torch.nn.Linear(5, 1)
        torch.nn.init.ones_(self.model.weight)
        torch.nn.init.ones_(self.model.bias)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1, fused=fused)
        self.log = torch.zeros(8, dtype=torch.float64)

    def step(self, k):
        self.optimizer.zero_grad()
        loss = self.model(torch.linspace(-1, 1, 5) * (k + 1.0)).sin().sum()
        loss.backward()
        self.optimizer.step()
        self.log[k] = loss.item()

    def state(self):
        return {"model": self.model, "optimizer": self.optimizer, "log": self.log}


@pytest.mark.parametrize("fused", [False, True])
def test_a_run_resumes_to_the_last_bit(tmp_path, fused):
    whole = Run(fused)
    for k in range(7):
        if k == 4:
            save(tmp_path / "c", whole.state(), k, "seed=0")
        whole.step(k)
    again = Run(fused)
    assert restore(tmp_path / "c", again.state(), "seed=0") == 4
    for k in range(4, 7):
        again.step(k)
    assert torch.equal(again.model.weight, whole.model.weight) and torch.equal(again.log, whole.log)


def test_other_settings_damage_and_code_are_refused(tmp_path):
    path, run = tmp_path / "c", Run(True)
    save(path, run.state(), 1, "seed=0\nrate=1")
    assert settings_of(path) == {"seed": "0", "rate": "1"}
    with pytest.raises(ValueError, match="the same settings, received rate=1"):
        restore(path, run.state(), "seed=0\nrate=2")
    whole = path.read_bytes()
    torn = (b"", whole[: len(whole) // 2], b"no archive", b"junk", whole.replace(b"fingerprint", b"fingerprinz"))
    for content in torn:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{path}: expected an intact checkpoint"):
            restore(path, run.state(), "seed=0\nrate=1")
    torch.save({"state": {}, "done": 1, "fingerprint": Run}, path)
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
