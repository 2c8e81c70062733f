"""Designs for the law at birth and untrained networks that are built from them: what was promised, what is measured.

Gains are read of a body without position biases, in the mean over seeds. One design knows the gains of the attentions
alone, one the gates too, and a last one is made with what is read of the networks of the one before: a design changes
what its networks do. Each network is measured as it is, and with queries of zero, so that nothing but positions tells
what attention listens to.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein
from posbias.design.designer import Description, design, wanted
from posbias.design.measured_gains import knotted
from posbias.measure.branches import Branches, read_branches
from posbias.measure.instrument import Instrument
from posbias.measure.study import Settings, Study
from posbias.measure.summary import shaved
from posbias.measure.untrained_profiles import PROBED, SEEDS
from posbias.provenance import versions
from posbias.rollout.biased import biased_kernels
from posbias.rollout.gains import Gains, gains
from posbias.rollout.untrained import birth_profile
from studies.design.untrained_designs import networks_at_birth, provenance_of_seeds

DESIGNS = ("gains", "gates", "again")
"""Designs by what they know: gains of attentions, gates too, and both as they are in the networks of the second."""
CONTENTS = ("as drawn", "none")
"""Networks as they are, and with queries of zero."""
LOCAL = 4
"""One head in so many stays local."""
MEANING = {
    "promise": "profile of the design under the law at birth with the gains that it was made with",
    "influence_prompts": "‖∂p/∂embedding‖ for each seed and prompt, its squares summing to 1; rounded to 10 bits",
    "own": "the law at birth with all that is read of the network itself, for each seed",
}


def measure_gated(settings: Settings, init: str, *, seeds: int = SEEDS) -> xr.Dataset:
    """Design for an even profile of a body at birth, build networks of the designs, and measure them.

    Parameters
    ----------
    settings
        Of a source that draws its weights.
    init
        ``default`` or ``unit``, as :func:`~studies.design.untrained_designs.measure_designs` has them.
    seeds
        Networks for each design; the seed also draws the prompts.

    Returns
    -------
    data : Dataset
        With the names of :data:`MEANING`, by design, content and seed.

    Raises
    ------
    ValueError
        For a source with weights, and for an unknown ``init``.
    """
    networks = networks_at_birth(settings, init, seeds)
    n, H = settings.length, int(networks[0].source.config().num_attention_heads)
    plain = _mean([_read(_study(x, {"kind": "none"})) for x in networks])
    alone = gains([1], np.sqrt((plain.attention**2).mean(1, keepdims=True)))
    found, descriptions, known = [], {}, {"gains": alone, "gates": plain}
    for name in DESIGNS:
        task = wanted(np.full(n, 1 / n), None, H, H // LOCAL, law="birth", gains=known[name])
        made = design(task)
        descriptions[name] = made.description
        measured = [[_measured(x, made.description, content) for x in networks] for content in CONTENTS]
        if name == "gates":
            known["again"] = _mean([branches for _, branches in measured[0]])
        found.append(_dataset(made.profile, measured, made.description))
    out = xr.concat(found, "design").astype(np.float32)
    out = out.assign_coords(design=list(DESIGNS), content=list(CONTENTS))
    for variable, x in out.data_vars.items():
        x.attrs["long_name"] = MEANING[str(variable)]
    return out.assign_attrs(provenance_of_seeds(networks, seeds) | versions("numpy")).assign_attrs(
        init=init, position_biases=json.dumps(descriptions)
    )


def gated_table(data: xr.Dataset) -> pd.DataFrame:
    """Return how near the influence of each network is to what was promised, and why it is not nearer.

    Parameters
    ----------
    data
        From :func:`measure_gated`.

    Returns
    -------
    table : DataFrame
        A row for each design, content and seed. ``to promise``, ``to own``: W₁ of the root mean square influence to
        the promised profile and to the law with all that is read of the network itself; ``promise to own``: of these
        two; ``promised``, ``measured``: of each to the uniform profile; ``sampling``: standard error of ``to promise``
        over prompts.
    """
    rows = []
    even = np.full(data.sizes["position"], 1 / data.sizes["position"])
    for name, content in ((x, y) for x in data["design"].values for y in data["content"].values):
        one = data.sel(design=name, content=content)
        promise = _unit(one["promise"].values)
        for seed in range(data.sizes["seed"]):
            squares = one["influence_prompts"].values[seed].astype(np.float64) ** 2
            p, own = _unit(np.sqrt(squares.mean(0))), _unit(one["own"].values[seed])
            row = {"design": str(name), "content": str(content), "seed": seed}
            pairs = {"to promise": (p, promise), "to own": (p, own), "promise to own": (promise, own)}
            pairs |= {"promised": (promise, even), "measured": (p, even)}
            row |= {key: normalised_wasserstein(*pair) for key, pair in pairs.items()}
            rows.append(row | {"sampling": _jackknife(squares, promise)})
    return pd.DataFrame(rows)


def quieten(instrument: Instrument) -> None:
    """Set the queries of all layers to zero: attention listens by positions alone."""
    for attention in instrument.attentions:
        for k, projection in enumerate(instrument.family.projections_of(attention)):
            weight: Any = projection.weight
            axis = 1 if type(projection).__name__ == "Conv1D" else 0
            queries = torch.from_numpy(instrument.family.columns(attention, k, weight.shape[axis]) == "q")
            with torch.no_grad():
                weight.mul_((~queries).to(weight) if axis else (~queries).to(weight)[:, None])
                if getattr(projection, "bias", None) is not None:
                    projection.bias.mul_((~queries).to(weight))  # type: ignore[union-attr, operator]


def _study(settings: Settings, description: Description | dict[str, Any]) -> Study:
    source = replace(settings.source, position_bias=description)  # type: ignore[call-arg]
    return Study(replace(settings, source=source))


def _read(study: Study) -> Branches:
    return read_branches(study.instrument, study.ids[:PROBED])


def _mean(networks: list[Branches]) -> Gains:
    """Return gains of several networks of one body: root mean squares, and mean Gram factors."""

    def rms(name: str) -> np.ndarray:
        return np.sqrt(np.mean([getattr(one, name) ** 2 for one in networks], axis=0))

    steps = np.mean([one.step_gain for one in networks], axis=0)
    return knotted(rms("branch_gain"), rms("branch_scale"), rms("output_scale"), steps, networks[0].parallel)


def _measured(settings: Settings, description: Description, content: str) -> tuple[np.ndarray, Branches]:
    """Return the influence on each prompt of a network of a design, its squares summing to 1, and its branches."""
    study = _study(settings, description)
    if content == "none":
        quieten(study.instrument)
    influence = np.concatenate([study.instrument.measure(ids).influence.numpy() for _, ids in study.batches()])
    sizes = np.linalg.norm(influence.astype(np.float64), axis=1, keepdims=True)
    return shaved((influence / sizes).astype(np.float32)), _read(study)


def _dataset(
    promise: np.ndarray, measured: list[list[tuple[np.ndarray, Branches]]], description: Description
) -> xr.Dataset:
    T, H = measured[0][0][1].branch_gain.shape
    kernels = biased_kernels(T, description, H=H)

    def own(branches: Branches) -> np.ndarray:
        return birth_profile(
            kernels,
            branches.branch_gain,
            promise.size,
            scales=branches.branch_scale,
            outputs=branches.output_scale,
            steps=branches.step_gain,
            parallel=branches.parallel,
        )

    dims = ("content", "seed", "prompt", "position")
    laws = np.array([[own(branches) for _, branches in row] for row in measured])
    return xr.Dataset({
        "promise": ("position", promise),
        "influence_prompts": (dims, np.array([[influence for influence, _ in row] for row in measured])),
        "own": (("content", "seed", "position"), laws),
    })  # fmt: skip


def _unit(p: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    x = np.asarray(p, dtype=np.float64)
    return np.asarray(x / x.sum())


def _jackknife(squares: Float[np.ndarray, "prompts n"], promise: Float[np.ndarray, "n"]) -> float:
    """Return the standard error over prompts of the distance to a profile: from leaving out one after another."""
    N = len(squares)
    if N < 2:
        return float("nan")
    left = (squares.sum(0) - squares) / (N - 1)
    distances = [normalised_wasserstein(_unit(np.sqrt(x)), promise) for x in left]
    return float(np.sqrt((N - 1) * np.var(distances)))
