"""One trainer: of reference models, of the networks of :mod:`studies.icl` and of those of :mod:`studies.lookup`.

What is trained is a :class:`Run`. One that was killed goes on from its checkpoint to the same bits. An entry of results
is written as soon as a setting's networks are done.
"""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor, nn

from posbias import errors
from posbias.measure.progress import progress as told
from posbias.provenance import versions
from studies import checkpoint, results


@dataclass
class Run:
    """A network in training, and how: the loss of the batch of a step, learning rates, and tests on the way.

    ``test`` gives a row of ``tests`` for the k-th test, k = 1, 2, …; tests are evenly spread over the steps.
    """

    network: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[int], Tensor]
    steps: int
    settings: Mapping[str, Any]  # all that the weights follow from
    tests: Tensor  # (times, ...), not a number
    test: Callable[[int], Any]
    rate: Callable[[int], float] | None = None  # the optimizer's own unless given
    clip: float | None = None  # largest norm of the gradient
    generator: torch.Generator | None = None  # of the batches, if they do not follow from the step
    stops: bool = False  # whether it ends where its loss is not finite, in place of an error

    def __post_init__(self) -> None:
        """Begin with nothing done."""
        self.losses = torch.full((self.steps,), torch.nan, dtype=torch.float64)
        self.seconds = torch.zeros(1, dtype=torch.float64)
        self.moments = moments(self.steps, len(self.tests))

    @property
    def stopped(self) -> int:
        """The first step without a finite loss, -1 if there is none; of a run that has ended."""
        missing = self.losses.isnan().nonzero()
        return int(missing[0]) if len(missing) else -1

    def mean_losses(self, times: int) -> Float[np.ndarray, "times"]:
        """Return the mean loss since the moment before, at moments that are evenly spread."""
        ends = [0, *moments(self.steps, times)]
        return np.array([float(self.losses[a:b].mean()) for a, b in zip(ends, ends[1:], strict=False)])

    def state(self) -> dict[str, Any]:
        """Return everything that training changes."""
        kept: dict[str, Any] = {"losses": self.losses, "tests": self.tests, "seconds": self.seconds}
        if self.generator is not None:
            kept["generator"] = _Drawn(self.generator)
        return {"network": self.network, "optimizer": self.optimizer, **kept}

    def step(self, step: int) -> bool:
        """Take a step, and test the network if it is time; return whether the loss was finite."""
        self.network.train()
        for group in self.optimizer.param_groups if self.rate is not None else ():
            group["lr"] = self.rate(step)  # type: ignore[misc]
        loss = self.loss(step)
        value = loss.item()
        if not math.isfinite(value):
            if not self.stops:
                name = f"{self.settings['name']}, seed {self.settings['seed']}, step {step}: loss"
                raise errors.invalid(name, "a finite number", value)
            return False
        self.optimizer.zero_grad()
        loss.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.clip)
        self.optimizer.step()
        self.losses[step] = value
        if step + 1 in self.moments:
            k = self.moments.index(step + 1)
            self.tests[k] = torch.as_tensor(self.test(k + 1))
        return True


@dataclass(frozen=True)
class _Drawn:
    """The state of a generator, as a checkpoint has it."""

    generator: torch.Generator

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["state"])


def moments(steps: int, times: int) -> list[int]:
    """Return the numbers of steps after which something is done that many times, evenly spread.

    >>> moments(10, 4)
    [3, 5, 8, 10]
    """
    return [-(-steps * k // times) for k in range(1, times + 1)]


def train(run: Run, path: Path | None = None, *, checkpoint_every: float = 60.0, progress: str = "") -> None:
    """Train to the end, from the checkpoint if there is one; it stays, so that what comes after does not wait again."""
    settings = {**run.settings, "torch": torch.__version__}
    fingerprint = "\n".join(f"{name}={value}" for name, value in settings.items())
    done = checkpoint.restore(path, run.state(), fingerprint) if path is not None and path.exists() else 0
    since = time.monotonic()

    def keep(done: int) -> None:
        nonlocal since
        run.seconds += time.monotonic() - since
        since = time.monotonic()
        if path is not None:
            checkpoint.save(path, run.state(), done, fingerprint)

    with told(run.steps, "steps", progress, done=done, shown=bool(progress)) as bar:
        for step in range(done, run.steps):
            if not run.step(step):
                break
            bar.update(note=f"loss {run.losses[step]:.3f}")
            if time.monotonic() - since >= checkpoint_every:
                keep(step + 1)
    keep(run.steps)


Trained = tuple[dict[str, np.ndarray], float]
"""The arrays of one network's results, and its seconds of training."""


def train_entries(
    names: Iterable[str],
    seeds: Sequence[int],
    run: Callable[[str, int, Path], Trained],
    labelled: Callable[[str, dict[str, np.ndarray]], xr.Dataset],
    path: Path,
    *,
    progress: bool = False,
) -> Iterator[tuple[str, xr.Dataset]]:
    """Train each entry's networks, one a seed, and yield its name and its results as soon as they are in the file.

    ``run`` takes name, seed and the file of a checkpoint, which goes once the entry is written; ``labelled`` makes a
    data set of the arrays of all seeds, stacked.
    """
    wanted = list(names)
    with told(len(wanted) * len(seeds), "networks", "training", shown=progress) as bar:
        for name in wanted:
            found, checkpoints = [], [path.with_name(f"{name}.seed{seed}.checkpoint") for seed in seeds]
            for seed, file in zip(seeds, checkpoints, strict=True):
                found.append(run(name, seed, file))
                bar.update()
            arrays = {key: np.stack([x[key] for x, _ in found]) for key in found[0][0]}
            cost = {"threads": torch.get_num_threads(), "seconds": round(sum(seconds for _, seconds in found), 1)}
            command = shlex.join(["python", *sys.orig_argv[1:]])
            about = {"setting": name, "command": command, **cost, **versions("torch", "transformers")}
            data = labelled(name, arrays).assign_attrs(about)
            results.save(path, {name: data})
            for file in checkpoints:
                file.unlink()
            yield name, data


def missing(path: Path, wanted: Mapping[str, Mapping[str, Any]], seeds: Sequence[int]) -> list[str]:
    """Return the entries that a file lacks; ValueError for one that was made with other settings or seeds."""
    kept = results.Results(path) if path.is_file() else {}
    for name in wanted.keys() & kept.keys():
        theirs = kept[name].attrs | {"seeds": kept[name]["seed"].values.tolist()}
        for field, value in {**wanted[name], "seeds": list(seeds)}.items():
            if str(theirs.get(field)) != str(value):
                raise errors.invalid(f"{path}: {name}: {field}", f"{value}", theirs.get(field))
    return [name for name in wanted if name not in kept]
