"""A network with a known answer: what undoing the norm takes from its recency, read by the instrument."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from posbias import errors
from posbias.measure.instrument import Instrument
from posbias.measure.interventions import replaced_denominators
from studies.norms.identity import identity_network
from studies.norms.measure import PARTS, octave_slopes, read_recency, read_sizes

UNDONE = {
    "keys, constant": ("k", False),
    "keys, course": ("k", True),
    "queries, constant": ("q", False),
    "values too": ("qkv", False),
}
"""Ways to undo the norm: the projections that get other denominators, and whether tokens keep theirs but the course."""


@dataclass(frozen=True)
class Control:
    """Hold how recent the identity network is with its norms and without.

    Parameters
    ----------
    recency
        ``probability`` and its standard ``error`` by ``condition`` (intact, or a key of :data:`UNDONE`) and ``layer``,
        counted from 1.
    exponents
        Of the size of each layer's input along the prompt, mean over sequences.
    """

    recency: pd.DataFrame
    exponents: Float[np.ndarray, "T"]

    def of(self, condition: str, layer: int) -> tuple[float, float]:
        """Return probability and error of a condition in a layer."""
        rows = self.recency.query("condition == @condition and layer == @layer")
        return float(rows["probability"].item()), float(rows["error"].item())


def control_network(X: Float[np.ndarray, "N n D"], layers: int) -> Control:
    """Return the recency of x ← x + A u, u = LayerNorm(x), on N sequences, intact and with the norm undone.

    The network is :func:`~studies.norms.identity.identity_network`; its course along the prompt is the
    geometric mean over the same sequences.

    Parameters
    ----------
    X
        Token embeddings of at least 2 sequences of at least 3 tokens.
    layers
        At least 1.
    """
    N, n, D = X.shape
    errors.positive_integer("sequences", N, minimum=2)
    instrument = Instrument(identity_network(X.reshape(-1, D), layers, n))
    ids, queries = np.arange(N * n).reshape(N, n), np.arange(2, n)
    sizes = read_sizes(instrument, ids, N)[:, :, PARTS.index("input")].astype(float)
    course = np.exp(np.log(sizes).mean(0))
    found = {"intact": read_recency(instrument, ids, queries, N).preference}
    for condition, (parts, own) in UNDONE.items():
        with replaced_denominators(instrument, course, parts, own=own):
            found[condition] = read_recency(instrument, ids, queries, N).preference
    rows = [
        (condition, t + 1, shares[:, t].mean(), shares[:, t].std() / np.sqrt(N))
        for condition, shares in found.items()
        for t in range(layers)
    ]
    frame = pd.DataFrame(rows, columns=["condition", "layer", "probability", "error"])
    return Control(frame, octave_slopes(sizes).mean(0))
