"""The remedies for position bias that are known, and how far from even a profile is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias.comparison.distances import wasserstein_to

RESAMPLES, SEED = 200, 0
"""Of the bootstrap over units, the same in the study and in its tables, so that all resamples are paired."""


@dataclass(frozen=True)
class Remedy:
    """Say what a remedy is, where it is from, and what is done here where the source may do otherwise."""

    label: str
    source: str
    reading: str
    parameters: tuple[str, ...] = ()
    searched: bool = False  # as any other, with as many evaluations


REMEDIES: Mapping[str, Remedy] = {
    "intact": Remedy("none", "the model as trained", "nothing is changed"),
    "layers": Remedy(
        "LPES: a rotary scale for each layer",
        "arXiv 2606.27705",
        "positions divided by a scale of at least 1, a cubic Bézier curve over depth; a small genetic search over its "
        "four control points, for the distance of the rollout to uniform in the place of accuracy on a task",
        ("p0", "p1", "p2", "p3"),
        True,
    ),
    "one scale": Remedy(
        "one rotary scale",
        "position interpolation",
        "positions of all layers and heads divided by one scale: the simple rival of a scale for each layer",
        ("scale",),
        True,
    ),
    "heads": Remedy(
        "Ms-PoE: rotary scales across heads",
        "arXiv 2403.04797",
        "positions divided by 1.2 to 1.8, linearly over a layer's heads, from the third layer on; heads in the order "
        "of the share of keys that stand out for the last query, most position-aware first, over several prompts",
        ("least", "most"),
    ),
    "channel": Remedy(
        "one positional channel scaled",
        "arXiv 2406.02536",
        "one of the three channels that are most monotone in position, multiplied by a factor from -1 to below 1 in "
        "what queries and keys read, in the middle half of the layers and for every query, not the last one alone",
        ("channel", "factor"),
        True,
    ),
    "calibration": Remedy(
        "calibrated attention",
        "arXiv 2406.16008",
        "every head's weights divided by their mean at the same distance (key 0: at the same query) on other prompts "
        "and normalised again, in all layers; the source subtracts what a document without content is given",
    ),
    "log": Remedy(
        "α log j added",
        "this book",
        "position logits α log j added to a model that was not trained with them, in all heads",
        ("alpha",),
        True,
    ),
    "flat": Remedy(
        "flat logits added",
        "this book",
        "position logits -log log(i / j), cut off at τ, added to a model that was not trained with them, in all heads",
        ("tau",),
        True,
    ),
    "mixed flat": Remedy(
        "flat logits in half of the heads",
        "this book",
        "the same in the second half of each layer's heads; the first half stays as it is",
        ("tau",),
        True,
    ),
    "chosen": Remedy(
        "a bias chosen by the rollout",
        "this book",
        "position biases that one measurement suggests (an exponent or a slope for all, one for each layer, "
        "flat logits in some heads), at several strengths: each is tried, as settings of a search are",
        ("proposal", "strength"),
        True,
    ),
    "temperatures": Remedy(
        "a temperature for each layer",
        "the idea of arXiv 2606.27705",
        "content logits divided by a temperature, whose logarithm to base 2 is a cubic Bézier curve over depth, with "
        "the search of LPES: for models without rotary positions that can be scaled",
        ("p0", "p1", "p2", "p3"),
        True,
    ),
    "temperature": Remedy(
        "one temperature",
        "a simple rival",
        "content logits of all layers divided by one temperature",
        ("temperature",),
        True,
    ),
}
"""The remedies by name, and what of each is our reading."""
KNOWN = ("intact", "layers", "one scale", "heads", "channel", "calibration", "log", "flat", "mixed flat")
"""Those of the study of known remedies, for models with rotary positions."""
ADDED = ("intact", "chosen", "layers", "temperatures", "temperature")
"""Those of the study of added biases, for any model: of *layers* and *temperatures* the one that a model takes."""


def distances_to_even(profiles: Float[np.ndarray, "B n"]) -> Float[np.ndarray, "B"]:
    """Return each profile's normalised W₁ to uniform.

    >>> distances_to_even(np.array([[1.0, 0.0], [0.5, 0.5]])).tolist()
    [0.5, 0.0]
    """
    return wasserstein_to(profiles, np.full(profiles.shape[-1], 1 / profiles.shape[-1]))
