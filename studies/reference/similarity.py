"""How alike a head's content logits are, as the residual-aware paper counts it: one less the entropy of a histogram.

Content logits are counted in 256 bins of width 1/4, centred on the multiples of 1/4 from -32 to 31.75, the outermost
two open; the paper states no bins. The rule looks at no data, so that counts of any batches and prompts may be added.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Num

from posbias.measure.session import Session
from posbias.models.attention import Reading, blocks
from posbias.settings import Settings

BINS, BIN_WIDTH = 256, 0.25
CENTRE = BINS // 2  # the bin of logits around 0
REGIONS = ("diagonal", "offdiagonal")


def bin_centres() -> Float[np.ndarray, "bins"]:
    """Return the centres of the bins.

    >>> bin_centres()[[0, 128, 255]].tolist()
    [-32.0, 0.0, 31.75]
    """
    return (np.arange(BINS) - CENTRE) * BIN_WIDTH


def entropy_similarity(counts: Num[np.ndarray, "... bins"]) -> Float[np.ndarray, "..."]:
    """Return 1 - H / log K: 1 if all entries share a bin, 0 if they are spread evenly over the K bins.

    Source: residual-aware paper, appendix E.

    >>> entropy_similarity(np.array([[4, 0], [2, 2]])).tolist()
    [1.0, 0.0]
    """
    p = counts / counts.sum(axis=-1, keepdims=True)
    entropy = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=-1)
    return np.asarray(np.clip(1 - entropy / np.log(counts.shape[-1]), 0.0, 1.0))


def count_logits(session: Session) -> Num[np.ndarray, "regions T H bins"]:
    """Return how many content logits of all prompts are in each bin, on the diagonal and off it."""
    instrument = session.instrument
    H, counts = instrument.H, torch.zeros(2, instrument.T, instrument.H, BINS, dtype=torch.int64)

    def observe(reading: Reading) -> None:
        for prompts, queries in blocks(reading, reading.query.device):
            codes = (reading.content(prompts, queries) / BIN_WIDTH + CENTRE + 0.5).clamp(0, BINS - 1).long()
            codes += BINS * torch.arange(H, device=codes.device)[:, None, None]
            seen = reading.visible(queries)
            own = torch.eye(queries.stop, dtype=torch.bool, device=seen.device)[queries]
            for region, part in enumerate((own, seen & ~own)):
                counted = torch.bincount(codes[..., part].reshape(-1), minlength=H * BINS)
                counts[region, reading.layer] += counted.view(H, BINS).cpu()

    for _, ids in session.batches():
        instrument.forward(ids, observe)
    return counts.numpy()


def measure_similarity(settings: Settings) -> dict[str, tuple[tuple[str, str], np.ndarray]]:
    """Return the similarity of each head's content logits by region, to be assigned to a measurement."""
    found = zip(REGIONS, entropy_similarity(count_logits(Session(settings))), strict=True)
    return {f"similarity_{region}": (("layer", "head"), x) for region, x in found}
