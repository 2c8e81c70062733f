"""Simulate recency probabilities on the whole grid, and measure what the simulation costs.

    python benchmarks/recency.py            # writes results/recency.csv (15 minutes on 2 cores), then:
    python benchmarks/recency.py --speed    # prints a table in Markdown and writes it to benchmarks/recency.md

The grid: widths, cosines, no norm / LayerNorm / RMSNorm, with and without a residual. At widths 16 and 64 every
setting gets ``--sequences``, those of which the authors print results four times as many; RMSNorm above width 16,
widths above 64 and the variants at the end of the list get half. Rows that the file already has are kept if they
are from as many sequences or more.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import resource
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from time import perf_counter, process_time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # one core for every path

import numpy as np  # noqa: E402 - the threads are counted when numpy is loaded

from studies.norms.layernorm_simulation import simulate_recency  # noqa: E402 - as numpy

HERE = Path(__file__).parent
N, LAYERS = 10, 4
WIDTHS = (16, 64, 256, 1024)
ALPHAS = tuple(round(0.1 * k, 1) for k in range(9))
HIGH = (0.9, 0.95, 0.99)
PRINTED = {(0.0, "none", "none"), (0.0, "layernorm", "none"), (0.5, "layernorm", "none"), (0.5, "layernorm", "pre")}


def settings() -> list[dict]:
    """List the runs of the grid, then those that vary how a residual or an input's size is read."""
    runs = [
        {"d": d, "alpha": alpha, "norm": norm, "residual": residual, "rms": (1 - alpha) ** -0.5}
        for d, alpha, norm, residual in product(WIDTHS, ALPHAS, ("none", "layernorm", "rmsnorm"), ("none", "pre"))
    ]
    for d in (16, 64):
        runs.append({"d": d, "alpha": 0.5, "norm": "layernorm", "residual": "post", "rms": 2**0.5})
        for rms in (1.0, d**0.5):  # tokens of norm 1 and of norm √d, as after a first LayerNorm
            runs.append({"d": d, "alpha": 0.5, "norm": "layernorm", "residual": "pre", "rms": rms})
        runs.append({"d": d, "alpha": 0.0, "norm": "none", "residual": "none", "rms": d**0.5})
    return runs + sweep()


def sweep() -> list[dict]:
    """List LayerNorm at high cosines, and with a residual between tokens of norm √2 at all cosines.

    A token's own part has norm 1 in the grid, so that its norm, and with it the residual's share, grows with α.
    """
    usual = [
        {"d": d, "alpha": alpha, "norm": "layernorm", "residual": residual, "rms": (1 - alpha) ** -0.5}
        for d, alpha, residual in product(WIDTHS, HIGH, ("none", "pre"))
    ]
    fixed = [
        {"d": d, "alpha": alpha, "norm": "layernorm", "residual": "pre", "rms": 2**0.5}
        for d, alpha in product(WIDTHS, (*ALPHAS, *HIGH))
        if alpha != 0.5  # where the two are one
    ]
    return usual + fixed


def head(run: dict) -> str:
    return f"{run['d']},{run['alpha']},{run['norm']},{run['residual']},{run['rms']:.6g}"


def share(run: dict) -> float:
    """Return how many times ``--sequences`` a run draws."""
    if run["residual"] == "post" or abs(run["rms"] - (1 - run["alpha"]) ** -0.5) > 1e-9:
        return 0.5
    if run["d"] > 64 or (run["norm"] == "rmsnorm" and run["d"] > 16):
        return 0.5
    return 4 if (run["alpha"], run["norm"], run["residual"]) in PRINTED else 1


def rows(job: tuple[int, dict, int]) -> list[str]:
    seed, run, sequences = job
    found = simulate_recency(sequences, n=N, layers=LAYERS, seed=seed, **run)
    return [
        f"{head(run)},{layer + 1},{sequences},{p:.6f},{e:.6f}"
        for layer, (p, e) in enumerate(zip(found.probability, found.error, strict=True))
    ]


