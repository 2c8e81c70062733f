"""Measure what loading, the self-check and measuring cost of small networks.

    python benchmarks/opening.py         # three minutes

Prints a table in Markdown and writes it to benchmarks/opening.md. Times are medians of rounds in which the ways take
turns; the self-check is also given in forward passes of the batch that is measured, for it came later.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from posbias.measure.instrument import Instrument
from posbias.measure.loading import Source
from posbias.measure.selfcheck import check_instrument

SIZE = {
    "vocab_size": 2048, "hidden_size": 256, "num_hidden_layers": 12, "num_attention_heads": 8,
    "num_key_value_heads": 8, "intermediate_size": 704, "max_position_embeddings": 8192,
}  # fmt: skip
KINDS = {"llama": {}, "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2}}
B, N, ROUNDS = 8, 256, 5


def taken(run: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = perf_counter()
    run()
    return perf_counter() - start


def costs(folder: Path) -> dict[str, float]:
    """Return the median seconds of each step for the network in a folder."""
    source = Source(str(folder))
    instrument = Instrument(source.load_model(torch.float32, "cpu", None, "sdpa"))
    ids = torch.randint(2, SIZE["vocab_size"], (B, N), generator=torch.Generator().manual_seed(0))
    ways = {
        "loading": lambda: Source(str(folder)).load_model(torch.float32, "cpu", None, "sdpa"),
        "forward": lambda: instrument.losses(ids),
        "self-check": lambda: check_instrument(instrument, ids[0]),
        "measuring a batch": lambda: instrument.measure(ids),
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(ROUNDS + 1):
        for way, run in ways.items():
            seconds = taken(run)
            if turn:  # the first round warms up
                times[way].append(seconds)
    return {way: median(each) for way, each in times.items()}


def main() -> None:
    """Measure and write the tables."""
    found = {}
    with tempfile.TemporaryDirectory() as place:
        for kind, fields in KINDS.items():
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZE, **fields))
            model.save_pretrained(Path(place) / kind)
            found[kind] = costs(Path(place) / kind)
    ways = next(iter(found.values()))
    lines = [f"| seconds | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    lines += [f"| {way} | {' | '.join(f'{each[way]:.2f}' for each in found.values())} |" for way in ways]
    shares = " | ".join(f"{each['self-check'] / each['forward']:.1f}" for each in found.values())
    lines.append(f"| self-check, in forward passes of the batch | {shares} |")
    about = f"12 layers × 256, {B} prompts of {N} tokens; median of {ROUNDS} rounds; {platform.machine()}, "
    text = "\n".join([*lines, "", f"{about}torch {torch.__version__}; `python benchmarks/opening.py`."])
    Path(__file__).with_suffix(".md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
