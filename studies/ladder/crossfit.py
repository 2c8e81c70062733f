"""Predictions of some documents against the influence of others, and the most that noise lets a prediction reach.

Ten small models: predictions are made of the first 32 documents and judged by the influence of the other 224. SmolLM2:
of 200 prompts of one text (the ladder: of 64 of them), and judged by those of another text, each way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Int

from posbias.comparison.distances import spearman, unit
from posbias.comparison.fits import power_fit
from posbias.predict import find
from studies.ladder.evidence import MEASURES, MODELS, Small, profile_of
from studies.ladder.rung_tables import ENCODINGS
from studies.results import load

FIRST, SPLITS = 32, 200
"""Documents of the small models that predictions are made of; random halves of documents."""
LARGE = "SmolLM2"
TEXTS = {"SmolLM2, Wikipedia": ("builtin-256", "wiki-256"), "SmolLM2, built-in": ("wiki-256", "builtin-256")}
"""Texts of SmolLM2, by the one whose influence judges: which one predictions are made of, and that one."""
GROUPS: Mapping[str, tuple[str, ...]] = {**ENCODINGS, LARGE: tuple(TEXTS)}
FROM_RUNGS = ("independent", "fixed-attention", "vectors", "positions", "law", "aligned", "last")
FROM_SHARES = ("contributions", "measured-attention", "norms", "layer-shares")
IN_LARGE = {"law": "untrained", "aligned": "head-gains-added", "layer-shares": "b", "measured-attention": "kernels"}
"""Names by which SmolLM2's entries have what the small models' name otherwise."""
TITLES = {"power": "power law, fitted to them", "influence": "influence in these documents"}
TITLES |= {"ends": "one over the distance from the nearer end"}
TITLES |= {"norms": "norms of parts (Kobayashi)", "contributions": "contributions"}
TITLES |= {"measured-attention": "measured attention", "last": "all on the last token"}
LABELS = {
    name: TITLES.get(name) or find({"law": "head-gains-squared", "aligned": "head-gains-added"}.get(name, name)).label
    for name in ("influence", "independent", "fixed-attention", "vectors", "positions", "power", "ends", "law")
    + ("aligned", "contributions", "measured-attention", "norms", "layer-shares", "last", "even")
}
"""Predictions in the order of the table, and how a page writes them."""


@dataclass(frozen=True)
class Judged:
    """Hold what is predicted of a model from some documents, and the influence in others."""

    predicted: Mapping[str, Float[np.ndarray, "n"]]
    rows: Float[np.ndarray, "N n"]
    units: Int[np.ndarray, "N"]

    @cached_property
    def measured(self) -> Float[np.ndarray, "n"]:
        """The profile of the other documents."""
        return profile_of(self.rows)

    @cached_property
    def ceiling(self) -> float:
        """The rank correlation that a perfect prediction would have on average."""
        return ceiling(self.halves)

    @cached_property
    def halves(self) -> float:
        """The mean rank correlation of random halves of these documents."""
        pairs = splits(self.units)
        return float(np.mean([spearman(profile_of(self.rows[h]), profile_of(self.rows[~h])) for h in pairs]))


def ceiling(halves: float) -> float:
    """Return the correlation of the truth with a mean whose halves correlate so much (Spearman and Brown).

    >>> round(ceiling(0.72), 3)
    0.915
    """
    return float(np.sqrt(2 * halves / (1 + halves)))


def splits(units: Int[np.ndarray, "N"], times: int = SPLITS) -> Iterator[np.ndarray]:
    """Yield which prompts are of a random half of the documents."""
    names, rng = np.unique(units), np.random.default_rng(0)
    for _ in range(times):
        yield np.isin(units, rng.permutation(names)[: len(names) // 2])


def small_judged(small: Small, model: str) -> Judged:
    """Return the predictions of a small model."""
    rows = small.judged[model]["influence_prompts"].values.astype(np.float64)
    found = {k: small.of_rungs[model][k] for k in FROM_RUNGS}
    found |= {k: small.of_shares[model][k] for k in FROM_SHARES}
    return Judged(found | yardsticks(rows[:FIRST]), rows[FIRST:], np.arange(FIRST, len(rows)))


def yardsticks(rows: Float[np.ndarray, "N n"]) -> dict[str, Float[np.ndarray, "n"]]:
    """Return what the influence of some documents says of that of others, without a model or with one number."""
    p = profile_of(rows)
    place = np.arange(p.size)
    ends = unit(1 / (1 + np.minimum(place, place[::-1])))
    return {"influence": p, "power": power_fit(p), "ends": ends, "even": np.full(p.size, 1 / p.size)}


def large_judged(made_of: xr.Dataset, judging: xr.Dataset) -> Judged:
    """Return the predictions of SmolLM2 from one text, and the influence in another."""
    found = {}
    for name in ("independent", "fixed-attention", "vectors", "positions", "contributions", *IN_LARGE):
        found[name] = unit(made_of["rollout"].sel(variant=IN_LARGE.get(name, name)).values)
    found["last"] = np.eye(made_of.sizes["position"])[-1]
    rows = judging["influence_prompts"].values.astype(np.float64)
    blind = yardsticks(made_of["influence_prompts"].values.astype(np.float64))
    return Judged(found | blind, rows, judging["document"].values)


def all_judged(small: Small) -> dict[str, Judged]:
    """Return the predictions of the ten models, and those of SmolLM2 by the text that judges."""
    found, kept = {m: small_judged(small, m) for m in MODELS}, load("real")
    for name, texts in TEXTS.items():
        found[name] = large_judged(*(kept[f"smollm2.{text}"] for text in texts))
    return found


def score_table(judged: Mapping[str, Judged]) -> pd.DataFrame:
    """Return the three numbers of every prediction: index model and prediction."""
    rows = {}
    for model, one in judged.items():
        for name, p in one.predicted.items():
            rows[model, name] = {measure: how(p, one.measured) for measure, how in MEASURES.items()}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["model", "prediction"])


def group_means(table: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return the mean of a number by prediction and kind of position encoding, with SmolLM2 beside them."""
    wide = table[measure].unstack("model")
    means = {group: wide[list(models)].mean(axis=1) for group, models in GROUPS.items()}
    return pd.DataFrame(means).reindex(list(LABELS))


