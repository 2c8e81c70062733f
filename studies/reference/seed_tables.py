"""What chapters quote of models from several training seeds: mixing, content and influence, over seeds and prompts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein, wasserstein_to
from posbias.comparison.samples import SMOOTH, Sample, u_decisions, u_excess
from posbias.report.scoring import sample_of
from posbias.rollout.profiles import mean_position
from studies.reference.training_seeds import jackknife_error, resampled_error, spread_table

Seeds = Mapping[str, dict[int, xr.Dataset]]
"""Model → seed → file of the study ``seeds``."""


def mixing_over_seeds(seeds: Seeds) -> pd.DataFrame:
    """Return total mixing τ = Σλ_t of each seed, with its spreads (:func:`~.training_seeds.spread_table`)."""

    def tau(x: xr.Dataset, weights: Float[np.ndarray, "N"]) -> float:
        return float(np.average(x["lambda_frobenius_prompts"].values, axis=0, weights=weights).sum())

    return spread_table(seeds, lambda x: tau(x, np.ones(x.sizes["prompt"])), lambda x: resampled_error(x, tau))


def offsets_over_seeds(seeds: Seeds) -> pd.DataFrame:
    """Return the median over heads of the size of the diagonal offset, of each seed, with its spreads."""

    def median(offsets: Float[np.ndarray, "... T H"]) -> Float[np.ndarray, "..."]:
        return np.asarray(np.median(abs(offsets), axis=(-2, -1)))

    def error(x: xr.Dataset) -> float:
        sizes = np.bincount(x["group_of"].values)[:, None, None]
        sums = x["offset_groups"].values * sizes
        return float(jackknife_error(median((sums.sum(0) - sums) / (sizes.sum() - sizes))))

    def value(x: xr.Dataset) -> float:
        return float(median((x["content_diagonal"] - x["content_offdiagonal"]).values))

    return spread_table(seeds, value, error)


def shortfalls_over_seeds(seeds: Seeds) -> pd.DataFrame:
    """Return the worst layer's mean excess prefix mass, of each seed, with its spreads."""
    return spread_table(
        seeds,
        lambda x: float(x["monotonicity_shortfall"].max()),
        lambda x: float(jackknife_error(x["shortfall_without"].values.max(1))),
    )


def positions_over_seeds(seeds: Seeds) -> pd.DataFrame:
    """Return the mean position of influence of each seed, with its spreads."""
    return _of_profiles(seeds, mean_position)


def starts_over_seeds(seeds: Seeds) -> pd.DataFrame:
    """Return the first token's influence times n of each seed, with its spreads."""
    return _of_profiles(seeds, lambda p: float(p[0] * p.size))


def _of_profiles(seeds: Seeds, number: object) -> pd.DataFrame:
    def value(x: xr.Dataset, weights: Float[np.ndarray, "N"]) -> float:
        g = weights @ x["influence_prompts"].values
        return float(number(g / g.sum()))  # type: ignore[operator]

    return spread_table(seeds, lambda x: value(x, np.ones(x.sizes["prompt"])), lambda x: resampled_error(x, value))


def profiles_over_seeds(seeds: Seeds, *, resamples: int = 200) -> pd.DataFrame:
    """Return how far profiles of seeds are from each other, beside what resampled prompts make of one.

    Parameters
    ----------
    seeds
        Model → seed → file; two seeds or more each.
    resamples
        Of the bootstrap over units.

    Returns
    -------
    table : DataFrame
        Index ``model``. Columns: ``between_seeds``, the mean W₁ of two seeds' profiles; ``between_prompts``, the mean
        W₁ of two profiles of one seed from resampled prompts; ``with_u``, how many seeds have a U
        (:func:`~posbias.comparison.samples.u_decisions`, all of a model's seeds being a family); ``least_excess`` of these.
    """
    rows = {}
    for model, files in seeds.items():
        samples = [sample_of(x) for x in files.values()]
        profiles = [sample.profile for sample in samples]
        pairs = [(p, q) for k, p in enumerate(profiles) for q in profiles[:k]]
        decided = u_decisions(dict(zip(map(str, files), samples, strict=True)))
        rows[model] = {
            "between_seeds": float(np.mean([normalised_wasserstein(p, q) for p, q in pairs])),
            "between_prompts": float(np.mean([_resampled_distance(sample, resamples) for sample in samples])),
            "with_u": int((decided["u"] == "yes").sum()),
            "least_excess": float(min(u_excess(p[None], smooth=SMOOTH)[0] for p in profiles)),
        }
    columns = ["between_seeds", "between_prompts", "with_u", "least_excess"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("model")


def _resampled_distance(sample: Sample, resamples: int) -> float:
    """Return the mean W₁ of two profiles from resampled units."""
    one, other = sample.resampled(resamples), sample.resampled(resamples, seed=1)
    return float(np.mean([wasserstein_to(p[None], q)[0] for p, q in zip(one, other, strict=True)]))


def losses_over_seeds(seeds: Seeds) -> pd.DataFrame:
    """Return the held-out loss of each seed in nats a token: a column for each seed; index ``model``."""
    rows = {
        model: {f"seed {seed}": float(x.attrs["held_out_loss"]) for seed, x in files.items()}
        for model, files in seeds.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")
