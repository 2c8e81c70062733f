"""Untrained networks of real architectures: the gradient's profile beside the law at birth, sizes and rollouts.

A file holds one architecture on one kind of prompt, for several seeds of the weights. Content logits and attention
matrices are not read, so that memory is what autograd keeps of one prompt.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from posbias import checks
from posbias.measure.births import Birth
from posbias.measure.branches import Branches, read_branches
from posbias.measure.instrument import Instrument
from posbias.measure.interventions import replaced_rope
from posbias.measure.positions import read_positions
from posbias.measure.rollouts import measured_rollout
from posbias.measure.study import Settings, Study
from posbias.provenance import versions

SEEDS = 3
"""Networks of each architecture, drawn from the seeds 0, 1, 2."""
PROBED = 4
"""Prompts on which branches are read."""
PROFILES = ("a", "b", "birth", "no gates", "no steps", "aligned")
"""Predictions in a file: two rollouts, the law, the law with gates that are alike at all positions and without MLPs,
and sizes with the law's numbers."""

MEANING = {
    "influence_prompts": "‖∂p/∂embedding‖ for each seed and prompt, divided by its sum over positions",
    "profile": "prediction for each seed",
    "lambda_frobenius": "‖a‖/(‖x‖+‖a‖), mean over prompts",
    "branch_gain": "root of the sum over heads of squared gains",
    "step_gain": "gain of the step at a position, root mean square over positions",
    "overlap": "mean over pairs of positions of K[j, j'] / √(K[j, j] K[j', j'])",
    "content": "standard deviation of content logits over visible pairs, the first prompt",
}


def measure_at_birth(settings: Settings, *, unrotated: bool = False, seeds: int = SEEDS) -> xr.Dataset:
    """Measure untrained networks of one architecture and compute what is predicted for them.

    Parameters
    ----------
    settings
        Of a source that draws its weights.
    unrotated
        Whether queries and keys are left without their rotation.
    seeds
        Networks; the seed also draws random prompts.
    """
    if not isinstance(settings.source, Birth):
        raise checks.refuse("source", "a network at birth", settings.source.model)
    found = []
    for seed in range(seeds):
        study = Study(replace(settings, source=replace(settings.source, seed=seed), seed=seed, content=False))
        with replaced_rope(study.instrument, "identity") if unrotated else nullcontext():
            found.append(_one(study))
    out = xr.concat(found, "seed")
    for name, words in MEANING.items():
        out[name].attrs["long_name"] = words
    provenance = {**study.provenance(), "seed": f"0 to {seeds - 1}", "revision": study.settings.source.version()}
    return out.assign_attrs(provenance | versions("numpy")).assign_attrs(unrotated=int(unrotated))


def _one(study: Study) -> xr.Dataset:
    """Measure one network."""
    instrument = study.instrument
    readings = [instrument.measure(ids) for _, ids in study.batches()]
    influence = np.concatenate([reading.influence.numpy() for reading in readings])
    mixing = np.concatenate([reading.lambda_frobenius.numpy() for reading in readings]).mean(0)
    branches = read_branches(instrument, study.ids[:PROBED])
    positions = read_positions(instrument, study.settings.length)
    results = xr.Dataset(
        {
            "lambda_frobenius": ("layer", mixing),
            "slopes": (("layer", "head"), positions.slopes),
            "window": ("layer", positions.window),
        },
        attrs={"length": study.settings.length},
    )
    K = branches.step_gain
    gain = np.sqrt(np.diagonal(K, axis1=1, axis2=2))
    pairs = np.einsum("tij,ti,tj->t", K, 1 / gain, 1 / gain)
    n = K.shape[-1]
    return xr.Dataset({
        "influence_prompts": (("prompt", "position"), influence / influence.sum(1, keepdims=True)),
        "profile": (("prediction", "position"), _profiles(results, branches)),
        "lambda_frobenius": ("layer", mixing),
        "branch_gain": ("layer", np.linalg.norm(branches.branch_gain, axis=1)),
        "step_gain": ("layer", np.sqrt((gain**2).mean(1))),
        "overlap": ("layer", (pairs - n) / (n * n - n)),
        "content": ("layer", _content(instrument, study.ids[:1])),
    }).assign_coords(prediction=list(PROFILES))  # fmt: skip


def _profiles(results: xr.Dataset, branches: Branches) -> np.ndarray:
    """Return the predictions in the order of :data:`PROFILES`."""
    gain = np.sqrt(np.diagonal(branches.step_gain, axis1=1, axis2=2))
    steps = {
        "birth": branches.step_gain,
        "no gates": gain[:, :, None] * gain[:, None, :],
        "no steps": 0 * branches.step_gain,
    }
    found = {variant: measured_rollout(results, variant).profile() for variant in "ab"}
    for name, K in steps.items():
        law = measured_rollout(_with(results, replace(branches, step_gain=K)), "birth")
        found[name] = law.profile()
        if name == "birth":
            found["aligned"] = law.aligned()
    return np.stack([found[name] for name in PROFILES])


def _with(results: xr.Dataset, branches: Branches) -> xr.Dataset:
    """Return results with the branches' arrays beside them."""
    dims: dict[str, tuple[str, ...]] = {"branch_gain": ("layer", "head"), "step_gain": ("layer", "query", "key")}
    dims |= {"parallel": ("layer",)}
    arrays = branches.arrays()
    return results.assign({name: (dims.get(name, ("layer", "position")), x) for name, x in arrays.items()})


def _content(instrument: Instrument, ids: Any) -> np.ndarray:
    """Return the standard deviation of each layer's content logits over what queries may see."""
    found = np.zeros(instrument.T)

    def observe(reading: Any) -> None:
        found[reading.layer] = float(reading.content()[..., reading.allowed].std())

    instrument.forward(ids, observe)
    return found
