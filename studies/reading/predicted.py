"""Whether forward passes predict the pulls: every profile of the registry, eight parts each, against b."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import spearmanr

from posbias.comparison.resampling import interval, resample_weights
from posbias.lookup.reading import fit_law
from posbias.predict import PREDICTORS
from studies.reading.evidence import Evidence, P
from studies.reading.tables import eighths
from studies.results import load


def profiles() -> dict[str, Float[np.ndarray, "P"]]:
    """Return what each place gets, by how it was measured."""
    used, texts, found = load("documents")["smollm2.used"], load("real")["smollm2.wiki-256"], {}
    for predictor in PREDICTORS.values():
        if predictor.kept_as in texts["variant"]:
            profile = texts["rollout"].sel(variant=predictor.kept_as).values
            found[f"{predictor.label} (other texts)"] = eighths(profile)
    found["influence (other texts)"] = eighths(texts["influence"].values)
    use = np.nanmean(load("real")["smollm2.use-256"]["replaced"].values, axis=0)
    found["use (other texts)"] = np.array([np.nanmean(x) for x in np.array_split(use, P)])
    for way in ("influence", "gradient × input", "contributions", "attention"):
        found[f"{way} (these prompts)"] = of_others(used[way].values.astype(float))
    found["fall without the document (these prompts)"] = of_others(-used["removed"].values.astype(float))
    return found


def of_others(values: Float[np.ndarray, "C P P"]) -> Float[np.ndarray, "P"]:
    """Return the mean of each document's values where another one is asked for."""
    return (values * ~np.eye(P, dtype=bool)).sum(1).mean(0) / (P - 1)


def predicted_table(seen: Evidence) -> pd.DataFrame:
    """Return the rank correlation of each profile with the pulls, over all places and between the ends."""
    eight, rows = seen.sets["eight"], {}
    drawn = [fit_law(np.tensordot(w, eight, 1))[1] for w in resample_weights(len(eight), 300)]
    for name, x in profiles().items():
        low, high = interval(np.array([spearmanr(x, b)[0] for b in drawn]))
        rows[name] = {
            "all places": spearmanr(x, seen.law.pulls)[0],
            "95%": f"{low:+.2f} to {high:+.2f}",
            "between the ends": spearmanr(x[1:-1], seen.law.pulls[1:-1])[0],
        }
    table = pd.DataFrame(rows).T.sort_values("all places", ascending=False)
    return table.rename_axis("rank correlation with the pulls")


def predicted_numbers(table: pd.DataFrame) -> dict[str, float]:
    """Return the correlations that the page prints."""
    said = {
        "use": "use (other texts)",
        "influence": "influence (other texts)",
        "deletion": "fall without the document (these prompts)",
        "contributions": "contributions (these prompts)",
    }
    found = {f"reading_predict_{k}": float(table.loc[name, "all places"]) for k, name in said.items()}
    return found | {"reading_predict_tried": len(table)}
