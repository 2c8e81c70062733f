"""How much memory, disk and arithmetic a measurement takes, estimated before the model is built.

Parameters are counted on torch's meta device, where a model has shapes and no numbers. Layers run one at a time on the
way back, so that of a batch each layer's input is kept and all else of one layer alone. With fused attention nothing
grows with the square of the prompt's length but the matrices that are asked for, up to the number of cells.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from posbias import errors
from posbias.measure.attention import MOST_ENTRIES
from posbias.measure.branches import MOST_PROMPTS
from posbias.measure.settings import DEFAULT, RUNGS, Settings
from posbias.networks.auto import causal_class
from posbias.networks.families import family_of
from posbias.networks.given_biases import given_biases

WIDTHS = ("ffn_hidden_size", "intermediate_size", "ffn_dim", "n_inner")
"""Fields of a configuration that may hold the width inside an MLP; four times the model's where there is none."""

AT_WORK = 6
"""Matrices (n, n) in 32 bits for each head of the layer at work without fused attention: logits, weights, gradients."""
HIDDEN = 24
"""Vectors of the model's width that autograd keeps for each token of the layer at work, and what is made on the way."""
INNER = 13
"""The same of the width inside the MLP, whatever its activation and gates."""
BLOCKS = 5
"""Blocks of queries in 32 bits that are held while weights and content are computed again or added up."""
GATHERED = 4
"""Vectors of the model's width for each expert that a token goes through."""
RUNTIME = 2**29
"""Bytes for what is loaded on the way, and for what is not counted."""
EXPONENTIAL = 20
"""Operations that an entry of a softmax counts for."""


@dataclass(frozen=True)
class Need:
    """Hold an estimate of what a measurement takes: memory and disk in bytes, arithmetic in operations."""

    weights: int
    """Parameters and buffers."""
    batch: int
    """What is kept of a batch of prompts, and what one layer needs while it is at work."""
    sums: int
    """Matrices that are added up over prompts, and what is kept of each prompt."""
    file: int
    """The result before it is packed."""
    operations: float
    """Multiplications and additions of all prompts: forward, once more, and back."""
    prompts: int
    """Prompts in a batch."""
    length: int

    @property
    def total(self) -> int:
        """All memory, and :data:`RUNTIME`."""
        return self.weights + self.batch + self.sums + RUNTIME

    def __str__(self) -> str:
        at_a_time = f"{self.prompts} prompts of {self.length} tokens at a time"
        parts = (("weights", self.weights), (at_a_time, self.batch), ("sums", self.sums))
        return f"{_gib(self.total)} GiB ({', '.join(f'{_gib(size)} for {what}' for what, size in parts)})"


