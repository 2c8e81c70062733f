"""Measure profiles of flat and log kernels at 70 layers × 112 heads × 2,048 tokens against dense kernels.

    python benchmarks/biases.py [--tokens 2048]     # a minute or two

Prints a table in Markdown: seconds of the profile, and the same with an (n, n) kernel for each head and layer that
differs, a layer timed and taken as often as there are different ones.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np

import posbias
from posbias.rollout.position_bias import describe
from posbias.rollout.structured import StructuredKernels, biased_kernels, flat_kernel

T, H = 70, 112  # BLOOM-176B


def seconds(run: Callable[[], object], repeats: int = 3) -> float:
    """Return the median wall time of ``run``, each time with nothing kept from before."""
    times = []
    for _ in range(repeats):
        flat_kernel.cache_clear()
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return median(times)


def dense_seconds(kernels: StructuredKernels, n: int, most: int = 4) -> float:
    """Return the time of dense heads and vector-matrix products: up to ``most`` heads of a layer, scaled to all."""
    heads = [biased_kernels(1, describe(bias), diagonal=d) for bias, d in kernels.alike(0)]
    v = np.full(n, 1 / n)
    build = seconds(lambda: [head.dense(0, n) for head in heads[:most]], 1) / min(most, len(heads))
    A = heads[0].dense(0, n)
    product = seconds(lambda: v @ A)
    layers = 1 if kernels.same_in_every_layer else kernels.T
    return build * len(heads) * layers + product * kernels.T


def cases() -> list[tuple[str, StructuredKernels]]:
    """Return names and kernels: one for all, a different one for each head, and for each head and layer."""
    alphas, taus = np.linspace(0, 5, H * T).reshape(T, H), np.linspace(1, 6, H * T).reshape(T, H)
    found = []
    for kind, part, values in (("log", "alpha", alphas), ("flat", "tau", taus)):
        rows = [[{"kind": kind, part: float(x)} for x in row] for row in values]
        ones = [[row[0]] for row in rows]
        for name, biases in (("one", rows[T // 2][0]), ("by head", rows[0]), ("by layer", ones), ("all", rows)):
            found.append((f"{kind}, {name}", biased_kernels(T, biases, H=None if name == "by layer" else H)))
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tokens", type=int, default=2048, help="n (2048)")
    n = arguments.parse_args().tokens
    lambda_ = np.full(T, 0.08)
    print("| kernels | dense | posbias | ratio |\n|---|---|---|---|")
    for name, kernels in cases():
        ours = seconds(lambda kernels=kernels: posbias.influence_profile(kernels, lambda_, n), 1)
        dense = dense_seconds(kernels, n)
        print(f"| {name} | {dense:.3g} s | {ours:.3g} s | {dense / ours:,.1f}× |", flush=True)
    print(
        f"\n{T} layers × {H} heads × {n:,} tokens; {os.cpu_count()} cores, {platform.machine()}, "
        f"Python {platform.python_version()}, numpy {np.__version__}; `python benchmarks/biases.py`."
    )


if __name__ == "__main__":
    main()
