"""Which directions of a gradient matter: mean attention, with gradients projected or turned between layers.

A projection keeps the k directions that the exact gradients of that depth fill most. A random turn keeps all lengths,
and loses how what one layer gives lies to what the next one takes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from posbias.measure.instrument import Instrument
from posbias.measure.ladder import Rungs, ring
from posbias.measure.session import Session
from posbias.settings import Settings
from studies.ladder.gradients import kept_streams
from studies.summaries import shave

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4)
"""Of a network's width: numbers of directions that are kept, besides one and all."""
TURNS = 6
"""Random turns."""


def measure_turned(settings: Settings) -> xr.Dataset:
    """Measure influence by mean attention with gradients turned; with all directions it is the rung itself.

    ``influence_prompts`` (prompt, position) is exact. Means over prompts: ``kept`` (at, directions, position) has
    gradients projected on that many directions, between layers or also at the input, ``turned`` (turn, position) has
    them turned at random.
    """
    session = Session(settings)
    instrument, (N, n) = session.instrument, session.ids.shape
    moments = gradient_moments(instrument, (ids for _, ids in session.batches()))
    d = moments.shape[-1]
    counts = [1, *sorted({round(share * d) for share in SHARES} - {1}), d]
    everywhere = projections(moments, counts)
    changes = [*map(open_below, everywhere), *everywhere, *random_turns(moments, settings.seed)]
    exact, climbed = np.zeros((N, n)), np.zeros((len(changes), N, n))
    for rows, ids in session.batches():
        pairing = ring(len(ids), (settings.seed, rows.start, 0))[None]
        for k, change in enumerate(changes):
            reading = instrument.measure(ids, rungs=Rungs(pairing, names=("vectors",), turns=change))
            assert reading.ladder is not None
            climbed[k, rows] = reading.ladder[:, 0, 0].numpy()
        exact[rows] = reading.influence.numpy()
    kept, turned = climbed[:-TURNS].reshape(2, len(counts), N, n), climbed[-TURNS:]
    dims, what = ("prompt", "position"), "‖∂p/∂embedding‖ for each prompt"
    fields = {
        "influence_prompts": (dims, exact, what),
        "kept": (("at", "directions", "position"), kept.mean(2), "by mean attention, projected"),
        "turned": (("turn", "position"), turned.mean(1), "by mean attention, turned at random"),
    }
    return xr.Dataset(
        {name: (dims, shave(x.astype(np.float32)), {"long_name": what}) for name, (dims, x, what) in fields.items()}
        | {"document": ("prompt", session.prompts.origins)},
        coords={"at": ["layers", "layers and input"], "directions": counts},
        attrs=session.provenance() | {"summary": 1},
    )


def gradient_moments(instrument: Instrument, batches: Iterable[Int[Tensor, "B n"]]) -> Float[Tensor, "depths d d"]:
    """Return E[g gᵀ] of the exact gradients by x_0 … x_T, the last token and all others weighed alike."""
    each: list[Tensor] = []
    for ids in batches:
        with torch.enable_grad(), kept_streams(instrument) as kept:
            e = instrument.embeddings(ids).requires_grad_(True)
            p = instrument.logits(e).softmax(-1).amax(-1).sum()
        found = [g.double().cpu() for g in torch.autograd.grad(p, kept.streams)]
        each.append(torch.stack([torch.stack([_moment(g[:, -1:]), _moment(g[:, :-1])]) for g in found]))
    total = torch.stack(each).sum(0)  # (depths, 2, d, d)
    traces = total.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    return torch.where(traces > 0, total / traces, 0.0).mean(1)


def projections(moments: Float[Tensor, "depths d d"], counts: Iterable[int]) -> list[Float[Tensor, "depths d d"]]:
    """Return projections on so many leading eigenvectors, at each depth.

    >>> projections(torch.diag(torch.tensor([1.0, 3.0]))[None], [1])[0][0].tolist()
    [[0.0, 0.0], [0.0, 1.0]]
    """
    vectors = torch.linalg.eigh(moments).eigenvectors.flip(-1)  # largest first
    return [vectors[..., :k] @ vectors[..., :k].mT for k in counts]


def open_below(turns: Float[Tensor, "depths d d"]) -> Float[Tensor, "depths d d"]:
    """Return the same without a turn at the input."""
    return torch.cat([torch.eye(turns.shape[-1]).to(turns)[None], turns[1:]])


def random_turns(like: Float[Tensor, "depths d d"], seed: int) -> list[Float[Tensor, "depths d d"]]:
    """Return orthogonal matrices of that shape, drawn evenly."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(TURNS):
        q, r = torch.linalg.qr(torch.randn(like.shape, dtype=torch.float64, generator=generator))
        found.append(q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None, :])
    return found


def _moment(g: Float[Tensor, "B n d"]) -> Float[Tensor, "d d"]:
    return torch.einsum("bnd,bne->de", g, g)
