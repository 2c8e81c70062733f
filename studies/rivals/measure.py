"""Others' predictions of each prompt: profiles of rollouts, amounts of ALTI-Logit and AttnLRP."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Int
from torch import Tensor

from posbias.files import data_folder
from posbias.measure.session import Session
from posbias.settings import Settings
from studies.making import go_on
from studies.rivals.kernels import attention_kernels, part_kernels, rolled, with_half
from studies.rivals.layers import read_layers
from studies.rivals.logits import contrast, logit_parts
from studies.rivals.relevance import relevance_of
from studies.rivals.zeroing import zeroing_kernel
from studies.summaries import shave

PRODUCTS = torch.bfloat16
"""In which value zeroing's differences are multiplied; all the rest is in 32 bits."""
Said = dict[str, np.ndarray]


@torch.no_grad()
def rollouts_of(model: Any, ids: Int[Tensor, "n"]) -> Said:
    """Return what every rollout but value zeroing's, ALTI-Logit and AttnLRP give each token."""
    layers, n = read_layers(model, ids), len(ids)
    kernels = [attention_kernels(layer) | part_kernels(layer) for layer in layers]
    said = {}
    for name in kernels[0]:
        said[name] = rolled([one[name] for one in kernels]).numpy()
        if name.endswith("-rest"):  # nothing is said of the first token, so it gets an equal share
            said[name] = np.append(1 / n, said[name][1:] * (1 - 1 / n))
    u = contrast(model, layers[-1])
    attended, whole = logit_parts(layers, [one["contributions"] for one in kernels], u)
    more = {"alti-logit": attended.numpy(), "alti-logit-whole": whole.numpy()}
    with torch.enable_grad():
        return said | more | {"attn-lrp": relevance_of(model, ids)}


@torch.no_grad()
def zeroing_of(model: Any, ids: Int[Tensor, "n"], dtype: torch.dtype = PRODUCTS) -> Said:
    """Return value zeroing rolled out as published, and with half of the token itself added."""
    kernels = [zeroing_kernel(layer, dtype) for layer in read_layers(model, ids)]
    halves = [with_half(kernel) for kernel in kernels]
    return {"value-zeroing": rolled(kernels).numpy(), "value-zeroing-half": rolled(halves).numpy()}


def measure_rollouts(settings: Settings) -> xr.Dataset:
    """Measure ``said`` (prompt, way, position): what each way but value zeroing says of each token."""
    return _measure(settings, rollouts_of, "rollouts")


def measure_zeroing(settings: Settings) -> xr.Dataset:
    """Measure the same of value zeroing, which takes three times as long as all the others."""
    found = _measure(settings, zeroing_of, "zeroing")
    return found.assign_attrs(products=str(PRODUCTS).removeprefix("torch."))


def _measure(settings: Settings, say: Callable[[Any, Tensor], Said], what: str) -> xr.Dataset:
    session = Session(replace(settings, quantities=("mixing", "influence")))
    model: Any = session.instrument.model
    model.set_attn_implementation("eager")
    for weight in model.parameters():
        weight.requires_grad_(False)

    def read(k: int) -> Mapping[str, np.ndarray]:
        said = say(model, session.ids[k])
        return {"said": np.stack(list(said.values())), "ways": np.array(list(said))}

    found = go_on(settings.prompts, read, _place(settings, what))
    arrays: dict[str, Any] = {
        "said": (("prompt", "way", "position"), shave(found["said"].astype(np.float32))),
        "document": (("prompt",), session.prompts.origins.astype(np.int32)),
    }
    return xr.Dataset(arrays, {"way": found["ways"][0]}, session.provenance())


def _place(settings: Settings, what: str) -> Path:
    """Return the file of what is unfinished: of the same model and text."""
    said = [
        settings.source.version(),
        settings.corpus,
        settings.rule,
        settings.length,
        settings.seed,
    ]
    name = hashlib.sha256(repr(said).encode()).hexdigest()[:16]
    return data_folder() / "unfinished" / f"rivals-{what}-{name}.npz"
