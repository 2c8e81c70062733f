"""Weights rounded to 4 bits, as the file of SmolLM2 has them, and what that does to a profile.

Threshold, set on 2026-11-29 before any run. Y-bits: rounding makes no difference to a profile by gradient if W₁ between
the profiles before and after is at most 0.01 with its 95 % interval over documents, and if neither eighth at the ends
moves by more than 0.10 of an equal share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor, nn

from posbias.measure.session import Session
from posbias.settings import Settings
from studies.changes import measure_gradient
from studies.making import go_on
from studies.orders.measure import front_of, place
from studies.summaries import shave

BLOCK, LEVELS = 32, 16
"""Weights of a row that share a least value and a step, and how many values each can have: GGUF's Q4_1."""
WIDTHS = ("whole", "rounded")


def round_weights(weight: Float[Tensor, "out in"]) -> Float[Tensor, "out in"]:
    """Return weights in blocks of a row, each the nearest of 16 values from the block's least to its greatest.

    Least values and steps are in 16 bits. What is left of a row that is no multiple of a block is a block, too.

    >>> round_weights(torch.tensor([[0.0, 15.0, 7.4, 2.6]])).tolist()
    [[0.0, 15.0, 7.0, 3.0]]
    """
    rounded = []
    for block in weight.split(BLOCK, dim=1):
        least, most = block.amin(1, keepdim=True), block.amax(1, keepdim=True)
        step, start = (((most - least) / (LEVELS - 1)).half().float(), least.half().float())
        code = ((block - start) / step.clamp_min(1e-12)).round().clamp(0, LEVELS - 1)
        rounded.append(start + step * code)
    return torch.cat(rounded, dim=1)


@contextmanager
def rounded_weights(model: nn.Module) -> Iterator[None]:
    """Round all matrices of a model, embeddings too, until the block ends; norms and biases stay."""
    matrices = [x for x in model.parameters() if x.dim() == 2]
    own = [x.detach().clone() for x in matrices]
    try:
        for x in matrices:
            x.data.copy_(round_weights(x.data))
        yield
    finally:
        for x, before in zip(matrices, own, strict=True):
            x.data.copy_(before)


def measure_rounded(settings: Settings) -> xr.Dataset:
    """Measure each prompt with the weights as they are, and rounded: ``gradient`` (prompt, order, position).

    The dimension ``order`` has the labels of :data:`WIDTHS`, so that the tables of orders read it.
    """
    session = Session(settings)
    model, ids = session.instrument.model, session.ids

    def read(k: int) -> Mapping[str, np.ndarray]:
        found = [measure_gradient(model, ids[k])]
        with rounded_weights(model):
            found.append(measure_gradient(model, ids[k]))
        return {"gradient": np.stack(found).astype(np.float32)}

    rows = go_on(settings.prompts, read, place(session, "rounded"))
    arrays: dict[str, Any] = {"gradient": (("prompt", "order", "position"), shave(rows["gradient"]))}
    arrays["document"] = (("prompt",), session.prompts.origins.astype(np.int32))
    return xr.Dataset(arrays, {"order": list(WIDTHS)}, session.provenance() | {"front": front_of(session)})
