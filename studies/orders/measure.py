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
from jaxtyping import Int
from torch import Tensor

from posbias.conditions.each.order_shuffled import ORDERS, order_shuffled
from posbias.files import data_folder
from posbias.measure.corpus import start_tokens
from posbias.measure.quantities.use import draw_replacements
from posbias.measure.session import Session
from posbias.settings import Settings
from studies.changes import measure_changes, measure_gradient
from studies.making import go_on
from studies.orders.tables import PROPER, binned
from studies.summaries import shave

DRAWS = 20
"""How often tokens are drawn for each prompt, to see what one draw leaves to chance."""
EACH = 6
"""Of how many neighbouring tokens one is replaced: 45 of 256, from one on that moves with the prompt's number."""


def measure_gradients(settings: Settings) -> xr.Dataset:
    """Measure each prompt in each order: ``gradient`` (prompt, order, position).

    Start tokens stay where they are in every order; ``front`` says how many there are.
    """
    session, texts = open_orders(settings)
    model = session.instrument.model

    def read(k: int) -> Mapping[str, np.ndarray]:
        found = [measure_gradient(model, ids[k]) for ids in texts.values()]
        return {"gradient": np.stack(found).astype(np.float32)}

    return entry_of(session, go_on(settings.prompts, read, place(session, "gradient")))


def measure_draws(settings: Settings) -> xr.Dataset:
    """Measure tokens drawn at random often for each prompt: ``gradient`` (prompt, draw, part), means over sixteenths.

    Draw k has the seed of the measurement and k more; that of ``measure_gradients`` is draw 0, which is not here.
    """
    session = Session(replace(settings, quantities=("mixing", "influence")))
    ids, front = session.ids.numpy(), front_of(session)
    drawn = [order_shuffled(ids, PROPER, seed=settings.seed + k, front=front) for k in range(1, DRAWS + 1)]
    model = session.instrument.model

    def read(k: int) -> Mapping[str, np.ndarray]:
        found = np.stack([measure_gradient(model, torch.from_numpy(rows[k])) for rows in drawn])
        return {"gradient": binned(found, front).astype(np.float32)}

    rows = go_on(settings.prompts, read, place(session, f"draws-{DRAWS}"))
    arrays: dict[str, Any] = {"gradient": (("prompt", "draw", "part"), shave(rows["gradient"]))}
    arrays["document"] = (("prompt",), session.prompts.origins.astype(np.int32))
    return xr.Dataset(arrays, attrs=session.provenance() | {"front": front, "order": PROPER})


def measure_uses(settings: Settings) -> xr.Dataset:
    """Measure each prompt in each order: ``use`` (prompt, order, position), nan where no token is replaced.

    Use is the total variation of the next token's distribution when a token is replaced by one of the prompt before in
    the same order.
    """
    session, texts = open_orders(settings)
    model, n = session.instrument.model, settings.length

    def read(k: int) -> Mapping[str, np.ndarray]:
        places, found = sorted({0, n - 1, *range(k % EACH, n, EACH)}), []
        for ids in texts.values():
            others = draw_replacements(ids, k, settings.seed)
            found.append(measure_changes(model, ids[k], others, "replaced", (), places))
        return {"use": np.stack(found).astype(np.float32)}

    return entry_of(session, go_on(settings.prompts, read, place(session, "use")))


def open_orders(settings: Settings) -> tuple[Session, dict[str, Int[Tensor, "N n"]]]:
    """Return a session, and its prompts in every order."""
    session = Session(replace(settings, quantities=("mixing", "influence")))
    ids, front = session.ids.numpy(), front_of(session)
    reordered = {order: order_shuffled(ids, order, seed=settings.seed, front=front) for order in ORDERS}
    return session, {order: torch.from_numpy(rows) for order, rows in reordered.items()}


def front_of(session: Session) -> int:
    """Return how many start tokens a prompt begins with."""
    return len(start_tokens(session.tokenizer)) if session.settings.special_tokens else 0


def entry_of(session: Session, rows: Mapping[str, np.ndarray]) -> xr.Dataset:
    """Return the rows as an entry, with the document of each prompt."""
    arrays: dict[str, Any] = {name: (("prompt", "order", "position"), shave(x)) for name, x in rows.items()}
    arrays["document"] = (("prompt",), session.prompts.origins.astype(np.int32))
    return xr.Dataset(arrays, {"order": list(ORDERS)}, session.provenance() | {"front": front_of(session)})


def place(session: Session, quantity: str) -> Path:
    """Return the file of what is unfinished: of the same model and text, whatever the number of prompts."""
    settings = session.settings
    said = [settings.source.version(), settings.corpus, settings.rule, settings.length, settings.seed, list(ORDERS)]
    name = hashlib.sha256(repr(said).encode()).hexdigest()[:16]
    return data_folder() / "unfinished" / f"orders-{quantity}-{name}.npz"
