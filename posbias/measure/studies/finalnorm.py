"""Influence with the final norm taken out of differentiation: it sees one position and can only turn its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias import checks
from posbias.measure.instrument import Instrument
from posbias.measure.studies.streams import kept_streams


def influence_past_final_norm(
    instrument: Instrument, ids: Int[Tensor, "B n"]
) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B"]]:
    """Return the influence without the final norm's Jacobian, and the share of ∂p/∂x_T that is not at the last token.

    The gradient by what the output embedding reads is put on the stream behind the last layer as it is. The share,
    Σ_{j<n} ‖∂p/∂x_T,j‖ / Σ_j ‖∂p/∂x_T,j‖, is 0: after the last attention nothing moves between positions.

    Parameters
    ----------
    instrument
        Of the model.
    ids
        Token ids, without padding.

    Raises
    ------
    ValueError
        If the output embedding reads vectors of another width than the stream's.
    """
    e = instrument.embeddings(ids).requires_grad_(True)
    with torch.enable_grad(), kept_streams(instrument) as kept, _head_input(instrument) as read:
        p = instrument.logits(e).softmax(-1).amax(-1).sum()
        by_read, by_last = torch.autograd.grad(p, [read[-1], kept.streams[-1]], retain_graph=True)
        if by_read.shape[-1] != by_last.shape[-1]:
            raise checks.refuse("model", f"an output embedding of width {by_last.shape[-1]}", by_read.shape[-1])
        instead = torch.zeros_like(by_last)
        instead[:, -1] = by_read[:, -1]
        (gradient,) = torch.autograd.grad(kept.streams[-1], e, instead)
    sizes = by_last.norm(dim=-1).double().cpu()
    return gradient.norm(dim=-1).double().cpu(), sizes[:, :-1].sum(1) / sizes.sum(1)


@contextmanager
def _head_input(instrument: Instrument) -> Iterator[list[Tensor]]:
    """Keep what the output embedding is given."""
    head: Any = instrument.model.get_output_embeddings()  # type: ignore[operator]
    read: list[Tensor] = []

    def keep(module: nn.Module, args: Any) -> None:
        read.append(args[0])

    handle = head.register_forward_pre_hook(keep)
    try:
        yield read
    finally:
        handle.remove()
