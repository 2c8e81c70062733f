"""Results of networks that find values: one labelled netCDF file for each setting, with all seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from posbias import errors, netcdf
from posbias.netcdf import load_layout

SCHEMA = 1
"""Number of the layout; raised when a name or a meaning changes."""

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
"""Name → dimensions and meaning of everything a file holds. Places are numbers of pairs, from 0."""


def make_results(
    arrays: Mapping[str, np.ndarray], seeds: list[int], iterations: int, provenance: Mapping[str, Any]
) -> xr.Dataset:
    """Return a setting's arrays as a labelled data set.

    Parameters
    ----------
    arrays
        Name → array for every name of :data:`VARIABLES`.
    seeds
        Of the networks, along the first axis.
    iterations
        Steps of training; tests are evenly spread over them.
    provenance
        Attributes.
    """
    times = arrays["loss"].shape[1]
    steps = [-(-iterations * (k + 1) // times) for k in range(times)]
    return xr.Dataset(
        {name: (dims, arrays[name], {"long_name": meaning}) for name, (dims, meaning) in VARIABLES.items()},
        coords={"seed": seeds, "tested": steps},
        attrs={"posbias_key_value_schema": SCHEMA, **provenance},
    )


def write_results(path: Path, results: xr.Dataset) -> None:
    """Write a data set made by :func:`make_results` as netCDF in float32; an interrupted write leaves no file."""
    packed = {"zlib": True, "complevel": 4, "shuffle": True, "dtype": "float32"}
    netcdf.write(path, results, {str(name): packed for name in results.data_vars})


def read_results(path: Path | str) -> xr.Dataset:
    """Read a setting's results into memory.

    Raises
    ------
    ValueError
        If the file is not netCDF, was not written by posbias, has another layout, or is incomplete.
    OSError
        If it cannot be read.
    """
    results = load_layout(Path(path), "posbias_key_value_schema", SCHEMA, "results of retrieval networks")
    missing = [name for name in VARIABLES if name not in results]
    if missing:
        raise errors.invalid(str(path), "every variable of the layout", f"a file without {', '.join(missing)}")
    return results
