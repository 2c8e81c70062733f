"""The profiles of a retrieval's own prompts, by place: what rollouts predict, and what gradients measure."""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Float

from posbias.lookup.prompts import PlacedPrompts
from posbias.measure.rollouts import measured_profile, variants_of
from posbias.measure.settings import labels

MEASURED = "measured"
"""Name of the measured profile among the predicted ones."""
QUANTITIES = ("mixing", "influence", "kernels", "content")
"""What is measured of the prompts of a profile."""
OF_ATTENTION = ("kernels", "own")
"""Rollouts that take the measured attention, whatever the model does with positions."""


def place_profiles(
    measurement: xr.Dataset, prompts: PlacedPrompts, *, changed: bool = False
) -> dict[str, Float[np.ndarray, "P"]]:
    """Return measured influence and its predictions at each place, by name: shares of the whole prompt.

    Parameters
    ----------
    measurement
        Of some of the prompts, up to where the answer begins.
    prompts
        With the places.
    changed
        Whether the model's positions were changed while it was measured: rollouts by formula are left out then, for
        they take the positions of the configuration.
    """
    names = [name for name in variants_of(measurement) if not changed or name in OF_ATTENTION]
    whole = {MEASURED: measurement["influence"].values.astype(np.float64)}
    whole |= {name: measured_profile(measurement, name) for name in names}
    return {name: prompts.by_place(p / p.sum()) for name, p in whole.items()}


def profile_label(name: str) -> str:
    """Return what a profile is called.

    >>> profile_label("measured"), profile_label("b")
    ('measured influence', 'rollout (b) with residual')
    """
    return "measured influence" if name == MEASURED else f"rollout {labels()[name]}"
