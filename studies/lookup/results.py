"""Results of networks that find values: one entry for each setting, with all seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from studies.train import moments

VARIABLES: dict[str, tuple[tuple[str, ...], str]] = {
    "loss": (("seed", "tested"), "mean training loss since the previous test, nats"),
    "accuracy": (("seed", "tested", "place"), "share of prompts whose value is found, during training"),
    "log_probability": (("seed", "tested", "place"), "mean log-probability of the value among all values, nats"),
    "accuracy_1": (("seed", "place"), "share of prompts whose value is found, after training"),
    "log_probability_1": (("seed", "place"), "mean log-probability of the value, after training, nats"),
    "accuracy_2": (("seed", "place_2"), "the same accuracy for prompts of 2 times the pairs"),
    "log_probability_2": (("seed", "place_2"), "the same log-probability for prompts of 2 times the pairs, nats"),
    "accuracy_4": (("seed", "place_4"), "the same accuracy for prompts of 4 times the pairs"),
    "log_probability_4": (("seed", "place_4"), "the same log-probability for prompts of 4 times the pairs, nats"),
}
"""Name → dimensions and meaning of everything an entry holds. Places are numbers of pairs, from 0."""


def make_results(
    arrays: Mapping[str, np.ndarray], seeds: Sequence[int], iterations: int, attributes: Mapping[str, Any]
) -> xr.Dataset:
    """Return the arrays of a setting, seeds along the first axis, with their names and meanings."""
    return xr.Dataset(
        {name: (dims, arrays[name], {"long_name": meaning}) for name, (dims, meaning) in VARIABLES.items()},
        coords={"seed": list(seeds), "tested": moments(iterations, arrays["loss"].shape[1])},
        attrs=dict(attributes),
    )
