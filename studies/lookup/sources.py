"""From which pair the answers of small networks come, where no two pairs of a prompt share a value.

Expected on 2026-11-29 at 22:10, before it was run. ``ends`` (asked about the two ends alone): mistakes are from an end
and not from a neighbour, since training never asked for a place between; more than half of the wrong answers are from
the ends, and γ is below .2, a quarter of SmolLM2's. ``half`` (asked about every place alike, stopped where about half
of the values are found): no finger is blurred, so a neighbour has at most .05 more of the wrong answers than by chance,
the ends pull less than .5 nats each, and place with a bonus for the right pair expects new answers better than the law
of distance. Between the ends neither the rollout nor influence ranks the pulls of ``ends`` with a correlation above .5
in both encodings.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import xarray as xr
from jaxtyping import Int
from transformers import PreTrainedModel

from posbias.provenance import versions
from studies.lookup.measure import measure_profiles
from studies.lookup.network import save, value_logits
from studies.lookup.settings import Setting, Training
from studies.lookup.training import train

ENCODINGS = ("alibi", "rope")
"""Encodings with which training at the two ends loses the middle."""
ARMS = {"ends": ("ends", 300), "half": ("even", 120)}
"""By arm, the places that training asks for, and its steps."""
PAIRS, SETS, SEED = 16, 64, 880_000_000
"""Pairs of a prompt, as many as there are values; sets of prompts for each network, and their seed."""
KEPT = ("rollout_trained", "influence_trained")


@torch.no_grad()
def read_sources(network: PreTrainedModel, setting: Setting, sets: int, seed: int) -> Int[np.ndarray, "C P"]:
    """Return the place whose value is likeliest, by set and place asked for; all values of a set differ."""
    generator, n, V = torch.Generator().manual_seed(seed), setting.pairs, setting.values
    keys = torch.rand(sets, setting.keys, generator=generator).argsort(1)[:, :n]
    values = torch.rand(sets, V, generator=generator).argsort(1)[:, :n]
    body, found = keys * V + values, []
    network.eval()
    for asked in range(n):
        query = setting.keys * V + keys[:, asked : asked + 1]
        told = value_logits(network, setting, torch.cat([body, query], 1)).argmax(-1)
        where = values == told[:, None]
        found.append(torch.where(where.any(1), where.long().argmax(1), -1))
    return torch.stack(found, 1).numpy()


def measure_sources(encoding: str, arm: str, seeds: int) -> xr.Dataset:
    """Return from which place answers are; of ``ends``, the profiles of the same networks over a prompt, too."""
    places, steps = ARMS[arm]
    setting, source, kept = Setting(encoding, pairs=PAIRS, places=places), [], {}
    with TemporaryDirectory() as folder:
        for seed in range(seeds):
            network = train(setting, seed, Training(steps), progress=f"{encoding}, {arm}, seed {seed}").network
            source.append(read_sources(network, setting, SETS, SEED + seed))
            save(network, setting, Path(folder) / f"{setting.name}.seed{seed}")
        if arm == "ends":
            profiles = measure_profiles(setting, range(seeds), Path(folder))
            kept = {name: profiles[name] for name in KEPT}
    arrays = {"source": (("seed", "set", "asked"), np.stack(source).astype(np.int8))}
    about = {"setting": setting.name, "steps": steps, "command": shlex.join(["python", *sys.orig_argv[1:]])}
    return xr.Dataset(arrays | kept, attrs=about | versions("torch", "transformers"))
