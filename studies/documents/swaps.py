"""What becomes of an answer if the value that a document states is exchanged (``studies.remedies.swapped``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from posbias.comparison.resampling import interval, resample_weights
from studies.checks import Check
from studies.results import load

ENTRY = "smollm2.swapped"
STAYS, FOLLOWS = 0, 1
"""What the file says of an answer that is as before, and of one that is the new value."""
LEAST = 0.9
"""Share of answers that must become the new value, set before the run."""


def by_source(entry: xr.Dataset) -> tuple[Bool[np.ndarray, "S Q"], Int[np.ndarray, "S Q"], Bool[np.ndarray, "S Q D"]]:
    """Return which answers one document states, the outcome of an exchange there, and which documents are others."""
    source, outcome = entry["source"].values, entry["outcome"].values
    known = source >= 0
    own = np.take_along_axis(outcome, np.maximum(source, 0)[..., None], -1)[..., 0]
    others = np.arange(outcome.shape[-1]) != source[..., None]
    return known, own, others & known[..., None]


def share_over_sets(hits: Bool[np.ndarray, "S ..."], among: Bool[np.ndarray, "S ..."]) -> tuple[float, float, float]:
    """Return a share with its 95% interval over sets."""
    sets = len(hits)
    found, of = ((x & among).reshape(sets, -1).sum(1) for x in (hits, among))
    weights = resample_weights(sets, 4000)
    low, high = interval(weights @ found / (weights @ of))
    return float(found.sum() / of.sum()), float(low), float(high)


def said(share: tuple[float, float, float]) -> str:
    """Return a share with its interval in words."""
    return "{:.0%} ({:.0%} to {:.0%})".format(*share)


def numbers(entry: xr.Dataset | None = None) -> dict[str, Any]:
    """Return what the page says of exchanges."""
    entry = load("remedies")[ENTRY] if entry is None else entry
    known, own, others = by_source(entry)
    right = entry["source"].values == np.arange(known.shape[1])
    became = np.take_along_axis(entry["became"].values, np.maximum(entry["source"].values, 0)[..., None], -1)[..., 0]
    turned = known & (own != STAYS) & (own != FOLLOWS)
    found: dict[str, Any] = {
        "known": int(known.sum()),
        "changed": int((known & (own != STAYS)).sum()),
        "follows": int((known & (own == FOLLOWS)).sum()),
        "follows_said": said(share_over_sets(own == FOLLOWS, known)),
        "right_said": said(share_over_sets(own == FOLLOWS, known & right)),
        "wrong_said": said(share_over_sets(own == FOLLOWS, known & ~right)),
        "others_said": said(share_over_sets(entry["outcome"].values != STAYS, others)),
        "more": float((others & (entry["outcome"].values != STAYS)).sum() / known.sum()),
        "turned": int(turned.sum()),
        "turned_other": int((turned & (became >= 0)).sum()),
        "turned_right": int((turned & (became == np.arange(known.shape[1]))).sum()),
    }
    return {f"swap_{name}": x for name, x in found.items()}


def swap_check(entry: xr.Dataset | None = None) -> Check:
    """Return the check that an answer becomes the value that is written into the document that states it."""
    entry = load("remedies")[ENTRY] if entry is None else entry
    known, own, _ = by_source(entry)
    share, low, high = share_over_sets(own == FOLLOWS, known)
    broken: list[bool] = []
    for rng in np.random.default_rng(0).spawn(20):
        drawn: Float[np.ndarray, "S Q"] = rng.random(known.shape)
        broken.append(share_over_sets(drawn < 1 / entry.sizes["document"], known)[2] >= LEAST)
    return Check(
        "D-swap", "", "Exchange the value where the answer is stated, and the answer is the new value.",
        high >= LEAST,
        f"{(known & (own == FOLLOWS)).sum()} of {known.sum()} answers ({share:.2f}, {low:.2f} to {high:.2f})",
        f"the whole 95% interval over sets is below {LEAST} (undecided if the share is and the interval is not)",
        {"a document named at random": broken}, "the document that states an answer is not where it is taken from",
        {"undecided": share < LEAST <= high},
    )  # fmt: skip
