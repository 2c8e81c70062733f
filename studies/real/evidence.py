"""Numbers of the page ``tokens`` on SmolLM2's influence: its profile, predictions of it, and what noise allows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein, spearman, unit
from posbias.comparison.resampling import interval, resample_weights, resampled_profiles
from posbias.measure.measurement import Measurement
from posbias.predict import PREDICTORS
from posbias.report.stats import LONG, Evidence
from studies.real.tables import NUMBERS
from studies.results import load

ROLLOUTS = ("layer-shares", "layer-shares-self", "measured-attention", "measured-attention-own")
"""Rollouts of attention: two methods, each in two forms."""
NOISE = "halves of the prompts"
SHORT = {"even": "even", "shares": "layer-shares", "power": "power-law"}
SHORT |= {"contributions": "contributions", "ladder": "value-maps"}
SHORT |= {"fixed": "fixed-attention", "attention": "measured-attention"}
"""What the page calls predictions in the names of its numbers."""
LENGTHS = {"short": 64, "usual": 256, "long": 1024, "longest": 2048}
TITLES = {"last": "everything on the last token", "even": "equal shares"}
TITLES |= {"power-law": "a power law, one fitted number"}
TITLES = {name: TITLES.get(name, one.label) for name, one in PREDICTORS.items()}

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


def prediction_numbers(seen: Seen) -> dict[str, float | str]:
    """Return how near each prediction of the page is, by three numbers, and the table as text."""
    scores, floor = seen.evidence.scores, floor_of(seen.evidence)
    rows = {short: scores.loc[name] for short, name in SHORT.items()} | {"halves": floor}
    found: dict[str, float | str] = {}
    for short, x in rows.items():
        found |= {f"real_{short}": x["W1"], f"real_{short}_tv": x["total_variation"]}
        if np.isfinite(x["spearman"]):
            found[f"real_{short}_rank"] = x["spearman"]
    lines = {TITLES[k]: scores.loc[k] for k in scores.index} | {NOISE: floor}
    found["real_table"] = json.dumps({title: _rounded(line) for title, line in lines.items()})
    found["real_predictions"] = len(scores)
    found["real_rollouts"] = scores["W1"][[*ROLLOUTS]].min()
    found["real_contributions_own"] = scores.loc["contributions-own", "W1"]
    return found


def _rounded(line: pd.Series) -> list[float | None]:
    return [None if np.isnan(x) else round(float(x), 6) for x in line[[*NUMBERS]]]


def curve_numbers(seen: Seen) -> dict[str, float]:
    """Return what the ends have, measured and predicted, in multiples of the average token."""
    one, n = seen.evidence, seen.evidence.p.size
    assert one.has_u == "yes" and all(x.has_u == "yes" for x in seen.lengths.values())
    return {
        "real_prompts": seen.whole.sizes["prompt"],
        "real_first": n * one.p[0],
        "real_last": n * one.p[-1],
        "real_quarter": one.p[: n // 4].sum(),
        "real_shares_quarter": one.profiles["layer-shares"][: n // 4].sum(),
        "real_attention_first": n * one.profiles["measured-attention"][0],
        "real_contributions_first": n * one.profiles["contributions"][0],
    }


def length_numbers(seen: Seen) -> dict[str, float]:
    """Return how contributions do at other lengths, and how far rollouts are away there."""
    found, far = {}, []
    for short, one in seen.lengths.items():
        rank, W1 = one.scores["spearman"], one.scores["W1"]
        found[f"real_{short}_contributions_rank"] = rank["contributions"]
        found[f"real_{short}_attention_rank"] = rank["measured-attention"]
        found[f"real_{short}_contributions"] = W1["contributions"]
        found[f"real_{short}_even"] = W1["even"]
        far += [W1[x] / W1["even"] for x in ("measured-attention", "layer-shares")]
        assert (W1[[*ROLLOUTS]] > W1["even"]).all()
    return found | {"real_far_least": min(far), "real_far_most": max(far)}


def noise_numbers(seen: Seen) -> dict[str, float]:
    """Return the rank correlation that a perfect prediction would have, by the formula of Spearman and Brown.

    ``real_cross_ceiling`` is that with the influence of half of the documents, 256 tokens.
    """
    found = {"real_cross_ceiling": float(np.sqrt(floor_of(seen.evidence)["spearman"]))}
    for short, one in seen.lengths.items():
        halves = floor_of(one)["spearman"]
        found[f"real_{short}_halves_rank"] = halves
        found[f"real_{short}_ceiling"] = ceiling(halves)
    return found


def ceiling(halves: float) -> float:
    """Return how well a perfect prediction ranks a mean whose two halves correlate so.

    >>> round(ceiling(0.5), 3)
    0.816
    """
    return float(np.sqrt(2 * halves / (1 + halves)))


def aside_numbers(seen: Seen) -> dict[str, float]:
    """Return how near rollouts of attention are if the first token is left out, against equal shares."""
    one = seen.evidence
    even = np.full(one.p.size - 1, 1 / (one.p.size - 1))
    measured = without_first(one.profiles["measured-attention"])
    drawn = [without_first(q) for q in seen.drawn]
    lost = [normalised_wasserstein(measured, q) - normalised_wasserstein(even, q) for q in drawn]
    rank = [spearman(measured, q) for q in drawn]
    p = without_first(one.p)
    shares = without_first(one.profiles["layer-shares"])
    return {
        "real_attention_aside": normalised_wasserstein(measured, p),
        "real_shares_aside": normalised_wasserstein(shares, p),
        "real_even_aside": normalised_wasserstein(even, p),
        "real_attention_aside_rank": spearman(measured, p),
        **ends("real_attention_aside_lost", lost),
        **ends("real_attention_aside_rank", rank),
    }


def without_first(p: Profile) -> Profile:
    """Return a profile of all tokens but the first."""
    return unit(p[1:])


def ends(name: str, drawn: list[float]) -> dict[str, float]:
    """Return the two ends of a 95% interval."""
    low, high = interval(np.array(drawn))
    return {f"{name}_low": float(low), f"{name}_high": float(high)}


def rank_numbers(seen: Seen) -> dict[str, float]:
    """Return how much better contributions rank positions than measured attention, over documents."""
    contributed, attended = (seen.evidence.profiles[x] for x in ("contributions", "measured-attention"))
    gained = [spearman(contributed, q) - spearman(attended, q) for q in seen.drawn]
    found = ends("real_rank_gain", gained)
    assert found["real_rank_gain_low"] > 0
    return found


def crossed_numbers(seen: Seen, runs: int = 200) -> dict[str, float]:
    """Return how near contributions of some documents are to influence of others, and of the same ones.

    The interval is of how much nearer they are than equal shares, with documents drawn for both together.
    """
    influence, own = by_document(seen, "influence_prompts"), by_document(seen, "contributions_own")
    even, rng, rows = (
        np.full(influence.shape[1], 1 / influence.shape[1]),
        np.random.default_rng(0),
        [],
    )
    for _ in range(runs):
        half = rng.permutation(len(influence)) < len(influence) // 2
        p = unit(influence[~half].sum(0))
        others, same = unit(own[half].sum(0)), unit(own[~half].sum(0))
        rows.append([f(q, p) for f in (normalised_wasserstein, spearman) for q in (others, same)])
    weights = resample_weights(len(influence), 1000)
    pairs = zip(*(_shares(weights @ x) for x in (influence, own)), strict=True)
    gained = [normalised_wasserstein(even, p) - normalised_wasserstein(q, p) for p, q in pairs]
    names = ("real_cross_W1", "real_same_W1", "real_cross_rank", "real_same_rank")
    return dict(zip(names, np.mean(rows, 0), strict=True)) | ends("real_own_gain", gained)


def _shares(x: Float[np.ndarray, "B n"]) -> Float[np.ndarray, "B n"]:
    return np.asarray(x / x.sum(1, keepdims=True))


def by_document(seen: Seen, variable: str) -> Float[np.ndarray, "D n"]:
    """Return the sums of a variable over the prompts of each document."""
    units, values = seen.evidence.units, seen.whole[variable].values.astype(np.float64)
    return np.stack([values[units == k].sum(0) for k in np.unique(units)])


def sink_numbers(seen: Seen) -> dict[str, float]:
    """Return what the first token gets of attention and gives by contributions, where one state is long."""
    whole = seen.whole
    ratio, long = whole["norm_ratio"].values, whole["norm_ratio"].values > LONG
    _, attention, contributed = whole["first_share"].values
    equal, late, taken = whole["first_share_late"].values
    carried = np.median(seen.kept["smollm2.sinks"]["carried"].mean("prompt").values[long])
    weighed = late[long].mean() * carried
    return {
        "real_ratio": float(ratio.max()),
        "real_long_layers": int(long.sum()),
        "real_sink_attention": attention[long].mean(),
        "real_sink_contributed": contributed[long].mean(),
        "real_late_half": taken[long].mean(),
        "real_late_equal": equal[long].mean(),
        "real_late_half_attention": late[long].mean(),
        "real_by_length": weighed / (weighed + 1 - late[long].mean()),
    }


def crossing_numbers(seen: Seen) -> dict[str, float]:
    """Return how near rollouts are with the matrix of the one and the share λ of another."""
    pairs = {"attention": ("attention", "frobenius"), "amount": ("attention", "contributions")}
    pairs |= {"half": ("attention", "half"), "whom": ("contributions", "frobenius")}
    found = {}
    for short, (whom, amount) in pairs.items():
        p = unit(seen.whole["crossed"].sel(whom=whom, amount=amount).values)
        found[f"real_cross_{short}"] = normalised_wasserstein(p, seen.evidence.p)
    return found


NUMBERS_OF: tuple[Callable[[Seen], dict[str, float]], ...] = (
    curve_numbers,
    length_numbers,
    noise_numbers,
    aside_numbers,
    rank_numbers,
    crossed_numbers,
    sink_numbers,
    crossing_numbers,
)


def numbers(seen: Seen) -> dict[str, float | str]:
    """Return all numbers of SmolLM2's influence that the book's prose quotes."""
    found = prediction_numbers(seen)
    for numbers_of in NUMBERS_OF:
        found |= numbers_of(seen)
    return found
