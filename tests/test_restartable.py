"""A training loop's moments and clock, in place and by name."""

import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from posbias.training.loop.restartable import Clock, moments  # noqa: E402


def stepped(optimizer, x, times):
    for k in range(times):
        optimizer.zero_grad()
        (x * (k + 1.0)).sin().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("fused", [False, True])
def test_an_optimizer_goes_on_from_its_moments_to_the_last_bit(fused):
    def made():
        x = torch.nn.Parameter(torch.linspace(-1, 1, 5))
        return x, torch.optim.AdamW([x], lr=0.1, fused=fused)

    x, whole = made()
    stepped(whole, x, 4)
    at_four, kept = x.detach().clone(), {name: m.clone() for name, m in moments(whole, {"w": x}).items()}
    stepped(whole, x, 3)
    again, fresh = made()
    for name, m in moments(fresh, {"w": again}).items():
        m.copy_(kept[name])
    again.data.copy_(at_four)
    stepped(fresh, again, 3)
    assert set(kept) == {"w.step", "w.exp_avg", "w.exp_avg_sq"} and kept["w.step"] == 4
    assert torch.equal(again, x)


def test_moments_made_before_the_first_step_change_nothing():
    found = []
    for early in (False, True):
        x = torch.nn.Parameter(torch.linspace(-1, 1, 5))
        optimizer = torch.optim.AdamW([x], lr=0.1, fused=True)
        if early:
            moments(optimizer, {"w": x})
        stepped(optimizer, x, 3)
        found.append(x.detach())
    assert torch.equal(*found)


def test_a_clock_goes_on_from_what_a_checkpoint_held():
    clock = Clock()
    clock.tensor.fill_(100.0)
    time.sleep(0.02)
    assert clock.seconds == 100 and clock.running >= 0.02
    clock.lap()
    assert 100.02 <= clock.seconds < 160 and clock.running < 60
