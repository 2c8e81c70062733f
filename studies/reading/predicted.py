"""Whether forward passes predict the pulls: every profile of the registry, eight parts each, against b."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import spearmanr

from posbias.lookup.reading import fit_law
from posbias.predict import PREDICTORS
from studies.reading.evidence import Evidence, P
from studies.reading.tables import eighths
from studies.results import load

FORMS = {"these lists": "eight", "persons": "kinds", "plain text": "plain"}
"""Kinds of list that have pulls of their own, by what a table calls them."""
BETWEEN = "between the ends (mean of the three)"


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


def missed_by_heads(seen: Evidence) -> dict[str, Float[np.ndarray, "P"]]:
    """Return how often the ten heads that point best point at each document, where another one is asked for.

    The heads were chosen on the other half of the sets; ``last`` is the token before the answer.
    """
    heads, found = seen.kept["heads"], {}
    best = np.array([name.split(".") for name in seen.kept["changed"].attrs["best"].split()], int)
    for where, title in (("question", "in the question"), ("last", "at the last token")):
        pointed = heads["pointed"].sel(where=where).values[heads.sizes["context"] // 2 :]
        chosen = pointed[..., best[:, 0], best[:, 1]]
        times = (chosen[..., None] == np.arange(P)).mean(2)
        found[f"misses of the ten pointing heads {title} (these prompts)"] = of_others(times)
    return found


def rollout_labels() -> list[str]:
    """Return what rollouts from forward passes alone are called: those that multiply a matrix for each layer."""
    variants = load("real")["smollm2.wiki-256"]["variant"].values
    made = [x for x in PREDICTORS.values() if x.kept_as in variants and x.needs - {"ladder"}]
    return [x.label for x in made]


def of_others(values: Float[np.ndarray, "C P P"]) -> Float[np.ndarray, "P"]:
    """Return the mean of each document's values where another one is asked for."""
    return (values * ~np.eye(P, dtype=bool)).sum(1).mean(0) / (P - 1)


def predicted_table(seen: Evidence) -> pd.DataFrame:
    """Return the rank correlation of each profile with the pulls of three kinds of list, sorted by the first.

    The last column is the mean over the three, without the first and the last place.
    """
    rows = {}
    pulls = {name: fit_law(seen.totals[kind])[1] for name, kind in FORMS.items()}
    for name, x in (profiles() | missed_by_heads(seen)).items():
        row = {form: spearmanr(x, b)[0] for form, b in pulls.items()}
        row[BETWEEN] = np.mean([spearmanr(x[1:-1], b[1:-1])[0] for b in pulls.values()])
        rows[name] = row
    table = pd.DataFrame(rows).T.sort_values("these lists", ascending=False)
    return table.rename_axis("rank correlation with the pulls")


def predicted_shown(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table in words, with a mark for each rollout that needs forward passes alone."""
    shown, rollouts = table.map("{:+.2f}".format), rollout_rows()
    shown.insert(0, "rollout from forward passes alone", ["✓" if x in rollouts else "" for x in table.index])
    return shown


def rollout_rows() -> list[str]:
    """Return what the rows of rollouts are called."""
    return [f"{label} (other texts)" for label in rollout_labels()]


def predicted_numbers(table: pd.DataFrame) -> dict[str, float]:
    """Return how many profiles were tried, how many are rollouts, and the best between the ends."""
    rollouts = table.loc[rollout_rows()]
    found = {"tried": len(table), "rollouts": len(rollouts)}
    of_heads = table.loc[[x for x in table.index if x.startswith("misses")], BETWEEN]
    found |= {"heads_least": of_heads.min(), "heads_most": of_heads.max()}
    found["use_between"] = table.loc["use (other texts)", BETWEEN]
    return {f"reading_predict_{name}": float(x) for name, x in found.items()}
