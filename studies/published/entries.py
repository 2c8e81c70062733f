"""The printed distances of tables 2 to 4 as one data frame, each beside the mean of the rollout that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posbias.published import numbers
from posbias.rollout.profiles import mean_position
from studies.published.variants import variant_profile

if TYPE_CHECKING:
    from pandas import DataFrame

CORPUS_LABELS = {"fineweb-edu": "FineWeb-Edu", "dclm": "DCLM", "wikipedia": "Wikipedia"}
"""The data sets as the paper names them."""


def entry_frame(*, own_schedule: bool = False, reading: str = "as published") -> DataFrame:
    """Return every printed distance with what the published files say about its rollout.

    Parameters
    ----------
    own_schedule
        Whether (b) takes the mixing coefficients of its own data set, where the authors' notebook takes those of
        FineWeb-Edu.
    reading
        A key of :data:`studies.published.variants.READINGS`.

    Returns
    -------
    DataFrame
        One row for each entry: table, n, dataset, corpus (the data set's label), model, label, variant, printed
        (two decimals), low and high (what rounds to it), schedule (the data set of its mixing coefficients) and
        mean (of the rollout, 0 first token, 1 last).

    Source: residual-aware paper, tables 2 to 4.

    >>> entries = entry_frame()
    >>> entries.query("table == 2 and model == 'bloom'")["printed"].tolist()
    [0.65, 0.08, 0.01]
    """
    import pandas as pd

    rows = []
    for entry in numbers.printed_tables():
        own = own_schedule or entry.variant == "c"
        schedule = entry.dataset if own else numbers.CORPORA[0]
        p = variant_profile(entry.model, entry.variant, entry.n, schedule, reading)
        rows.append(
            {
                "table": entry.table,
                "n": entry.n,
                "dataset": entry.dataset,
                "corpus": CORPUS_LABELS[entry.dataset],
                "model": entry.model,
                "label": numbers.MODELS[entry.model].label,
                "variant": entry.variant,
                "printed": entry.wasserstein,
                "low": entry.low,
                "high": entry.high,
                "schedule": schedule,
                "mean": mean_position(p),
            }
        )
    return pd.DataFrame(rows)
