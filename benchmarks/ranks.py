"""Measure several processes against one: throughput and equality, rounds interleaved. Prints a table in Markdown.

    python benchmarks/ranks.py [--models reference/bloom-8 --ranks 1 2 4 --prompts 64 --length 256 --rounds 3]

``tiny`` is BLOOM with 4 layers of 4 heads and width 64, drawn at random. Every process takes one thread. The time is
that of the prompts and of adding up, from when all processes have the model to when all are done; a ratio is the
median over rounds of the time of one process by that of several, taken in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parents[1]
TINY = {"hidden_size": 64, "n_layer": 4, "n_head": 4, "vocab_size": 512}
QUANTITIES = ("mixing", "influence", "kernels", "content", "logits", "heads", "branches")
CELLS = 128


def work(model: str, output: Path, prompts: int, length: int) -> None:
    """Measure in one of several processes; the first prints how long it took."""
    import torch

    from posbias.measure import run
    from posbias.measure.corpus import BUILTIN, Corpus
    from posbias.measure.loading import Source
    from posbias.measure.settings import Settings
    from posbias.measure.untrained import Untrained

    is_path = Path(model).is_dir()
    settings = Settings(
        Untrained(model) if is_path else Source(model),
        Corpus(BUILTIN),
        prompts,
        length,
        batch_size=4,
        device="cpu",
        rule="random" if is_path else "cut",
        quantities=QUANTITIES,
        kernel_size=CELLS,
    )
    real, seconds = run._Run.go, []

    def go(self: Any, *rest: Any) -> None:
        self.group.add_up(torch.zeros(1))
        began = perf_counter()
        real(self, *rest)
        self.group.add_up(torch.zeros(1))
        seconds.append(perf_counter() - began)

    run._Run.go = go  # type: ignore[method-assign]
    if run.measure(settings, output, overwrite=True) is not None:
        print(json.dumps(seconds[0]))


def launch(model: str, ranks: int, output: Path, options: argparse.Namespace) -> float:
    """Return the seconds that a number of processes took."""
    words = [__file__, "--work", model, "--output", str(output)]
    words += ["--prompts", str(options.prompts), "--length", str(options.length)]
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = subprocess.run(
        [sys.executable, *(torchrun if ranks > 1 else []), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout))


def largest_difference(first: Path, second: Path) -> tuple[float, str, float]:
    """Return the largest difference of two results and where it is, and the share of counts in other bins."""
    import numpy as np

    from posbias.measure.results import read_results

    one, two = read_results(first), read_results(second)
    assert set(one) == set(two), set(one) ^ set(two)
    off, moved = {}, 0.0
    for name in map(str, one):
        x, y = one[name].values.astype(float), two[name].values.astype(float)
        assert x.shape == y.shape and np.array_equal(np.isnan(x), np.isnan(y)), name
        if name.startswith("histogram"):
            moved = max(moved, float(np.abs(x - y).sum() / x.sum()))
        elif not name.startswith("similarity"):
            off[name] = float(np.nanmax(np.abs(x - y) / np.maximum(1, np.abs(x)), initial=0.0))
    where = max(off, key=lambda name: off[name])
    return off[where], where, moved


def main() -> None:
    """Time every number of processes in turn, round by round, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["tiny", "reference/bloom-8"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.output, options.prompts, options.length)
        return
    if options.ranks[0] != 1:
        parser.error("ranks: expected 1 first, which the others are held to")
    lines = ["| model | processes | tokens a second | ratio | largest difference | |", "|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "tiny").mkdir()
        (place / "tiny" / "config.json").write_text(json.dumps({"model_type": "bloom", **TINY}))
        for name in options.models:
            model = str(place / "tiny") if name == "tiny" else name
            files = {ranks: place / f"{ranks}.nc" for ranks in options.ranks}
            rounds = [{k: launch(model, k, files[k], options) for k in options.ranks} for _ in range(options.rounds)]
            for ranks, file in files.items():
                seconds = median(times[ranks] for times in rounds)
                ratio = median(times[1] / times[ranks] for times in rounds)
                off, where, moved = largest_difference(files[1], file)
                said = f"{off:.0e} in {where}" if off else "0"
                said += f" | {moved:.0e} of counts in other bins" if moved else " | same counts"
                speed = options.prompts * options.length / seconds
                lines.append(f"| {name} | {ranks} | {speed:.0f} | {ratio:.2f}× | {said if ranks > 1 else '|'} |")
    print("\n".join(lines))
    print(
        f"\n{options.prompts} prompts of {options.length} tokens, 4 at a time, {', '.join(QUANTITIES)}, {CELLS} cells;"
    )
    print(f"median of {options.rounds} rounds; {os.cpu_count()} cores, {platform.machine()}, one thread a process.")


if __name__ == "__main__":
    main()
