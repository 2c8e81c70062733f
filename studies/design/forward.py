"""What forward passes alone show of a model, as it is or inside a context, and the rollouts of weighted means of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias.measure.instrument import Instrument
from posbias.models.attention import Reading
from posbias.models.hooks import After, Before, given, hooked, returned
from studies.interventions import losses_of


@dataclass(frozen=True)
class ForwardReading:
    """Hold what forward passes show of N prompts: attention averaged over heads, λ by Frobenius norms, loss in nats."""

    kernels: Float[np.ndarray, "N T n n"]
    mixing: Float[np.ndarray, "N T"]
    loss: Float[np.ndarray, "N"]


def read_forward(instrument: Instrument, ids: Int[Tensor, "N n"], batch_size: int = 8) -> ForwardReading:
    """Return kernels, λ and loss of prompts by forward passes alone, for the model as it is or inside a context."""
    T, n = instrument.T, ids.shape[1]
    kernels = np.empty((len(ids), T, n, n), dtype=np.float32)
    mixing, loss = np.empty((len(ids), T)), np.empty(len(ids))
    for start in range(0, len(ids), batch_size):
        rows = slice(start, start + batch_size)

        def see(reading: Reading, rows: slice = rows) -> None:
            kernels[rows, reading.layer] = reading.probabilities.float().mean(1).cpu().numpy()

        norms: tuple[list[Tensor], list[Tensor]] = ([], [])
        with hooked(*_norm_hooks(instrument, *norms)):
            loss[rows] = losses_of(instrument, ids[rows], see).double().mean(-1).numpy()
        x, a = (torch.stack(sizes, dim=1).double().cpu().numpy() for sizes in norms)
        mixing[rows] = a / (x + a)
    return ForwardReading(kernels / kernels.sum(-1, keepdims=True), mixing, loss)


def _norm_hooks(
    instrument: Instrument, entering: list[Tensor], added: list[Tensor]
) -> tuple[list[tuple[nn.Module, Before]], list[tuple[nn.Module, After]]]:
    """Return hooks that append each layer's ‖x‖ and ‖a‖, Frobenius norms of each prompt."""

    def size(x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x.float(), dim=(-2, -1))

    before: list[tuple[nn.Module, Before]] = []
    after: list[tuple[nn.Module, After]] = []
    for layer in instrument.layers:
        stream = instrument.family.stream_of(layer)
        if stream is None:
            before.append((layer, lambda module, args, kwargs: entering.append(size(given(args, kwargs)))))
        else:
            after.append((stream, lambda module, args, output: entering.append(size(returned(output)))))
        output = instrument.family.output_of(layer)
        after.append((output, lambda module, args, output: added.append(size(returned(output)))))
    return before, after


def rolled_out(
    kernels: Float[np.ndarray, "N T n n"], mixing: Float[np.ndarray, "N T"], weights: Float[np.ndarray, "B N"]
) -> Float[np.ndarray, "B n"]:
    """Return the influence profiles of rollouts of weighted means over prompts, of kernels and of λ.

    A row of ones gives the rollout of mean kernels, a row of the identity matrix a prompt's own, and resampled
    weights those of resampled prompts; no mean of matrices is formed.
    """
    B, n = len(weights), kernels.shape[-1]
    shares = weights / weights.sum(1, keepdims=True)
    lambda_ = shares @ mixing
    v = np.zeros((B, n))
    v[:, -1] = 1.0
    for t in reversed(range(kernels.shape[1])):
        moved = np.zeros((B, n))
        for k, A in enumerate(kernels[:, t]):
            drawn = shares[:, k] > 0
            moved[drawn] += (v[drawn] * shares[drawn, k, None]) @ A.astype(np.float64)
        v = (1 - lambda_[:, t, None]) * v + lambda_[:, t, None] * moved
    return v
