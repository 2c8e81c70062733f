"""Measure what measuring costs: ratios to a plain forward and backward of the same model and batch, in one run.

    python benchmarks/measure.py [--layers 12 --width 256 --heads 8 --length 256 --batch 8 --family bloom]
                                 [--device cuda --dtype bfloat16 --repeats 7]

The plain pass is what gradients alone need: eager attention, no gradients of parameters, the probability of the
most likely next token after the last position, differentiated by the input embeddings. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from posbias.measure.instrument import Instrument
from posbias.measure.layer_sums import LayerStatistics, bin_centres
from posbias.measure.loading import DTYPES

VOCABULARY = 2048


def make(options) -> Instrument:
    shape = {"hidden_size": options.width, "num_hidden_layers": options.layers, "num_attention_heads": options.heads}
    names = {"mpt": {"d_model": options.width, "n_layers": options.layers, "n_heads": options.heads}}
    extra = {"mpt": {"max_seq_len": options.length}, "llama": {"intermediate_size": 4 * options.width}}
    settings = {"vocab_size": VOCABULARY, **names.get(options.family, shape), **extra.get(options.family, {})}
    torch.manual_seed(0)
    config = AutoConfig.for_model(options.family, **settings)
    with torch.device(options.device):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=DTYPES[options.dtype])
    return Instrument(model)


def plain(instrument: Instrument, ids: torch.Tensor) -> None:
    x = instrument.embeddings(ids).requires_grad_(True)
    logits = instrument.model(inputs_embeds=x, use_cache=False, logits_to_keep=1).logits
    p = logits[:, -1].float().softmax(-1).amax(-1)
    torch.autograd.grad(p.sum(), x)[0].float().norm(dim=-1).cpu()


def everything(instrument: Instrument, ids: torch.Tensor, layers: list[LayerStatistics]) -> None:
    instrument.measure(ids, lambda seen: layers[seen.layer].add(seen))


def three_passes(instrument: Instrument, ids: torch.Tensor) -> None:
    """λ from hidden states, then content and attention from weights handed out, then gradients prompt by prompt."""
    model, outputs = instrument.model, []
    hooks = [instrument.family.output_of(layer).register_forward_hook(lambda m, a, out: outputs.append(out))
             for layer in instrument.layers]  # fmt: skip
    with torch.no_grad():
        states = model(ids, use_cache=False, output_hidden_states=True).hidden_states
    for hook in hooks:
        hook.remove()
    for x, a in zip(states, outputs, strict=False):
        a = a[0] if isinstance(a, tuple) else a
        (a.float().norm(dim=-1) / (a.float().norm(dim=-1) + x.float().norm(dim=-1))).mean().item()
    logits = []

    def observe(seen):
        logits.append(torch.where(seen.allowed, seen.content(), torch.nan).cpu().numpy())

    instrument.forward(ids, observe)
    edges = np.append(bin_centres(), 32.0)
    for content in logits:
        content.mean(0)
        for h in range(content.shape[1]):
            np.histogram(content[:, h][np.isfinite(content[:, h])], edges)
    with torch.no_grad():
        for weights in model(ids, use_cache=False, output_attentions=True).attentions:
            weights.float().mean((0, 1)).cpu()
    for prompt in ids:
        plain(instrument, prompt[None])


def seconds(run, device: str) -> float:
    start = perf_counter()
    run()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return perf_counter() - start


def statistics_of(instrument: Instrument, options) -> list[LayerStatistics]:
    places = instrument.devices()
    return [LayerStatistics(instrument.H, options.length, place, content=options.content) for place in places]


def peak(options, what: str) -> float:
    """Return the peak memory in MiB of a process that does one thing three times, less what the model takes."""
    words = [sys.executable, __file__, "--peak", what]
    for name in ("layers", "width", "heads", "length", "batch", "family", "device", "dtype"):
        words += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ)
    return float(done.stdout.split()[-1])


def report_peak(options) -> None:
    instrument = make(options)
    ids = torch.randint(VOCABULARY, (options.batch, options.length), device=options.device)
    cuda = options.device.startswith("cuda")
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    layers = statistics_of(instrument, options) if options.peak == "everything" else []
    for _ in range(3):
        everything(instrument, ids, layers) if layers else plain(instrument, ids)
    if cuda:
        print(torch.cuda.max_memory_allocated() / 2**20)
    else:  # not getrusage: what that says of a process counts the one that started it
        status = Path("/proc/self/status").read_text().split("VmHWM:")[1]
        print(int(status.split()[0]) / 2**10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, value in {"layers": 12, "width": 256, "heads": 8, "length": 256, "batch": 8, "repeats": 7}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--family", default="bloom", choices=["bloom", "mpt", "llama"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=list(DTYPES))
    parser.add_argument("--no-content", dest="content", action="store_false")
    parser.add_argument("--peak", choices=["plain", "everything"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        return report_peak(options)
    instrument = make(options)
    ids = torch.randint(VOCABULARY, (options.batch, options.length), device=options.device)
    layers = statistics_of(instrument, options)
    runs = {
        "plain forward and backward": lambda: plain(instrument, ids),
        "all statistics": lambda: everything(instrument, ids, layers),
        "three separate passes": lambda: three_passes(instrument, ids),
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for k in range(options.repeats + 1):  # in turns, so that a busy machine is busy for all alike; the first is no use
        for name, run in runs.items():
            taken = seconds(run, options.device)
            if k:
                times[name].append(taken)
    base = times["plain forward and backward"]
    shape = f"{options.layers} layers, width {options.width}, {options.heads} heads"
    threads = f"{torch.get_num_threads()} thread(s), {platform.machine()}"
    print(f"{options.family}, {shape}, n = {options.length}, batch {options.batch}")
    print(f"{options.dtype} on {options.device}, torch {torch.__version__}, {threads}\n")
    print("| | seconds a batch | prompts/s | of the plain pass, median (range) of ratios |\n|---|---|---|---|")
    for name, taken in times.items():
        ratios = [a / b for a, b in zip(taken, base, strict=True)]
        print(f"| {name} | {median(taken):.3f} | {options.batch / median(taken):.2f} | "
              f"{median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f}) |")  # fmt: skip
    memory = {what: peak(options, what) for what in ("plain", "everything")}
    print(f"\npeak memory: {memory['plain']:.0f} MiB plain, {memory['everything']:.0f} MiB with all statistics: "
          f"{memory['everything'] / memory['plain']:.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
