"""Prompts of pairs of a key and a value and a key at the end, as token ids; a batch at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from studies.lookup.settings import Setting


@dataclass(frozen=True)
class Prompts:
    """Hold B prompts of N tokens; what each asks for is the value at ``places``, and ``answers`` among all values."""

    ids: Int[Tensor, "B N"]
    answers: Int[Tensor, "B"]
    places: Int[Tensor, "B"]


def vocabulary(setting: Setting) -> list[str]:
    """Return the names of all tokens, in the order of their ids.

    Pairs ``k0=v0``, ``k0=v1``, …, and keys that ask, ``k0?``; or keys ``k0``. Values ``v0``, … are last.

    >>> vocabulary(Setting(pairs=2, values=2, tokens=2))
    ['k0', 'k1', 'k2', 'k3', 'k4', 'k5', 'k6', 'k7', 'v0', 'v1']
    """
    keys, values = (
        [f"{kind}{i}" for i in range(count)] for kind, count in (("k", setting.keys), ("v", setting.values))
    )
    if setting.tokens == 2:
        return keys + values
    return [f"{k}={v}" for k in keys for v in values] + [f"{k}?" for k in keys] + values


def prompts(
    setting: Setting, size: int, generator: torch.Generator, *, pairs: int | None = None, each_place: bool = False
) -> Prompts:
    """Draw prompts with different keys, of as many pairs as in training unless told.

    Answers stand where they do in training, or at each of the places 0, 1, …, n - 1, 0, … in turn.
    """
    n = setting.pairs if pairs is None else pairs
    keys = torch.rand(size, setting.keys, generator=generator).argsort(1)[:, :n]
    values = torch.randint(setting.values, (size, n), generator=generator)
    if each_place:
        places = torch.arange(size) % n
    elif setting.places == "ends":
        places = torch.randint(2, (size,), generator=generator) * (n - 1)
    else:
        places = torch.randint(n, (size,), generator=generator)
    rows = torch.arange(size)
    asked, K, V = keys[rows, places], setting.keys, setting.values
    if setting.tokens == 2:
        body, query = torch.stack([keys, K + values], -1).flatten(1), asked
    else:
        body, query = keys * V + values, K * V + asked
    return Prompts(torch.cat([body, query[:, None]], 1), values[rows, places], places)
