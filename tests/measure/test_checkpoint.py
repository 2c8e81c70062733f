"""Checkpoints hold a run to the last bit; damaged ones, and those of other runs, are refused."""

import subprocess
import sys
import time

import pytest
from conftest import ROOT

torch = pytest.importorskip("torch", reason="torch is not installed")

from posbias.measure.checkpoint import restore, save, settings_of
from studies.stopwatch import Stopwatch


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
@pytest.mark.parametrize("at", [0, 4])
def test_a_run_resumes_to_the_last_bit(tmp_path, fused, at):
    whole = Run(fused)
    for k in range(7):
        if k == at:
            save(tmp_path / "c", whole.state(), k, "seed=0")
        whole.step(k)
    again = Run(fused)
    assert restore(tmp_path / "c", again.state(), "seed=0") == at
    for k in range(at, 7):
        again.step(k)
    assert torch.equal(again.model.weight, whole.model.weight) and torch.equal(again.log, whole.log)


def test_other_settings_damage_and_other_layouts_are_refused(tmp_path):
    path, run = tmp_path / "c", Run(True)
    save(path, run.state(), 1, "seed=0\nrate=1")
    with pytest.raises(ValueError, match="the same settings, received rate=1"):
        restore(path, run.state(), "seed=0\nrate=2")
    with pytest.raises(ValueError, match="expected a checkpoint of model, received model, optimizer, log"):
        restore(path, {"model": run.model}, "seed=0\nrate=1")
    whole = path.read_bytes()
    for content in (
        b"",
        whole[: len(whole) // 2],
        b"no archive",
        b"junk",
        whole.replace(b"fingerprint", b"fingerprinz"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="expected an intact checkpoint"):
            restore(path, run.state(), "seed=0\nrate=1")


def test_a_checkpoint_that_holds_code_is_refused(tmp_path):
    torch.save({"state": {}, "done": 1, "fingerprint": Run}, tmp_path / "c")
    with pytest.raises(ValueError, match="expected an intact checkpoint"):
        restore(tmp_path / "c", {}, "")


def test_a_stopwatch_goes_on_from_what_a_checkpoint_held():
    clock = Stopwatch()
    clock.tensor.fill_(100.0)
    time.sleep(0.02)
    assert clock.seconds == 100 and clock.running >= 0.02
    clock.lap()
    assert 100.02 <= clock.seconds < 160 and clock.running < 60


def limited(path, size):
    """Return the code of a process that may not write files beyond a size: as on a disk that is full."""
    return f"""
import resource, torch
from pathlib import Path
from posbias.measure.checkpoint import save
path = Path({str(path)!r})
save(path, {{"x": torch.zeros(10)}}, 1, "seed=0")
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
try:
    save(path, {{"x": torch.zeros(1_000_000)}}, 2, "seed=0")
except OSError as error:
    print(error)
"""


@pytest.mark.parametrize("size", [1000, 100_000])
def test_a_full_disk_is_one_error_and_keeps_the_previous_checkpoint(tmp_path, size):
    path = tmp_path / "c"
    done = subprocess.run([sys.executable, "-c", limited(path, size)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout == f"[Errno 27] File too large; the previous checkpoint is kept: '{path}'\n"
    assert restore(path, {"x": torch.ones(10)}, "seed=0") == 1 and [x.name for x in tmp_path.iterdir()] == ["c"]


def test_a_directory_is_no_checkpoint(tmp_path):
    for read in (settings_of, lambda path: restore(path, {}, "")):
        with pytest.raises(ValueError, match="expected a checkpoint, which is a file, received a directory"):
            read(tmp_path)


def test_tensors_of_other_shapes_are_refused(tmp_path):
    save(tmp_path / "c", {"x": torch.zeros(3)}, 1, "seed=0")
    with pytest.raises(ValueError, match="c: x: expected the state of a run with the same settings, received The size"):
        restore(tmp_path / "c", {"x": torch.zeros(4)}, "seed=0")
