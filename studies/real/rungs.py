"""Checks of what each prediction on the ladder needs: with one part exchanged it should get worse."""

from __future__ import annotations

import pandas as pd
import xarray as xr

from studies.checks import Check
from studies.real.controls import CONTROLS, OF_GAINS, RUNGS, control_table

NEEDS = {
    "independent layers": ("independent-layers",),
    "fixed attention": ("fixed-attention",),
    "value maps": ("value-maps",),
    "positional attention": ("value-maps-positional",),
    "head gains": tuple(OF_GAINS),
}
"""Predictions by part of the row."""
SOME = {"fixed attention": ("prompt",), "independent layers": ("layer", "prompt")}
"""Exchanges that are claimed to do harm, where not all are."""
SAID = {
    "independent layers": "Independent layers need attention of their own layer and prompt.",
    "fixed attention": "Fixed attention needs its prompt's attention.",
    "value maps": "Each exchange makes value maps worse.",
    "positional attention": "Each exchange makes value maps with positional attention worse.",
    "head gains": "Head gains need all that they are given.",
}


def judge(controls: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Return how far each prediction is away with each exchange."""
    return {rung: control_table(controls, rung) for rung in RUNGS}


def undone(controls: xr.Dataset, rung: str, control: str) -> bool:
    """Say whether an exchange that changes nothing is called worse."""
    means = controls["rung_profiles"].copy()
    means.loc[rung, control] = means.sel(rung=rung, control="right")
    same = control_table(controls.assign(rung_profiles=means), rung, resamples=200)
    return bool(same["decided"][control] == -1)


def rung_checks(controls: xr.Dataset) -> list[Check]:
    """Return a check for each kind of prediction."""
    judged, found = judge(controls), []
    for part, rungs in NEEDS.items():
        tried = []
        for rung in rungs:
            every = [c for c in CONTROLS if c in judged[rung].index and c != "right"]
            tried += [(rung, control) for control in SOME.get(part, every)]
        signs = pd.Series({pair: judged[pair[0]]["decided"][pair[1]] for pair in tried})
        nearer = [f"{RUNGS[r]} with {CONTROLS[c]}" for r, c in signs.index[signs == 1]]
        moved = [f"{RUNGS[r]}: {CONTROLS[c]} {worse(judged[r], c):+.3f}" for r, c in tried]
        found.append(Check(
            "S-rungs", part, SAID[part], not nearer, f"if one thing is exchanged, W1 changes by: {'; '.join(moved)}",
            "one of these exchanges makes it significantly better (Holm); undecided if one does not make it "
            "significantly worse",
            {"nothing exchanged": [undone(controls, *pair) for pair in tried]},
            f"nearer: {'; '.join(nearer)}",
            {"post_hoc": True, "in_part": bool((signs == -1).any()), "undecided": bool((signs == 0).any())},
            brief(signs, [worse(judged[r], c) for r, c in tried]),
        ))  # fmt: skip
    return found


def brief(signs: pd.Series, changes: list[float]) -> str:
    """Say in few words how many exchanges do significant harm or good, and by how much all change the distance."""
    good, size = int((signs == 1).sum()), f"{min(changes):+.3f} to {max(changes):+.3f}"
    nearer = f", {good} nearer" if good else ""
    return f"{(signs == -1).sum()} of {len(signs)} exchanges further away{nearer}; W1 changes by {size}"


def worse(judged: pd.DataFrame, control: str) -> float:
    """Return by how much an exchange increases the distance."""
    return float(judged["W1"][control] - judged["W1"]["right"])


def rung_numbers(controls: xr.Dataset) -> dict[str, float]:
    """Return how far fixed attention is away as it is, and with another prompt's attention."""
    W1 = judge(controls)["fixed-attention"]["W1"]
    return {"real_control_fixed_right": W1["right"], "real_control_fixed_prompt": W1["prompt"]}
