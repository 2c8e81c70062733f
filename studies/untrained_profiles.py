"""Untrained networks on prompts: the gradient's profile beside the law of untrained networks, sizes and rollouts.

Content logits and attention matrices are not read, so that memory is what autograd keeps of one prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Int
from torch import Tensor

from posbias.measure.branches import read_branches
from posbias.measure.instrument import Instrument
from posbias.measure.positions import read_positions
from posbias.measure.results import VARIABLES
from posbias.measure.session import Session
from posbias.predict import predict
from posbias.provenance import versions
from studies.interventions import read_layers
from studies.summaries import shave

SEEDS = 3
"""Networks of each architecture, drawn from the seeds 0, 1, 2."""
PROBED = 4
"""Prompts on which branches are read."""
PROFILES = ("a", "b", "untrained", "no gates", "no steps", "aligned")
"""Predictions: two rollouts, the law, the law with gates that are alike at all positions and without MLPs, and sizes
with the law's numbers."""
MEANING = {
    "influence_prompts": "‖∂p/∂embedding‖ for each seed and prompt over its sum; rounded to 10 bits",
    "influence_random": "the same of a random combination of the next token's logits",
    "profile": "prediction for each seed",
    "lambda_frobenius": "‖a‖/(‖x‖+‖a‖), mean over prompts",
    "branch_gain": "root of the sum over heads of squared gains",
    "step_gain": "gain of the step at a position, root mean square over positions",
    "overlap": "mean over pairs of positions of K[j, j'] / √(K[j, j] K[j', j'])",
    "content": "standard deviation of content logits over visible pairs, the first prompt",
}


def read_network(study: Session, *, random_output: bool = False) -> xr.Dataset:
    """Return what is measured of one untrained network, and what is predicted for it, by the names of MEANING."""
    attributes = {name: x for name, x in study.provenance().items() if name in ("length", "position_bias")}
    return read_untrained(
        study.instrument, study.ids, attributes, batch_size=study.settings.batch_size, random_output=random_output
    )


def read_untrained(
    instrument: Instrument,
    ids: Int[Tensor, "N n"],
    attributes: Mapping[str, Any],
    *,
    batch_size: int = 8,
    random_output: bool = False,
) -> xr.Dataset:
    """Return the same on prompts as they are; attributes are ``length`` and, where there is one, ``position_bias``."""
    batches = ids.split(batch_size)
    readings = [instrument.measure(batch) for batch in batches]
    mixing = np.concatenate([reading.lambda_frobenius.numpy() for reading in readings]).mean(0)
    measured = {"influence_prompts": np.concatenate([reading.influence.numpy() for reading in readings])}
    if random_output:
        measured["influence_random"] = np.concatenate([_random_influence(instrument, batch) for batch in batches])
    branches = read_branches(instrument, ids[:PROBED])
    positions = read_positions(instrument, ids.shape[1])
    arrays = {"lambda_frobenius": mixing, "slopes": positions.slopes, "window": positions.window, **vars(branches)}
    results = xr.Dataset({name: (VARIABLES[name][0], x) for name, x in arrays.items()}, attrs=dict(attributes))
    content = read_layers(instrument, ids[:1], lambda x: x.content()[..., x.allowed].std()).double().numpy()
    K, gain, n = branches.step_gain, _gain(branches.step_gain), ids.shape[1]
    pairs = np.einsum("tij,ti,tj->t", K, 1 / gain, 1 / gain)
    return xr.Dataset({
        **{name: (("prompt", "position"), _shares(x)) for name, x in measured.items()},
        "profile": (("prediction", "position"), _profiles(results)),
        "lambda_frobenius": ("layer", mixing),
        "branch_gain": ("layer", np.linalg.norm(branches.branch_gain, axis=1)),
        "step_gain": ("layer", np.sqrt((gain**2).mean(1))),
        "overlap": ("layer", (pairs - n) / (n * n - n)),
        "content": ("layer", content),
    }).assign_coords(prediction=list(PROFILES))  # fmt: skip


def of_seeds(data: xr.Dataset, study: Session, seeds: int, meaning: Mapping[str, str] = MEANING) -> xr.Dataset:
    """Return data of seeds 0, 1, … with their meaning and where they come from; the study is that of the last seed."""
    for name, x in data.data_vars.items():
        x.attrs["long_name"] = meaning[str(name)]
    last, provenance = f"seed {seeds - 1}", study.provenance()
    provenance |= {
        "seed": f"0 to {seeds - 1}",
        "revision": provenance["revision"].removesuffix(last) + f"seeds 0 to {seeds - 1}",
        "prompts_sha256": f"{provenance['prompts_sha256']} ({last}'s)",
    }
    return data.assign_attrs(provenance | versions("numpy"))


def _shares(influence: np.ndarray) -> np.ndarray:
    """Return each prompt's influence over its sum, rounded to what a summary keeps."""
    return shave((influence / influence.sum(1, keepdims=True)).astype(np.float32))


def _random_influence(instrument: Instrument, ids: Tensor) -> np.ndarray:
    """Return ‖∂(r · logits)/∂embedding‖ of the last position's logits, r the same random direction for all prompts."""
    x = instrument.embeddings(ids).requires_grad_(True)
    with torch.enable_grad():
        logits = instrument.logits(x)
        r = torch.randn(logits.shape[-1], generator=torch.Generator().manual_seed(0)).to(logits)
        (gradient,) = torch.autograd.grad((logits @ r).sum(), x)
    return np.asarray(gradient.float().norm(dim=-1).double().cpu().numpy())


def _gain(K: np.ndarray) -> np.ndarray:
    """Return the gain of each layer's step at each position, from its Gram factors."""
    return np.sqrt(np.diagonal(K, axis1=1, axis2=2))


def _profiles(results: xr.Dataset) -> np.ndarray:
    """Return the predictions in the order of :data:`PROFILES`."""
    K = results["step_gain"]
    gain = _gain(K.values)
    found = {former: predict(results, former) for former in ("a", "b", "untrained")}
    found["aligned"] = predict(results, "head-gains-added")
    for name, steps in (("no gates", gain[:, :, None] * gain[:, None, :]), ("no steps", 0 * K.values)):
        found[name] = predict(results.assign(step_gain=(K.dims, steps)), "head-gains-squared")
    return np.stack([found[name] for name in PROFILES])
