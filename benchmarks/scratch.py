"""Measure how fast a network trains and how fast its data are made: ratios of two ways in one run.

    python benchmarks/scratch.py [--steps 150] [--layers 2]     # about a minute

Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import os
import platform
from time import perf_counter, process_time

import numpy as np
import torch

from studies.icl import training as module
from studies.icl.settings import PAIRS, Network, Setting, Task
from studies.icl.task import Stream
from studies.icl.training import Training, train


def rate(setting: Setting, steps: int, precision: str) -> float:
    """Return steps per second of processor time."""
    training = Training(steps, precision=precision)
    train(setting, 0, Training(3, precision=precision))
    start = process_time()
    train(setting, 0, training)
    return steps / (process_time() - start)


class Plain(torch.nn.Module):
    """One network as one would write it down: every token through every layer, three projections."""

    def __init__(self, layers: int, d: int, labels: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleList(torch.nn.Linear(d, d, bias=False) for _ in range(3)) for _ in range(layers)
        )
        sizes = (d, 128, 128, labels)
        self.head = torch.nn.Sequential(
            *(part for k in range(3) for part in (torch.nn.Linear(sizes[k], sizes[k + 1]), torch.nn.ReLU()))
        )[:-1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        future = torch.ones(n, n).triu(1).bool()
        for query, key, value in self.layers:
            logits = query(x) @ key(x).mT * x.shape[-1] ** -0.5
            x = logits.masked_fill(future, -torch.inf).softmax(-1) @ value(x)
        return self.head(x[:, -1])


def plain_rate(setting: Setting, steps: int, *, by_item: bool) -> float:
    """Return steps per second of processor time of :class:`Plain`, on data made item by item or in batches."""
    task = setting.task
    net = Plain(setting.network.layers, task.dimension, task.labels)
    source = Loop(task, 0) if by_item else Stream(task, 0)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-6)
    start = process_time()
    for _ in range(steps):
        tokens, labels = map(torch.as_tensor, source.batch(128))
        loss = torch.nn.functional.cross_entropy(net(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return steps / (process_time() - start)


class Loop:
    """The sequences of :class:`studies.icl.task.Stream`, an item at a time."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task, self.rng = task, np.random.default_rng(seed)
        self.centres = self.rng.normal(0, task.deviation, (task.classes, task.dimension))
        self.label_vectors = self.rng.normal(0, task.deviation, (task.labels, task.dimension))

    def item(self, k: int) -> np.ndarray:
        noise = self.rng.normal(0, self.task.deviation, self.task.dimension)
        return (self.centres[k] + self.task.within * noise) / np.sqrt(1 + self.task.within**2)

    def sequence(self) -> tuple[np.ndarray, int]:
        task = self.task
        groups = self.rng.choice(task.classes, task.groups, replace=False)
        classes = self.rng.permutation(np.repeat(groups, task.burstiness))
        tokens = np.empty((task.tokens, task.dimension), np.float32)
        for i, k in enumerate(classes):
            tokens[2 * i] = self.item(k)
            tokens[2 * i + 1] = self.label_vectors[k % task.labels]
        asked = classes[self.rng.integers(task.items)]
        tokens[-1] = self.item(asked)
        return tokens, asked % task.labels

    def batch(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        tokens, labels = zip(*(self.sequence() for _ in range(size)), strict=True)
        return np.stack(tokens), np.array(labels)


def data_rates(task: Task) -> tuple[float, float]:
    """Return sequences per second of processor time, made item by item and made in batches."""
    loop, stream = Loop(task, 0), Stream(task, 0)
    stream.batch(128)
    start = process_time()
    loop.batch(512)
    slow = 512 / (process_time() - start)
    start = process_time()
    for _ in range(200):
        stream.batch(128)
    return slow, 200 * 128 / (process_time() - start)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--steps", type=int, default=150)
    arguments.add_argument("--layers", type=int, default=2)
    given = arguments.parse_args()
    torch.set_num_threads(1)
    module.EVALUATED = 0  # evaluations cost the same whoever trains, and little in a long run
    setting = Setting(network=Network(given.layers))
    rows = {
        "written plainly, data item by item": plain_rate(setting, given.steps, by_item=True),
        "written plainly, data in batches": plain_rate(setting, given.steps, by_item=False),
        "posbias, float32": rate(setting, given.steps, "float32"),
        "posbias, bfloat16": rate(setting, given.steps, "bfloat16"),
    }
    first = next(iter(rows.values()))
    print(f"| steps per processor second, {given.layers} layers, batch 128 | rate | ratio |\n|---|---|---|")
    for what, found in rows.items():
        print(f"| {what} | {found:.0f} | {found / first:.1f}× |")
    slow, fast = data_rates(setting.task)
    print(
        f"\nSequences per processor second: {slow:.0f} item by item, {fast:.0f} in batches of 128: {fast / slow:.0f}×."
    )
    stream = Stream(setting.task, 0)
    start = perf_counter()
    for pair in PAIRS:
        stream.trials(*pair, 10_000)
    print(f"Six test sets of 10,000 sequences: {perf_counter() - start:.2f} s.")
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    print(f"One thread; {os.cpu_count()} cores, {platform.machine()}, {versions}.")


if __name__ == "__main__":
    main()
