"""How the gradients of single paths add up, in one tidy table: coherence, and what it says of a damping."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr

from posbias.comparison.distances import normalised_wasserstein
from posbias.report.scoring import Kept
from posbias.rollout.paths import damped_profile
from studies.ladder.hop_tables import Shapes


def coherence(x: xr.Dataset) -> dict[str, float]:
    """Return the coherence of paths of one hop and of two.

    ``C1`` and ``C2`` are the shares of their size that vectors keep when they are added, over all paths of a hop
    count; ``unrelated`` is what C2 would be for unrelated directions. ``over_i`` is the share kept over positions in
    between with both layers fixed, ``over_i_unrelated`` that for unrelated directions. ``ratio`` is C2/C1 and
    ``power`` the r at which (Σ size^r)^{1/r} of two hops gives what the vectors do.

    Parameters
    ----------
    x
        Results of :func:`~studies.ladder.path_gradients.measure_pathways`.
    """
    sizes, sums = x["sizes"].sum("position"), x["total"].sum("position")
    added = sizes.sel(power=1.0)
    C1, C2 = (float(sums.sel(hop=k) / added.sel(hop=k)) for k in (1, 2))
    two = float(added.sel(hop=2))
    of_two = sizes.sel(hop=2).values[::-1]  # falls with the power
    return {
        "C1": C1,
        "C2": C2,
        "unrelated": float(sizes.sel(hop=2, power=2.0)) / two,
        "over_i": float(x["middle"].sum()) / two,
        "over_i_unrelated": float(x["middle_random"].sum()) / two,
        "ratio": C2 / C1,
        "power": float(np.interp(float(sums.sel(hop=2)), of_two, x["power"].values[::-1])),
    }


def coherence_table(paths: Mapping[int, Mapping[str, xr.Dataset]]) -> pd.DataFrame:
    """Return a row of :func:`coherence` for each model and length: ``model``, ``tokens``, and its values.

    Parameters
    ----------
    paths
        Tokens of a prompt → model → results.
    """
    rows = [
        {"model": name, "tokens": tokens, **coherence(x)}
        for tokens, found in paths.items()
        for name, x in found.items()
    ]
    return pd.DataFrame(rows)


def measured_damping(coherences: pd.DataFrame, shapes: Shapes, kept: Kept) -> pd.DataFrame:
    """Return W₁ of rollouts of measured kernels damped by measured coherence: ``model``, ``by_ratio``, ``by_C2``.

    Parameters
    ----------
    coherences
        From :func:`coherence_table`, of one length.
    shapes
        From :func:`~studies.ladder.hop_tables.path_shapes`.
    kept
        Summaries that hold MODEL.builtin.
    """
    rows = []
    for found in coherences.to_dict("records"):
        name = found["model"]
        parts, p = shapes[name, "kernels"][0], kept[f"{name}.builtin"]["influence"].values
        rows.append((name, *(normalised_wasserstein(damped_profile(parts, found[by]), p) for by in ("ratio", "C2"))))
    return pd.DataFrame(rows, columns=["model", "by_ratio", "by_C2"])
