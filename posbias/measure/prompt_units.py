"""What prompts were drawn independently of each other: the module or document that each prompt of a file is from."""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Int

from posbias import errors
from posbias.measure.corpus import BUILTIN, document_units


def prompt_units(measurement: xr.Dataset) -> Int[np.ndarray, "N"]:
    """Return the unit that each prompt belongs to, for :func:`~posbias.comparison.resampling`, from 0 in their order.

    Of the built-in documents it is the Python module (or help topic) that a prompt's text is from: a module gives
    several documents, its docstrings and pieces of its source, which repeat one another. Of other corpora it is the
    document. Random prompts are units of their own.
    """
    units = known_units(measurement)
    if units is None:
        raise errors.invalid("document", "the number of the document that each prompt is from", "none in the file")
    return units


def known_units(measurement: xr.Dataset) -> Int[np.ndarray, "N"] | None:
    """Return :func:`prompt_units`, or None where a file does not tell them."""
    dataset, rule = (str(measurement.attrs.get(name, "")) for name in ("dataset", "rule"))
    if "document" in measurement:
        return document_units(measurement["document"].values.astype(int), dataset)
    if rule == "random" or (rule == "first" and dataset != BUILTIN):  # one from each document
        return np.arange(int(measurement.attrs["prompts"]))
    return None


def unit_groups(units: Int[np.ndarray, "N"], groups: int) -> Int[np.ndarray, "N"]:
    """Return a group for each prompt, such that no unit is in two groups and groups are about equally large.

    >>> unit_groups(np.array([0, 0, 1, 2, 0, 1]), 2).tolist()
    [0, 0, 1, 1, 0, 1]
    """
    names, sizes = np.unique(units, return_counts=True)
    if errors.positive_integer("groups", groups) > names.size:
        raise errors.invalid("groups", f"at most {names.size}, the units", groups)
    filled, group = np.zeros(groups, dtype=int), np.zeros(names.size, dtype=int)
    for k in np.argsort(-sizes, kind="stable"):
        group[k] = filled.argmin()
        filled[group[k]] += sizes[k]
    return group[np.searchsorted(names, units)]
