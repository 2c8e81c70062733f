"""How often a claim on trained networks still holds when the results are broken: the power of its check."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import xarray as xr

from posbias import errors
from studies.icl.claims import outcomes
from studies.icl.settings import Setting

Runs = Mapping[Setting, xr.Dataset]
Break = Callable[[Runs, np.random.Generator], Runs]
"""Makes broken results of kept ones, such as :func:`studies.icl.nulls.swapped_ends`."""


def claims_on_broken(
    check: Callable[[Runs], pd.DataFrame], runs: Runs, breaks: Mapping[str, Break], *, times: int = 20, seed: int = 0
) -> dict[str, pd.DataFrame]:
    """Return for each way to break the results what becomes of the claims: a row for each run, a column for each claim.

    As :func:`studies.icl.claims.outcomes`: 1 if it holds, -1 if it is contradicted, 0 if it is open.

    Parameters
    ----------
    check
        Results → table of claims, such as :func:`studies.icl.claims.depth_claims`.
    runs
        Settings → results.
    breaks
        What is broken → function of results and a generator.
    times, seed
        Runs of each, and of what they are drawn.
    """
    errors.positive_integer("times", times)
    found = {}
    for what, broken in breaks.items():
        rng = np.random.default_rng(seed)
        found[what] = pd.DataFrame([outcomes(check(broken(runs, rng))) for _ in range(times)]).reset_index(drop=True)
    return found


def with_power(table: pd.DataFrame, broken: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return a table of claims with a column for each break: in how many runs the claim failed, as it should.

    Parameters
    ----------
    table
        Claims by name.
    broken
        From :func:`claims_on_broken`.
    """
    noticed = {what: (found[table.index] != 1).sum() for what, found in broken.items()}
    return table.assign(**noticed)
