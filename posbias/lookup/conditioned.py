"""A lookup under conditions: each compared with what is as it is."""

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.multiplicity import holm
from posbias.conditions import AS_IS
from posbias.lookup.scores import LEVEL, flip_p_value, paired_difference

SENT = "order:best-first"
"""What is sent without any remedy: all documents in the order of a search."""


def compare_conditions(results: xr.Dataset) -> pd.DataFrame:
    """Return what each condition changes of all documents' right answers, paired over contexts, and what it costs.

    ``gain`` is over the documents as they are, at all places alike, or over :data:`SENT` if it is among the conditions,
    with its 95% interval; ``p`` is that of a sign-flip test, adjusted by Holm for all that have a gain; a gain of
    ``visible`` would be seen; ``requests`` and ``tokens`` are those of a question.
    """
    correct = results["correct"].sel(arm="competing")
    against = SENT if SENT in results["condition"].values else AS_IS
    plain = _by_context(correct.sel(condition=against))
    rows = []
    for name in map(str, results["condition"].values):
        one = correct.sel(condition=name)
        gain = paired_difference(_by_context(one) - plain)
        by_place = one.mean("context").values
        rows.append({
            "condition": name, "right": float(one.mean()), "worst": float(by_place.min()),
            "worst_place": int(by_place.argmin()) + 1, "gain": gain.mean, "low": gain.low, "high": gain.high,
            "visible": gain.visible, "p": flip_p_value(_by_context(one) - plain),
            "requests": float(results["requests"].sel(condition=name)),
            "tokens": float(results["tokens_read"].sel(condition=name)),
        })  # fmt: skip
    table = pd.DataFrame(rows).set_index("condition")
    judged = ~table.index.isin([AS_IS, against])
    table.loc[~judged, ["gain", "low", "high", "visible", "p"]] = np.nan
    table.loc[judged, "p"] = holm(table.loc[judged, "p"].to_numpy())
    return table


def _by_context(correct: xr.DataArray) -> Float[np.ndarray, "C"]:
    return np.asarray(correct.mean("place").values, dtype=np.float64)


def table_lines(results: xr.Dataset) -> list[str]:
    """Return the comparison in lines, one for each condition."""
    lines, table = [], compare_conditions(results)
    for name, row in table.iterrows():
        said = f"{name}: right {row['right']:.2f}"
        if row["worst"] < row["right"]:  # or what is asked does not depend on the place
            said += f", worst {row['worst']:.2f} at place {row['worst_place']:.0f}"
        if name == SENT:
            said += ", and gains are over this"
        elif name != AS_IS:
            spread = f"{row['low']:+.2f} to {row['high']:+.2f}; p {row['p']:.2g} by Holm"
            said += f", gain {row['gain']:+.2f} ({'one row: no interval' if np.isnan(row['low']) else spread})"
        lines.append(f"{said}; {row['requests']:.1f} requests and {row['tokens']:.0f} tokens a question")
    rows = len(results["context"])
    if "right_first" in results.attrs:
        first = results.attrs["right_first"]
        lines.append(f"In the order of the rows the document that answers is first in {first} of {rows}")
    return [*lines, choose_condition(table, rows)]


def choose_condition(table: pd.DataFrame, rows: int) -> str:
    """Return in a sentence which condition is shown to give most right answers; of equals that which reads least."""
    shown = table[(table["low"] > 0) & (table["p"] <= LEVEL)]
    if shown.empty:
        best = table.loc[table["gain"].fillna(-1).idxmax()]
        needed = rows * (best["visible"] / best["gain"]) ** 2 if best["gain"] > 0 else np.nan
        if np.isnan(needed):
            return "None of these is shown to help"
        more = f"takes about {max(rows + 1, needed):.0f} rows"
        return f"None of these is shown to help; to see a gain of {best['gain']:+.2f} {more}"
    best = shown[shown["right"] == shown["right"].max()]["tokens"].idxmin()
    return f"Choose {best}: of what is shown to help it has most right answers, {shown.loc[best, 'right']:.0%}"
