"""What a trained network does: accuracy by the place of the answer, attention sinks, kernels, mixing and influence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from studies.icl.network import AttentionOnly
from studies.icl.settings import PAIRS, SINK
from studies.icl.task import Stream

BATCH = 500
"""Test sequences in a batch."""


@torch.no_grad()
def accuracies(network: Callable[[Tensor], Tensor], stream: Stream, size: int) -> Float[Tensor, "pairs orders"]:
    """Return the share of test sequences whose label is predicted, for [a, b] and for [b, a] of every pair of places.

    The network takes tokens (B, 2n + 1, d) and gives the logits of the labels (B, L); ``size`` sequences of each order.

    Source: Wu et al. 2025, section 5.1.
    """
    found = torch.zeros(len(PAIRS), 2, device=stream.device)
    for p, (first, second) in enumerate(PAIRS):
        for part in _parts(size):
            both, labels = stream.trials(first, second, part)
            for order, tokens in enumerate(both):
                found[p, order] += (network(tokens).argmax(-1) == labels).sum()
    return found / size


@dataclass(frozen=True)
class Inside:
    """Means over sequences of novel classes without position bias.

    ``sinks`` are 1{A_ij > τ} summed over the queries i that may see token j, divided by their number; λ is 1 without a
    residual; ``influence`` is ‖∂p/∂token‖ with p the probability of the predicted label, each sequence scaled to sum 1,
    and sequences whose gradient is 0 in 32 bits left out.
    """

    accuracy: Float[Tensor, ""]
    kernels: Float[Tensor, "T N N"]
    sinks: Float[Tensor, "T N"]
    lambda_frobenius: Float[Tensor, "T"]
    lambda_token: Float[Tensor, "T"]
    influence: Float[Tensor, "N"]


def look_inside(network: AttentionOnly, stream: Stream, size: int) -> Inside:
    """Measure attention, mixing, sinks and influence on as many sequences.

    Source: Wu et al. 2025, appendix K.4, after Gu et al. 2025, for the sinks.
    """
    sums: list[Tensor] = []
    for part in _parts(size):
        tokens, labels = stream.novel(part)
        tokens.requires_grad_()
        predicted = network(tokens).softmax(-1).max(-1)
        (slope,) = torch.autograd.grad(predicted.values.sum(), tokens)
        norms = slope.double().norm(dim=-1)  # squares of the gradients of a confident network underflow in 32 bits
        total = norms.sum(-1, keepdim=True)
        A, by_norm, by_token = network.inside(tokens.detach())
        new = [
            (predicted.indices == labels).sum(),
            A.sum(1),
            (A > SINK).sum((1, 2)),
            by_norm.sum(1),
            by_token.sum(1),
            torch.where(total > 0, norms / total, 0.0).sum(0),
        ]
        sums = [a + b for a, b in zip(sums, new, strict=True)] if sums else new
    accuracy, kernels, sinks, frobenius, token, influence = sums
    seen = network.limits.isfinite().sum(0)  # queries that may see a token
    means = (accuracy / size, kernels / size, sinks / seen / size, frobenius / size, token / size)
    return Inside(*means, influence / influence.sum())


def _parts(size: int) -> Iterator[int]:
    yield from (min(BATCH, size - start) for start in range(0, size, BATCH))
