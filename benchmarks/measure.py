"""Measure what measuring costs: ratios to a bare forward and backward of the same model and batch, in one run.

    python benchmarks/measure.py [--layers 12 --width 256 --heads 8 --length 1024 --batch 1 --family llama]
                                 [--attention sdpa --device cuda --dtype bfloat16 --repeats 7]

The bare pass is what gradients alone need, with the same attention and with layers that run once more on the way back:
no gradients of parameters, the probability of the most likely next token after the last position, differentiated by the
input embeddings. Prints a table in Markdown; times are of the processor that this process had, medians.
"""

from __future__ import annotations

import argparse
import platform
from contextlib import ExitStack
from functools import partial
from statistics import median
from time import perf_counter, process_time
from unittest import mock

import torch
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM

from posbias.measure.instrument import Instrument
from posbias.measure.traces import LayerSums
from posbias.models.loading import DTYPES

VOCABULARY = 2048
ROWS = ("mixing,influence", "kernels", "kernels,content", "kernels,content,logits,heads")


def make(options) -> Instrument:
    shape = {"hidden_size": options.width, "num_hidden_layers": options.layers, "num_attention_heads": options.heads}
    names = {
        "mpt": {"d_model": options.width, "n_layers": options.layers, "n_heads": options.heads},
        "gpt2": {"n_embd": options.width, "n_layer": options.layers, "n_head": options.heads},
    }
    extra = {
        "mpt": {"max_seq_len": options.length},
        "llama": {"intermediate_size": 4 * options.width, "max_position_embeddings": options.length},
        "gpt2": {"n_positions": options.length},
    }
    settings = {"vocab_size": VOCABULARY, **names.get(options.family, shape), **extra.get(options.family, {})}
    torch.manual_seed(0)
    config = AutoConfig.for_model(options.family, **settings)
    with torch.device(options.device):
        model = AutoModelForCausalLM.from_config(
            config, attn_implementation=options.attention, dtype=DTYPES[options.dtype]
        )
    return Instrument(model)


def bare(instrument: Instrument, ids: torch.Tensor) -> None:
    x = instrument.embeddings(ids).requires_grad_(True)
    with ExitStack() as stack:
        for layer in instrument.layers:
            again = partial(checkpoint, layer.forward, use_reentrant=False)
            stack.enter_context(mock.patch.object(layer, "forward", again))
        logits = instrument.model(inputs_embeds=x, use_cache=False, logits_to_keep=1).logits
        p = logits[:, -1].float().softmax(-1).amax(-1)
        torch.autograd.grad(p.sum(), x)[0].float().norm(dim=-1).cpu()


def measured(instrument: Instrument, ids: torch.Tensor, quantities: str) -> None:
    names, n = quantities.split(","), ids.shape[1]
    layers = [LayerSums(instrument.H, n, place, names, matrices=n <= 512) for place in instrument.devices()]
    carried = torch.zeros(ids.shape) if "kernels" in names else None

    def observe(seen) -> None:
        nonlocal carried
        carried = layers[seen.layer].add(seen, None if carried is None else carried.to(ids.device))

    instrument.measure(ids, observe)


def seconds(run, device: str) -> float:
    clock = perf_counter if device.startswith("cuda") else process_time
    start = clock()
    run()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return clock() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, value in {"layers": 12, "width": 256, "heads": 8, "length": 1024, "batch": 1, "repeats": 7}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--family", default="llama", choices=["bloom", "mpt", "llama", "gpt2"])
    parser.add_argument("--attention", default="sdpa", choices=["eager", "sdpa"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=list(DTYPES))
    options = parser.parse_args()
    instrument = make(options)
    ids = torch.randint(VOCABULARY, (options.batch, options.length), device=options.device)
    runs = {"bare": partial(bare, instrument, ids)}
    runs |= {quantities: partial(measured, instrument, ids, quantities) for quantities in ROWS}
    for run in runs.values():
        run()
    times = {name: [] for name in runs}
    for _ in range(options.repeats):
        for name, run in runs.items():
            times[name].append(seconds(run, options.device))
    print(
        f"{options.family}, {options.attention}, {options.layers} layers x {options.width}, {options.heads} heads, "
        f"{options.batch} x {options.length} tokens, {options.dtype} on {options.device}; "
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}\n"
    )
    print("| quantities | seconds | ratio to the bare pass |\n|---|---|---|")
    for name, found in times.items():
        ratio = median(a / b for a, b in zip(found, times["bare"], strict=True))
        print(f"| {name} | {median(found):.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
