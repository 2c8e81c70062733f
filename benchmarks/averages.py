"""Measure how near SmolLM2's value maps come if attention is averaged over more prompts at a time, in one run.

    python benchmarks/averages.py wikitext-2.txt     # eight minutes; the text as for make real

The ladder averages attention over the prompts of a batch. Here the same 16 prompts of 256 tokens are measured in
batches of 2, 4 and 16. Prints a table in Markdown and writes it to benchmarks/averages.md.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from posbias.comparison.distances import normalised_wasserstein, spearman, unit
from posbias.measure.instrument import Instrument
from posbias.measure.ladder import Rungs, ring
from posbias.measure.session import Session
from studies.real.__main__ import PARTS, source

PROMPTS = 16


def profiles(instrument: Instrument, ids: torch.Tensor, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the profile by value maps, and that of influence."""
    maps, exact = np.zeros(ids.shape[1]), np.zeros(ids.shape[1])
    for k in range(0, len(ids), batch):
        rungs = Rungs(ring(batch, (0, k, 0))[None], names=("vectors",))
        reading = instrument.measure(ids[k : k + batch], rungs=rungs)
        assert reading.ladder is not None
        maps += reading.ladder[:, 0, 0].sum(0).numpy()
        exact += reading.influence.sum(0).numpy()
    return unit(maps), unit(exact)


def main() -> None:
    """Measure and write the table."""
    torch.set_num_threads(1)
    settings = replace(PARTS["wiki-256"], prompts=PROMPTS).settings(source("smollm2"), Path(sys.argv[1]))
    session = Session(replace(settings, quantities=("mixing", "influence")))
    lines = ["| prompts averaged | $W_1$ | rank correlation | first token, value maps | first token, measured |"]
    lines.append("|--:|--:|--:|--:|--:|")
    for batch in (2, 4, 16):
        p, q = profiles(session.instrument, session.ids, batch)
        apart, rank = normalised_wasserstein(p, q), spearman(p, q)
        lines.append(f"| {batch} | {apart:.3f} | {rank:+.2f} | {p.size * p[0]:.1f} | {q.size * q[0]:.1f} |")
        print(lines[-1], flush=True)
    about = f"{PROMPTS} prompts of Wikipedia, 256 tokens, SmolLM2, float32; first tokens in multiples of the average."
    Path(__file__).with_suffix(".md").write_text("\n".join([*lines, "", about]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
