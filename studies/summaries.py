"""What is kept of a measurement: its profiles and what is computed from its matrices, in a hundredth of the bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from posbias.predict import PREDICTORS, available, predict
from posbias.rollout.order import stochastic_monotonicity

DROPPED = ("rollout_own", "tokens")
"""What a summary lacks beside matrices."""
PER_PROMPT = ("influence_prompts", "influence_signed_prompts", "ladder_prompts")
BITS = 10
"""Bits of the fraction that are kept of each prompt's influence: 0.05% of its size, far below its spread."""

ADDED: dict[str, tuple[tuple[str, ...], str]] = {
    "rollout": (
        ("variant", "position"),
        "influence profile by what predicts it, λ from Frobenius norms; names are former ones of posbias.predict",
    ),
    "monotonicity_violated": (("layer",), "share of triples in which a later row holds more prefix mass"),
    "monotonicity_gap": (("layer",), "mean excess prefix mass over violated triples"),
    "monotonicity_shortfall": (("layer",), "mean excess prefix mass over all triples"),
    "attention_received": (
        ("layer", "key"),
        "mean post-softmax weight that the queries who see a key give it",
    ),
    "contributions_received": (("layer", "key"), "mean contribution of a key to what the queries who see it become"),
}
"""What a summary has beyond a measurement: dimensions and meaning."""


def summarise(results: xr.Dataset, *, prompts: bool = True, order: bool = True) -> xr.Dataset:
    """Return a measurement without matrices and histograms, with what is computed from them.

    Each prompt's influence, rounded to :data:`BITS` bits, its λ and its document are kept with ``prompts`` alone.
    Whether rows are in ``order`` takes the cube of their number.
    """
    names = available(results)
    arrays = {"rollout": np.stack([predict(results, name) for name in names])}
    if "attention" in results:
        A = results["attention"].values.astype(np.float64)
        if order and "sink_share" not in results:  # an order of rows is one of rows that sum to one
            A /= A.sum(-1, keepdims=True)  # weights were rounded to 32 bits or 16
            shape = [stochastic_monotonicity(layer) for layer in A]
            arrays |= {
                "monotonicity_violated": np.array([layer.violated for layer in shape]),
                "monotonicity_gap": np.array([layer.mean_gap for layer in shape]),
                "monotonicity_shortfall": np.array([layer.shortfall for layer in shape]),
            }
        arrays["attention_received"] = A.sum(1) / np.arange(A.shape[-1], 0, -1)
    if "contributions" in results:
        C = results["contributions"].values.astype(np.float64)
        arrays["contributions_received"] = C.sum(1) / np.arange(C.shape[-1], 0, -1)
    dropped = (
        DROPPED if prompts else (*DROPPED, *PER_PROMPT, "lambda_frobenius_prompts", "lambda_token_prompts", "document")
    )
    matrices = [name for name, x in results.data_vars.items() if "query" in x.dims]
    out = results.drop_vars([*matrices, *(name for name in dropped if name in results.variables)])
    out = out.drop_vars([name for name in out.coords if name not in out.dims])
    for name in (*PER_PROMPT, "contributions_own"):
        if name in out:
            out[name] = (out[name].dims, shave(out[name].values.astype(np.float32)), out[name].attrs)
    for name, values in arrays.items():
        dims, meaning = ADDED[name]
        out[name] = (dims, values, {"long_name": meaning})
    return out.assign_coords(variant=[PREDICTORS[name].kept_as for name in names]).assign_attrs(summary=1)


def shave(x: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return 32-bit numbers rounded to :data:`BITS` bits of the fraction: the zeros left over pack well.

    >>> shave(np.array([1.0, 1 / 3], dtype=np.float32)).tolist()
    [1.0, 0.333251953125]
    """
    cut = 23 - BITS
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + np.uint32(1 << (cut - 1))) & np.uint32((0xFFFFFFFF << cut) & 0xFFFFFFFF)).view(np.float32)


def stacked(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the arrays of several rows by name, one behind the other along a first axis.

    >>> stacked([{"x": 1}, {"x": 2}])
    {'x': array([1, 2])}
    """
    arrays = {}
    for name in rows[0]:
        arrays[name] = np.stack([row[name] for row in rows])
    return arrays
