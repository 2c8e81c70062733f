"""The trainer: to the same bits through an end at any step, and entries as they are done."""

import numpy as np
import pytest
import torch
import xarray as xr

from studies import checkpoint
from studies import train as trainer
from studies.results import load
from studies.train import Run, missing, train, train_entries

STEPS, TIMES = 7, 3


def line(seed=0, steps=STEPS, rate=0.1, tests=TIMES, **options):
    """A line fitted to points that a generator draws; a test is of where it goes through."""
    torch.manual_seed(seed)
    network, generator = torch.nn.Linear(2, 1), torch.Generator().manual_seed(seed)

    def loss(step):
        x = torch.randn(4, 2, generator=generator)
        return ((network(x)[:, 0] - x.sum(1)) ** 2).mean()

    def test(k):
        return network(torch.full((1, 2), float(k))).detach()[0]

    return Run(
        network, torch.optim.AdamW(network.parameters(), lr=1.0), loss, steps, {"name": "line", "seed": seed},
        tests=torch.full((tests, 1), torch.nan), test=test, generator=generator, rate=lambda step: rate / (step + 1),
        **options,
    )  # fmt: skip


def same(one, other):
    """Whether two runs ended with the same bits, but for the time they took."""
    weights = zip(one.network.parameters(), other.network.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in [*weights, (one.losses, other.losses), (one.tests, other.tests)])


def test_a_step_by_hand():
    """One step of plain descent from w = 0 on (w - 1)²: the gradient -2, clipped to 1, times the rate of the step."""
    network = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(network.weight)
    run = Run(
        network, torch.optim.SGD(network.parameters(), lr=9.0), lambda step: (network.weight - 1).square().sum(), 1,
        {}, tests=torch.full((1,), torch.nan), test=lambda k: network.weight.item() + k, clip=1.0,
        rate=lambda step: 0.25,
    )  # fmt: skip
    train(run)
    assert network.weight.item() == pytest.approx(0.25) and run.losses.tolist() == [1] and run.stopped == -1
    assert run.tests.item() == pytest.approx(1.25)


def test_tests_are_evenly_spread_and_losses_means_since_the_moment_before():
    run = line()
    train(run)
    assert run.moments == [3, 5, 7] and run.tests.isfinite().all() and run.seconds > 0
    losses = run.losses.numpy()
    np.testing.assert_allclose(run.mean_losses(3), [losses[:3].mean(), losses[3:5].mean(), losses[5:].mean()])
    after = line(steps=3, tests=0)
    train(after)
    expected = after.network(torch.ones(1, 2)).item()  # the first test is of the network after step 3
    assert run.tests[0].item() == pytest.approx(expected)


@pytest.mark.parametrize("at", [1, STEPS])
def test_a_run_that_was_killed_goes_on_to_the_same_end(tmp_path, monkeypatch, at):
    whole, save = line(seed=3), checkpoint.save
    train(whole)

    def kill(path, state, done, fingerprint):
        save(path, state, done, fingerprint)
        if done == at:
            raise MemoryError

    monkeypatch.setattr(checkpoint, "save", kill)
    with pytest.raises(MemoryError):
        train(line(seed=3), tmp_path / "c", checkpoint_every=0.0)
    monkeypatch.undo()
    resumed, steps = line(seed=3), []
    real = resumed.loss
    resumed.loss = lambda step: steps.append(step) or real(step)
    train(resumed, tmp_path / "c")
    assert same(whole, resumed) and steps == [*range(at, STEPS)]
    with pytest.raises(ValueError, match="a checkpoint of a run with the same settings, received seed=3"):
        train(line(seed=4), tmp_path / "c")


def test_a_loss_that_is_not_finite_ends_all_or_one(tmp_path):
    hot = {"rate": float("inf")}
    with pytest.raises(ValueError, match="line, seed 0, step 1: loss: expected a finite number, received nan"):
        train(line(**hot))
    run = line(**hot, stops=True)
    train(run)
    assert run.stopped == 1 and run.losses[0].isfinite() and np.isnan(run.mean_losses(TIMES)).all()


def trained(name, seed, path):
    if seed == 9:
        raise KeyboardInterrupt
    run = line(seed)
    train(run, path)
    return {"loss": run.losses.numpy()}, 1.5


def labelled(name, arrays):
    return xr.Dataset({"loss": (("seed", "step"), arrays["loss"])}, {"seed": [0, 1]}, {"steps": STEPS})


def test_entries_are_written_one_after_another(tmp_path):
    path, found = tmp_path / "q.nc", []
    for name, _ in train_entries("ab", [0, 1], trained, labelled, path):
        found.append(name)
        assert [*load("q", tmp_path)] == found and not list(tmp_path.glob(f"{name}.*"))
    kept, expected = load("q", tmp_path)["b"], line(1)
    train(expected)
    np.testing.assert_allclose(kept["loss"][1], expected.losses, rtol=1e-6)
    assert kept.attrs["setting"] == "b" and kept.attrs["seconds"] == 3
    assert missing(path, dict.fromkeys("abc", {"steps": STEPS}), [0, 1]) == ["c"]
    with pytest.raises(ValueError, match="q.nc: a: steps: expected 8, received 7"):
        missing(path, {"a": {"steps": 8}}, [0, 1])
    with pytest.raises(ValueError, match=r"q.nc: a: seeds: expected \[0, 2\], received \[0, 1\]"):
        missing(path, {"a": {}}, [0, 2])


def test_what_is_trained_of_an_entry_is_not_trained_again(tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        list(train_entries("a", [0, 9], trained, labelled, tmp_path / "q.nc"))
    assert [x.name for x in tmp_path.iterdir()] == ["a.seed0.checkpoint"]
    seeds, step = [], trainer.Run.step
    monkeypatch.setattr(trainer.Run, "step", lambda run, k: seeds.append(run.settings["seed"]) or step(run, k))
    list(train_entries("a", [0, 1], trained, labelled, tmp_path / "q.nc"))
    assert set(seeds) == {1} and [x.name for x in tmp_path.iterdir()] == ["q.nc"]
