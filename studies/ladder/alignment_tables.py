"""Where models lie between the law of untrained networks and the aligned sum, as tables.

An entry is MODEL.between of a reference model, MODEL.seed-S.between of one that was trained from another seed, and
MODEL.seed-S.step-NNNNNN of a state that was kept during a training.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein, unit, wasserstein_to
from posbias.comparison.multiplicity import decide, sign_p_value
from posbias.comparison.resampling import interval, resample_weights
from posbias.comparison.samples import Sample
from posbias.measure.corpus import known_units
from posbias.rollout.profiles import mean_position

NAME = re.compile(r"(?P<model>[^.]+)(?:\.seed-(?P<seed>\d+))?\.(?P<part>between|step-\d+)$")
FINE = 0.01
"""Step of ρ in which the nearest profile is sought; between the values that entries have, profiles are interpolated."""
STAGE = ("model", "seed", "step", "finished")
"""Columns that say which network a row is of."""

Entries = Mapping[str, xr.Dataset]
"""Name → results of :func:`~studies.ladder.alignment.measure_between`."""


def stage_of(x: xr.Dataset) -> dict[str, object]:
    """Return the columns :data:`STAGE` of an entry."""
    return {column: x.attrs[f"stage_{column}"] for column in STAGE}


def sample_between(x: xr.Dataset) -> Sample:
    """Return an entry's prompts, and the documents that they are from where it tells them."""
    influence, units = x["influence_prompts"].values.astype(np.float64), known_units(x)
    return Sample(influence, np.arange(len(influence)) if units is None else units)


def place_of(
    measured: Float[np.ndarray, "B n"], family: Float[np.ndarray, "R n"], coherences: Float[np.ndarray, "R"]
) -> tuple[Float[np.ndarray, "B"], Float[np.ndarray, "B"]]:
    """Return for each measured profile the ρ whose profile is nearest in W₁, and its distance.

    The family has a profile for each of ``coherences``, which rise.

    >>> ends = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    >>> place_of(np.array([[0.7, 0.0, 0.3]]), ends, np.array([0.0, 1.0]))[0].round(2).tolist()
    [0.3]
    """
    fine = np.arange(round(coherences[0] / FINE), round(coherences[-1] / FINE) + 1) * FINE
    above = np.clip(np.searchsorted(coherences, fine, side="right"), 1, len(coherences) - 1)
    weight = (fine - coherences[above - 1]) / (coherences[above] - coherences[above - 1])
    profiles = family[above - 1] * (1 - weight[:, None]) + family[above] * weight[:, None]
    distances = np.stack([wasserstein_to(profiles, p) for p in measured])
    best = distances.argmin(1)
    return fine[best], distances[np.arange(len(measured)), best]


def place_table(entries: Entries, *, resamples: int = 200) -> pd.DataFrame:
    """Return where each network lies between both limits with measured kernels, a row each.

    Columns are those of :data:`STAGE`; ``mean``, the mean position of measured influence, and ``mean_law``,
    ``mean_aligned``, ``mean_both``; W₁ to the measured influence of the ``law`` of untrained networks, of the
    ``aligned`` sum, of the ``rollout`` of the same kernels, of the law with measured ``cosines``, with measured
    ``shares`` and with ``both``, and of the ``nearest`` profile of the family; its ρ, the ``place``, with ``low`` and
    ``high`` over documents; ``coherence`` where two parts of the gradient meet; ``excess``, how much larger the size
    through attentions is than the law expects, the median over layers.
    """
    rows = {}
    for name, x in entries.items():
        sample, own = sample_between(x), x.sel(kernel="measured")
        weights = resample_weights(sample.units, resamples)
        p, drawn = sample.profile, unit(weights[weights.any(1)] @ sample.influence)
        places, nearest = place_of(
            np.vstack([p, drawn]), unit(own["profile"].values), own["coherence"].values.astype(float)
        )
        low, high = interval(places[1:])
        predicted = dict(zip(("law", "aligned"), limits_of(x), strict=True))
        predicted["rollout"] = unit(x["rollout"].sel(variant="kernels").values)
        predicted |= {str(way): unit(own["predicted"].sel(reading=way).values) for way in x["reading"].values}
        rows[name] = (
            stage_of(x)
            | {"mean": mean_position(p)}
            | {f"mean_{limit}": mean_position(predicted[limit]) for limit in ("law", "aligned", "both")}
            | {way: normalised_wasserstein(q, p) for way, q in predicted.items()}
            | {"nearest": float(nearest[0]), "place": float(places[0]), "low": float(low), "high": float(high)}
            | {"coherence": coherence(x)}
            | {"excess": float(np.sqrt((x["share"] / x["expected_share"]).sel(sum="attention").median()))}
        )
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("name")


