"""What a report rests on, computed once: profiles, intervals, scores, tests, the trough, and what is missing."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Int

from posbias.comparison.distances import normalised_wasserstein, spearman, total_variation
from posbias.comparison.fits import power_fit
from posbias.comparison.multiplicity import decide, holm
from posbias.comparison.pairs import usable
from posbias.comparison.resampling import interval, resample_weights, resampled_profiles
from posbias.comparison.samples import LEVEL, SMOOTH, Sample, u_decisions
from posbias.measure.corpus import known_units
from posbias.predict import PREDICTORS
from posbias.report.scoring import gain_rows, score_rows
from posbias.rollout.labelled import Profile
from posbias.rollout.profiles import TOLERANCE, UShape, u_shape

RESAMPLES = 2000
FEW_UNITS = 10
"""Below so many units the intervals of a bootstrap are too short."""
SPLITS = 200
"""Random halves of the prompts whose distance is the floor below which distances are noise."""
LEAST_FOR_U = 2 * SMOOTH
"""Tokens below which a running mean of :data:`SMOOTH` leaves no room for a trough."""
BLIND = ("last", "even")
"""What a prediction has to beat: they know nothing of the model or of what was measured."""
LONG = 10
"""How many times the median length of a state the longest may be before a layer is said to have a sink."""
TENTHS = 10
STEPS = (
    ("attention-only", "layer-shares"),
    ("layer-shares", "layer-shares-self"),
    ("layer-shares", "measured-attention"),
    ("measured-attention", "measured-attention-own"),
    ("layer-shares", "head-gains-squared"),
    ("value-maps", "value-maps-positional"),
)
"""Pairs of predictions that differ in one ingredient."""


@dataclass(frozen=True)
class Subject:
    """Hold a measurement and what predicts it: profiles by predictor, yardsticks too, and why others are missing."""

    title: str
    described: str
    results: xr.Dataset
    influence: Profile
    predictions: Mapping[str, Profile]
    missing: Mapping[str, str]
    lookup: xr.Dataset | None = None

    def needing(self, *quantities: str) -> list[str]:
        """Return the predictions that are made of one of these quantities."""
        return [name for name in self.predictions if PREDICTORS[name].needs & {*quantities}]

    @property
    def of_model(self) -> list[str]:
        """Predictions that are made of the model: all but the yardsticks."""
        return [name for name in self.predictions if PREDICTORS[name].needs]

    @property
    def rollouts(self) -> list[str]:
        """Predictions that add sizes by λ."""
        return [name for name in self.needing("mixing") if name not in self.needing("branches")]

    def label(self, name: str) -> str:
        """Return what a prediction is called."""
        return PREDICTORS[name].label


class Evidence:
    """Compute what a report says of one measurement; each number once, when it is first asked for."""

    def __init__(self, subject: Subject, resamples: int = RESAMPLES) -> None:
        self.subject, self.resamples = subject, resamples
        self.p: Float[np.ndarray, "n"] = subject.influence.values / subject.influence.values.sum()

    @cached_property
    def units(self) -> Int[np.ndarray, "N"]:
        """The document of each prompt; where they are not known, prompts are units of their own."""
        known = known_units(self.subject.results) if usable(self.subject.influence.prompts) else None
        return np.arange(int(self.subject.results.attrs["prompts"])) if known is None else known

    @property
    def unit(self) -> str:
        """What is drawn again in a resample."""
        return "prompts" if self.sample_size == len(self.units) else "documents"

    @cached_property
    def sample_size(self) -> int:
        """Number of units."""
        return int(np.unique(self.units).size)

    @cached_property
    def influence(self) -> Float[np.ndarray, "N n"] | None:
        """Each prompt's influence, None where intervals cannot be had from it: there must be two units or more."""
        prompts = self.subject.influence.prompts
        return prompts if usable(prompts) and self.sample_size > 1 else None

    @cached_property
    def resampled(self) -> Float[np.ndarray, "B n"] | None:
        """The measured profile in each resample."""
        if self.influence is None:
            return None
        return resampled_profiles(self.influence, self.resamples, units=self.units)

    @cached_property
    def band(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The 95% interval of the measured profile, position by position."""
        return None if self.resampled is None else interval(self.resampled)

    @property
    def mean_positions(self) -> Float[np.ndarray, "B"] | None:
        """The mean position in each resample."""
        n = self.p.size
        return None if self.resampled is None else self.resampled @ np.arange(n) / max(n - 1, 1)

    @cached_property
    def floor(self) -> pd.DataFrame | None:
        """Distances and rank correlations of the means of random halves of the units, a row a division."""
        if self.influence is None:
            return None
        names, rng, rows = np.unique(self.units), np.random.default_rng(0), []
        for _ in range(SPLITS):
            half = np.isin(self.units, rng.permutation(names)[: len(names) // 2])
            p, q = (self.influence[which].sum(0, dtype=np.float64) for which in (half, ~half))
            p, q = p / p.sum(), q / q.sum()
            rows.append((normalised_wasserstein(p, q), total_variation(p, q), spearman(p, q)))
        return pd.DataFrame(rows, columns=["W1", "total_variation", "spearman"])

    @cached_property
    def climbed(self) -> tuple[int, float] | None:
        """On how many prompts the ladder is, where these are not all, and how far their mean is from that of all."""
        rows = self.subject.results.get("ladder_prompts")
        if rows is None or self.influence is None or "prompt" not in rows.dims:
            return None
        there = np.isfinite(rows.values).all(axis=tuple(range(1, rows.ndim)))
        own = self.influence[there].sum(0, dtype=np.float64)
        return None if there.all() else (int(there.sum()), normalised_wasserstein(own / own.sum(), self.p))

    @cached_property
    def long_layers(self) -> Int[np.ndarray, "k"]:
        """Layers in which one token's state is on average over :data:`LONG` times as long as the median one."""
        ratios = self.subject.results.get("norm_ratio")
        return np.flatnonzero(ratios.values > LONG) if ratios is not None else np.zeros(0, dtype=int)

    @property
    def first_attention(self) -> float | None:
        """Attention to the first token in these layers, of queries beyond the first quarter; None if not measured."""
        A = self.subject.results.get("attention")
        return None if A is None else float(A.values[self.long_layers, len(self.p) // 4 :, 0].mean())

    @cached_property
    def used(self) -> dict[str, float] | None:
        """What replacing tokens says beside the gradient; None where it was not measured.

        The first token by use and by influence, in equal shares; how far influence, and a fitted power law, are from
        use; and the rank correlation of influence with it.
        """
        rows = self.subject.results.get("use_prompts")
        if rows is None:
            return None
        use = rows.values.sum(0) / rows.values.sum()
        return {
            "first": use[0] * use.size,
            "first_influence": self.p[0] * use.size,
            "influence": normalised_wasserstein(self.p, use),
            "rank": spearman(self.p, use),
            "law": normalised_wasserstein(power_fit(use), use),
        }

    @cached_property
    def profiles(self) -> dict[str, Float[np.ndarray, "n"]]:
        """Every prediction by name."""
        return {name: p.values / p.values.sum() for name, p in self.subject.predictions.items()}

    @cached_property
    def scores(self) -> pd.DataFrame:
        """W₁ with its interval, total variation, rank correlation and difference of means of every prediction."""
        prompts, drawn = self.influence, self.resampled
        if prompts is None or drawn is None:
            prompts = drawn = self.p[None]
        table = score_rows(prompts, self.profiles, drawn).set_index("prediction")
        if self.influence is None:
            table[["low", "high"]] = np.nan
        return table.assign(total_variation=[total_variation(self.profiles[name], self.p) for name in table.index])

    @cached_property
    def gains(self) -> pd.DataFrame:
        """How much nearer one prediction is than another, with Holm's p value and the sign where it stands."""
        names = self.subject.of_model
        pairs = [(blind, name) for name in names for blind in BLIND]
        pairs += [step for step in STEPS if set(step) <= set(self.profiles)]
        rest = [name for name in self.subject.predictions if name not in (self.nearest, *BLIND)]
        pairs += [(x, str(self.nearest)) for x in rest if (x, self.nearest) not in pairs]
        if self.influence is None or self.resampled is None or not names:
            return pd.DataFrame(columns=["before", "after", "gain", "low", "high", "p_value", "adjusted", "decided"])
        table = gain_rows(self.influence, self.profiles, pairs, self.resampled)
        p_values = table["p_value"].to_numpy()
        return table.assign(adjusted=holm(p_values), decided=decide(table["gain"].to_numpy(), p_values, LEVEL))

    @cached_property
    def nearest(self) -> str | None:
        """The prediction of the model that is nearest to what was measured, None without one."""
        return self.nearest_of(self.subject.of_model)

    def nearest_of(self, names: list[str]) -> str | None:
        """Return the nearest of these, None of none."""
        return str(self.scores.loc[names, "W1"].idxmin()) if names else None

    @property
    def blind_nearest(self) -> str | None:
        """The yardstick that is nearer than every prediction of the model, None where there is none."""
        first = str(self.scores["W1"].idxmin())
        return None if first in self.subject.of_model else first

    def against(self, before: str, after: str) -> int | None:
        """Return 1 where the second prediction is nearer than the first, -1 where it is further, 0 where it is open."""
        found = self.gains[(self.gains["before"] == before) & (self.gains["after"] == after)]
        return None if found.empty else int(found["decided"].iloc[0])

    @cached_property
    def tied(self) -> list[str]:
        """Predictions that tests do not tell apart from the nearest one."""
        return [x for x in self.subject.of_model if x != self.nearest and self.against(x, str(self.nearest)) == 0]

    @cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray | None] | None:
        """Share × 10 of the first and the last tenth of the prompt, the last token aside, and both in each resample."""
        if self.p.size < LEAST_FOR_U:
            return None
        drawn = None if self.resampled is None else TENTHS * tenths(self.resampled)[..., [0, -1]]
        return TENTHS * tenths(self.p)[[0, -1]], drawn

    @cached_property
    def lost(self) -> str:
        """Whether the middle is lost, yes, no or open: both outer tenths have more than an equal share, by a margin."""
        if self.ends is None or self.ends[1] is None:
            return "open"
        low, high = interval(self.ends[1].min(-1))
        return "yes" if low > 1 + TOLERANCE else "no" if high < 1 + TOLERANCE else "open"

    @cached_property
    def shape(self) -> UShape | None:
        """The measured profile's ends and trough, by a running mean of :data:`SMOOTH`; None for few tokens."""
        return u_shape(self.p, smooth=SMOOTH) if self.p.size >= LEAST_FOR_U else None

    @cached_property
    def has_u(self) -> str:
        """Whether there is a U: yes, no, or open where resamples do not agree or there are none."""
        if self.shape is None or self.influence is None:
            return "open"
        found = u_decisions({"own": Sample(self.influence, self.units)}, resamples=self.resamples)
        return str(found["u"].iloc[0])

    @cached_property
    def mixing(self) -> Float[np.ndarray, "T"] | None:
        """λ of each layer, None where influence alone was measured."""
        if "lambda_frobenius" not in self.subject.results:
            return None
        return self.subject.results["lambda_frobenius"].values.astype(np.float64)

    @cached_property
    def resampled_mixing(self) -> Float[np.ndarray, "B T"] | None:
        """λ of each layer in each resample, with the draws of :attr:`resampled`."""
        each = self.subject.results.get("lambda_frobenius_prompts")
        if each is None or self.sample_size < 2 or not np.isfinite(each.values).all():
            return None
        weights = resample_weights(self.units, self.resamples)
        return np.asarray(weights @ each.values / weights.sum(1, keepdims=True))

    @cached_property
    def mixing_band(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The 95% interval of λ, layer by layer."""
        return None if self.resampled_mixing is None else interval(self.resampled_mixing)


def tenths(p: Float[np.ndarray, "*any n"]) -> Float[np.ndarray, "*any 10"]:
    """Return the shares of the tenths of a prompt, its last token aside, which has much whatever the place.

    >>> tenths(np.array([1.0, 1.0, 2.0, 0.0, 1.0, 9.0])).round(2).tolist()
    [0.1, 0.1, 0.1, 0.1, 0.2, 0.2, 0.0, 0.0, 0.1, 0.1]
    """
    inner = p[..., :-1]
    total = np.concatenate([np.zeros_like(inner[..., :1]), np.cumsum(inner, axis=-1)], axis=-1)
    edges = np.linspace(0, inner.shape[-1], TENTHS + 1)
    below = np.minimum(edges.astype(int), inner.shape[-1] - 1)
    at = total[..., below] + (edges - below) * inner[..., below]
    return np.asarray(np.diff(at, axis=-1) / total[..., -1:])
