"""What a configuration says: read from its file, and held to what a model can be made of before any memory is taken."""

from __future__ import annotations

from typing import Any

import torch

from posbias import errors
from posbias.measure.memory import memory_available, shape_of
from posbias.networks.description import FIELD, biases_of
from posbias.networks.families import family_of

MOST = {"num_hidden_layers": 1000, "num_attention_heads": 2**31, "hidden_size": 2**40, "vocab_size": 2**40}
"""Numbers that every configuration has, with the largest of which a model is planned, to see whether it fits."""


def check_shape(where: str, config: Any) -> None:
    """Raise ValueError for numbers in a configuration, called ``where``, of which no model is made.

    >>> from transformers import GPT2Config
    >>> check_shape("gpt2", GPT2Config(n_layer=0))
    Traceback (most recent call last):
        ...
    ValueError: gpt2: num_hidden_layers: expected an integer of at least 1, received 0
    """
    found = {}
    for name, most in MOST.items():
        found[name] = errors.positive_integer(f"{where}: {name}", getattr(config, name, None))
        if found[name] > most:
            raise errors.invalid(f"{where}: {name}", f"at most {most}", found[name])
    for name, least in (*((name, 1) for name in family_of(config).context), ("sliding_window", 2)):
        stated: Any = getattr(config, name, None)
        if stated is not None:
            errors.positive_integer(f"{where}: {name}", stated, minimum=least)
    H, hidden, groups = found["num_attention_heads"], found["hidden_size"], getattr(config, "num_key_value_heads", None)
    if hidden % H and getattr(config, "head_dim", None) in (None, hidden // H):
        raise errors.invalid(f"{where}: num_attention_heads", f"a divisor of hidden_size {hidden}", H)
    if groups is not None and H % errors.positive_integer(f"{where}: num_key_value_heads", groups):
        raise errors.invalid(f"{where}: num_key_value_heads", f"a divisor of the {H} heads", groups)
    if getattr(config, FIELD, None) is not None:
        biases_of(config.model_type, getattr(config, FIELD), found["num_hidden_layers"], H, where)
    if getattr(config, "slow_but_exact", False) and getattr(config, "pretraining_tp", 1) > 1:
        raise errors.invalid(f"{where}: slow_but_exact", "false, for the projection in one piece", "true")


def check_runs(where: str, config: Any, dtype: torch.dtype, *, resident: bool = True) -> None:
    """Raise ValueError unless the model runs on two tokens and its weights fit into memory; none is taken to see it.

    ``resident`` is False where the weights are spread over devices, and need not all lie in this machine's memory.
    """
    try:
        model = shape_of(config).eval()
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    try:
        with torch.no_grad():  # with a cache, for without one some families look at the numbers
            model(torch.zeros(1, 2, dtype=torch.long, device="meta"), use_cache=True)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise errors.invalid(where, "a configuration whose model runs", reason) from None
    there = memory_available(torch.device("cpu")) if resident else None
    wanted = sum(x.numel() for x in model.parameters()) * dtype.itemsize
    if there is not None and wanted > there:
        received = f"weights of {wanted / 2**30:.1f} GiB in {str(dtype).removeprefix('torch.')}"
        raise errors.invalid(where, f"a model that fits in the {there / 2**30:.1f} GiB available", received)
