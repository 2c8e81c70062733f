"""Positional parameters as a model applies them: slopes, window and scale, read off a forward pass."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from posbias.measure.instrument import Instrument
from posbias.models.attention import Reading
from posbias.models.families import text_config, window


@dataclass(frozen=True)
class Positions:
    """Hold what a model does with positions, layer by layer."""

    scale: Float[np.ndarray, "T"]
    """What q·k is multiplied by."""
    slopes: Float[np.ndarray, "T H"]
    """Logits lost per token of distance as the softmax sees them, 0 without ALiBi; where the bias is rounded, the mean
    slope of the last row."""
    bias: Float[np.ndarray, "H n"]
    """The last query's bias against the bias of the query itself, in the first layer: what slopes summarise."""
    window: Int[np.ndarray, "T"]
    """Tokens that a query may see, itself included, by the model's configuration; 0 if all of its past."""
    reach: Int[np.ndarray, "T"]
    """The same as seen in the mask for n tokens: at most n."""
    sinks: Float[np.ndarray, "T H"] | None
    """Logits of the heads' sinks, keys that are no tokens; None where there are none."""


def read_positions(instrument: Instrument, n: int) -> Positions:
    """Return the positional parameters of a model for sequences of n tokens, by one forward pass."""
    T, H = instrument.T, instrument.H
    config: Any = text_config(instrument.model.config)
    slopes, bias, reach = np.zeros((T, H)), np.zeros((H, n)), np.full(T, n)
    sinks: list[np.ndarray] = []

    def observe(reading: Reading) -> None:
        t, last = reading.layer, slice(n - 1, n)
        reach[t] = int(reading.visible(last).sum())
        if reading.sinks is not None:
            sinks.append(reading.sinks.double().cpu().numpy())
        back = torch.arange(n)[:, None] - torch.arange(n)
        if not torch.equal(reading.visible(reading.every).cpu(), (back >= 0) & (back < int(reach[t]))):
            raise RuntimeError(f"expected a causal mask or a sliding window in layer {t}, received another")
        if (added := reading.added(last)) is None:
            return
        row = added.expand(H, 1, n)[:, 0].double().cpu().numpy()
        row = np.where(np.arange(n) >= n - reach[t], row - row[:, -1:], 0.0)
        slopes[t] = -row[:, n - reach[t]] / max(reach[t] - 1, 1)
        if t == 0:
            bias[:] = row

    instrument.forward(torch.zeros(1, n, dtype=torch.long), observe)
    return Positions(
        scale=np.array([instrument.family.scale(attention) for attention in instrument.attentions]),
        slopes=slopes,
        bias=bias,
        window=np.array([window(attention, config) or 0 for attention in instrument.attentions]),
        reach=reach,
        sinks=np.stack(sinks) if sinks else None,
    )
