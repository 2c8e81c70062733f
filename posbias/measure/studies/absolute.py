"""What absolute position is read from: logits and log Z at sampled pairs, position 0's path, heads that read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from posbias import checks
from posbias.measure.families import output_projection
from posbias.measure.instrument import AttentionReading, Instrument
from posbias.measure.interventions import bidirectional, rotary_module
from posbias.theory.leakage import Components, Leakage, PositionBasis, gram, leakage


@dataclass(frozen=True)
class PairReading:
    """Hold what N prompts' attention is at m pairs.

    Parameters
    ----------
    logits
        What goes into the softmax at (i, j).
    log_z
        log Z_i, Z_i = Σ_j exp(logit_ij) over the keys that query i may see; exact.
    """

    logits: Float[np.ndarray, "N T H m"]
    log_z: Float[np.ndarray, "N T H m"]

    @property
    def log_probabilities(self) -> Float[np.ndarray, "N T H m"]:
        """Logarithms of attention weights, logits less log Z."""
        return self.logits - self.log_z


def read_pairs(
    instrument: Instrument, ids: Int[np.ndarray, "N n"], pairs: Int[np.ndarray, "2 m"], batch_size: int = 8
) -> PairReading:
    """Return every head's logits and log Z_i at pairs (i, j), for the model as it is or inside an intervention.

    Parameters
    ----------
    instrument
        Of the model.
    ids
        Token ids.
    pairs
        Of :func:`~posbias.theory.leakage.sample_pairs`.
    batch_size
        Prompts at a time.

    Raises
    ------
    ValueError
        If a pair is beyond the prompts, or a key is hidden from its query (a window narrower than the pairs' reach).
    """
    N, n = ids.shape
    i, j = (torch.from_numpy(x) for x in pairs)
    if int(pairs.max()) >= n:
        raise checks.refuse("pairs", f"positions below {n}, the length of the prompts", int(pairs.max()))
    shape = (N, instrument.T, instrument.H, pairs.shape[1])
    logits, log_z = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.float32)
    for rows, batch in _batches(ids, batch_size):

        def observe(reading: AttentionReading, rows: slice = rows) -> None:
            if not reading.allowed[i, j].all():
                reach = int(reading.allowed.sum(1).max())
                raise checks.refuse(
                    "pairs", f"offsets below the window of {reach} in layer {reading.layer}", "larger ones"
                )
            logits[rows, reading.layer] = reading.logits[..., i, j].float().cpu().numpy()
            log_z[rows, reading.layer] = reading.logits.float().logsumexp(-1)[..., i].cpu().numpy()

        instrument.forward(batch, observe)
    return PairReading(logits, log_z)


def read_components(
    instrument: Instrument, ids: Int[np.ndarray, "N n"], basis: PositionBasis, batch_size: int = 8
) -> Components:
    """Return the leakage of a model's attention by source: one causal pass and one bidirectional pass.

    Parameters
    ----------
    instrument
        Of the model, as it is or inside an intervention on its angles.
    ids
        Token ids; prompts are the units of the estimates.
    basis
        Of pairs within the narrowest window.
    batch_size
        Prompts at a time.

    Raises
    ------
    ValueError
        As :func:`read_pairs` does, and for a model without rotary positions.
    """
    rotary_module(instrument)
    causal = read_pairs(instrument, ids, basis.pairs, batch_size)
    with bidirectional(instrument):
        seen = read_pairs(instrument, ids, basis.pairs, batch_size)
    return Components(
        total=leakage(basis.both, causal.log_probabilities),
        denominators=leakage(basis.both, causal.log_z),
        logits=leakage(basis.both, causal.logits),
        cross=gram(basis.both, causal.logits, causal.log_z),
        residual=leakage(basis.both, seen.logits),
    )


def require_fixed_first(ids: Int[np.ndarray, "N n"]) -> int:
    """Return the first token that all prompts share.

    Raises
    ------
    ValueError
        If they do not share one: the tokenizer puts no start token in front, or it was left out.

    >>> require_fixed_first(np.array([[1, 5], [1, 7]]))
    1
    """
    first = np.unique(ids[:, 0])
    if first.size != 1:
        expected = "the same first token in every prompt (a tokenizer with a start token, and special_tokens on)"
        raise checks.refuse("prompts", expected, f"{first.size} different ones")
    return int(first[0])


def first_trajectory(instrument: Instrument, ids: Int[np.ndarray, "N n"]) -> Float[np.ndarray, "N L D"]:
    """Return the residual stream at position 0: what goes into each layer, and what comes out of the last (L = T + 1).

    Prompts go one by one, so that each is computed by the same operations and equal numbers come out equal to the bit.

    Raises
    ------
    ValueError
        If the prompts' first tokens differ.
    """
    require_fixed_first(ids)
    found: list[Tensor] = []

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        found.append((args[0] if args else kwargs["hidden_states"])[0, 0].detach().cpu().clone())

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        found.append((output[0] if isinstance(output, tuple) else output)[0, 0].detach().cpu().clone())

    handles = [layer.register_forward_pre_hook(enter, with_kwargs=True) for layer in instrument.layers]
    handles.append(instrument.layers[-1].register_forward_hook(leave))
    try:
        for _, batch in _batches(ids, 1):
            instrument.forward(batch, lambda reading: None)
    finally:
        for handle in handles:
            handle.remove()
    return torch.stack(found).float().numpy().reshape(len(ids), instrument.T + 1, -1)


@dataclass(frozen=True)
class HeadReading:
    """Hold what every head takes from the first token and how alike its outputs are between prompts.

    Parameters
    ----------
    first
        Mean attention to position 0, over the queries from 1 on that may see it.
    outputs
        G_pq = Σ_i ⟨o_p(i), o_q(i)⟩ over the same queries, o the head's output before the output projection.
    uniform
        What uniform attention gives position 0 in each layer, over the same queries.
    """

    first: Float[np.ndarray, "N T H"]
    outputs: Float[np.ndarray, "T H N N"]
    uniform: Float[np.ndarray, "T"]

    def sinks(self, times: float = 2.0) -> Bool[np.ndarray, "T H"]:
        """Tell which heads' mean attention to position 0 is at least ``times`` that of uniform attention."""
        return self.first.mean(0) >= times * self.uniform[:, None]

    def constancy(self) -> Leakage:
        """Return how much of the outputs' mean square all prompts share: its ``share`` is 1 if all are equal."""
        return Leakage(self.outputs, np.diagonal(self.outputs, axis1=-2, axis2=-1))


def read_heads(instrument: Instrument, ids: Int[np.ndarray, "N n"], batch_size: int = 8) -> HeadReading:
    """Return the reading of every head, by forward passes.

    Raises
    ------
    ValueError
        For fewer than 2 prompts, or attention without an output projection of a known name.
    """
    checks.positive_integer("prompts", len(ids), minimum=2)
    T, H, N = instrument.T, instrument.H, len(ids)
    first, uniform = np.zeros((N, T, H)), np.zeros(T)
    outputs: list[list[Tensor]] = [[] for _ in range(T)]
    sees: list[Tensor] = [torch.empty(0)] * T

    def keep(t: int) -> Any:
        def hook(module: nn.Module, args: Any) -> None:
            outputs[t].append(args[0].detach().float().cpu())

        return hook

    handles = [output_projection(a).register_forward_pre_hook(keep(t)) for t, a in enumerate(instrument.attentions)]
    try:
        for rows, batch in _batches(ids, batch_size):

            def observe(reading: AttentionReading, rows: slice = rows) -> None:
                seen = reading.allowed[:, 0].clone()
                seen[0] = False
                sees[reading.layer] = seen.cpu()
                uniform[reading.layer] = float((1 / reading.allowed.sum(1).double())[seen].mean())
                first[rows, reading.layer] = reading.probabilities[:, :, seen, 0].float().mean(-1).cpu().numpy()

            instrument.forward(batch, observe)
    finally:
        for handle in handles:
            handle.remove()
    G = np.empty((T, H, N, N))
    for t, kept in enumerate(outputs):
        o = torch.cat(kept)[:, sees[t]].unflatten(-1, (H, -1)).permute(2, 0, 1, 3).flatten(2).double()
        G[t] = (o @ o.mT).numpy()
    return HeadReading(first, G, uniform)


def _batches(ids: Int[np.ndarray, "N n"], size: int) -> Iterator[tuple[slice, Tensor]]:
    for start in range(0, len(ids), size):
        yield slice(start, start + size), torch.from_numpy(ids[start : start + size])
