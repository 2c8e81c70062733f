"""Networks that look facts up of which others share half of the key, and what they find by place.

A fact is one token, the sum of three vectors: of its kind, its name and its value. The last token asks with a kind and
a name. Among rivals all facts of a prompt have the kind asked for, or all have the name; else each has its own kind and
name. A third of the prompts of training is of each sort, so that a network needs both parts of the key.
"""

from __future__ import annotations

import shlex
import sys
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias.provenance import versions
from studies import train as trainer
from studies.lookup.network import untrained
from studies.lookup.settings import LONGEST, Setting
from studies.lookup.training import WARM_UP

ENCODINGS = ("none", "alibi", "rope")
ARMS = ("competing", "not_competing")
FACTS, STEPS, BATCH, RATE = 16, 700, 64, 3e-3
"""Facts of a prompt in training, optimizer steps, prompts of a step, learning rate."""
TESTS = 20
"""Tests during training."""
TIMES = (1, 2, LONGEST)
"""Lengths of the last tests' prompts, as multiples of those of training."""
EACH, AT_THE_END = 16, 32
"""Prompts of each arm and place in a test during training, and after it."""


class Network(nn.Module):
    """A decoder whose input vectors are sums."""

    def __init__(self, setting: Setting, seed: int) -> None:
        super().__init__()
        self.values, self.decoder = setting.values, untrained(setting, seed)
        generator = torch.Generator().manual_seed(seed)
        drawn = partial(torch.randn, generator=generator)
        sizes = {"kind": setting.keys, "name": setting.keys, "value": setting.values + 1}  # the last one asks
        tables = {part: drawn(size, setting.width) * (3 * setting.width) ** -0.5 for part, size in sizes.items()}
        self.tables = nn.ParameterDict(tables)

    def forward(self, kind: Int[Tensor, "B N"], name: Int[Tensor, "B N"], value: Int[Tensor, "B N"]) -> Tensor:
        """Return the logits of the values after the last token, (B, V)."""
        x = self.tables["kind"][kind] + self.tables["name"][name] + self.tables["value"][value]
        out: Tensor = self.decoder(inputs_embeds=x, use_cache=False, logits_to_keep=1).logits[:, -1, -self.values :]
        return out


def draw(
    setting: Setting, places: Int[Tensor, "B"], shared: Int[Tensor, "B"], n: int, generator: torch.Generator
) -> tuple[Int[Tensor, "B N"], Int[Tensor, "B N"], Int[Tensor, "B N"], Int[Tensor, "B"]]:
    """Return kinds, names and values of prompts of n facts, the asking token last, and what answers.

    The fact at each prompt's place is asked for; the others share its kind (1), its name (2), or neither (0).

    >>> first = torch.zeros(1, dtype=torch.long)
    >>> kind, name, _, _ = draw(Setting(pairs=2), first, first + 1, 2, torch.Generator())
    >>> bool((kind == kind[0, 0]).all()), name[0, 2] == name[0, 0], name[0, 1] == name[0, 0]
    (True, tensor(True), tensor(False))
    """
    rows = torch.arange(len(places))
    parts = []
    for which in (1, 2):
        own = torch.rand(len(places), setting.keys, generator=generator).argsort(1)[:, :n]
        asked = own[rows, places][:, None]
        parts.append(torch.cat([torch.where((shared == which)[:, None], asked, own), asked], 1))
    values = torch.randint(setting.values, (len(places), n), generator=generator)
    asking = torch.full((len(places), 1), setting.values)
    return parts[0], parts[1], torch.cat([values, asking], 1), values[rows, places]


@torch.no_grad()
def accuracy(network: Network, setting: Setting, n: int, each: int, seed: int) -> Float[np.ndarray, "arm n"]:
    """Return the share of values that are found, among rivals of one kind and without, at each place."""
    generator, places = torch.Generator().manual_seed(seed), torch.arange(n).repeat(each)
    network.eval()
    found = []
    for shared in (1, 0):
        *prompt, answers = draw(setting, places, torch.full_like(places, shared), n, generator)
        found.append((network(*prompt).argmax(-1) == answers).double().view(each, n).mean(0).numpy())
    return np.stack(found)


def train_rivals(encoding: str, seeds: int) -> xr.Dataset:
    """Train networks of one encoding, and return what they find by arm and place, on the way and at the end."""
    setting, found = Setting(encoding, pairs=FACTS), []
    for seed in range(seeds):
        network, generator = Network(setting, seed), torch.Generator().manual_seed(seed)

        def loss(step: int, network: Network = network, generator: torch.Generator = generator) -> Tensor:
            places, shared = (torch.randint(most, (BATCH,), generator=generator) for most in (FACTS, 3))
            *prompt, answers = draw(setting, places, shared, FACTS, generator)
            return nn.functional.cross_entropy(network(*prompt), answers)

        def test(k: int, network: Network = network) -> np.ndarray:
            return accuracy(network, setting, FACTS, EACH, k)

        run = trainer.Run(
            network, torch.optim.AdamW(network.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.0), loss, STEPS,
            settings={"name": f"{encoding}.rivals", "seed": seed}, clip=1.0, generator=generator,
            tests=torch.full((TESTS, len(ARMS), FACTS), torch.nan, dtype=torch.float64),
            test=test,
            rate=lambda step: RATE * min(1.0, (step + 1) / WARM_UP),
        )  # fmt: skip
        trainer.train(run, progress=f"{encoding}, seed {seed}")
        end = {times: accuracy(network, setting, times * FACTS, AT_THE_END, -times) for times in TIMES}
        found.append({"accuracy": run.tests.numpy(), **{f"accuracy_{times}": x for times, x in end.items()}})
    arrays: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        "accuracy": (("seed", "tested", "arm", "place"), np.stack([x["accuracy"] for x in found]))
    }
    for times in TIMES:
        dims = ("seed", "arm", "place" if times == 1 else f"place_{times}")
        arrays[f"accuracy_{times}"] = (dims, np.stack([x[f"accuracy_{times}"] for x in found]))
    about: dict[str, Any] = {
        "facts": FACTS,
        "steps": STEPS,
        "batch_size": BATCH,
        "rate": RATE,
        "layers": setting.layers,
    }
    about |= {"command": shlex.join(["python", *sys.orig_argv[1:]]), **versions("torch", "transformers")}
    coords = {"arm": list(ARMS), "seed": np.arange(seeds), "tested": trainer.moments(STEPS, TESTS)}
    return xr.Dataset(arrays, coords, about)