def write_grid(output: Path, sequences: int, processes: int) -> None:
    kept: dict[str, list[str]] = {}
    if output.is_file():
        for line in output.read_text(encoding="utf-8").splitlines():
            kept.setdefault(line.rsplit(",", 4)[0], []).append(line)
    jobs = [(seed, run, int(sequences * share(run))) for seed, run in enumerate(settings())]
    for _, run, wanted in jobs:
        found = kept.get(head(run), [])
        if len(found) != LAYERS or int(found[0].split(",")[6]) < wanted:
            kept.pop(head(run), None)
    left = [job for job in jobs if head(job[1]) not in kept]
    lines = [
        "# recency probability P(S_ij > S_ik), k < j < i, for Gaussian tokens, untrained, and its standard error",
        f"# made by: benchmarks/recency.py, {datetime.date.today().isoformat()}",
        f"# device: cpu, {platform.machine()}; python {platform.python_version()}, numpy {np.__version__}; float32",
        f"# n={N} tokens; seed of a run: its place in the list; rms: root-mean-square norm of a token",
        "d,alpha,norm,residual,rms,layer,sequences,probability,error",
    ]
    started = perf_counter()
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w", encoding="utf-8") as file, ProcessPoolExecutor(processes) as pool:
        file.write("\n".join(lines) + "\n")
        new = pool.map(rows, left)
        for done, (_, run, _) in enumerate(jobs, 1):
            file.write("\n".join(kept.get(head(run)) or next(new)) + "\n")
            file.flush()
            print(f"{done}/{len(jobs)} {perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    new_sequences = sum(job[2] for job in left)
    print(f"{new_sequences:,} new sequences, {used.ru_utime + used.ru_stime:.0f} processor seconds", file=sys.stderr)


def plain(sequences: int, d: int, alpha: float, seed: int = 0) -> np.ndarray:
    """Return recency probabilities of the LayerNorm network, one sequence at a time, in d dimensions."""
    rng, greater = np.random.default_rng(seed), np.zeros(LAYERS)
    allowed = np.tril(np.ones((N, N), dtype=bool))
    for _ in range(sequences):
        X = np.sqrt(alpha) * rng.standard_normal(d) + np.sqrt(1 - alpha) * rng.standard_normal((N, d))
        for t in range(LAYERS):
            u = X - X.mean(axis=1, keepdims=True)
            u *= np.sqrt(d) / np.linalg.norm(u, axis=1, keepdims=True)
            S = u @ u.T / np.sqrt(d)
            greater[t] += sum(S[i, j] > S[i, k] for i in range(N) for j in range(i) for k in range(j))
            A = np.where(allowed, np.exp(S - S.max(axis=1, keepdims=True)), 0)
            X = A / A.sum(axis=1, keepdims=True) @ u
    return greater / (sequences * N * (N - 1) * (N - 2) / 6)


def write_speed(sequences: int) -> None:
    code = (
        "import resource, time\nfrom studies.norms.layernorm_simulation import simulate_recency\n"
        "wall, cpu = time.perf_counter(), time.process_time()\n"
        f"simulate_recency({sequences}, d=64, alpha=0.5)\n"
        "print(time.perf_counter() - wall, time.process_time() - cpu, end=' ')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    wall, took, peak = map(float, done.stdout.split())
    few = 2000
    start = process_time()
    loop = plain(few, 64, 0.5)
    each = (process_time() - start) / few
    fast = simulate_recency(100_000, d=64, alpha=0.5)
    if np.abs(loop - fast.probability).max() > 5 * (fast.error * np.sqrt(100_000 / few)).max():
        raise SystemExit(f"the two ways differ: {loop} and {fast.probability}")
    lines = [
        "| what | baseline | posbias | ratio | note |",
        "|---|---|---|---|---|",
        f"| recency simulation, {sequences:,} sequences | {each * sequences:,.0f} s | {took:.1f} s | "
        f"{each * sequences / took:,.0f}× | loop over sequences timed on {few:,}; peak {peak:.2f} GiB, whole process |",
        "",
        f"Seconds of one processor ({wall:.1f} s on the clock); d = 64, n = {N}, {LAYERS} layers, LayerNorm; "
        f"{os.cpu_count()} cores, {platform.machine()}, "
        f"Python {platform.python_version()}, numpy {np.__version__}; `python benchmarks/recency.py --speed`.",
    ]
    text = "\n".join(lines) + "\n"
    (HERE / "recency.md").write_text(text, encoding="utf-8")
    print(text, end="")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", action="store_true", help="measure, do not simulate the grid")
    parser.add_argument("--sequences", type=int, default=10**6)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=HERE.parent / "results" / "recency.csv")
    arguments = parser.parse_args()
    if not arguments.speed:
        write_grid(arguments.output, arguments.sequences, arguments.processes)
    write_speed(10**6)


if __name__ == "__main__":
    main()
