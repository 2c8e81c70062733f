"""Results: one labelled netCDF file for each measurement, with where it came from, that other tools open."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import h5py  # noqa: F401 - h5netcdf writes through it; if it is missing, that is to be said before the run
import numpy as np
import xarray as xr

from posbias import errors, netcdf
from posbias.netcdf import load_layout
from posbias.rollout.position_bias import Biases, layered_biases
from posbias.settings import RUNGS

SCHEMA = 1
"""Number of the layout; raised when a name or a meaning changes."""

Variables = dict[str, tuple[tuple[str, ...], str]]
VARIABLES: Variables = {
    "lambda_frobenius": (("layer",), "mean over prompts of ‖a‖/(‖x‖+‖a‖), Frobenius norms over the sequence"),
    "lambda_frobenius_prompts": (("prompt", "layer"), "the same for each prompt"),
    "lambda_token": (("layer",), "mean over prompts and tokens of ‖a_i‖/(‖x_i‖+‖a_i‖)"),
    "lambda_token_prompts": (("prompt", "layer"), "the same for each prompt"),
    "norm_ratio": (("layer",), "mean over prompts of the largest ‖x_i‖ over the median one, i the tokens of a prompt"),
    "content_logits": (("layer", "head", "query", "key"), "mean scaled q·k before bias and mask; NaN where masked"),
    "content_diagonal": (("layer", "head"), "mean content logit of a query with itself"),
    "content_offdiagonal": (("layer", "head"), "mean content logit of a query with an earlier, visible key"),
    "attention": (("layer", "query", "key"), "mean post-softmax weight over prompts and heads"),
    "attention_heads": (("layer", "head", "query", "key"), "mean post-softmax weight over prompts"),
    "influence": (("position",), "mean over prompts of ‖∂p/∂embedding‖, normalised to sum 1"),
    "influence_prompts": (("prompt", "position"), "‖∂p/∂embedding‖ for each prompt"),
    "influence_signed": (("position",), "mean over prompts of ∂p/∂embedding · embedding"),
    "influence_signed_prompts": (("prompt", "position"), "∂p/∂embedding · embedding for each prompt"),
    "probability": (("prompt",), "probability of the most likely next token"),
    "slopes": (("layer", "head"), "logits lost per token of distance, as the softmax sees them; 0 without ALiBi"),
    "position_bias": (("head", "key"), "the last query's position bias, 0 on the query itself"),
    "scale": (("layer",), "what q·k is multiplied by"),
    "window": (("layer",), "tokens a query may see by the configuration, itself included; 0 for all of its past"),
    "reach": (("layer",), "tokens the last query saw"),
    "sinks": (("layer", "head"), "logit of the head's sink, a key that is no token and has no value"),
    "sink_share": (("layer",), "mean share of post-softmax weight that sinks take; rows of attention sum to the rest"),
    "branch_gain": (("layer", "head"), "‖W_O W_V‖_F/√d with the factors of the norms around the attention"),
    "branch_scale": (("layer", "position"), "root mean square of 1/σ, σ the denominator of the norm before attention"),
    "output_scale": (("layer", "position"), "the same of the norm after attention; 1 where there is none"),
    "step_gain": (("layer", "query", "key"), "mean of tr(J_j J_j'ᵀ)/d, J the Jacobian of what follows attention"),
    "parallel": (("layer",), "1 where what follows attention reads what attention reads"),
    "tokens": (("prompt", "position"), "token ids of the prompts"),
    "document": (("prompt",), "number of the document that a prompt was cut from, from 0"),
    "ladder_prompts": (
        ("prompt", "rung", "pairing", "position"),
        "influence_prompts by the layers of each rung, of other prompts by a pairing; NaN where none was",
    ),
    "rollout_own": (("prompt", "position"), "last row of the product of the prompt's own kernels (1-λ)I + λA"),
}
"""Name → dimensions and meaning of what a file may hold, quantities with a file of their own aside."""

LEAST = (
    "influence", "model", "revision", "architecture", "dataset", "prompts", "rule", "length", "dtype", "seed",
    "special_tokens",
)  # fmt: skip
"""What is read of every file, beside what it is asked for."""
MIXING = ("lambda_frobenius", "lambda_token", "slopes")
"""What is read of every file, too, unless influence alone was measured."""
WIDE = ("rollout_own", "ladder_prompts")
"""Of which 32 bits are kept, as of matrices."""


def is_wide(name: str, dims: Iterable[Any]) -> bool:
    """Tell whether 32 bits of a variable are kept."""
    return name in WIDE or "query" in dims


def make_results(
    arrays: Mapping[str, np.ndarray], provenance: Mapping[str, Any], more: Variables | None = None
) -> xr.Dataset:
    """Return arrays as a labelled data set with their meaning and provenance; ``more`` are other variables."""
    variables = VARIABLES | (more or {})
    plain = {name: x if type(x) in (int, float) else str(x) for name, x in provenance.items()}
    out = xr.Dataset(
        {name: (variables[name][0], x, {"long_name": variables[name][1]}) for name, x in arrays.items()},
        attrs={"posbias_schema": SCHEMA, **plain},
    )
    named = {"rung": list(RUNGS)}
    return out.assign_coords({dim: named.get(str(dim), np.arange(size)) for dim, size in out.sizes.items()})


def write_results(path: Path, results: xr.Dataset) -> None:
    """Write a data set made by :func:`make_results` as netCDF, whole or not at all."""
    packed = {"zlib": True, "complevel": 4, "shuffle": True}
    encoding: dict[str, dict[str, Any]] = {
        str(name): {**packed, **({"dtype": "float32"} if is_wide(str(name), x.dims) else {})}
        for name, x in results.data_vars.items()
        if x.ndim > 1
    }
    netcdf.write(path, results, encoding)


def read_results(path: Path | str) -> xr.Dataset:
    """Read a measurement into memory."""
    results = load_layout(Path(path), "posbias_schema", SCHEMA, "a measurement")
    wanted = [*LEAST]
    if "mixing" in str(results.attrs.get("quantities", "mixing")):
        wanted += [name for name in MIXING if name != "slopes" or "no_attention" not in results.attrs]
    if missing := [name for name in wanted if name not in {*results, *results.attrs}]:
        raise errors.invalid(str(path), "a complete measurement", f"none of {', '.join(missing)}")
    check_sizes(Path(path), results)
    return results


def check_sizes(path: Path, results: xr.Dataset) -> None:
    """Raise unless the numbers of prompts and tokens that a file names are those that it has, and it has layers."""
    for name, dimension in (("length", "position"), ("prompts", "prompt")):
        number = results.attrs.get(name)
        there = results.sizes.get(dimension)
        if not isinstance(number, int | np.integer) or number < 1 or there not in (None, number):
            raise errors.invalid(f"{path}: {name}", f"{there}, which the file has" if there else "1 or more", number)
    empty = [name for name in ("layer", "head") if results.sizes.get(name) == 0]
    if empty:
        raise errors.invalid(str(path), f"one {empty[0]} or more", "none")
    if not np.isfinite(results.get("slopes", 0.0)).all():
        raise errors.invalid(f"{path}: slopes", "finite numbers", "a NaN or Inf")
    try:
        described_biases(results, "condition")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def described_biases(results: xr.Dataset, name: str = "position_bias") -> Biases | None:
    """Return position biases that a model was given (a study's network), or by a ``condition``; None if none."""
    text = str(results.attrs.get(name, ""))
    if name == "condition":
        text = text.removeprefix("bias:") if text.startswith("bias:") else ""
    if not text:
        return None
    try:
        description = json.loads(text)
    except (ValueError, RecursionError):
        raise errors.invalid(name, "a description in JSON", text[:60]) from None
    sizes = results["slopes"].sizes if "slopes" in results else results.sizes
    return layered_biases(description, sizes["layer"], sizes.get("head"), name)
