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
from posbias.measure.run import Settings
from posbias.measure.studies.gap import measure_pathways, measure_refinements
from posbias.measure.summary import write_summary
from posbias.shipped import reference_names

HERE = Path(__file__).parent
PROMPTS, LENGTH = 48, 256
PATHS = {64: 8, 128: 2}  # tokens of a prompt whose paths are followed, and prompts
LONG = "paths-128"
LONGER = ("bloom-8", "llama-12", "gpt2-12")  # models whose longer prompts are followed too


def main(names: list[str]) -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = HERE / "31_comparison"
    text = Corpus("builtin")
    kinds = {"gap": (measure_refinements, PROMPTS, LENGTH)}
    kinds |= {f"paths-{n}": (measure_pathways, N, n) for n, N in PATHS.items()}
    for kind, (measure, N, n) in kinds.items():
        for name in names:
            path = folder / f"{name}.{kind}.nc"
            if path.exists() or (kind == LONG and name not in LONGER):
                continue
            began = time.perf_counter()
            write_summary(path, measure(Settings(Source(f"reference/{name}"), text, N, n, batch_size=4)))
            size, took = path.stat().st_size / 1024, time.perf_counter() - began
            print(f"{path.name}: {size:.0f} KiB, {took:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or reference_names())
