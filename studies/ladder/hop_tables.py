"""Hops of the rollout beside hops of the gradient, and ways of combining paths by their hops, in tidy tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias import errors
from posbias.comparison.distances import normalised_wasserstein
from posbias.comparison.fits import fit_coherence
from posbias.measure.rollouts import measured_rollout
from posbias.report.scoring import Kept, unit
from posbias.rollout.paths import damped_profile, paths_by_hops, recombined
from posbias.rollout.profiles import mean_position

POWERS = (1.0, 1.25, 1.5, 1.75, 2.0)
"""Powers r with which sizes of paths of one hop count are added; those of the kept measurements."""

AGREE = 0.2
"""Total variation between the shares of hops up to which they count as roughly right; set after looking."""

SHAPED = 4
"""Hops up to which the shape of a part is compared: there is little beyond."""


def hop_table(hops: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return a row for each model and number of hops.

    ``measured`` and ``rollout`` are the shares that ``hop`` has in the sizes of the gradient's parts and in rollout
    (b); ``W1`` is the distance between both parts as distributions, and ``early`` whether the rollout's has the lower
    mean position, for 1 to :data:`SHAPED` hops.

    Parameters
    ----------
    hops
        Model → results of :func:`~studies.ladder.gradients.measure_hops`.
    """
    rows = []
    for name, x in hops.items():
        g, P = x["gradient_hops"].values.astype(np.float64), x["rollout_hops"].sel(variant="b").values
        measured, rollout = x["gradient_hops"].values.sum(1) / x["gradient_hops"].values.sum(), P.sum(1)
        for k in range(len(g)):
            shapes = (unit(P[k]), unit(g[k])) if 1 <= k <= SHAPED else None
            W1 = normalised_wasserstein(*shapes) if shapes else np.nan
            early = mean_position(shapes[0]) < mean_position(shapes[1]) if shapes else None
            rows.append((name, k, float(measured[k]), float(rollout[k]), W1, early))
    return pd.DataFrame(rows, columns=["model", "hop", "measured", "rollout", "W1", "early"])


def hop_summary(hops: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return for each model how well the shares of hops agree, and how much cancels between hops.

    ``apart`` is the total variation between both distributions of hops, ``agrees`` whether it is below
    :data:`AGREE`; ``cancels`` the share of the parts' sizes that is lost when they are added as vectors, and
    ``uncancelled`` W₁ between the measured profile and the one whose parts' sizes are added.

    Parameters
    ----------
    hops
        As for :func:`hop_table`.
    """
    table = hop_table(hops)
    rows = []
    for name, x in hops.items():
        own = table[table["model"] == name]
        apart = float((own["measured"] - own["rollout"]).abs().sum() / 2)
        g, influence = x["gradient_hops"].values, x["influence"].values
        cancels = 1 - float(x["influence"].sum()) / float(g.sum())
        rows.append((name, apart, apart < AGREE, cancels, normalised_wasserstein(unit(g.sum(0)), unit(influence))))
    return pd.DataFrame(rows, columns=["model", "apart", "agrees", "cancels", "uncancelled"])


Shapes = dict[tuple[str, str], Float[np.ndarray, "powers hops n"]]
"""Model and kernel → (Σ w^r)^{1/r} over the paths of k hops, for every power r."""


def path_shapes(hops: Mapping[str, xr.Dataset], kept: Kept) -> Shapes:
    """Return each hop's part of the rollouts (b), (c) and of measured kernels, with sizes added in every power.

    Parameters
    ----------
    hops
        As for :func:`hop_table`; the measured kernels' parts are theirs.
    kept
        Summaries that hold MODEL.builtin.
    """
    shapes: Shapes = {}
    for name, measured in hops.items():
        x = kept[f"{name}.builtin"]
        for kernel in "bc":
            rollout = measured_rollout(x, kernel)
            A = rollout.dense()
            shapes[name, kernel] = np.array([paths_by_hops(A, rollout.lambda_, power) for power in POWERS])
        shapes[name, "kernels"] = measured["kernel_paths"].values
    return shapes


def power_table(shapes: Shapes, kept: Kept) -> pd.DataFrame:
    """Return W₁ for every power: ``model``, ``kernel``, ``power`` and ``W1``; each hop keeps the rollout's weight.

    Parameters
    ----------
    shapes
        From :func:`path_shapes`.
    kept
        Summaries that hold MODEL.builtin.
    """
    rows = []
    for (name, kernel), parts in shapes.items():
        p = kept[f"{name}.builtin"]["influence"].values
        for power, part in zip(POWERS, parts, strict=True):
            rows.append((name, kernel, power, normalised_wasserstein(recombined(parts[0].sum(1), part), p)))
    return pd.DataFrame(rows, columns=["model", "kernel", "power", "W1"])


def held_out_fits(shapes: Shapes, kept: Kept, kernel: str) -> pd.DataFrame:
    """Return what one number fitted on all models but one gives on that one, beside the unfitted powers 1 and 2.

    Columns are ``model`` (left out), ``sizes`` and ``vectors`` (W₁ for the powers 1 and 2), ``power`` chosen on the
    others with its ``chosen`` W₁, and the damping ``rho`` fitted on the others with its ``damped`` W₁.

    Parameters
    ----------
    shapes, kept
        As for :func:`power_table`; at least two models.
    kernel
        ``b``, ``c`` or ``kernels``.

    Raises
    ------
    ValueError
        If there are no two models with that kernel.
    """
    mine = {name: parts for (name, own), parts in shapes.items() if own == kernel}
    if len(mine) < 2:
        raise errors.invalid("shapes", f"at least two models with the kernel {kernel}", len(mine))
    truth = {name: kept[f"{name}.builtin"]["influence"].values for name in mine}
    W1 = power_table({(name, kernel): parts for name, parts in mine.items()}, kept)
    W1 = W1.pivot(index="model", columns="power", values="W1")
    rows = []
    for name, parts in mine.items():
        others = [other for other in mine if other != name]
        power = float(W1.loc[others].mean().idxmin())
        rho = fit_coherence([mine[other][0] for other in others], [truth[other] for other in others])
        damped = normalised_wasserstein(damped_profile(parts[0], rho), truth[name])
        own = W1.loc[name]
        rows.append((name, own[1.0], own[2.0], power, own[power], rho, damped))
    return pd.DataFrame(rows, columns=["model", "sizes", "vectors", "power", "chosen", "rho", "damped"])
