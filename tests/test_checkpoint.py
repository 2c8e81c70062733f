"""Checkpoints hold a run to the last bit; damaged ones, and those of other runs, are refused."""

import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from posbias.training.loop.checkpoint import restore, save  # noqa: E402
from posbias.training.loop.stopwatch import Stopwatch  # noqa: E402


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
    for content in (b"", whole[: len(whole) // 2], b"no archive", whole.replace(b"fingerprint", b"fingerprinz")):
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
