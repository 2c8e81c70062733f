"""Influence by gradient, loss on text and answers, with the first token silent or hidden."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from posbias.conditions import sink_off
from posbias.engines.local import Reader
from posbias.files import data_folder
from posbias.lookup.contexts import make_contexts
from posbias.lookup.tasks import Task
from posbias.measure.session import Session
from posbias.models.families import family_of
from posbias.models.hooks import Before, hooked
from posbias.prompts import write_prompts
from posbias.settings import Settings
from studies.changes import measure_gradient
from studies.making import go_on
from studies.sink.tables import WHOLE
from studies.summaries import shave

PLACES = 8
DIMS = ("prompt", "arm", "position")
Arm = Callable[[], AbstractContextManager[None]]
"""What a run changes while it is entered."""


@contextmanager
def hidden_first(model: nn.Module) -> Iterator[None]:
    """Hide the first token from all later queries until the block ends; attention has to be ``eager``."""
    family = family_of(model.config)
    before: list[tuple[nn.Module, Before]] = []
    for layer in family.layers(model):
        before.append((family.attention_of(layer), _hide))
    with hooked(before):
        yield


def _hide(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return a layer's arguments with a mask in which no query but the first sees the first key."""
    mask: Any = kwargs.get("attention_mask")
    if mask is None or not mask.is_floating_point():
        raise ValueError("hidden_first: expected a mask that is added to logits (eager attention)")
    queries, keys = mask.shape[-2:]
    later = torch.arange(keys - queries, keys, device=mask.device) > 0
    masked = mask.clone()
    masked[..., later, 0] = torch.finfo(mask.dtype).min
    return args, {**kwargs, "attention_mask": masked}


ARMS: Mapping[str, Callable[[Any], AbstractContextManager[None]]] = {
    "whole": nullcontext,
    "silent": sink_off,
    "hidden": hidden_first,
}


def measure_text(settings: Settings) -> xr.Dataset:
    """Measure each prompt in each arm: ``gradient`` (prompt, arm, position), ``loss`` (prompt, arm).

    ``loss`` is the mean over the tokens of the second half, nats.
    """
    session = Session(replace(settings, quantities=("mixing", "influence")))
    model: Any = session.instrument.model
    model.set_attn_implementation("eager")
    arms = {name: partial(arm, model) for name, arm in ARMS.items()}
    return _measure_arms(settings, session, arms, "text")


def measure_layers(settings: Settings) -> xr.Dataset:
    """Measure each prompt as it is, and with the first token's value zero in each layer alone, in bfloat16.

    ``gradient`` (prompt, arm, position) and ``loss`` (prompt, arm); arms are ``whole`` and the layers' numbers, from 0.
    """
    session = Session(replace(settings, quantities=("mixing", "influence")))
    model: Any = session.instrument.model.to(torch.bfloat16)
    arms: dict[str, Arm] = {WHOLE: nullcontext}
    for layer in range(len(family_of(model.config).layers(model))):
        arms[str(layer)] = partial(sink_off, model, (layer,))
    return _measure_arms(settings, session, arms, "layers").assign_attrs(dtype="bfloat16")


def _measure_arms(settings: Settings, session: Session, arms: Mapping[str, Arm], part: str) -> xr.Dataset:
    """Return ``gradient`` and ``loss`` of each prompt under each arm; what an earlier run left is kept."""
    model: Any = session.instrument.model
    ids = session.ids

    def read(k: int) -> Mapping[str, np.ndarray]:
        rows: dict[str, list[Any]] = {"gradient": [], "loss": []}
        for arm in arms.values():
            with arm():
                rows["gradient"].append(measure_gradient(model, ids[k]))
                rows["loss"].append(_loss(model, ids[k]))
        return {name: np.array(row, dtype=np.float32) for name, row in rows.items()}

    found = go_on(settings.prompts, read, _place(settings, part))
    arrays: dict[str, Any] = {name: (DIMS[: x.ndim], shave(x)) for name, x in found.items()}
    arrays["document"] = (("prompt",), session.prompts.origins.astype(np.int32))
    return xr.Dataset(arrays, {"arm": list(arms)}, session.provenance())


@torch.no_grad()
def _loss(model: Any, ids: Tensor) -> float:
    """Return the mean loss of the second half's tokens, nats."""
    half = len(ids) // 2
    logits = model(ids[None], use_cache=False).logits[0, half - 1 : -1]
    return float(nn.functional.cross_entropy(logits.float(), ids[half:]))


def measure_answers(settings: Settings) -> xr.Dataset:
    """Measure right answers among competing documents, ``correct`` and ``log_probability`` (context, arm, place)."""
    tokenizer = settings.source.load_tokenizer()
    model = settings.source.read_model(torch.float32, "cpu", None, "eager")
    contexts = make_contexts(Task("documents", PLACES), settings.prompts, settings.seed)

    def read(k: int) -> Mapping[str, np.ndarray]:
        asks = contexts[k].asks["competing"]
        prompts = write_prompts(tokenizer, "documents", asks, True, False)
        rows = []
        for arm in ARMS.values():
            with arm(model):
                reader = Reader(model, shared=False)
                rows.append([reader.answer(one.ids, one.answer_ids) for one in prompts])
        told = np.array(rows, dtype=np.float32)
        return {"log_probability": told[..., 0], "correct": told[..., 1]}

    found = go_on(settings.prompts, read, _place(settings, "answers"))
    arrays = {name: (("context", "arm", "place"), x) for name, x in found.items()}
    about = {"model": settings.source.name(), "revision": settings.source.version(), "seed": settings.seed}
    return xr.Dataset(arrays, {"arm": list(ARMS)}, about | {"dtype": "float32"})


def _place(settings: Settings, what: str) -> Path:
    """Return the file of what is unfinished: of the same model and text, whatever the number of prompts."""
    said = [settings.source.version(), settings.corpus, settings.rule, settings.length, settings.seed]
    name = hashlib.sha256(repr(said).encode()).hexdigest()[:16]
    return data_folder() / "unfinished" / f"sink-{what}-{name}.npz"
