"""Numbers of the page ``tokens`` on SmolLM2's influence: its profile, predictions of it, and what noise allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein, spearman, unit
from posbias.comparison.resampling import interval, resampled_profiles
from posbias.measure.measurement import Measurement
from posbias.report.stats import LONG, Evidence
from studies.results import load

ROLLOUTS = ("layer-shares", "layer-shares-self", "measured-attention", "measured-attention-own")
"""Rollouts of attention: two methods, each in two forms."""
SHORT = {"even": "even", "shares": "layer-shares", "power": "power-law"}
SHORT |= {"contributions": "contributions", "ladder": "value-maps"}
SHORT |= {"fixed": "fixed-attention", "attention": "measured-attention"}
"""What the page calls predictions in the names of its numbers."""
LENGTHS = {"short": 64, "usual": 256, "long": 1024, "longest": 2048}

Profile = Float[np.ndarray, "n"]


@dataclass(frozen=True)
class Seen:
    """Hold the entries of ``results/real.nc``, and what is computed of SmolLM2's 256 tokens of Wikipedia."""

    kept: Mapping[str, xr.Dataset]

    @property
    def whole(self) -> xr.Dataset:
        """The measurement."""
        return self.kept["smollm2.wiki-256"]

    @cached_property
    def evidence(self) -> Evidence:
        """What a report computes of it."""
        return Evidence(Measurement(self.whole)._subject())

    @cached_property
    def lengths(self) -> dict[str, Evidence]:
        """The same at other lengths."""
        names = {short: f"smollm2.wiki-{n}" for short, n in LENGTHS.items() if n != 256}
        return {
            short: Evidence(Measurement(self.kept[name])._subject(), resamples=200) for short, name in names.items()
        } | {"usual": self.evidence}

    @cached_property
    def drawn(self) -> Float[np.ndarray, "B n"]:
        """The measured profile in resamples of the documents."""
        assert self.evidence.influence is not None
        return resampled_profiles(self.evidence.influence, 1000, units=self.evidence.units)


def load_evidence() -> Seen:
    """Return what is kept of SmolLM2."""
    return Seen(load("real"))


def floor_of(one: Evidence) -> pd.Series:
    """Return the distances of halves of the prompts, a mean over ways to halve them."""
    assert one.floor is not None
    return one.floor.mean()


def prediction_numbers(seen: Seen) -> dict[str, float]:
    """Return how near each prediction of the page is, by three numbers."""
    scores, floor = seen.evidence.scores, floor_of(seen.evidence)
    rows = {short: scores.loc[name] for short, name in SHORT.items()} | {"halves": floor}
    found: dict[str, float] = {}
    for short, x in rows.items():
        found |= {f"real_{short}": x["W1"], f"real_{short}_tv": x["total_variation"]}
        if np.isfinite(x["spearman"]):
            found[f"real_{short}_rank"] = x["spearman"]
    found["real_rollouts"] = scores["W1"][[*ROLLOUTS]].min()
    found["real_contributions_own"] = scores.loc["contributions-own", "W1"]
    return found


