"""What a rung needs: fixed attention and value maps of a model, and the same with one thing exchanged on purpose."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from posbias.comparison.distances import normalised_wasserstein, spearman, total_variation, unit
from posbias.comparison.multiplicity import decide
from posbias.measure.instrument import Instrument
from posbias.measure.ladder import Rungs, ring
from posbias.measure.session import Session
from posbias.report.scoring import gain_rows
from posbias.settings import Settings
from studies.interventions import exchanged_rungs, permuted_rungs, shifted
from studies.making import shave

CONTROLS = {
    "right": "nothing is exchanged",
    "late": "attention of the query before",
    "layer": "attention of the next layer",
    "maps": "value maps of the next layer",
    "gates": "gates of other hidden units",
    "prompt": "attention of another prompt",
}
"""What is exchanged on the way back, everything else as it is; the last is a control of fixed attention alone."""
RUNGS = {"fixed-attention": "fixed attention", "value-maps": "value maps"}
"""Rungs on which attention is given: each prompt's own, or the mean over prompts."""


def measure_controls(settings: Settings) -> xr.Dataset:
    """Measure influence by two rungs with every control: ``rung_prompts`` (rung, control, prompt, position).

    Prompts of a batch are paired in one ring, as on the ladder, so that a gradient goes through each layer of another
    prompt; ``influence_prompts`` (prompt, position) is exact. What is no control of a rung is nan.
    """
    session = Session(settings)
    session.check()
    instrument, (N, n) = session.instrument, session.ids.shape
    exact, found = np.zeros((N, n)), np.full((len(RUNGS), len(CONTROLS), N, n), np.nan)
    for rows, ids in session.batches():
        rings = ring(len(ids), (settings.seed, rows.start, 0))[None]
        for r, attention in enumerate(_attention(instrument, ids)):
            for control, rungs in _controls(instrument, rings, attention, settings.seed):
                reading = instrument.measure(ids, rungs=rungs)
                assert reading.ladder is not None
                exact[rows] = reading.influence.numpy()
                found[r, [*CONTROLS].index(control), rows] = reading.ladder[:, 0, 0].numpy()
    return xr.Dataset(
        {
            "influence_prompts": (("prompt", "position"), shave(exact.astype(np.float32))),
            "rung_prompts": (("rung", "control", "prompt", "position"), shave(found.astype(np.float32))),
        },
        coords={"rung": [*RUNGS], "control": [*CONTROLS]},
        attrs=session.provenance(),
    )


def _attention(instrument: Instrument, ids: Int[Tensor, "B n"]) -> Iterator[Float[Tensor, "T ... H n n"]]:
    """Yield attention weights of each layer: those of each prompt, and their means."""
    kept: dict[int, Tensor] = {}

    def see(reading: object) -> None:
        kept[reading.layer] = reading.probabilities.float()  # type: ignore[attr-defined]

    instrument.forward(ids, see)
    own = torch.stack([kept[t] for t in range(instrument.T)])
    yield own
    yield own.mean(1)


def _controls(
    instrument: Instrument, rings: Int[np.ndarray, "1 B"], attention: Float[Tensor, "T ... H n n"], seed: int
) -> Iterator[tuple[str, Rungs]]:
    """Yield a rung of given attention with every control that it has."""
    turned = np.roll(np.arange(instrument.T), -1)
    yield "right", Rungs(rings, attention, ("positions",))
    yield "late", Rungs(rings, shifted(attention), ("positions",))
    yield "layer", Rungs(rings, attention[torch.from_numpy(turned)], ("positions",))
    yield "maps", exchanged_rungs(instrument, rings, attention, turned)
    yield "gates", permuted_rungs(instrument, rings, attention, seed)
    if attention.ndim == 5:
        yield "prompt", Rungs(rings, attention.roll(1, 1), ("positions",))


def control_table(entry: xr.Dataset, rung: str, resamples: int = 1000) -> pd.DataFrame:
    """Return how far a rung is from influence with each of its controls: index ``control``, three numbers each.

    ``decided`` is 1 where a control is nearer than what is right, -1 where it is further away, 0 where it is open: 95 %
    intervals over paired resamples of the prompts, by Holm's rule.
    """
    rows = entry["rung_prompts"].sel(rung=rung).transpose("control", ...).values.astype(np.float64)
    profiles = {c: unit(x.sum(0)) for c, x in zip(CONTROLS, rows, strict=True) if np.isfinite(x).all()}
    influence = entry["influence_prompts"].values
    exact = unit(influence.sum(0, dtype=np.float64))
    found = pd.DataFrame(
        {
            "W1": {c: normalised_wasserstein(p, exact) for c, p in profiles.items()},
            "total_variation": {c: total_variation(p, exact) for c, p in profiles.items()},
            "spearman": {c: spearman(p, exact) for c, p in profiles.items()},
        }
    ).rename_axis("control")
    pairs = [("right", control) for control in profiles if control != "right"]
    gains = gain_rows(influence, profiles, pairs, resamples=resamples).set_index("after")
    signs = decide(gains["gain"].to_numpy(), gains["p_value"].to_numpy())
    return found.assign(decided=pd.Series(signs, gains.index))
