"""Many small networks at a time: jobs that share nothing, each in a process and on a thread of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import Any

import torch

from posbias.training.loop.progress import progress as told


def results_of(jobs: Sequence[Callable[[], Any]], processes: int, *, progress: bool = False) -> Iterator[Any]:
    """Yield what jobs return, in their order, and tell on stderr how many networks are done.

    Parameters
    ----------
    jobs
        Called without arguments; with more than one process they are pickled.
    processes
        Jobs that run at a time.
    progress
        Whether to tell.
    """
    with ExitStack() as stack:
        bar = stack.enter_context(told(len(jobs), "networks", "training", shown=progress))
        for found in _run_all(jobs, processes, stack):
            bar.update()
            yield found


def _run_all(jobs: Sequence[Callable[[], Any]], processes: int, stack: ExitStack) -> Iterator[Any]:
    """Yield what the jobs return, in their order; more than one process is closed with the stack."""
    if processes == 1:
        yield from (job() for job in jobs)
        return
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    pool = ProcessPoolExecutor(min(processes, len(jobs)), context, torch.set_num_threads, (1,))
    stack.callback(pool.shutdown, cancel_futures=True)
    try:
        yield from pool.map(_called, jobs)
    except KeyboardInterrupt:
        _end_children()
        raise


def _called(job: Callable[[], Any]) -> Any:
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
