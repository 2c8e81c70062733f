"""Measure what each rung of the ladder costs, in backward passes of the same batch, all in one run.

    python benchmarks/ladder.py         # five minutes

Prints a table in Markdown and writes it to benchmarks/ladder.md. A backward pass is the exact walk back: each layer
once more, and its gradient. Ways take turns, and what counts is the processor's time on one thread: what else the
machine does falls on all of them, and waiting for it on none.
"""

from __future__ import annotations

import platform
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
import torch

from posbias.measure.instrument import Instrument
from posbias.measure.ladder import Rungs, ring
from posbias.models.loading import Source
from posbias.settings import RUNGS

MODELS = {"bloom-12": "eager", "llama-12": "eager", "llama-12, fused": "sdpa"}
B, N, ROUNDS = 8, 256, 7


def costs(name: str, attention: str) -> dict[str, float]:
    """Return the median cost of each rung, in backward passes."""
    source = Source(f"reference/{name.partition(',')[0]}")
    instrument = Instrument(source.load_model(torch.float32, "cpu", None, attention))
    ids = torch.randint(2, 2048, (B, N), generator=torch.Generator().manual_seed(0))
    pairing = ring(B, (0, 0))[None]
    ways = {
        "forward": lambda: instrument.forward(ids, lambda seen: None),
        "exact": lambda: instrument.measure(ids),
        **{rung: lambda rung=rung: instrument.measure(ids, rungs=Rungs(pairing, names=(rung,))) for rung in RUNGS},
        "all": lambda: instrument.measure(ids, rungs=Rungs(pairing)),
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(ROUNDS + 1):
        for way, run in ways.items():
            start = process_time()
            run()
            if turn:  # the first round warms up
                times[way].append(process_time() - start)
    t = {way: np.array(each) for way, each in times.items()}
    back = median(t["exact"] - t["forward"])
    return {way: median(t[way] - t["exact"]) / back for way in (*RUNGS, "all")}


def main() -> None:
    """Measure and write the table."""
    torch.set_num_threads(1)
    found = {name: costs(name, attention) for name, attention in MODELS.items()}
    lines = [f"| rung | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    lines += [f"| {way} | {' | '.join(f'{each[way]:.2f}' for each in found.values())} |" for way in (*RUNGS, "all")]
    about = f"{B} prompts of {N} tokens; median of {ROUNDS} rounds; processor time of one thread"
    about += f"; {platform.machine()}, torch {torch.__version__}"
    text = "\n".join(
        [*lines, "", f"Backward passes that a rung adds, one pairing; {about}; `python benchmarks/ladder.py`."]
    )
    Path(__file__).with_suffix(".md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
