"""Clocks of many tokens, and how the checks of troughs are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.errors import Numbers
from posbias.rollout.clock import poisson_distribution
from posbias.rollout.profiles import u_shape
from posbias.rollout.structured import structured_kernels
from studies.clock.hops import hop_rows, mix_hops

N, RUNS, CASES = 1024, 20, 4
"""Tokens of the rollouts; runs of each check, and of each check on something broken; random cases in a run."""
MOST_HOPS, HOPS_AT_ONCE = 60, 10
"""Hops of a clock that are counted, what comes behind them is left out; hops whose rows are made in one go."""
UNHEARD = 1e-25
"""Probability of a number of hops from which on it changes no digit of a profile."""
SEEDS = range(RUNS)
PROVED = {"kind": "proved"}
Run = Callable[..., bool]


def clock(c: Numbers, tau: float, n: int = N, weights: Numbers | None = None) -> Float[np.ndarray, "n"]:
    """Return the clock's profile for heads with slopes c/n; c = 0 is a uniform head."""
    heads = tuple(np.maximum(np.atleast_1d(np.asarray(c, dtype=float)), 1e-9) / n)
    shares = None if weights is None else tuple(np.asarray(weights, dtype=float))
    omega = poisson_distribution(tau)
    last = int(np.flatnonzero(omega > UNHEARD)[-1])
    hops = min(-(-max(last, 1) // HOPS_AT_ONCE) * HOPS_AT_ONCE, MOST_HOPS)
    return mix_hops(_rows(heads, shares, n, hops), omega)


@lru_cache(maxsize=256)  # one kernel is asked for with many totals, and again with what is broken
def _rows(
    slope: tuple[float, ...], weights: tuple[float, ...] | None, n: int, hops: int
) -> Float[np.ndarray, "rows n"]:
    """Return the last rows of A^0, …, A^hops of one kernel A."""
    return hop_rows(structured_kernels(1, slope=slope, weights=weights), hops, n)


def is_u(p: Float[np.ndarray, "n"]) -> bool:
    """Say whether a profile is a U without any margin, its last position left out."""
    return bool(u_shape(p, tolerance=0.0).present)


def every(run: Run, seeds: Iterable[Any] = SEEDS) -> bool:
    """Say whether a check passes in every run."""
    return all(run(seed) for seed in seeds)


def passes(run: Run, seeds: Iterable[Any] = SEEDS, **how: Any) -> list[bool]:
    """Say in which runs a check passes."""
    return [bool(run(seed, **how)) for seed in seeds]


def broken(run: Run, wrong: Mapping[str, Mapping[str, Any]], seeds: Iterable[Any] = SEEDS) -> dict[str, list[bool]]:
    """Say for each thing that is broken in which runs the check passes."""
    return {what: passes(run, seeds, **how) for what, how in wrong.items()}
