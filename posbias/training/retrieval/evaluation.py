"""What trained networks do: accuracy by the place of the answer, attention sinks, kernels, mixing and influence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from posbias.training.retrieval.members import Members
from posbias.training.retrieval.settings import PAIRS, SINK
from posbias.training.retrieval.task import Stream

AT_ONCE = 500
"""Sequences of each member that go through the networks at a time."""


@torch.no_grad()
def accuracies(
    members: Callable[[Tensor], Tensor], streams: Sequence[Stream], size: int
) -> Float[Tensor, "M pairs orders"]:
    """Return the share of test sequences whose label is told, for [a, b] and for [b, a] of every pair of places.

    Parameters
    ----------
    members
        The networks: tokens (M, B, 2n + 1, d) to the logits of the labels (M, B, L).
    streams
        One for each, which the sequences are drawn from.
    size
        Sequences of each order.

    Source: Wu et al. 2025, section 5.1.
    """
    found = torch.zeros(len(streams), len(PAIRS), 2, device=streams[0].device)
    for p, (first, second) in enumerate(PAIRS):
        for part in _parts(size):
            drawn = [stream.trials(first, second, part) for stream in streams]
            labels = torch.stack([label for _, label in drawn])
            for order in (0, 1):
                told = members(torch.stack([tokens[order] for tokens, _ in drawn])).argmax(-1)
                found[:, p, order] += (told == labels).sum(1)
    return found / size


@dataclass(frozen=True)
class Inside:
    """Means over sequences of novel classes without position bias, for each network.

    Parameters
    ----------
    accuracy
        Share of sequences whose label is told.
    kernels
        Attention A of every layer.
    sinks
        1{A_ij > τ} summed over the queries i that may see token j, divided by their number, of every layer.
    lambda_frobenius, lambda_token
        λ of every layer by the norm over the sequence, and by the token; 1 without a residual.
    influence
        ‖∂p/∂token‖ with p the probability of the label that is told, each sequence scaled to sum 1; sequences whose
        gradient is 0 in 32 bits are left out.
    """

    accuracy: Float[Tensor, "M"]
    kernels: Float[Tensor, "M T N N"]
    sinks: Float[Tensor, "M T N"]
    lambda_frobenius: Float[Tensor, "M T"]
    lambda_token: Float[Tensor, "M T"]
    influence: Float[Tensor, "M N"]


def look_inside(members: Members, streams: Sequence[Stream], size: int) -> Inside:
    """Measure attention, mixing, sinks and influence on ``size`` sequences for each network.

    Parameters
    ----------
    members
        The networks.
    streams
        One for each, which the sequences are drawn from.
    size
        Sequences.

    Source: Wu et al. 2025, appendix K.4, after Gu et al. 2025, for the sinks.
    """
    sums: list[Tensor] = []
    seen = members.limits.isfinite().sum(-2)  # queries that may see a token
    for part in _parts(size):
        drawn = [stream.novel(part) for stream in streams]
        tokens = torch.stack([x for x, _ in drawn]).requires_grad_()
        probabilities = members(tokens).softmax(-1)
        told = probabilities.max(-1)
        (slope,) = torch.autograd.grad(told.values.sum(), tokens)
        norms = slope.double().norm(dim=-1)  # a network that is sure has gradients whose squares 32 bits do not hold
        total = norms.sum(-1, keepdim=True)
        A, by_norm, by_token = members.inside(tokens.detach())
        right = told.indices == torch.stack([label for _, label in drawn])
        new = [
            right.sum(1),
            A.sum(2).transpose(0, 1),
            (A > SINK).sum((2, 3)).transpose(0, 1) / seen,
            by_norm.sum(2).T,
            by_token.sum(2).T,
            torch.where(total > 0, norms / total, 0.0).sum(1),
        ]
        sums = [a + b for a, b in zip(sums, new, strict=True)] if sums else new
    accuracy, kernels, sinks, frobenius, token, influence = sums
    return Inside(
        accuracy / size,
        kernels / size,
        sinks / size,
        frobenius / size,
        token / size,
        influence / influence.sum(-1, keepdim=True),
    )


def _parts(size: int) -> Iterator[int]:
    yield from (min(AT_ONCE, size - start) for start in range(0, size, AT_ONCE))