Limits = tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]
"""The law of untrained networks and the aligned sum."""


def limits_of(x: xr.Dataset, kernel: str = "measured") -> Limits:
    """Return the law and the aligned sum of an entry, with measured kernels or with ``content-free`` ones."""
    own = x["profile"].sel(kernel=kernel)
    law, aligned = (unit(own.sel(coherence=end).values) for end in (0.0, 1.0))
    return law, aligned


@lru_cache(maxsize=64)
def _drawn_means(sample: Sample, resamples: int) -> Float[np.ndarray, "B"]:
    """Return the mean positions of resampled units."""
    return np.asarray(sample.resampled(resamples) @ np.linspace(0, 1, sample.influence.shape[1]))


def limit_decisions(
    samples: Mapping[str, Sample], limits: Mapping[str, Limits], *, resamples: int = 1000
) -> pd.DataFrame:
    """Return by name on which side of both limits the mean position of measured influence stands.

    Columns ``law`` and ``aligned``: ``within``, ``beyond``, or ``open`` where neither stands by Holm's rule over all
    that are asked about, both limits of all networks.
    """
    effects, p_values = [], []
    for name, sample in samples.items():
        law, aligned = limits[name]
        inward = np.sign(mean_position(aligned) - mean_position(law))
        means = _drawn_means(sample, max(resamples, 100 * len(samples)))
        own = mean_position(sample.profile)
        for end, sign in ((law, inward), (aligned, -inward)):
            effects.append(sign * (own - mean_position(end)))
            p_values.append(sign_p_value(sign * (means - mean_position(end))))
    sides = decide(np.array(effects), np.array(p_values)).reshape(-1, 2)
    words = np.array(["beyond", "open", "within"])[sides + 1]
    return pd.DataFrame(words, index=pd.Index(list(samples), name="name"), columns=["law", "aligned"])


def coherence(x: xr.Dataset) -> float:
    """Return the cross terms where two parts of the gradient meet over what they would be if all were aligned."""
    return float(x["cross"].sum() / x["possible"].sum())


def agreement(table: pd.DataFrame, coherence: str = "coherence", *, resamples: int = 1000) -> dict[str, float]:
    """Return how well a coherence says the place: rank correlation over rows with its interval, and mean error.

    The table is that of :func:`place_table`; architectures are drawn again with all their rows. ``error`` is the mean
    of |place - coherence|, and ``spread`` that of |place - mean place|: what is left when one number stands for all.
    """
    two = table[[coherence, "place"]].reset_index(drop=True)
    weights = resample_weights(table["model"].factorize()[0], resamples).astype(int)
    drawn = np.array([_rank_correlation(two.loc[two.index.repeat(row)]) for row in weights])
    low, high = interval(drawn[np.isfinite(drawn)])
    return {
        "spearman": _rank_correlation(two),
        "low": float(low),
        "high": float(high),
        "error": float((two["place"] - two[coherence]).abs().mean()),
        "spread": float((two["place"] - two["place"].mean()).abs().mean()),
    }


def _rank_correlation(two: pd.DataFrame) -> float:
    """Return Spearman's coefficient of two columns, missing where one is constant."""
    return float(two.corr("spearman").iloc[0, 1])
