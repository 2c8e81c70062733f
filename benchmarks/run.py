"""Measure what the README's table states: ratios of two ways of one computation, taken in one run.

    python benchmarks/run.py            # a few minutes; the dense baseline at n = 2048 is timed on 2 layers
    python benchmarks/run.py --full     # the dense baseline at n = 2048 on all 70 layers, about a quarter of an hour

Prints a table in Markdown and writes it to benchmarks/results.md, with that of benchmarks/opening.py below it.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import yaml

import posbias
from posbias.comparison.distances import wasserstein_to
from posbias.comparison.resampling import interval, resampled_profiles

T, H = 70, 112  # BLOOM-176B
BOOTSTRAP = "1,000 prompts × 256 positions, plain loop"
HERE = Path(__file__).parent


def seconds(run, repeats: int) -> float:
    """Return the median wall time of ``run`` over ``repeats`` calls, after one to warm up."""
    if repeats > 1:
        run()
    times = []
    for _ in range(repeats):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return median(times)


def dense_row(n: int, slopes: np.ndarray, diagonal: np.ndarray, lambda_: np.ndarray) -> np.ndarray:
    """Return the last row of the rollout by plain numpy: every head's n×n softmax, then a row times a matrix."""
    i = np.arange(n)
    distance, future = (i[:, None] - i[None, :]).astype(float), i[None, :] > i[:, None]
    v = np.eye(n)[-1]
    for t in range(len(lambda_) - 1, -1, -1):
        A = np.zeros((n, n))
        for h in range(len(slopes)):
            logits = -slopes[h] * distance + diagonal[t, h] * np.eye(n)
            logits[future] = -np.inf
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            A += weights / weights.sum(axis=1, keepdims=True) / len(slopes)
        v = (1 - lambda_[t]) * v + lambda_[t] * (v @ A)
    return v


def against_dense(n: int, layers: int, repeats: int) -> tuple[float, float, float]:
    """Return seconds of the dense row (``layers`` layers, scaled to T), of the linear one, and their difference."""
    rng = np.random.default_rng(0)
    slopes, diagonal = posbias.geometric_slopes(H), rng.normal(0, 30, (T, H))
    lambda_ = rng.uniform(0.01, 0.2, T)
    few = posbias.structured_kernels(layers, slope=slopes, diagonal=diagonal[:layers])
    start = perf_counter()
    row = dense_row(n, slopes, diagonal, lambda_[:layers])
    dense = (perf_counter() - start) * T / layers
    error = float(np.abs(row - posbias.influence_profile(few, lambda_[:layers], n)).max())
    kernels = posbias.structured_kernels(T, slope=slopes, diagonal=diagonal)
    return dense, seconds(lambda: posbias.influence_profile(kernels, lambda_, n), repeats), error


def million_tokens() -> tuple[float, float]:
    """Return seconds and peak memory (GiB) of a content-free profile of 10⁶ tokens in a process of its own."""
    code = (
        "import resource, time, posbias\n"
        f"kernels = posbias.structured_kernels({T}, slope=posbias.geometric_slopes({H}))\n"
        f"lambda_ = posbias.schedules.power_decay({T}, 0.6, 0.7)\n"
        "start = time.perf_counter()\n"
        "p = posbias.influence_profile(kernels, lambda_, 10**6)\n"
        "print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)\n"
    )
    took, peak = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    return float(took), float(peak)


def largest_config() -> dict:
    """Return a configuration as large as the largest published one: 70 × 112 content values, twice."""
    rng = np.random.default_rng(0)
    return {
        "sequence_length": 256,
        "num_layers": T,
        "attention_config": {"num_heads": H, "alibi_slopes": [posbias.geometric_slopes(H).tolist()]},
        "content_config": {
            "diagonal_scores": rng.normal(0, 50, (T, H)).tolist(),
            "base_scores": rng.normal(0, 500, (T, H)).tolist(),
        },
        "lambda_schedule_config": {"schedule_type": "custom", "lambdas_custom": rng.uniform(0, 0.3, T).tolist()},
    }


