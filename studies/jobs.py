"""Many small networks at a time: jobs that share nothing, each in a process and on a thread of its own."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch

from posbias.measure.progress import progress as told

Job = Callable[[], tuple[dict[str, np.ndarray], float]]
"""Trains and tests a network; returns the arrays of its results and its seconds of training."""


def by_setting(
    jobs: Sequence[Job], seeds: int, processes: int, *, progress: bool = False
) -> Iterator[tuple[dict[str, np.ndarray], float]]:
    """Yield the arrays of each setting's networks, stacked along a first axis, and their seconds of training.

    How many networks are done is told on stderr.

    Parameters
    ----------
    jobs
        Those of the first setting, one for each seed, those of the second, …; with more than one process they are
        pickled.
    seeds
        Networks of a setting.
    processes
        Jobs that run at a time.
    progress
        Whether to tell.
    """
    with ExitStack() as stack:
        bar = stack.enter_context(told(len(jobs), "networks", "training", shown=progress))
        group: list[tuple[dict[str, np.ndarray], float]] = []
        for found in _run_all(jobs, processes, stack):
            bar.update()
            group.append(found)
            if len(group) == seeds:
                arrays, seconds = zip(*group, strict=True)
                group = []
                yield {name: np.stack([x[name] for x in arrays]) for name in arrays[0]}, sum(seconds)


def _run_all(jobs: Sequence[Job], processes: int, stack: ExitStack) -> Iterator[Any]:
    """Yield what the jobs return, in their order; more than one process is closed with the stack."""
    if processes == 1:
        yield from (job() for job in jobs)
        return
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    pool = ProcessPoolExecutor(min(processes, len(jobs)), context, _begin)
    stack.callback(pool.shutdown, cancel_futures=True)
    try:
        yield from pool.map(_called, jobs)
    except KeyboardInterrupt:
        _end_children()
        raise


def _begin() -> None:
    """Prepare a process for one network: one thread, and an end with its parent, even if that is killed."""
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
    os._exit(1)


def _called(job: Job) -> Any:
    return job()


def _end_children() -> None:
    """Let the networks that are in training save their state and end; what does not within 10 seconds is killed."""
    children = multiprocessing.active_children()
    for child in children:
        child.terminate()
    for child in children:
        child.join(10)
        if child.is_alive():
            child.kill()
