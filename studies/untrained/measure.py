"""Untrained networks of real architectures: the gradient's profile beside the law at birth, sizes and rollouts.

A file holds one architecture on one kind of prompt, for several seeds of the weights.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import xarray as xr

from posbias import errors
from posbias.measure.interventions import replaced_rope
from posbias.measure.study import Settings, Study
from posbias.measure.untrained import Birth
from posbias.measure.untrained_profiles import SEEDS, of_seeds, read_network
from posbias.networks.families import family_of


def measure_at_birth(
    settings: Settings, *, unrotated: bool = False, random_output: bool = False, seeds: int = SEEDS
) -> xr.Dataset:
    """Measure untrained networks of one architecture and compute what is predicted for them.

    Parameters
    ----------
    settings
        Of a source that draws its weights.
    unrotated
        Whether queries and keys are left without their rotation.
    random_output
        Whether the gradient of a random combination of logits is measured too: the most likely token depends on the
        weights where embeddings are tied.
    seeds
        Networks; the seed also draws random prompts.

    Raises
    ------
    ValueError
        For a source with weights, and for one without rotations that is to be left without them.
    """
    if not isinstance(settings.source, Birth):
        raise errors.invalid("source", "a network at birth", settings.source.model)
    config = settings.source.config()
    position = family_of(config).position_of(config)
    if unrotated and position != "rotary":
        raise errors.invalid("model", "one with rotary positions, to leave them out", f"{position} positions")
    found = []
    for seed in range(seeds):
        study = Study(replace(settings, source=replace(settings.source, seed=seed), seed=seed))
        with replaced_rope(study.instrument, "identity") if unrotated else nullcontext():
            found.append(read_network(study, random_output=random_output))
    return of_seeds(xr.concat(found, "seed"), study, seeds).assign_attrs(unrotated=int(unrotated))
