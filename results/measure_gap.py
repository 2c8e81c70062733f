"""Measure what may explain the gap between rollout and influence, for every reference model: results/31_comparison.

    python results/measure_gap.py [NAME …]

Files that are there already are kept. NAME.gap.nc has the gradient along the stream, readings of the mixing, gains and
the rollouts that they make; NAME.paths-N.nc has sizes of single paths' gradients in prompts of N tokens.
"""

import sys
import time
from pathlib import Path

from transformers.utils import logging

from posbias.measure.corpus import Corpus
from posbias.measure.loading import Source
from posbias.measure.refinements import measure_pathways, measure_refinements
from posbias.measure.run import Settings
from posbias.measure.summary import write_summary
from posbias.shipped import reference_names

HERE = Path(__file__).parent
PROMPTS, LENGTH = 48, 256
PATHS = {64: 8, 128: 2}  # tokens of a prompt whose paths are followed, and prompts
LONGER = ("bloom-8", "llama-12", "gpt2-12", "mistral-12")  # models whose longer prompts are followed too


def main(names: list[str]) -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = HERE / "31_comparison"
    for name in names:
        source, text = Source(f"reference/{name}"), Corpus("builtin")
        wanted = {"gap": (measure_refinements, Settings(source, text, PROMPTS, LENGTH, batch_size=4))}
        wanted |= {f"paths-{n}": (measure_pathways, Settings(source, text, N, n)) for n, N in PATHS.items()}
        if name not in LONGER:
            del wanted["paths-128"]
        for kind, (measure, settings) in wanted.items():
            path = folder / f"{name}.{kind}.nc"
            if not path.exists():
                began = time.perf_counter()
                write_summary(path, measure(settings))
                size, took = path.stat().st_size / 1024, time.perf_counter() - began
                print(f"{path.name}: {size:.0f} KiB, {took:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or reference_names())
