"""Trained decoders with designed position biases: a summary of what is measured, with their loss by place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias.measure.run import measured
from posbias.measure.study import Settings, Study
from posbias.measure.summary import shaved, summarise

PLACES = 16
"""Equal parts of a prompt whose losses are kept."""
READ = ("mixing", "influence", "kernels")
"""What is measured: content logits are not."""
SQUARES = 512
"""Most tokens for which the law of squares is computed, at O(n³) for each head."""
KEPT = ("influence_prompts", "rollout", "lambda_frobenius", "attention_received", "loss_places")
"""What a file holds."""


def measure_designed(settings: Settings) -> xr.Dataset:
    """Measure a model, and keep :data:`KEPT` of the summary, with ``loss_places`` (prompt, place) in nats a token."""
    squares = ("branches",) if settings.length <= SQUARES else ()
    study = Study(replace(settings, quantities=(*READ, *squares)))
    losses = np.concatenate([place_losses(study.instrument.model, ids) for _, ids in study.batches()])
    kept = (("prompt", "place"), shaved(losses.astype(np.float32)), {"long_name": "mean loss by place, nats a token"})
    return summarise(measured(study)).assign(loss_places=kept)[list(KEPT)]


@torch.no_grad()
def place_losses(model: nn.Module, ids: Int[Tensor, "N n"], places: int = PLACES) -> Float[np.ndarray, "N places"]:
    """Return the mean loss of each part of each prompt, in nats a token; its first token has none.

    Parameters
    ----------
    model
        A causal language model.
    ids
        Prompts without padding, two tokens or more.
    places
        Parts, as equal as may be; those without a token are NaN.
    """
    ids = ids.to(next(model.parameters()).device)
    logits = model(ids, use_cache=False).logits[:, :-1].float()
    losses = nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none").double().cpu().numpy()
    n = ids.shape[1]
    which = np.arange(1, n) * places // n
    counts = np.bincount(which, minlength=places)
    sums = np.stack([np.bincount(which, row, places) for row in losses])
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
