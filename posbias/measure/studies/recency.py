"""Recency in a model: which of two earlier keys its content logits prefer, and where its attention lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from posbias import checks
from posbias.measure.instrument import AttentionReading, Instrument


@dataclass(frozen=True)
class RecencyReading:
    """Hold how recent the attention of N prompts is, in the model as it is or inside an intervention.

    Parameters
    ----------
    preference
        Recency probability of content logits: the share of triples k < j < i with logit_ij > logit_ik, over the queries
        i that are read, keys they may see, and heads. 0.5 is no preference.
    positive
        Share of the content logits of the same queries and of keys j < i that are above 0.
    position
        Mean of Σ_j A_ij j / i over queries i ≥ 1 and heads: where attention lies between the first token (0) and the
        query (1), position bias included.
    loss
        Mean loss of the next token, in nats.
    """

    preference: Float[np.ndarray, "N T"]
    positive: Float[np.ndarray, "N T"]
    position: Float[np.ndarray, "N T"]
    loss: Float[np.ndarray, "N"]


def read_recency(
    instrument: Instrument, ids: Int[np.ndarray, "N n"], queries: Int[np.ndarray, "q"], batch_size: int = 8
) -> RecencyReading:
    """Return the recency of a model's attention on prompts, by forward passes.

    Parameters
    ----------
    instrument
        Of the model.
    ids
        Token ids.
    queries
        Positions i of triples, 2 or later.
    batch_size
        Prompts at a time.

    Raises
    ------
    ValueError
        If a query is outside 2 to n - 1.
    """
    N, n = ids.shape
    if queries.size == 0 or queries.min() < 2 or queries.max() >= n:
        raise checks.refuse("queries", f"positions from 2 to {n - 1}", queries.tolist())
    preference, positive, position = (np.empty((N, instrument.T)) for _ in range(3))
    loss = np.empty(N)
    for start in range(0, N, batch_size):
        rows = slice(start, start + batch_size)

        def observe(reading: AttentionReading, rows: slice = rows) -> None:
            t, content = reading.layer, reading.content()
            share, above = later_preferred(content, reading.allowed, queries)
            preference[rows, t], positive[rows, t] = share.mean(-1).cpu().numpy(), above.mean(-1).cpu().numpy()
            j = torch.arange(n, device=content.device, dtype=torch.float32)
            mean = (reading.probabilities.float() @ j)[..., 1:] / j[1:]
            position[rows, t] = mean.mean((-1, -2)).cpu().numpy()

        loss[rows] = instrument.losses(torch.from_numpy(ids[rows]), observe).double().mean(-1).numpy()
    return RecencyReading(preference, positive, position, loss)


def later_preferred(
    content: Float[Tensor, "B H n n"], allowed: Bool[Tensor, "n n"], queries: Int[np.ndarray, "q"]
) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H"]]:
    """Return the share of triples k < j < i with content_ij > content_ik, and the share of content_ij above 0.

    Parameters
    ----------
    content
        Content logits.
    allowed
        Keys that each query may see.
    queries
        The i that count. A tie counts as not greater.
    """
    i = torch.from_numpy(queries).to(content.device)
    seen = (allowed & torch.ones_like(allowed).tril(-1))[i]
    later = content[:, :, i].masked_fill(~seen, -torch.inf)  # what is hidden is greater than nothing
    earlier = content[:, :, i].masked_fill(~seen, torch.inf)
    greater = torch.zeros(content.shape[:2], dtype=torch.float64, device=content.device)
    for j in range(1, content.shape[-1]):
        rows = seen[:, j].nonzero()[:, 0]
        greater += (later[:, :, rows, j, None] > earlier[:, :, rows, :j]).flatten(2).float().sum(-1)
    keys = seen.sum(1)
    return greater / (keys * (keys - 1) / 2).sum(), (later > 0).sum((-1, -2)) / keys.sum()
