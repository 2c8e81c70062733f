"""Attention sinks of trained networks: the published metric by token, and what uniform attention would score."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from studies.icl.settings import SINK, Setting


def sink_table(
    runs: Mapping[Setting, xr.Dataset], *, last_layer: bool = False, beyond_even: bool = False
) -> pd.DataFrame:
    """Return the sink metric, mean over seeds: a row for each (mask, width), a column for each token but the query.

    The metric of token j is the share of the queries that see it whose attention on it exceeds 0.2.

    Parameters
    ----------
    runs
        Settings → results.
    last_layer
        The last layer alone, in place of the mean over layers.
    beyond_even
        Minus the metric of :func:`even_sinks`: a query of fewer than five tokens exceeds 0.2 by counting alone.

    Source: Wu et al. 2025, appendix K.4.
    """
    rows: dict[tuple[str, int], np.ndarray] = {}
    for setting, x in runs.items():
        by_layer = x["sinks"].values.mean(0)
        metric = by_layer[-1] if last_layer else by_layer.mean(0)
        row = metric - even_sinks(setting) if beyond_even else metric
        rows[setting.network.mask.kind, setting.network.mask.width] = row[:-1]
    return _by_mask(rows)


def tables_by_seed(runs: Mapping[Setting, xr.Dataset], **options: bool) -> list[pd.DataFrame]:
    """Return :func:`sink_table` of each seed that all settings have, with the same options."""
    seeds = min((x.sizes["seed"] for x in runs.values()), default=0)
    return [sink_table({s: x.isel(seed=[k]) for s, x in runs.items()}, **options) for k in range(seeds)]


def even_table(runs: Mapping[Setting, xr.Dataset]) -> pd.DataFrame:
    """Return the metric of uniform attention, laid out as :func:`sink_table`."""
    rows: dict[tuple[str, int], np.ndarray] = {}
    for setting in runs:
        rows[setting.network.mask.kind, setting.network.mask.width] = even_sinks(setting)[:-1]
    return _by_mask(rows)


def even_sinks(setting: Setting) -> Float[np.ndarray, "tokens"]:
    """Return the sink metric of attention that is uniform over what each query sees, (2n + 1,).

    >>> even_sinks(Setting()).round(3)[:6]
    array([0.235, 0.188, 0.133, 0.071, 0.   , 0.   ])
    """
    seen = setting.network.mask.matrix(setting.task.tokens)
    even = seen / seen.sum(1, keepdims=True)
    return (even > SINK).sum(0) / seen.sum(0)


def _by_mask(rows: Mapping[tuple[str, int], np.ndarray]) -> pd.DataFrame:
    """Return rows by mask and width, with tokens counted from 1."""
    index = pd.MultiIndex.from_tuples(list(rows), names=["mask", "width"])
    values = np.stack(list(rows.values()))
    return pd.DataFrame(values, index=index, columns=range(1, values.shape[1] + 1))
