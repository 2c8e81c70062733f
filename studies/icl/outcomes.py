"""Results of trained networks: one labelled netCDF file for each setting, all seeds in it, with its provenance."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from posbias import errors, netcdf
from posbias.netcdf import load_layout
from studies.icl.settings import PAIRS

SCHEMA = 1
"""Number of the layout; raised when a name or a meaning changes."""

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
"""Name → dimensions and meaning of everything a file holds."""


def make_results(arrays: Mapping[str, np.ndarray], seeds: list[int], provenance: Mapping[str, Any]) -> xr.Dataset:
    """Return a setting's arrays as a labelled data set.

    Parameters
    ----------
    arrays
        Name → array for every name of :data:`VARIABLES`.
    seeds
        Of the networks, along the first axis.
    provenance
        Attributes.
    """
    return xr.Dataset(
        {name: (dims, arrays[name], {"long_name": meaning}) for name, (dims, meaning) in VARIABLES.items()},
        coords={"seed": seeds, "pair": [" vs ".join(pair) for pair in PAIRS]},
        attrs={"posbias_scratch_schema": SCHEMA, **provenance},
    )


def write_results(path: Path, results: xr.Dataset) -> None:
    """Write a data set made by :func:`make_results` as netCDF in float32; an interrupted write leaves no file."""
    packed = {"zlib": True, "complevel": 4, "shuffle": True, "dtype": "float32"}
    encoding = {str(name): packed for name, x in results.data_vars.items() if x.dtype.kind == "f"}
    netcdf.write(path, results, encoding)


def read_results(path: Path | str) -> xr.Dataset:
    """Read a setting's results into memory.

    Raises
    ------
    ValueError
        If the file is not netCDF, was not written by posbias, has another layout, or is incomplete.
    OSError
        If it cannot be read.
    """
    results = load_layout(Path(path), "posbias_scratch_schema", SCHEMA, "trained networks' results")
    missing = [name for name in VARIABLES if name not in results]
    if missing:
        raise errors.invalid(str(path), "every variable of the layout", f"a file without {', '.join(missing)}")
    return results


def gaps(results: xr.Dataset) -> np.ndarray:
    """Return accuracy on [a, b] minus that on [b, a], (seeds, pairs): positive if the earlier place is favoured.

    Parameters
    ----------
    results
        From :func:`read_results`.

    Source: Wu et al. 2025, section 5.1.
    """
    accuracy = results["accuracy"].values
    return accuracy[..., 0] - accuracy[..., 1]


def preferences(results: xr.Dataset) -> np.ndarray:
    """Return the gap as a share of the sum of both accuracies, (seeds, pairs): from -1 to 1, whatever was learnt.

    A network that predicts the earlier of two labels in a tenth of the sequences, and otherwise neither, has a gap of
    0.1 and a preference of 1; NaN where it never predicts either.

    Parameters
    ----------
    results
        From :func:`read_results`.
    """
    total = results["accuracy"].values.sum(-1)
    return np.divide(gaps(results), total, out=np.full_like(total, np.nan), where=total > 0)
