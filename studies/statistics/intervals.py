"""How often the book's intervals contain the truth, on simulated prompts whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from posbias.comparison.distances import wasserstein_to
from posbias.comparison.multiplicity import decide, sign_p_value
from posbias.comparison.resampling import interval, resample_weights, resampled_profiles, t_interval
from posbias.comparison.scores import paired_gain, score
from studies.checks import Check
from studies.statistics.coverage import Coverage, Interval, coverage
from studies.statistics.prompt_law import PromptLaw

Ends = Callable[..., Interval]
Key = tuple[str, str, str]
"""Of what there is an interval, from what sample, and which kind of interval."""
OWN, PERCENTILES, PROMPTS = "the book's", "percentiles alone", "prompts as units"
SINGLE, SHARED, SEEDS = "48 documents", "24 documents of 8 prompts", "3 seeds"
LEAST = 0.85
"""The least coverage that the book asks of its 95% intervals."""
LOOKS = {OWN: ("o", "#0072B2"), PERCENTILES: ("x", "#D55E00"), PROMPTS: ("^", "#7f7f7f")}


@dataclass(frozen=True)
class World:
    """Hold a law of prompts, predictions of its profile, and how far each really is from it."""

    law: PromptLaw
    predictions: Mapping[str, Float[np.ndarray, "n"]]
    resamples: int

    def distance(self, kind: str) -> float:
        """Return the true distance of a prediction."""
        return float(wasserstein_to(self.law.profile[None], self.predictions[kind])[0])


def make_world(n: int, resamples: int) -> World:
    """Return a law with a U, and three predictions: its profile moved by 1% of the length, equal shares, one token."""
    back = np.arange(n)[::-1]
    p = np.exp(-0.1 * back) + 0.3 * np.exp(-0.5 * np.arange(n))
    law = PromptLaw(p / p.sum())
    near = np.interp(np.arange(n) - 0.01 * n, np.arange(n), law.profile)
    predictions = {"near": near / near.sum(), "flat": np.full(n, 1 / n), "last token": np.eye(n)[-1]}
    return World(law, predictions, resamples)


def percentile_ends(influence: Any, prediction: Any, *, units: Any, resamples: int, seed: int) -> Interval:
    """Return the interval that percentiles of the resampled distances give."""
    profiles = resampled_profiles(influence, resamples, units=units, seed=seed)
    low, high = interval(wasserstein_to(profiles, prediction))
    return float(low), float(high)


def hull_ends(influence: Any, prediction: Any, **how: Any) -> Interval:
    """Return the interval that the book gives."""
    found = score(influence, prediction, resampled_profiles(influence, **how))
    return found.low, found.high


def distance_coverage(world: World, repeats: int) -> dict[Key, Coverage]:
    """Return the coverage of intervals of a distance, by prediction, sample and kind of interval."""

    def of(kind: str, ends: Ends, documents: int, prompts: int, by_document: bool = True) -> Coverage:
        def once(rng: np.random.Generator) -> Interval:
            influence, units = world.law.draw(rng, documents, prompts)
            seed = int(rng.integers(1 << 30))
            chosen = units if by_document else None
            return ends(influence, world.predictions[kind], units=chosen, resamples=world.resamples, seed=seed)

        return coverage(once, world.distance(kind), repeats)

    found = {}
    for kind in world.predictions:
        for way, ends in ((OWN, hull_ends), (PERCENTILES, percentile_ends)):
            found[kind, SINGLE, way] = of(kind, ends, 48, 1)
            found[kind, SHARED, way] = of(kind, ends, 24, 8)
        found[kind, SHARED, PROMPTS] = of(kind, hull_ends, 24, 8, by_document=False)
    return found


def gain_and_mean_coverage(world: World, repeats: int) -> dict[Key, Coverage]:
    """Return the coverage of intervals of a difference of two distances, and of a mean of three seeds."""
    near, flat = world.predictions["near"], world.predictions["flat"]

    def gain_once(rng: np.random.Generator) -> Interval:
        influence, units = world.law.draw(rng, 24, 8)
        seed = int(rng.integers(1 << 30))
        x = paired_gain(influence, flat, near, resampled_profiles(influence, world.resamples, units=units, seed=seed))
        return x.low, x.high

    def seeds_once(rng: np.random.Generator, by_percentile: bool) -> Interval:
        x = rng.normal(size=3)
        if not by_percentile:
            return t_interval(x)
        means = resample_weights(3, world.resamples, seed=int(rng.integers(1 << 30))) @ x / 3
        low, high = interval(means)
        return float(low), float(high)

    gain = world.distance("flat") - world.distance("near")
    found = {("gain", SHARED, OWN): coverage(gain_once, gain, repeats)}
    for way in (OWN, PERCENTILES):
        found["mean", SEEDS, way] = coverage(partial(seeds_once, by_percentile=way != OWN), 0.0, repeats)
    return found


def coverage_table(found: Mapping[Key, Coverage]) -> pd.DataFrame:
    """Return the share of intervals that contained the truth, with its exact interval; a row a kind of interval."""
    rows = {key: (c.share, c.low, c.high) for key, c in found.items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["coverage", "low", "high"])
    table.index = pd.MultiIndex.from_tuples(rows, names=["of", "design", "interval"])
    return table


def draw_coverage(table: pd.DataFrame) -> None:
    """Draw the coverage of intervals of a distance."""
    table = table.drop(index=["gain", "mean"], level="of")
    cases = list(dict.fromkeys(key[:2] for key in table.index))
    fig, ax = plt.subplots(figsize=(6.4, 3.6))
    for shift, (way, (marker, colour)) in zip((-0.2, 0, 0.2), LOOKS.items(), strict=True):
        own = table.xs(way, level="interval")
        rows = np.array([cases.index(key) for key in own.index]) + shift
        ax.hlines(rows, own["low"], own["high"], color=colour, linewidth=1)
        ax.plot(own["coverage"], rows, marker, color=colour, markersize=5, label=way)
    ax.axvline(0.95, linestyle="--", color="black", linewidth=0.8)
    ax.set(yticks=range(len(cases)), yticklabels=[", ".join(case) for case in cases], xlim=(0, 1))
    ax.set_xlabel("share of intervals that contain the truth")
    ax.invert_yaxis()
    fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3)


def family(
    rng: np.random.Generator, effect: float, resamples: int, models: int = 10, units: int = 40
) -> tuple[Float[np.ndarray, "M"], Float[np.ndarray, "M"]]:
    """Return gains of models of 40 units each: their means, and bootstrap p values."""
    x = rng.normal(effect, size=(models, units))
    weights = resample_weights(units, resamples, seed=int(rng.integers(1 << 30)))
    return x.mean(1), np.array([sign_p_value(weights @ row / units) for row in x])


def family_shares(repeats: int) -> dict[str, float]:
    """Return in what share of simulated families of ten models something is claimed.

    ``plain`` and ``holm``: any claim where there is no effect, without and with Holm's rule; ``found`` and ``few``: all
    ten effects, from 1,000 and from 200 resamples.
    """

    def share(claims: Callable[[Any, Any], Any], effect: float, resamples: int = 1000) -> float:
        rng = np.random.default_rng(0)
        return float(np.mean([claims(*family(rng, effect, resamples)) for _ in range(repeats)]))

    def decided(means: Any, p_values: Any) -> Int[np.ndarray, "M"]:
        return np.asarray(decide(means, p_values))

    return {
        "plain": share(lambda means, p_values: (p_values <= 0.05).any(), 0.0),
        "holm": share(lambda means, p_values: (decided(means, p_values) != 0).any(), 0.0),
        "found": share(lambda means, p_values: (decided(means, p_values) > 0).all(), 1.0),
        "few": share(lambda means, p_values: (decided(means, p_values) > 0).all(), 1.0, 200),
    }


def numbers(table: pd.DataFrame, families: Mapping[str, float]) -> dict[str, float]:
    """Return what the prose of the page says."""
    share = table["coverage"]
    own, prompts = share.xs(OWN, level="interval"), share.xs(PROMPTS, level="interval")
    documents = own.loc[prompts.index]
    of_seeds = share.xs(("mean", SEEDS), level=("of", "design"))
    said = {
        "worst": own.min(), "best": own.max(), "asked": LEAST,
        "prompts_least": prompts.min(), "prompts_most": prompts.max(),
        "documents_least": documents.min(), "documents_most": documents.max(),
        "seeds": of_seeds[OWN], "seeds_percentile": of_seeds[PERCENTILES], **families,
    }  # fmt: skip
    return {f"statistics_{name}": value for name, value in said.items()}


def covers(shares: Any) -> bool:
    """Say whether no share of intervals is below what the book asks."""
    return bool(min(shares) >= LEAST)


def keeps_families(false: float, found: float) -> bool:
    """Say whether few families have a false claim, and most have all of ten real effects."""
    return bool(false < 0.1 and found > 0.9)


def coverage_check(table: pd.DataFrame, families: Mapping[str, float], repeats: int) -> Check:
    """Return the check of the book's intervals, with what it notices of other intervals."""
    share = table["coverage"]
    own, prompts = share.xs(OWN, level="interval"), share.xs(PROMPTS, level="interval")
    near_zero = [covers([share[*key, PERCENTILES]]) for key in (("near", SHARED), ("near", SINGLE), ("mean", SEEDS))]
    broken = {
        "percentiles alone, for a distance near 0 and for three seeds": near_zero,
        "prompts as units, eight to a document": [covers([x]) for x in prompts],
        "ten comparisons without Holm's rule, or with 200 resamples": [
            keeps_families(families["plain"], 1.0),
            keeps_families(families["holm"], families["few"]),
        ],
    }
    figure = (
        f"distances, gains, means of seeds: {own.min():.2f} to {own.max():.2f} of 95% intervals contain the truth "
        f"({repeats} samples); false claims in {families['holm']:.2f} of families of ten, {families['plain']:.2f} "
        "without Holm's rule"
    )
    fails_if = (
        f"an interval covers less than {LEAST:.0%}, or Holm's rule lets a false claim into a tenth of the families, "
        "or misses one of ten effects in as many"
    )
    passed = covers(own) and keeps_families(families["holm"], families["found"])
    how = {"in_part": True, "post_hoc": True}
    said = "The book's intervals contain the truth about as often as they say."
    return Check(
        "X-coverage", "", said, passed, figure, fails_if, broken, "an interval of the book covers too rarely", how
    )
