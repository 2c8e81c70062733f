"""The norm before attention: what it divides by at each position, and how large the parts are that make this up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias import checks
from posbias.measure.families import output_projection
from posbias.measure.instrument import Instrument
from posbias.measure.normalisation import centres, size_over_features

PARTS = ("input", "branches", "rest", "branch", "values")
"""Sizes that :func:`read_sizes` reads of each layer t, in this order.

``input``: x_t, what enters the norm. It is x_0 + ``branches`` + ``rest``: the attention branches of all earlier
layers, Σ_{s<t} a_s, and what else the layers added, the feed-forward blocks. ``branch``: a_t. ``values``: the averages
Σ_j A_ij v_j of all heads side by side, before the output projection.
"""


def read_sizes(
    instrument: Instrument, ids: Int[np.ndarray, "N n"], batch_size: int = 8
) -> Float[np.ndarray, "N T parts n"]:
    """Return the size of x_t and of its parts at every layer and position, in the measure of the layer's norm.

    The measure is the standard deviation over the features before LayerNorm and the root mean square before RMSNorm;
    for ``values``, which no norm sees, always the root mean square. Parts are those of :data:`PARTS`.

    Parameters
    ----------
    instrument
        Of a model with a norm before attention.
    ids
        Token ids.
    batch_size
        Prompts at a time.
    """
    family, (N, n) = instrument.family, ids.shape
    norms = [family.norm_of(layer) for layer in instrument.layers]
    found = np.zeros((N, instrument.T, len(PARTS), n), dtype=np.float32)
    rows, start, added = slice(0), torch.empty(0), torch.empty(0)

    def keep(t: int, part: str, x: Tensor, centred: bool) -> None:
        found[rows, t, PARTS.index(part)] = size_over_features(x, centred).cpu().numpy()

    def enter(t: int) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any) -> None:
            nonlocal start, added
            x, centred = args[0].detach(), centres(module)
            if t == 0:
                start, added = x, torch.zeros_like(x)
            keep(t, "input", x, centred)
            keep(t, "branches", added, centred)
            keep(t, "rest", x - start - added, centred)

        return hook

    def leave(t: int) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            nonlocal added
            a = (output[0] if isinstance(output, tuple) else output).detach()
            keep(t, "branch", a, centres(norms[t]))
            added = added + a

        return hook

    def average(t: int) -> Callable[..., None]:
        return lambda module, args: keep(t, "values", args[0].detach(), False)

    with ExitStack() as stack:
        for t, (layer, norm, attention) in enumerate(zip(instrument.layers, norms, instrument.attentions, strict=True)):
            stack.callback(norm.register_forward_pre_hook(enter(t)).remove)
            stack.callback(output_projection(attention).register_forward_pre_hook(average(t)).remove)
            stack.callback(family.output_of(layer).register_forward_hook(leave(t)).remove)
        for first in range(0, N, batch_size):
            rows = slice(first, first + batch_size)
            instrument.forward(torch.from_numpy(ids[rows]), lambda reading: None)
    return found


def octave_slopes(sizes: Float[np.ndarray, "... n"], first: int = 1) -> Float[np.ndarray, "..."]:
    """Return the exponent c of size ∝ (j + 1)^c: the slope of log size by log position, each octave counting alike.

    -1/2 is what averages of j + 1 unrelated vectors have.

    Parameters
    ----------
    sizes
        Above 0, one for each position j = 0..n-1.
    first
        The first position that counts; the very first token is often unlike all others.

    Raises
    ------
    ValueError
        For fewer than two positions that count.

    >>> float(octave_slopes(np.array([9.0, 1.0, 1.5**-0.5, 2**-0.5])).round(6))
    -0.5
    """
    n = checks.positive_integer("positions", sizes.shape[-1], minimum=first + 2)
    u = np.log(np.arange(first, n) + 1.0)
    weight = np.exp(-u)  # positions in an octave are as many as its beginning
    u = u - (weight @ u) / weight.sum()
    return np.asarray(np.log(sizes[..., first:]) @ (weight * u) / (weight @ u**2))
