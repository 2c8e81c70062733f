"""Measure the law of untrained networks: ratios of two ways of one computation, in one run. Prints Markdown.

python benchmarks/untrained.py      # about two minutes on two cores; writes benchmarks/untrained.md
"""

from __future__ import annotations

import platform
from pathlib import Path
from time import perf_counter

import numpy as np
from scipy.special import expit

import posbias
from posbias.rollout.untrained import untrained_profile

T, H = 24, 16


def seconds(run) -> tuple[float, np.ndarray]:
    """Return the shorter wall time of two calls, and the result."""
    times = []
    for _ in range(2):
        start = perf_counter()
        found = run()
        times.append(perf_counter() - start)
    return min(times), found


def main() -> None:
    """Time the three ways and write the table."""
    gains = expit(np.random.default_rng(0).standard_normal(T))
    uniform, alibi = posbias.structured_kernels(T), posbias.structured_kernels(T, slope=posbias.alibi_slopes(H))
    rows = []
    for n in (512, 2048):
        by_powers, p = seconds(lambda n=n: untrained_profile(uniform, gains, n))
        recursion, q = seconds(lambda n=n: untrained_profile(uniform, gains, n, scales=np.ones((T, n))))
        assert np.allclose(p, q, rtol=1e-8)
        rows.append((f"one kernel, n = {n}", "recursion on the Gram matrix", recursion, "sum over powers", by_powers))
    for n in (256, 512):
        dense = np.stack([posbias.structured_kernels(1, slope=m).dense(0, n) for m in posbias.alibi_slopes(H)])
        written, p = seconds(lambda n=n, A=dense: untrained_profile(np.broadcast_to(A, (T, H, n, n)), gains))
        running, q = seconds(lambda n=n: untrained_profile(alibi, gains, n))
        assert np.allclose(p, q, rtol=1e-8)
        rows.append((f"{H} heads with ALiBi, n = {n}", "kernels written out", written, "running sums", running))
    long, _ = seconds(lambda: untrained_profile(uniform, gains, 1_000_000))
    lines = ["| what | baseline | | posbias | | ratio |", "|---|---|---|---|---|---|"]
    lines += [f"| {a} | {b} | {x:.3g} s | {c} | {y:.3g} s | {x / y:.3g}× |" for a, b, x, c, y in rows]
    lines += [f"| one kernel, n = 10⁶ | | | sum over powers | {long:.3g} s | |", ""]
    lines += [f"{T} layers; {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}.", ""]
    Path(__file__).with_name("untrained.md").write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
