"""Influence by gradient, and use by replacement, of the same prompts in every order."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from posbias.files import data_folder
from posbias.measure.corpus import start_tokens
from posbias.measure.quantities.use import draw_replacements
from posbias.measure.session import Session
from posbias.settings import Settings
from studies.changes import measure_changes, measure_gradient
from studies.making import go_on, shave
from studies.orders.orders import ORDERS, reorder

EACH = 6
"""Of how many neighbouring tokens one is replaced: 45 of 256, from one on that moves with the prompt's number."""


def measure_orders(settings: Settings, used: int = 40) -> xr.Dataset:
    """Measure each prompt in each order: ``gradient`` and ``use`` (prompt, order, position).

    Use is the total variation of the next token's distribution when a token is replaced by one of the prompt before in
    the same order, in the first ``used`` prompts; nan where none is. Start tokens stay where they are in every order.
    """
    session = Session(replace(settings, quantities=("mixing", "influence")))
    session.check()
    model, n = session.instrument.model, settings.length
    front = len(start_tokens(session.tokenizer)) if settings.special_tokens else 0
    whole = session.ids.numpy()
    texts = {order: torch.from_numpy(reorder(whole, order, seed=settings.seed, front=front)) for order in ORDERS}

    def read(k: int) -> Mapping[str, np.ndarray]:
        gradient = [measure_gradient(model, ids[k]) for ids in texts.values()]
        use = np.full((len(ORDERS), n), np.nan)
        places = sorted({0, n - 1, *range(k % EACH, n, EACH)})
        for row, ids in zip(use, texts.values(), strict=True):
            if k < used:
                row[:] = measure_changes(model, ids[k], draw_replacements(ids, k, settings.seed), "replaced", (), places)
        return {"gradient": np.stack(gradient).astype(np.float32), "use": use.astype(np.float32)}

    rows = go_on(settings.prompts, read, place(session, used))
    arrays: dict[str, Any] = {
        "gradient": (("prompt", "order", "position"), shave(rows["gradient"])),
        "use": (("used", "order", "position"), shave(rows["use"][:used])),
        "document": (("prompt",), session.prompts.origins.astype(np.int32)),
    }
    return xr.Dataset(arrays, {"order": list(ORDERS)}, session.provenance() | {"front": front})


def place(session: Session, used: int) -> Path:
    """Return the file of what is unfinished: of the same model, text and prompts, whatever their number.

    Drawn tokens come from all prompts, so that another number of prompts has others.
    """
    settings = session.settings
    said = [settings.source.version(), settings.corpus, settings.rule, settings.length, settings.seed]
    said += [settings.prompts, used, list(ORDERS)]
    return data_folder() / "unfinished" / f"orders-{hashlib.sha256(repr(said).encode()).hexdigest()[:16]}.npz"