def shown(judged: Mapping[str, Judged]) -> pd.DataFrame:
    """Return the page's table of the ten small models: means over those with the same position encoding."""
    table, tops = score_table(judged), pd.Series({m: one.ceiling for m, one in judged.items()})
    means = {
        "distance": group_means(table, "W1").drop(columns=LARGE),
        "rank": group_means(table, "rank correlation").drop(columns=LARGE),
    }
    found = pd.concat({f"{kind}, {group}": x[group] for kind, x in means.items() for group in x}, axis=1)
    found = found.rename(index=LABELS).rename_axis("prediction from other documents")
    most = {f"rank, {group}": tops[list(models)].mean() for group, models in ENCODINGS.items()}
    found.loc["a perfect prediction (ceiling)"] = pd.Series(most)
    return found


def left_arm(p: Float[np.ndarray, "n"]) -> float:
    """Return what a token of the first eighth, the first one aside, has per token of the middle half.

    >>> left_arm(np.array([9.0, 2, *[1] * 14]))
    2.0
    """
    eighth = p.size // 8
    return float(p[1:eighth].mean() / p[2 * eighth : 6 * eighth].mean())


def arm_table(judged: Mapping[str, Judged]) -> pd.DataFrame:
    """Return by model how much more the beginning counts than the middle, as measured and by two predictions."""
    rows = {}
    for model, one in judged.items():
        said = {LABELS[name]: left_arm(one.predicted[name]) for name in ("contributions", "measured-attention")}
        rows[model] = {"measured": left_arm(one.measured)} | said
    return pd.DataFrame(rows).T.rename_axis("first eighth / middle half")


def half_ranks(x: xr.Dataset, ways: Mapping[str, Float[np.ndarray, "N n"]]) -> pd.DataFrame:
    """Return the rank correlation of each way, from half of the documents, with the influence of the other half.

    A row a division; ``influence`` is what influence itself says.
    """
    rows, units, found = x["influence_prompts"].values.astype(np.float64), x["document"].values, []
    every = {**ways, "influence": rows}
    for h in splits(units):
        to = profile_of(rows[~h])
        found.append({name: spearman(profile_of(values[h]), to) for name, values in every.items()})
    return pd.DataFrame(found)


def half_beside_u(x: xr.Dataset) -> pd.Series:
    """Return the mean rank correlation of contributions of half of the documents, and of a U without a model."""
    rows = x["influence_prompts"].values.astype(np.float64)
    ends = np.broadcast_to(yardsticks(rows)["ends"], rows.shape)
    return half_ranks(x, {"own": x["contributions_own"].values.astype(np.float64), "ends": ends}).mean()


def length_table() -> pd.DataFrame:
    """Return what noise allows in SmolLM2 by length: halves, ceiling, and contributions on the same and other texts."""
    rows = {}
    for n in (64, 256, 1024, 2048):
        x = load("real")[f"smollm2.wiki-{n}"]
        influence, units = x["influence_prompts"].values.astype(np.float64), x["document"].values
        one = Judged({}, influence, units)
        said = {"halves": one.halves, "ceiling": one.ceiling}
        said["contributions, same texts"] = spearman(
            unit(x["rollout"].sel(variant="contributions").values), one.measured
        )
        if "contributions_own" in x:
            half = half_beside_u(x)
            said["contributions, half on half"], said["1 / distance from the nearer end"] = half["own"], half["ends"]
            said["ceiling of a half"] = float(np.sqrt(one.halves))
        rows[f"{n:,}"] = said
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("tokens of Wikipedia")
