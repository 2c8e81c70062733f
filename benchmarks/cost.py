"""Measure what one influence profile costs against the number of tokens, and write results/cost.csv.

Three ways to the last row of P for BLOOM-176B's size (70 layers, 112 heads, ALiBi, no content, constant λ):

* ``linear``   running sums, never an n×n matrix;
* ``row``      the head-averaged kernel formed once as a matrix, the row pulled through it;
* ``product``  the same matrix, and the whole P = R_T … R_1 by matrix products.

Run: ``python benchmarks/cost.py`` (a few minutes; ``--largest 16384`` for seconds). Best of up to three repeats.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # one core for every path

import numpy as np  # noqa: E402 - the threads are counted when numpy is loaded

from posbias import (  # noqa: E402 - as numpy
    attention_kernel,
    geometric_slopes,
    influence_profile,
    masks,
    position_logits,
    rollout_matrix,
    schedules,
    structured_kernels,
)

T, H, LAMBDA = 70, 112, 0.056
LARGEST_ROW, LARGEST_PRODUCT = 2048, 1024
ENOUGH = 20.0  # seconds after which a case is not repeated


def averaged_kernel(n: int) -> np.ndarray:
    """The head average, one head in memory at a time."""
    A = np.zeros((n, n))
    for slope in geometric_slopes(H):
        A += attention_kernel(position_logits(n, slope), masks.causal()) / H
    return A


def linear(n: int) -> np.ndarray:
    return influence_profile(structured_kernels(T, slope=geometric_slopes(H)), schedules.constant(T, LAMBDA), n)


def row(n: int) -> np.ndarray:
    return influence_profile(averaged_kernel(n), schedules.constant(T, LAMBDA))


def product(n: int) -> np.ndarray:
    return rollout_matrix(averaged_kernel(n), schedules.constant(T, LAMBDA))[-1]


def best_time(path: Callable[[int], np.ndarray], n: int) -> float:
    times: list[float] = []
    while len(times) < 3 and sum(times) < ENOUGH:
        began = time.perf_counter()
        path(n)
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=2**20, help="largest n of the linear path")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "results" / "cost.csv")
    arguments = parser.parse_args()
    sizes = [4**k for k in range(4, 11) if 4**k <= arguments.largest]
    cases = [(linear, n) for n in sizes]
    cases += [(row, n) for n in (256, 512, 1024, LARGEST_ROW)]
    cases += [(product, n) for n in (256, 512, LARGEST_PRODUCT)]
    lines = [
        "# seconds for one influence profile, best of up to three repeats, one thread",
        f"# made by: benchmarks/cost.py, {datetime.date.today().isoformat()}",
        f"# python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}, {os.cpu_count()} cores",
        f"# T={T} layers, H={H} heads, geometric slopes, no content, lambda={LAMBDA} in every layer",
        "path,n,seconds",
    ]
    for path, n in cases:
        lines.append(f"{path.__name__},{n},{best_time(path, n):.6f}")
        print(lines[-1], flush=True)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
