"""The result of a retrieval: one labelled netCDF file, with where its numbers came from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from posbias import errors, netcdf
from posbias.lookup.answers import OF_TASK, SCORES
from posbias.lookup.prompt_profiles import MEASURED

LAYOUT, SCHEMA = "posbias_retrieval", 1
"""Name of the attribute that tells such a file, and the number of the layout; raised when a meaning changes."""

TEMPERATURE = "temperature "
"""Before the number, in the attribute ``change`` of a run whose content logits were divided."""

VARIABLES: dict[str, tuple[tuple[str, ...], str]] = {
    "place": (("prompt",), "index of the place where the prompt's answer stands"),
    "unit": (("prompt",), "number of what the prompt was drawn with: equal for prompts that are not independent"),
    "place_start": (("place_index",), "first token of each place"),
    "group_first": (("group",), "first place of a group of places"),
    "group_last": (("group",), "last place of the group"),
    "group_prompts": (("group",), "number of prompts whose answer stands in the group"),
    **{name: (("prompt",), what) for name, (_, what) in SCORES.items()},
    **{f"{name}_mean": (("group",), f"mean over the group's prompts of {name}") for name in SCORES},
    **{f"{name}_low": (("group",), f"lower end of the 95 % interval of {name}_mean") for name in SCORES},
    **{f"{name}_high": (("group",), f"upper end of the 95 % interval of {name}_mean") for name in SCORES},
    "overall": (("score", "end"), "mean over all prompts, and its 95 % interval"),
    "difference_p_value": (("score",), "of no difference between groups of places, by permutation of the prompts"),
    "profile": (("profile_name", "place_index"), "share of a prompt's influence at a place, summed over its tokens"),
    "profile_group": (("profile_name", "group"), "mean of profile over the places of a group"),
    "influence_places": (("profile_prompt", "place_index"), "summed gradient norms at each place of each prompt"),
    "profile_index": (("profile_prompt",), "which prompts gave the profile"),
    "rank_correlation": (
        ("profile_name", "score", "end"),
        "Spearman's correlation over groups of places, and its 95 % interval",
    ),
    "lambda_frobenius": (("layer",), "mean over the profile's prompts of ‖a‖/(‖x‖+‖a‖)"),
    "prompt_tokens": (("prompt", "position"), "token ids of the prompts, all but the answer's last"),
    "answer_tokens": (("prompt", "answer_position"), "token ids of the answers"),
}
"""Name → dimensions and meaning of everything a file may hold."""
ENDS = ("mean", "low", "high")
"""Of a number with its interval."""
ATTRIBUTES = (
    "model", "revision", "architecture", "position", "task", "made_of", "dataset", "prompts", "pairs", "length",
    "segment", "cue", "places", "profile_prompts", "batch_size", "dtype", "device", "seed", "tokenizer",
    "special_tokens", "prompts_sha256", "attention", "kernel_size", "processes", "chance", "change", "posbias",
    "torch", "transformers", "numpy", "python",
)  # fmt: skip
"""Provenance of every file; 0 for numbers that the task does not have."""
ALWAYS = ("place", "unit", "place_start", "group_first", "group_last", "group_prompts", "overall", "difference_p_value")
"""Variables of every file, beside the task's scores."""


def make_retrieval(
    arrays: Mapping[str, np.ndarray], provenance: Mapping[str, Any], names: Mapping[str, list[str]]
) -> xr.Dataset:
    """Return arrays as a labelled data set with their meaning and provenance.

    Parameters
    ----------
    arrays
        Name → array for names of :data:`VARIABLES`.
    provenance
        Everything in :data:`ATTRIBUTES`.
    names
        Names of the scores and of the profiles, along ``score`` and ``profile_name``.

    Raises
    ------
    ValueError
        If a name or an attribute is not what it should be.
    """
    unknown = sorted(set(arrays) - set(VARIABLES)) + sorted(set(provenance) ^ set(ATTRIBUTES))
    if unknown:
        raise errors.invalid("retrieval", "the names of the layout", ", ".join(unknown))
    plain = {name: x if type(x) in (int, float) else str(x) for name, x in provenance.items()}
    out = xr.Dataset(
        {name: (VARIABLES[name][0], x, {"long_name": VARIABLES[name][1]}) for name, x in arrays.items()},
        attrs={LAYOUT: SCHEMA, **plain},
    )
    coords: dict[str, Any] = {str(dim): np.arange(size) for dim, size in out.sizes.items()}
    coords |= {dim: list(labels) for dim, labels in {**names, "end": ENDS}.items() if dim in out.sizes}
    return out.assign_coords(coords)


def write_retrieval(path: Path, results: xr.Dataset) -> None:
    """Write a data set made by :func:`make_retrieval` as netCDF, whole or not at all."""
    packed = {"zlib": True, "complevel": 4, "shuffle": True}
    netcdf.write(path, results, {str(name): packed for name, x in results.data_vars.items() if x.ndim > 1})


def read_retrieval(path: Path | str) -> xr.Dataset:
    """Read a retrieval into memory.

    Raises
    ------
    ValueError
        If the file is no netCDF file, not one of ours, of another layout, or incomplete.
    OSError
        If it cannot be read.
    """
    results = netcdf.load_layout(Path(path), LAYOUT, SCHEMA, "a retrieval")
    task = str(results.attrs.get("task"))
    if task not in OF_TASK:
        raise errors.invalid(f"{path}: task", f"one of {', '.join(OF_TASK)}", task)
    scores = [name for score in OF_TASK[task] for name in (score, f"{score}_mean", f"{score}_low", f"{score}_high")]
    missing = [name for name in (*ALWAYS, *scores) if name not in results]
    missing += [name for name in ATTRIBUTES if name not in results.attrs]
    if "profile" in results:
        missing += [name for name in ("profile_group", "rank_correlation") if name not in results]
    if missing:
        raise errors.invalid(str(path), "a complete retrieval", f"none of {', '.join(missing)}")
    _check_shapes(Path(path), results, scores)
    return results


def _check_shapes(path: Path, results: xr.Dataset, scores: list[str]) -> None:
    """Raise ValueError for other dimensions than those of the layout, and for scores that are no numbers."""
    wanted = netcdf.integer_attribute(path, results.attrs, "prompts")
    if wanted != results.sizes["prompt"]:
        raise errors.invalid(f"{path}: prompts", f"{results.sizes['prompt']}, which the file has", wanted)
    for name in set(results) & set(VARIABLES):
        if results[name].dims != VARIABLES[str(name)][0]:
            expected = f"dimensions {', '.join(VARIABLES[str(name)][0])}"
            raise errors.invalid(f"{path}: {name}", expected, ", ".join(map(str, results[name].dims)) or "none")
    for name in scores:
        if not name.endswith(("_low", "_high")):
            errors.finite_array(f"{path}: {name}", results[name].values, ndim=(1,))
    if "profile" in results and MEASURED not in results["profile_name"].values:
        raise errors.invalid(f"{path}: profile_name", f"{MEASURED} among others", "none of that name")