def curve_numbers(seen: Seen) -> dict[str, float]:
    """Return what the ends have, measured and predicted, in multiples of the average token."""
    one, n = seen.evidence, seen.evidence.p.size
    for other in seen.lengths.values():
        distance = other.scores["W1"]
        assert other.has_u == "yes" and (distance[[*ROLLOUTS]] > distance["even"]).all()
    return {
        "real_prompts": seen.whole.sizes["prompt"],
        "real_first": n * one.p[0],
        "real_quarter": one.p[: n // 4].sum(),
        "real_shares_quarter": one.profiles["layer-shares"][: n // 4].sum(),
        "real_attention_first": n * one.profiles["measured-attention"][0],
        "real_contributions_first": n * one.profiles["contributions"][0],
    }


def noise_numbers(seen: Seen) -> dict[str, float]:
    """Return the rank correlation that a perfect prediction would have, by the formula of Spearman and Brown.

    ``real_cross_ceiling`` is that with the influence of half of the documents.
    """
    halves = floor_of(seen.evidence)["spearman"]
    return {"real_cross_ceiling": float(np.sqrt(halves)), "real_usual_ceiling": ceiling(halves)}


def ceiling(halves: float) -> float:
    """Return how well a perfect prediction ranks a mean whose two halves correlate so.

    >>> round(ceiling(0.5), 3)
    0.816
    """
    return float(np.sqrt(2 * halves / (1 + halves)))


def aside_numbers(seen: Seen) -> dict[str, float]:
    """Return how near measured attention is if the first token is left out, against equal shares."""
    one = seen.evidence
    even = np.full(one.p.size - 1, 1 / (one.p.size - 1))
    measured = without_first(one.profiles["measured-attention"])
    drawn = [without_first(q) for q in seen.drawn]
    lost = [normalised_wasserstein(measured, q) - normalised_wasserstein(even, q) for q in drawn]
    low, high = interval(np.array(lost))
    return {
        "real_attention_aside_rank": spearman(measured, without_first(one.p)),
        "real_attention_aside_lost_low": float(low),
        "real_attention_aside_lost_high": float(high),
    }


def without_first(p: Profile) -> Profile:
    """Return a profile of all tokens but the first."""
    return unit(p[1:])


def crossed_numbers(seen: Seen, runs: int = 200) -> dict[str, float]:
    """Return how contributions of half of the documents rank the influence of the other half, a mean over halves."""
    influence, own = by_document(seen, "influence_prompts"), by_document(seen, "contributions_own")
    rng, ranks = np.random.default_rng(0), []
    for _ in range(runs):
        half = rng.permutation(len(influence)) < len(influence) // 2
        ranks.append(spearman(unit(own[half].sum(0)), unit(influence[~half].sum(0))))
    return {"real_cross_rank": float(np.mean(ranks))}


def by_document(seen: Seen, variable: str) -> Float[np.ndarray, "D n"]:
    """Return the sums of a variable over the prompts of each document."""
    units, values = seen.evidence.units, seen.whole[variable].values.astype(np.float64)
    return np.stack([values[units == k].sum(0) for k in np.unique(units)])


def sink_numbers(seen: Seen) -> dict[str, float]:
    """Return what the first token gets of attention and gives by contributions, where one state is long."""
    whole = seen.whole
    ratio, long = whole["norm_ratio"].values, whole["norm_ratio"].values > LONG
    _, attention, contributed = whole["first_share"].values
    equal, _, taken = whole["first_share_late"].values
    return {
        "real_ratio": float(ratio.max()),
        "real_long_layers": int(long.sum()),
        "real_sink_attention": attention[long].mean(),
        "real_sink_contributed": contributed[long].mean(),
        "real_late_half": taken[long].mean(),
        "real_late_equal": equal[long].mean(),
    }


def crossing_numbers(seen: Seen) -> dict[str, float]:
    """Return how near the rollout is with the share λ of measured attention and the matrix of either."""
    found = {}
    for short, whom in (("attention", "attention"), ("whom", "contributions")):
        p = unit(seen.whole["crossed"].sel(whom=whom, amount="frobenius").values)
        found[f"real_cross_{short}"] = normalised_wasserstein(p, seen.evidence.p)
    return found


NUMBERS_OF: tuple[Callable[[Seen], dict[str, float]], ...] = (
    curve_numbers,
    noise_numbers,
    aside_numbers,
    crossed_numbers,
    sink_numbers,
    crossing_numbers,
)


def numbers(seen: Seen) -> dict[str, float]:
    """Return all numbers of SmolLM2's influence that the book's prose quotes."""
    found = prediction_numbers(seen)
    for numbers_of in NUMBERS_OF:
        found |= numbers_of(seen)
    return found
