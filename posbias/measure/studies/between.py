"""From birth to trained: measured influence, the law at birth and the aligned sum with a model's present weights.

Both limits, and what lies between them by :func:`~posbias.theory.coherent.coherent_profile`, take content-free kernels
or the measured mean ones; gains, denominators and steps are the model's own. Coherence is measured on the same prompts.
Nothing is fitted here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float

from posbias.measure.rollouts import MeasuredRollout, measured_rollout
from posbias.measure.run import measured
from posbias.measure.studies.coherence import JOINS, CoherenceReading, read_coherence
from posbias.measure.study import Settings, Study
from posbias.measure.summary import shaved
from posbias.theory.coherent import coherent_profile

KERNELS = ("content-free", "measured")
"""Kernels of the law and of the aligned sum: mask and positions alone, or the mean attention that was measured."""
COHERENCES = (-0.3, -0.2, -0.1, -0.05, 0.0, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.55, 0.7, 0.85, 1.0)
"""Values of ρ at which profiles are kept; 0 is the law at birth, 1 the aligned sum."""
KEPT = ("influence", "influence_prompts", "lambda_frobenius", "branch_gain", "window")
"""What of the measurement is kept beside what is made of it."""


def measure_between(settings: Settings) -> xr.Dataset:
    """Measure a model, and roll it out between the law at birth and the aligned sum.

    Parameters
    ----------
    settings
        As for :func:`~posbias.measure.run.measure`.

    Returns
    -------
    profile : kernel, coherence, position
        Of :func:`~posbias.theory.coherent.coherent_profile` at :data:`COHERENCES`.
    predicted : kernel, position
        The same with the coherence that was measured at each layer's two sums.
    rollout : variant, position
        Rollouts (b) and of measured kernels.
    cross, possible : join, layer, prompt
        Cross terms (:func:`~posbias.measure.studies.coherence.cross_terms`) of what meets in each layer.
    path_cross, path_possible : prompt
        Those of paths through one attention.
    pair_coherence : layer, other_layer
        Coherence of the paths through two layers' attention; 1 on the diagonal.

    Raises
    ------
    ValueError, OSError
        As :func:`~posbias.measure.run.measure` does, and for a model whose layers are no sums.
    """
    study = Study(settings)
    results = measured(study)
    reading = _joined([read_coherence(study.instrument, ids) for _, ids in study.batches()])
    rollouts = {kernel: branches_of(results, kernel) for kernel in KERNELS}
    own = joined_coherence(reading.layers[:, :2].numpy())
    fields: dict[str, tuple[tuple[str, ...], np.ndarray, str]] = {
        "profile": (
            ("kernel", "coherence", "position"),
            np.stack([[between(x, rho) for rho in COHERENCES] for x in rollouts.values()]),
            "profile if what meets at a sum has this cosine",
        ),
        "predicted": (
            ("kernel", "position"),
            np.stack([between(x, own) for x in rollouts.values()]),
            "profile with the measured coherence of each layer's sums",
        ),
        "rollout": (
            ("variant", "position"),
            np.stack([measured_rollout(results, variant).profile() for variant in ("b", "kernels")]),
            "influence profile by rollout",
        ),
        "cross": (("join", "layer", "prompt"), reading.layers[0].numpy(), "sum of u·w over that of sizes squared"),
        "possible": (("join", "layer", "prompt"), reading.layers[1].numpy(), "the same if all were aligned"),
        "path_cross": (("prompt",), reading.paths[0].numpy(), "the same over paths through one attention"),
        "path_possible": (("prompt",), reading.paths[1].numpy(), "the same if all were aligned"),
        "pair_coherence": (
            ("layer", "other_layer"),
            _pairs(reading.pairs.sum(-1).numpy()),
            "coherence of paths through either layer's attention",
        ),
    }
    made = {name: (dims, shaved(x.astype(np.float32)), {"long_name": text}) for name, (dims, x, text) in fields.items()}
    coords = {"kernel": list(KERNELS), "coherence": list(COHERENCES), "join": list(JOINS), "variant": ["b", "kernels"]}
    found = xr.Dataset(made, coords=coords, attrs=results.attrs)
    return found.assign({name: _few_bits(results[name]) for name in KEPT})


def branches_of(results: xr.Dataset, kernel: str) -> MeasuredRollout:
    """Return the law at birth of a measurement with one of :data:`KERNELS`."""
    law = measured_rollout(results, "birth")
    if kernel == "content-free" or law.branches is None:
        return law
    gains = law.branches["gains"]  # one kernel for all heads of a layer
    branches = law.branches | {"gains": np.linalg.norm(gains, axis=1) if gains.ndim == 2 else gains}
    return MeasuredRollout(measured_rollout(results, "kernels").kernels, law.lambda_, law.n, branches)


def between(law: MeasuredRollout, coherence: float | Float[np.ndarray, "T 2"]) -> Float[np.ndarray, "n"]:
    """Return the profile that the numbers of a law at birth give at a coherence."""
    branches: dict[str, Any] = dict(law.branches or {})
    return coherent_profile(law.kernels, branches.pop("gains"), coherence, law.n, **branches)


def joined_coherence(terms: Float[np.ndarray, "2 2 T B"]) -> Float[np.ndarray, "T 2"]:
    """Return each layer's coherence at attention and step over all prompts; 0 where there is nothing to meet."""
    cross, possible = terms.sum(-1)
    return np.clip(np.divide(cross, possible, out=np.zeros_like(cross), where=possible > 0), -1, 1).T


def _joined(readings: list[CoherenceReading]) -> CoherenceReading:
    names = CoherenceReading.__dataclass_fields__
    return CoherenceReading(**{name: torch.cat([getattr(x, name) for x in readings], -1) for name in names})


def _pairs(terms: np.ndarray) -> np.ndarray:
    cross, possible = terms
    found = np.eye(len(cross))
    return np.divide(cross, possible, out=found, where=possible > 0)


def _few_bits(x: xr.DataArray) -> xr.DataArray:
    return x if x.dtype.kind != "f" else x.copy(data=shaved(x.values.astype(np.float32)))
