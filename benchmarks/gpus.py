"""Estimate what measuring large models takes: memory, GPUs, arithmetic and time. Prints a table in Markdown.

    python benchmarks/gpus.py [--prompts 1000 --gib 75 --rate 989e12 --share 0.4] [--page book/gpus.md]

Nothing is loaded and nothing is timed. Parameters are counted on configurations (torch's meta device), memory and
arithmetic are those of ``posbias.measure.memory.memory_need``, which the dry run prints as well. Time is arithmetic by
an assumed rate: a share of the peak that a data sheet names, 989 TFLOP/s of dense bfloat16 for an H100.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import torch
from transformers import BloomConfig, LlamaConfig

from posbias.measure.memory import AT_WORK, Need, memory_need, shape_of
from posbias.measure.settings import DEFAULT, KERNEL_SIZE
from posbias.networks.families import family_of

GIB = 2**30
LENGTHS = (256, 1024, 4096, 8192)
LLAMA = {"vocab_size": 32000, "max_position_embeddings": max(LENGTHS)}
MODELS = {
    "7B, Llama-like": LlamaConfig(
        hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32, **LLAMA
    ),
    "70B, Llama-like": LlamaConfig(
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
        **LLAMA,
    ),
    "BLOOM 176B": BloomConfig(hidden_size=14336, n_layer=70, n_head=112, vocab_size=250880),
}
"""Shapes of which numbers are estimated; the first two are Llama 2's but for the longest prompt."""


@dataclass(frozen=True)
class Row:
    """Hold one line of the table: a model, a length, and what that takes.

    Parameters
    ----------
    model, length
        One of :data:`MODELS` and of :data:`LENGTHS`.
    need
        Of one prompt at a time.
    gpus
        Least number of GPUs that hold it, None where one layer is too large for a GPU.
    at_once
        Prompts at a time on so many GPUs, 0 for none.
    seconds
        For all prompts, one GPU at work at a time.
    """

    model: str
    length: int
    need: Need
    gpus: int | None
    at_once: int
    seconds: float


def estimate(config: Any, length: int, prompts: int, room: float, rate: float) -> tuple[Need, int | None, int, float]:
    """Return what a model takes in bfloat16 with default quantities, as :class:`Row` has it.

    Parameters
    ----------
    config
        The model's configuration.
    length, prompts
        Tokens in a prompt, and how many prompts there are.
    room
        Bytes that can be had on each GPU.
    rate
        Operations a second.
    """
    fused = family_of(config).is_fused(config)
    cells = min(length, KERNEL_SIZE)
    need = memory_need(config, torch.bfloat16, 1, length, fused=fused, quantities=DEFAULT, cells=cells, prompts=prompts)
    layer = 0 if fused else AT_WORK * 4 * config.num_attention_heads * length**2
    gpus = None if layer > room else ceil(need.total / room)
    at_once = 0 if gpus is None else 1 + int((gpus * room - need.total) // need.batch)
    return need, gpus, min(prompts, at_once), need.operations / rate


def rows(prompts: int, room: float, rate: float) -> list[Row]:
    """Return the lines of the table."""
    return [
        Row(name, length, *estimate(config, length, prompts, room, rate))
        for name, config in MODELS.items()
        for length in LENGTHS
    ]


def span(seconds: float) -> str:
    """Return a time in the largest unit of which there is one, with two digits.

    >>> span(26.4), span(400), span(9720)
    ('26 s', '6.7 min', '2.7 h')
    """
    unit, size = next((u, s) for u, s in (("h", 3600), ("min", 60), ("s", 1)) if seconds >= s or s == 1)
    return f"{float(f'{seconds / size:.2g}'):g} {unit}"


def table(prompts: int, gib: float, rate: float) -> str:
    """Return the table in Markdown."""
    head = ["model", "tokens", "weights", "each prompt", "sums", "result", "GPUs", "prompts at once", "PFLOP", "time"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows(prompts, gib * GIB, rate):
        need = row.need
        sizes = (f"{size / GIB:.3g} GiB" for size in (need.weights, need.batch, need.sums, need.file))
        places = ("—", "—") if row.gpus is None else (str(row.gpus), str(row.at_once))
        cells = (
            row.model,
            f"{row.length:,}",
            *sizes,
            *places,
            f"{float(f'{need.operations / 1e15:.3g}'):,g}",
            span(row.seconds),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table and what it assumes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prompts", type=int, default=1000)
    parser.add_argument("--gib", type=float, default=75, help="GiB that can be had on each GPU")
    parser.add_argument("--rate", type=float, default=989e12, help="operations a second that the data sheet names")
    parser.add_argument("--share", type=float, default=0.4, help="share of them that is assumed to be reached")
    parser.add_argument("--page", type=Path, help="page whose table is to be replaced")
    options = parser.parse_args()
    found = table(options.prompts, options.gib, options.share * options.rate)
    print(found)
    if options.page is not None:
        text = options.page.read_text(encoding="utf-8")
        start = text.index(found.splitlines()[0])
        options.page.write_text(text[:start] + found + text[text.index("\n\n", start) :], encoding="utf-8")
    sizes = (f"{name} {sum(x.numel() for x in shape_of(config).parameters()):,}" for name, config in MODELS.items())
    print(f"\nParameters: {'; '.join(sizes)}.")


if __name__ == "__main__":
    main()