def command_seconds() -> float:
    """Return the wall time of ``posbias rollout`` on that configuration, the whole process."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(yaml.safe_dump(largest_config(), default_flow_style=True))
        command = [sys.executable, "-m", "posbias", "rollout", str(config), "--output", str(Path(folder) / "p.csv")]
        command.append("--overwrite")  # it runs several times
        return seconds(lambda: subprocess.run(command, check=True, capture_output=True), 5)


def import_seconds() -> tuple[float, float]:
    """Return the wall time of ``import posbias`` and of ``import numpy`` alone, each in fresh processes."""
    times = []
    for module in ("posbias", "numpy"):
        code = f"import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
        runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout for _ in range(9)]
        times.append(median(map(float, runs)))
    return times[0], times[1]


def growth() -> tuple[float, float]:
    """Return the linear path's time at n = 65,536 over that at 8,192, divided by 8, and the time per token."""
    kernels = posbias.structured_kernels(T, slope=posbias.geometric_slopes(H))
    lambda_ = posbias.schedules.constant(T, 0.06)
    short, long = (seconds(lambda n=n: posbias.influence_profile(kernels, lambda_, n), 3) for n in (8192, 65536))
    return long / short / 8, long / 65536


def bootstrap(B: int = 2000, N: int = 1000, n: int = 256) -> tuple[float, float]:
    """Return seconds for the distances of B resampled profiles to a prediction: a plain loop, and ours.

    Stops if ours and the loop do not find the same interval, to what resampling leaves open.
    """
    influence = np.random.default_rng(0).gamma(0.5, size=(N, n))
    prediction = np.full(n, 1 / n)

    def loop() -> list[float]:
        rng, distances = np.random.default_rng(1), []
        for _ in range(B):
            p = influence[rng.integers(N, size=N)].mean(axis=0)
            distances.append(np.abs(np.cumsum(p / p.sum() - prediction))[:-1].sum() / (n - 1))
        return distances

    def ours() -> np.ndarray:
        return wasserstein_to(resampled_profiles(influence, B), prediction)

    ends = np.array([interval(np.asarray(run())) for run in (loop, ours)])
    if np.abs(ends[0] - ends[1]).max() > 0.1 * ends[0].max():
        raise SystemExit(f"bootstrap: the two ways find {ends[0]} and {ends[1]}")
    return seconds(loop, 3), seconds(ours, 3)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--full", action="store_true", help="time the dense baseline at n = 2048 on all layers")
    full = arguments.parse_args().full
    rows = []
    for n, layers, repeats in ((256, T, 9), (2048, T if full else 2, 5)):
        dense, linear, error = against_dense(n, layers, repeats)
        how = f"baseline timed on {layers} of {T} layers" if layers < T else "baseline timed in full"
        rows.append((f"profile at n = {n}", f"{dense:.3g} s", f"{linear:.3g} s", f"{dense / linear:,.0f}×", how))
        if error > 1e-12:
            raise SystemExit(f"n = {n}: the two ways differ by {error}")
    took, peak = million_tokens()
    rows.append(("profile at n = 10⁶, content-free", "", f"{took:.1f} s", "", f"peak {peak:.2f} GiB, whole process"))
    ratio, each = growth()
    per_token = f"{each * 1e6:.1f} µs per token"
    rows.append(("65,536 tokens in place of 8,192", "", per_token, f"{ratio:.2f} × 8", "time, 8 if linear"))
    rows.append(("`posbias rollout`, 70 × 112 contents", "", f"{command_seconds():.2f} s", "", "whole process"))
    loop, ours = bootstrap()
    rows.append(
        ("bootstrap of W₁, 2,000 resamples", f"{loop:.2f} s", f"{ours:.2f} s", f"{loop / ours:.0f}×", BOOTSTRAP)
    )
    ours, alone = import_seconds()
    rows.append(("`import posbias`", f"{alone:.2f} s (numpy)", f"{ours:.3f} s", f"{ours / alone:.2f}×", "median of 9"))
    lines = ["| what | baseline | posbias | ratio | note |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    size = f"BLOOM-176B's size ({T} layers × {H} heads)"
    machine = f"{os.cpu_count()} cores, {platform.machine()}"
    versions = f"Python {platform.python_version()}, numpy {np.__version__}"
    lines += ["", f"{size}; {machine}, {versions}; `python benchmarks/run.py{' --full' * full}`."]
    text = "\n".join(lines) + "\n"
    opening = (HERE / "opening.md").read_text(encoding="utf-8")
    (HERE / "results.md").write_text(f"{text}\n{opening}", encoding="utf-8")
    print(text, end="")
    print(f"(this process: peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB)")


if __name__ == "__main__":
    main()
