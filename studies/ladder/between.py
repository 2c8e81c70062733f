"""From birth to trained: measured influence, the law at birth and the aligned sum with a model's present weights.

Both limits, and what lies between them by :func:`~studies.ladder.alignment.coherent_profile`, take content-free kernels
or the measured mean ones of every head; gains, denominators and steps are the model's own. Coherence is measured on
the first of the same prompts. Nothing is fitted here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float

from posbias.measure.quantities import DEFAULT
from posbias.measure.rollouts import MeasuredRollout, measured_rollout
from posbias.measure.run import measured
from posbias.measure.study import Settings, Study
from posbias.measure.summary import shaved
from studies.ladder.alignment import branch_shares, coherent_profile
from studies.ladder.coherence import JOINS, CoherenceReading, read_coherence

KERNELS = ("content-free", "measured")
"""Kernels of the law and of the aligned sum: mask and positions alone, or each head's mean attention as measured."""
COHERENCES = (-0.2, -0.1, 0.0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0)
"""Values of ρ at which profiles are kept; 0 is the law at birth, 1 the aligned sum."""
READINGS = ("cosines", "shares", "both")
"""What of the gradient is put into the law at birth: coherence of each sum, what comes through each branch, both."""
COHERENCE_PROMPTS = 8
"""Prompts on which coherence is read."""
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
        Of :func:`~studies.ladder.alignment.coherent_profile` at :data:`COHERENCES`.
    predicted : kernel, reading, position
        The law at birth with what was read of the gradient in each layer (:data:`READINGS`).
    share, expected_share : sum, layer
        What comes through each branch, in squares, and what the law at birth says of it with measured kernels.
    rollout : variant, position
        Rollouts (b) and of measured kernels.
    cross, possible : join, layer, few
        Cross terms (:func:`~studies.ladder.coherence.cross_terms`) of what meets in each layer.
    path_cross, path_possible : few
        Those of paths through one attention.
    pair_coherence : layer, other_layer
        Coherence of the paths through two layers' attention; 1 on the diagonal.

    Raises
    ------
    ValueError, OSError
        As :func:`~posbias.measure.run.measure` does, and for a model whose layers are no sums.
    """
    study = Study(replace(settings, quantities=(*DEFAULT, "heads"), kernel_size=settings.length))
    results = measured(study)
    few = study.with_prompts(prompts=min(COHERENCE_PROMPTS, settings.prompts))
    reading = _joined([read_coherence(study.instrument, ids) for _, ids in few.batches()])
    laws = {kernel: branches_of(results, kernel) for kernel in KERNELS}
    own, shares = joined_coherence(reading.layers[:, :2].numpy()), through_shares(reading.sizes.mean(-1).numpy())
    ways = [(own, None), (np.zeros_like(own), shares), (own, shares)]
    fields: dict[str, tuple[tuple[str, ...], np.ndarray, str]] = {
        "profile": (
            ("kernel", "coherence", "position"),
            np.stack([[between(x, rho) for rho in COHERENCES] for x in laws.values()]),
            "profile if what meets at a sum has this cosine",
        ),
        "predicted": (
            ("kernel", "reading", "position"),
            np.stack([[between(x, *way) for way in ways] for x in laws.values()]),
            "profile with what was read of the gradient",
        ),
        "share": (("sum", "layer"), shares.T, "what comes through a branch, in squares of mean sizes"),
        "expected_share": (("sum", "layer"), expected_shares(laws["measured"]).T, "the same by the law at birth"),
        "rollout": (
            ("variant", "position"),
            np.stack([measured_rollout(results, variant).profile() for variant in ("b", "kernels")]),
            "influence profile by rollout",
        ),
        "cross": (("join", "layer", "few"), reading.layers[0].numpy(), "sum of u·w over that of sizes squared"),
        "possible": (("join", "layer", "few"), reading.layers[1].numpy(), "the same if all were aligned"),
        "path_cross": (("few",), reading.paths[0].numpy(), "the same over paths through one attention"),
        "path_possible": (("few",), reading.paths[1].numpy(), "the same if all were aligned"),
        "pair_coherence": (
            ("layer", "other_layer"),
            _pairs(reading.pairs.sum(-1).numpy()),
            "coherence of paths through either layer's attention",
        ),
    }
    made = {name: (dims, shaved(x.astype(np.float32)), {"long_name": text}) for name, (dims, x, text) in fields.items()}
    coords = {"kernel": list(KERNELS), "coherence": list(COHERENCES), "reading": list(READINGS), "join": list(JOINS)}
    coords |= {"variant": ["b", "kernels"], "sum": list(JOINS[:2])}
    found = xr.Dataset(made, coords=coords, attrs=results.attrs)
    return found.assign({name: _few_bits(results[name]) for name in KEPT})


def branches_of(results: xr.Dataset, kernel: str) -> MeasuredRollout:
    """Return the law at birth of a measurement, one with ``attention_heads``, with one of :data:`KERNELS`."""
    law = measured_rollout(results, "birth")
    if kernel == "content-free":
        return law
    A = results["attention_heads"].values.astype(np.float64)
    gains = results["branch_gain"].values.astype(np.float64)
    return replace(law, kernels=A / A.sum(-1, keepdims=True), branches={**(law.branches or {}), "gains": gains})


def between(
    law: MeasuredRollout, coherence: float | Float[np.ndarray, "T 2"], shares: Float[np.ndarray, "T 2"] | None = None
) -> Float[np.ndarray, "n"]:
    """Return the profile that the numbers of a law at birth give at a coherence, and with shares of the branches."""
    branches: dict[str, Any] = dict(law.branches or {})
    return coherent_profile(law.kernels, branches.pop("gains"), coherence, law.n, shares=shares, **branches)


def expected_shares(law: MeasuredRollout) -> Float[np.ndarray, "T 2"]:
    """Return what the numbers of a law at birth say of what comes through each branch."""
    branches: dict[str, Any] = dict(law.branches or {})
    return branch_shares(law.kernels, branches.pop("gains"), law.n, **branches)


def joined_coherence(terms: Float[np.ndarray, "2 2 T B"]) -> Float[np.ndarray, "T 2"]:
    """Return each layer's coherence at attention and step over all prompts; 0 where there is nothing to meet."""
    cross, possible = terms.sum(-1)
    return np.clip(np.divide(cross, possible, out=np.zeros_like(cross), where=possible > 0), -1, 1).T


def through_shares(sizes: Float[np.ndarray, "sums 2 T n"]) -> Float[np.ndarray, "T 2"]:
    """Return Σ_j b_j² / Σ_j (a_j² + b_j²), a and b mean sizes of what comes around a branch and through it.

    The mean over prompts is taken of sizes, as influence does, before they are squared.

    >>> through_shares(np.array([[[[3.0, 0.0]], [[0.0, 1.0]]]] * 2)).tolist()
    [[0.1, 0.1]]
    """
    around, through = np.square(sizes).sum(-1).transpose(1, 2, 0)
    return np.asarray(through / (around + through))


def _joined(readings: list[CoherenceReading]) -> CoherenceReading:
    names = CoherenceReading.__dataclass_fields__
    return CoherenceReading(**{name: torch.cat([getattr(x, name) for x in readings], -1) for name in names})


def _pairs(terms: np.ndarray) -> np.ndarray:
    cross, possible = terms
    found = np.eye(len(cross))
    return np.divide(cross, possible, out=found, where=possible > 0)


def _few_bits(x: xr.DataArray) -> xr.DataArray:
    return x if x.dtype.kind != "f" else x.copy(data=shaved(x.values.astype(np.float32)))
