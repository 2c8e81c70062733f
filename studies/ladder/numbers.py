"""Numbers that the page on predictions quotes, by their names there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Int

from posbias import structured_kernels
from posbias.comparison.distances import normalised_wasserstein, spearman, unit
from posbias.rollout.influence import influence_profile
from studies.ladder import scores
from studies.ladder.crossfit import (
    LARGE,
    TEXTS,
    Judged,
    group_means,
    half_beside_u,
    large_judged,
    score_table,
)
from studies.ladder.direction_checks import by_turns, exact, joined, projected
from studies.ladder.evidence import MODELS, Small, distances, profile_of
from studies.ladder.moment_checks import form_table
from studies.ladder.place_checks import Places
from studies.ladder.rung_tables import ENCODINGS, OWN, rung_profiles
from studies.ladder.share_checks import of, rollout_signs
from studies.reference.training_seeds import range_text
from studies.results import load, of_kind

SHORT = {"ALiBi": "alibi", "rotary": "rotary", "learned or none": "other", LARGE: "large"}
STEPS = ("fixed-attention", "vectors", "positions", "law", "aligned", "layer-shares")
MEANS = (
    "influence", "power", "independent", "fixed-attention", "vectors", "positions", "law", "aligned", "contributions",
    "norms", "measured-attention", "layer-shares", "last", "even",
)  # fmt: skip


def judged_numbers(judged: Mapping[str, Judged]) -> dict[str, Any]:
    """Return distances, misplaced shares and ranks of predictions from other documents."""
    table, found = score_table(judged), {}
    wide = {measure: table[measure].unstack("model") for measure in ("W1", "total variation", "rank correlation")}
    for name in MEANS:
        key = name.replace("-", "_")
        for measure, short in (("W1", "W1"), ("total variation", "tv"), ("rank correlation", "rank")):
            found[f"predictions_{short}_{key}"] = wide[measure].loc[name, list(MODELS)].mean()
    for group, short in SHORT.items():
        means = {measure: group_means(table, measure)[group] for measure in ("W1", "rank correlation")}
        for name in ("influence", "contributions", "even", *STEPS):
            found[f"predictions_{short}_{name}"] = means["W1"][name]
            found[f"predictions_{short}_rank_{name}"] = means["rank correlation"][name]
    ranks = wide["rank correlation"][list(MODELS)]
    ceilings = [judged[m].ceiling for m in MODELS]
    large = {measure: wide[measure][list(TEXTS)].mean(axis=1) for measure in ("W1", "rank correlation")}
    for name in ("influence", "contributions", "measured-attention", "power", "ends", "even"):
        found[f"predictions_large_{name}"] = large["W1"][name]
        found[f"predictions_large_rank_{name}"] = large["rank correlation"][name]
    for name in ("contributions", "power", "even", "vectors"):
        for short, text in zip(("wiki", "builtin"), TEXTS, strict=True):
            found[f"predictions_{short}_{name}"] = wide["W1"].loc[name, text]
            found[f"predictions_{short}_rank_{name}"] = wide["rank correlation"].loc[name, text]
    found |= {
        "predictions_ceiling": np.mean(ceilings),
        "predictions_ceiling_least": min(ceilings),
        "predictions_ceiling_large": np.mean([judged[name].ceiling for name in TEXTS]),
        "predictions_reversed": int((ranks.loc["layer-shares"] < 0).sum()),
        "predictions_contributions_least": ranks.loc["contributions"].min(),
        "predictions_power_as_good": int((ranks.loc["power"].round(2) >= ranks.loc["contributions"].round(2)).sum()),
        "predictions_llama": ranks.loc["contributions", "llama-12"],
        "predictions_llama_power": ranks.loc["power", "llama-12"],
    }
    found = {k: x for k, x in found.items() if np.isfinite(x)}
    return {k.replace("-", "_").replace(" ", "_"): x for k, x in found.items()}


def own_numbers() -> dict[str, float]:
    """Return how near SmolLM2's contributions, and a U without a model, are to the influence of the same text.

    By the other text their distance is this one less or more the distance of the two texts, as the page says.
    """
    kept, found = load("real"), {}
    for short, (_, text) in zip(("wiki", "builtin"), TEXTS.values(), strict=True):
        own = large_judged(kept[f"smollm2.{text}"], kept[f"smollm2.{text}"])
        said = own.predicted["contributions"], own.measured
        found[f"predictions_own_{short}"] = normalised_wasserstein(*said)
        found[f"predictions_own_rank_{short}"] = spearman(*said)
        found[f"predictions_ends_{short}"] = spearman(own.predicted["ends"], own.measured)
        half = half_beside_u(kept[f"smollm2.{text}"])
        found |= {f"predictions_half_{short}": half["own"], f"predictions_half_ends_{short}": half["ends"]}
    for n in (64, 1024):
        half = half_beside_u(kept[f"smollm2.wiki-{n}"])
        found |= {f"predictions_half_{n}": half["own"], f"predictions_half_ends_{n}": half["ends"]}
    return found


def contribution_numbers(small: Small) -> dict[str, Any]:
    """Return what is said of contributions in the ten models and in untrained networks."""
    signs = rollout_signs(small)
    last: dict[str, list[Any]] = {k: [] for k in ("contributions", "layer-shares")}
    for name, values in last.items():
        values += [p[-1] for p in of(small, name).values()]
    layers = {m: x[["own_share", "lambda_frobenius", "cosine"]].to_dataframe() for m, x in small.shares.items()}
    every = pd.concat(layers)
    untrained = of_kind(load("contributions"), "shares-untrained", MODELS)
    untrained |= of_kind(load("contributions"), "shares-large", ["gpt2", "pythia-160m"])
    apart: dict[str, list[float]] = {"contributions": [], "head-gains-squared": []}
    for x in untrained.values():
        p = unit(x["halves"].values).mean(0)
        for name, values in apart.items():
            values.append(normalised_wasserstein(unit(x["profile"].sel(prediction=name).values), p))
    return {
        "contributions_best": int((signs > 0).all(axis=1).sum()),
        "contributions_rank_least": distances(of(small, "contributions"), small.measured, "rank correlation").min(),
        "contributions_last": np.mean(last["contributions"]),
        "contributions_last_layer": np.mean(last["layer-shares"]),
        "contributions_last_measured": np.mean([p[-1] for p in small.measured.values()]),
        "contributions_cosine": every["cosine"].median(),
        "contributions_kept": every["own_share"].mean(),
        "contributions_kept_layer": 1 - every["lambda_frobenius"].mean(),
        "contributions_raised": distances(of(small, "raised"), small.measured).mean(),
        "contributions_raised_before": distances(of(small, "contributions"), small.measured).mean(),
        "contributions_untrained": len(untrained),
        "contributions_untrained_most": max(apart["contributions"]),
        "contributions_untrained_law": max(apart["head-gains-squared"]),
    }


def weighted_distance(small: Small, model: str, power: float, order: Int[np.ndarray, "H"] | None = None) -> float:
    """Return W1 of layer shares with each head weighted by a power of its gain, gains in another order if given."""
    x, y = small.judged[model], small.between[model]
    slopes, n = x["slopes"].values[0], x.sizes["position"]
    heads = np.stack([structured_kernels(1, slope=m).dense(0, n) for m in slopes])
    weights = np.power(y["branch_gain"].values.astype(float), power)
    if order is not None:
        weights = weights[:, order]
    weights = weights / weights.sum(axis=1, keepdims=True)
    kernels = np.einsum("th,hij->tij", weights, heads)
    p = unit(rung_profiles(small.rungs[model], OWN)["independent"])
    return normalised_wasserstein(influence_profile(kernels, x["lambda_frobenius"].values.astype(float), n), p)


def swapped(slopes: Float[np.ndarray, "H"]) -> Int[np.ndarray, "H"]:
    """Return heads in order, the steepest and the flattest exchanged.

    >>> swapped(np.array([0.5, 0.25, 0.125])).tolist()
    [2, 1, 0]
    """
    found = np.arange(slopes.size)
    steep, flat = slopes.argmax(), slopes.argmin()
    found[steep] = flat
    found[flat] = steep
    return found


def ladder_numbers(small: Small) -> dict[str, Any]:
    """Return what is said of single steps of the ladder."""
    alibi = ENCODINGS["ALiBi"]
    exchange = {m: swapped(small.judged[m]["slopes"].values[0]) for m in alibi}
    rotary = [normalised_wasserstein(small.of_rungs[m]["rotary"], small.exact[m]) for m in ENCODINGS["rotary"]]
    kept = {f"{m}.{text}": load("models")[f"{m}.{text}"] for m in MODELS for text in ("wikitext-2", "random")}
    texts = scores.rollout_distances(kept).query("prediction == 'b'").groupby("corpus")["W1"].mean()
    course = scores.training_distances(load("mixing"), load("models"), without=["llama-ntk-12"])
    ends = course.groupby("model")["W1"].agg(["first", "last"])
    return {
        "ladder_plain": np.mean([weighted_distance(small, m, 0) for m in alibi]),
        "ladder_weighted": np.mean([weighted_distance(small, m, 2) for m in alibi]),
        "ladder_swapped": np.mean([weighted_distance(small, m, 2, exchange[m]) for m in alibi]),
        "ladder_mean_queries": np.mean(rotary),
        "ladder_wiki": texts["wikitext-2"],
        "ladder_random": texts["random"],
        "ladder_begun": range_text(ends["first"], ".3f"),
        "ladder_ended": range_text(ends["last"], ".3f"),
        "ladder_rose": int((ends["last"] > ends["first"]).sum()),
        "ladder_followed": len(ends),
    }


def direction_numbers(small: Small) -> dict[str, Any]:
    """Return what is said of directions, of right angles and of the bound."""
    to, ends = exact(small), joined(small)
    of_256 = {m: unit(x["influence"].values) for m, x in small.judged.items()}
    bounds = of_kind(load("ladder"), "bound", MODELS)
    loose = [bound_looseness(x) for x in bounds.values()]
    forms = form_table()
    return {
        "directions_quarter": distances(projected(small, 1 / 4), to, "total variation").mean(),
        "directions_all": distances(projected(small, 1), to, "total variation").mean(),
        "directions_turned": distances(by_turns(small), to, "total variation").mean(),
        "directions_last": np.mean([p[-1] for p in ends["angles"].values()]),
        "directions_last_measured": np.mean([p[-1] for p in of_256.values()]),
        "directions_loose_least": min(x for x, _ in loose),
        "directions_loose_most": max(x for x, _ in loose),
        "directions_loose_W1": np.mean([x for _, x in loose]),
        "moments_subspace": forms.loc["one subspace", "law"],
        "moments_half_turn": forms.loc["half turn", "head gains, added"],
        "moments_dependent": forms.loc["dependent layers", "full recursion"],
    }


def bound_looseness(x: xr.Dataset) -> tuple[float, float]:
    """Return by how many powers of ten the bound is above the gradient in the median prompt, and W1 of the profiles."""
    top, fixed, full = (x[f"{kind}_prompts"].values for kind in ("bound", "fixed", "exact"))
    assert (fixed <= top).all() and (full <= top).all()
    return float(np.median(np.log10(top.sum(1) / fixed.sum(1)))), normalised_wasserstein(
        profile_of(top), profile_of(fixed)
    )


def training_numbers(places: Places) -> dict[str, Any]:
    """Return what is said of networks through training."""
    table, ended = places.table, places.ended
    begun, early = table.query("step == 0"), table.query("step == 10 and finished == 0")
    final = ended.query("model != 'llama-ntk-12'").groupby("model")[["law", "aligned", "coherence"]].mean()
    with_u = places.u[places.u.index.isin(ended.index)] == "yes"
    return {
        "training_begun_law": begun["law"].max(),
        "training_early_law": range_text(early["law"], ".3f"),
        "training_early_aligned": range_text(early["aligned"], ".3f"),
        "training_law_nearer": int((final["law"] < final["aligned"]).sum()),
        "training_coherence": final["coherence"].mean(),
        "training_u": int(with_u.sum()),
        "training_ended": len(ended),
        "training_networks": len(table),
    }
