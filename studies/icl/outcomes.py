"""Results of trained networks: one entry for each setting, all seeds in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from studies.icl.settings import PAIRS

VARIABLES: dict[str, tuple[tuple[str, ...], str]] = {
    "accuracy": (
        ("seed", "pair", "order"),
        "share of test sequences [a, b] (order 0), [b, a] (order 1) answered correctly",
    ),
    "accuracy_novel": (("seed",), "share of sequences of novel classes without position bias answered correctly"),
    "kernels": (("seed", "layer", "query", "key"), "mean attention over these sequences"),
    "sinks": (("seed", "layer", "key"), "share of the queries that see a token whose attention on it exceeds 0.2"),
    "lambda_frobenius": (("seed", "layer"), "mean of ‖a‖/(‖x‖+‖a‖), Frobenius norms; 1 without residual"),
    "lambda_token": (("seed", "layer"), "mean over tokens of ‖a_i‖/(‖x_i‖+‖a_i‖); 1 without residual"),
    "influence": (("seed", "key"), "mean of ‖∂p/∂token‖, each sequence scaled to sum 1; p of the predicted label"),
    "loss": (("seed", "logged"), "mean training loss since the previous entry, nats"),
    "gaps": (("seed", "judged", "pair"), "accuracy on [a, b] minus that on [b, a] during training"),
    "stopped": (("seed",), "iteration at which the loss was not finite; -1 if training was completed"),
}
"""Name → dimensions and meaning of everything an entry holds."""


def labelled(arrays: Mapping[str, np.ndarray], seeds: Sequence[int], attributes: Mapping[str, Any]) -> xr.Dataset:
    """Return the arrays of a setting, seeds along the first axis, with their names and meanings."""
    return xr.Dataset(
        {name: (dims, arrays[name], {"long_name": meaning}) for name, (dims, meaning) in VARIABLES.items()},
        coords={"seed": list(seeds), "pair": [" vs ".join(pair) for pair in PAIRS]},
        attrs=dict(attributes),
    )


def gaps(results: xr.Dataset) -> Float[np.ndarray, "seeds pairs"]:
    """Return accuracy on [a, b] minus that on [b, a]: positive if the earlier place is favoured.

    Source: Wu et al. 2025, section 5.1.
    """
    accuracy = results["accuracy"].values
    return np.asarray(accuracy[..., 0] - accuracy[..., 1])