def shape_of(config: Any) -> torch.nn.Module:
    """Return the model of a configuration on the meta device: all shapes, no numbers, no memory.

    >>> from transformers import GPT2Config
    >>> shape_of(GPT2Config()).num_parameters()
    124439808
    """
    try:
        with torch.device("meta"):
            return causal_class(config).from_config(config, attn_implementation="eager")  # type: ignore[no-any-return]
    except (ArithmeticError, AttributeError, AssertionError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise errors.invalid("configuration", "one that makes a model", f"{config.model_type}: {reason}") from None


def memory_need(
    config: Any,
    dtype: torch.dtype,
    batch_size: int,
    length: int,
    *,
    fused: bool = False,
    quantities: Collection[str] = DEFAULT,
    cells: int | None = None,
    prompts: int = 1,
    pairings: int = 1,
) -> Need:
    """Estimate what measuring takes, weights included; ``benchmarks/length.py`` compares it with the peak of runs.

    ``cells`` is the number of rows of the matrices that are kept, as many as tokens unless given; ``prompts`` how many
    prompts there are, of each of which ids, influence, mixing and its own rollout are kept; ``pairings`` how often
    each rung of the ladder is climbed.
    """
    model = shape_of(config)
    count = sum(x.numel() for x in model.parameters())
    chosen: int = getattr(config, "num_experts_per_tok", None) or 0
    stacks = [x for name, x in model.named_parameters() if ".experts." in name and x.dim() == 3]
    active = count - sum(x.numel() * (1 - min(1.0, chosen / len(x))) for x in stacks)
    held = count * dtype.itemsize + sum(x.nbytes for x in model.buffers())
    T, H, d = config.num_hidden_layers, config.num_attention_heads, config.hidden_size
    inner = next((int(x) for x in (getattr(config, name, None) for name in WIDTHS) if x), 4 * d)
    inner = max(inner, (chosen + 1) * (getattr(config, "moe_intermediate_size", None) or inner * bool(chosen)))
    vectors = (T + HIDDEN + GATHERED * chosen) * d + INNER * inner
    a_prompt = length * vectors * 4 + 16 * config.vocab_size
    if not fused:
        a_prompt += AT_WORK * H * length**2 * 4
    elif family_of(config).position_of(config) == "alibi":  # the mask carries it, in the model's number format
        a_prompt += 2 * H * length**2 * dtype.itemsize
    biases = given_biases(config)
    if biases is not None:  # logits, and what carries them to each prompt, once for layers that share them
        shared = len(set(biases))
        held += 2 * shared * H * length**2 * 4
        a_prompt += (shared + 1) * H * length**2 * dtype.itemsize
    reads = {"kernels", "content"} & set(quantities)
    block = min(MOST_ENTRIES["cpu"], batch_size * H * length**2) if reads else 0
    g = length if cells is None else cells
    matrices = ("kernels" in quantities) + H * ("heads" in quantities) + H * ("logits" in quantities)
    matrices += "branches" in quantities
    entries = T * matrices * g**2
    climbs = len(RUNGS) * pairings if "ladder" in quantities else 0
    a_prompt += climbs * length * d * dtype.itemsize
    rows = 8 * prompts * ((4 + climbs) * length + 3 * T)
    forward = 2.0 * active * length + 2.0 * T * d * length**2
    read = T * H * length**2 * (d / H + EXPONENTIAL * len(reads)) if reads else 0.0
    back = 2 * forward  # the gradient by activations alone, and the layer once more
    back += (climbs + 2) * forward if climbs else 0.0  # layers run twice more for mean attention and positions
    branches = min(MOST_PROMPTS, prompts) * 2 * forward if "branches" in quantities else 0.0
    return Need(
        held,
        batch_size * a_prompt + BLOCKS * 4 * block,
        12 * entries + 2 * rows,  # sums in 64 bits, and the result in 32
        4 * entries + rows,
        prompts * (forward + back + read) + branches,
        batch_size,
        length,
    )


def memory_available(device: torch.device) -> int | None:
    """Return how many bytes can be had on a device, None where the system does not say.

    On a GPU what is free there; else what the system says is available, at most the limit of the control group.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = [_meminfo(Path("/proc/meminfo")), _limit(Path("/sys/fs/cgroup/memory.max"))]
    return min((size for size in found if size is not None), default=errors.memory())


def check_memory(need: Need, dtype: torch.dtype, device: torch.device) -> None:
    """Raise ValueError if a measurement needs more memory than there is, with both numbers and what to try.

    The model is built on the CPU, which must hold the weights in any case.
    """
    is_gpu = device.type == "cuda"
    for place, wanted in ((torch.device("cpu"), need.weights if is_gpu else need.total), (device, need.total)):
        there = memory_available(place)
        if there is not None and wanted > there:
            expected = f"at most the {_gib(there)} GiB available on {place}"
            raise errors.invalid("memory", expected, f"a need of about {need}{_advice(need, dtype, device, there)}")


def operations_a_second(dtype: torch.dtype, device: torch.device) -> float:
    """Return how many operations a device does in a second of products of matrices, measured in about that time."""
    x = torch.ones(1024, 1024, dtype=dtype, device=device)
    done, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < 0.5 or done < 2:
        float((x @ x)[0, 0])
        done += 1
    return done * 2.0 * 1024**3 / passed


def has_fast_bfloat16(device: torch.device) -> bool:
    """Tell whether bfloat16 is no slower than 32 bits: a CPU without instructions for it takes far longer."""
    if device.type != "cpu":
        return True
    known = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name)() for name in known if hasattr(torch.cpu, name))


def _advice(need: Need, dtype: torch.dtype, device: torch.device, there: int) -> str:
    """Return what to try: a smaller batch if one fits, else less of everything."""
    room = there - need.total + need.batch
    fits = int(room / (need.batch / need.prompts))
    if fits >= 1 and need.prompts > 1:
        return f"; try --batch-size {min(fits, need.prompts - 1)}"
    ways = ["a smaller length", "--quantities mixing,influence"]
    if there <= need.weights + RUNTIME:
        ways = ["a smaller model"]
    if dtype.itemsize == 4 and has_fast_bfloat16(device):
        ways.append("--dtype bfloat16")
    return f"; try {' or '.join(ways)}"


def out_of_memory(error: BaseException, settings: Settings) -> ValueError | None:
    """Return what to try if memory ran out, None for any other error."""
    text = str(error).lower()
    known = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate memory")
    if not isinstance(error, torch.OutOfMemoryError | MemoryError) and not any(words in text for words in known):
        return None
    size = settings.batch_size
    ways = ["--quantities mixing,influence", "--device-map auto", "a smaller length"]
    if has_fast_bfloat16(settings.place()) and settings.precision() == "float32":
        ways.append("--dtype bfloat16")
    advice = str(size // 2) if size > 1 else " or ".join(ways)
    return errors.invalid("batch_size", "a batch that fits into memory", f"{size}; try {advice}")


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f}"


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
