"""How much memory a model and a batch of prompts take, estimated before the model is built.

Parameters are counted on torch's meta device, where a model has shapes and no numbers. What autograd keeps of a batch
is estimated from shapes: the attention weights of every layer grow with the square of the prompt's length and soon
take more than the model.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from posbias import checks

WIDTHS = ("ffn_hidden_size", "intermediate_size", "ffn_dim", "n_inner")
"""Fields of a configuration that may hold the width inside an MLP; four times the model's where there is none."""

ACTIVATIONS = ("hidden_act", "activation_function", "activation")
"""Fields of a configuration that may name the activation."""
FUSED = ("gelu", "relu", "silu")
"""Activations that are one operation of torch; of those that are composed, autograd keeps what each step was given."""

RETAINED = 1
"""Matrices (n, n) in 32 bits that autograd keeps for each head: the attention weights."""
AT_WORK = 8
"""Matrices (n, n) in 32 bits for each head of the one layer at work: logits, weights, gradients, and what is read."""
HIDDEN = 16
"""Vectors of the model's width that autograd keeps for each token and layer."""
INNER = {True: 3, False: 8}
"""The same of the width inside the MLP, for an activation that is one operation and for one that is composed."""
RUNTIME = 2**28
"""Bytes for what is loaded on the way, and for what is not counted."""


@dataclass(frozen=True)
class Need:
    """Hold an estimate of the memory that a measurement takes, in bytes.

    Parameters
    ----------
    weights
        Parameters and buffers.
    batch
        What autograd keeps of a batch of prompts, and what one layer needs while it is at work.
    sums
        Matrices that are added up over prompts, and what is kept of each prompt.
    """

    weights: int
    batch: int
    sums: int

    @property
    def total(self) -> int:
        """All of it, and :data:`RUNTIME`."""
        return self.weights + self.batch + self.sums + RUNTIME


def shape_of(config: Any) -> torch.nn.Module:
    """Return the model of a configuration on the meta device: all shapes, no numbers, no memory.

    Raises
    ------
    ValueError
        For a configuration of which no model can be made, with the reason.

    >>> from transformers import GPT2Config
    >>> shape_of(GPT2Config()).num_parameters()
    124439808
    """
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, attn_implementation="eager")  # type: ignore[no-any-return]
    except (ArithmeticError, AttributeError, AssertionError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise checks.refuse("configuration", "one that makes a model", f"{config.model_type}: {reason}") from None


def memory_need(
    config: Any, dtype: torch.dtype, batch_size: int, length: int, *, matrices: int = 0, prompts: int = 0
) -> Need:
    """Estimate the memory that one forward and one backward of a batch take, weights included.

    Parameters
    ----------
    config
        Configuration of a model.
    dtype
        Number format of weights and activations.
    batch_size, length
        Prompts at a time, and tokens in each.
    matrices
        How many (n, n) matrices are kept for each head over all prompts: content logits are one, attention another.
    prompts
        How many prompts there are, of each of which ids, influence and mixing are kept.

    Raises
    ------
    ValueError
        As :func:`shape_of` does.

    Notes
    -----
    Against the peak of ten runs on a CPU (GPT-2, OPT, Pythia, MPT, BLOOM, Qwen2 and TinyLlama, 256 to 1,024 tokens) the
    estimate was 1.1 to 1.6 times what was taken: it errs towards refusing.
    """
    model = shape_of(config)
    held = sum(x.numel() * dtype.itemsize for x in model.parameters()) + sum(x.nbytes for x in model.buffers())
    T, H, d = config.num_hidden_layers, config.num_attention_heads, config.hidden_size
    inner = int(_first(config, WIDTHS) or 4 * d)
    vectors = HIDDEN * d + INNER[_first(config, ACTIVATIONS) in FUSED] * inner
    squares = H * length**2 * 4 * (T * RETAINED + AT_WORK)
    hidden = length * T * vectors * dtype.itemsize
    logits = 4 * config.vocab_size * 4  # those of the last position alone
    sums = 3 * 8 * T * length**2 * (matrices * H + 1) + prompts * 8 * (3 * length + 2 * T)
    return Need(held, batch_size * (squares + hidden + logits), sums)


def memory_available(device: torch.device) -> int | None:
    """Return how many bytes can be had on a device, None where the system does not say.

    On a GPU what is free there; else what the system says is available, at most the limit of the control group.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = [_meminfo(Path("/proc/meminfo")), _limit(Path("/sys/fs/cgroup/memory.max"))]
    said = [size for size in found if size is not None]
    if said:
        return min(said)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _first(config: Any, names: tuple[str, ...]) -> Any:
    """Return the first of these fields that a configuration fills, None if it fills none."""
    return next((x for x in (getattr(config, name, None) for name in names) if x), None)


def check_memory(
    config: Any,
    dtype: torch.dtype,
    device: torch.device,
    batch_size: int,
    length: int,
    *,
    matrices: int = 0,
    prompts: int = 0,
) -> None:
    """Raise if a model and a batch of prompts need more memory than there is, with both numbers and what to try.

    Parameters
    ----------
    config, dtype, batch_size, length, matrices, prompts
        As :func:`memory_need` has them.
    device
        Where the model is to run. It is built on the CPU, which must hold the weights in any case.

    Raises
    ------
    ValueError
        If there is too little memory.
    """
    need = memory_need(config, dtype, batch_size, length, matrices=matrices, prompts=prompts)
    host = torch.device("cpu")
    here = need.total if device.type != "cuda" else need.weights
    for place, wanted in ((host, here), *(((device, need.total),) if device.type == "cuda" else ())):
        there = memory_available(place)
        if there is not None and wanted > there:
            parts = [f"{need.weights / 2**30:.1f} for weights in {str(dtype).removeprefix('torch.')}"]
            if wanted > need.weights:
                parts += [f"{need.batch / 2**30:.1f} for {batch_size} prompts of {length} tokens at a time"]
                parts += [f"{need.sums / 2**30:.1f} for sums"]
            received = f"a need of about {wanted / 2**30:.1f} GiB ({', '.join(parts)})"
            raise checks.refuse(
                "memory",
                f"at most the {there / 2**30:.1f} GiB available on {place}",
                received + _advice(need, there, batch_size),
            )


def _advice(need: Need, there: int, batch_size: int) -> str:
    """Return what to try: a smaller batch if one fits, else less of everything."""
    room = there - need.total + need.batch
    fits = int(room / (need.batch / batch_size))
    if fits >= 1 and batch_size > 1:
        return f"; try --batch-size {min(fits, batch_size - 1)}"
    more = there > need.weights + RUNTIME
    return "; try --no-content, a smaller length or --dtype bfloat16" if more else "; try a smaller model"


def _meminfo(file: Path) -> int | None:
    """Return MemAvailable of Linux, in bytes."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else None


def _limit(file: Path) -> int | None:
    """Return the memory limit of the control group, in bytes; None if there is none."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
