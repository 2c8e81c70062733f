"""Kernels of rotary models beside the measured ones, as kernels and as predictions of influence, in tidy tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein
from posbias.comparison.fits import recency_fit
from posbias.comparison.scores import Gain, paired_gain
from posbias.measure.prompt_units import known_units
from posbias.measure.rollouts import layer_masks
from posbias.report.scoring import Kept, with_decisions
from posbias.rollout.rotary import distance_kernels, distance_logits
from studies.ladder.joining import joined_profile
from studies.result_files import read_study

KINDS = {256: "rotary", 1024: "rotary-1024"}
"""Tokens of a prompt → kind of study."""

CORPORA = {256: "builtin", 1024: "builtin-1024"}
"""Tokens of a prompt → corpus of the summaries whose influence is predicted."""

LABELS = {
    "uniform": "uniform, as in (b)",
    "mean": "mean q, k",
    "rest": "without position 0",
    "first": "own key at 0",
    "keys": "+ variance of keys",
    "both": "+ variance of both",
    "logits": "mean logits",
    "slopes": "ALiBi fit",
    "measured": "measured",
}
"""Kernels of the studies, and how a page writes them."""

Studies = Mapping[tuple[str, int], xr.Dataset]
"""Model and tokens → results."""


def read_rotary(results: Path, models: Sequence[str]) -> dict[tuple[str, int], xr.Dataset]:
    """Return the studies of rotary kernels, model and tokens → results, models first.

    Parameters
    ----------
    results
        The folder ``results`` of the book.
    models
        Names of reference models; those without rotary positions have none.
    """
    found = {(name, n): x for n, kind in KINDS.items() for name, x in read_study(results, kind, models).items()}
    return {(name, n): found[name, n] for name in models for n in KINDS if (name, n) in found}


def mean_kernels(study: xr.Dataset, measurement: xr.Dataset) -> Float[np.ndarray, "T n n"]:
    """Return the kernels from mean queries and keys, averaged over heads, with the windows of the measurement.

    Parameters
    ----------
    study
        Of a rotary model, with ``query``, ``key``, ``theta`` and ``scale``.
    measurement
        The summary of the same prompts.
    """
    n, scale = study.sizes["position"], study["scale"].values[:, None, None]
    logits = scale * distance_logits(study["query"].values, study["key"].values, study["theta"].values, n)
    masks = layer_masks(measurement)
    return np.stack([distance_kernels(z, mask).mean(0) for z, mask in zip(logits, masks, strict=True)])


def rotary_scores(studies: Studies, kept: Kept) -> pd.DataFrame:
    """Return how good every kernel is, as a kernel and as a prediction, and two baselines: a row each.

    Columns are ``model``, ``tokens``, ``kernel`` (a key of :data:`LABELS`, ``last`` or ``recency``), ``W1`` to the
    measured influence, ``variation`` (total variation to the measured kernel, averaged over queries and layers), and
    ``sink`` (mean weight on position 0); what a row cannot have is missing.

    Parameters
    ----------
    studies
        From :func:`read_rotary`.
    kept
        Summaries.
    """
    rows: list[tuple[object, ...]] = []
    for (name, n), x in studies.items():
        p = kept[f"{name}.{CORPORA[n]}"]["influence"].values
        for kernel in LABELS:
            own = x.sel(kernel=kernel)
            variation = np.nan if kernel == "measured" else float(own["variation"].mean())
            rows.append(
                (
                    name,
                    n,
                    kernel,
                    normalised_wasserstein(own["profile"].values, p),
                    variation,
                    float(own["first"].mean()),
                )
            )
        for kernel, q in (("last", np.eye(p.size)[-1]), ("recency", recency_fit(p))):
            rows.append((name, n, kernel, normalised_wasserstein(q, p), np.nan, np.nan))
    return pd.DataFrame(rows, columns=["model", "tokens", "kernel", "W1", "variation", "sink"])


def rotary_gains(studies: Studies, kept: Kept, pairs: Sequence[tuple[str, str]], *, resamples: int) -> pd.DataFrame:
    """Return how much nearer the second kernel of each pair is, with its 95 % interval over documents.

    Columns are ``model``, ``tokens``, ``before``, ``after``, ``gain``, ``low``, ``high``, ``p_value`` and ``decided``,
    its sign where it stands among all models and lengths.

    Parameters
    ----------
    studies, kept
        As for :func:`rotary_scores`.
    pairs
        Keys of :data:`LABELS`, two each.
    resamples
        Of the bootstrap over documents.
    """
    rows = []
    for (name, n), x in studies.items():
        measured = kept[f"{name}.{CORPORA[n]}"]
        prompts, units = measured["influence_prompts"].values, known_units(measured)
        for pair in pairs:
            profiles = (x["profile"].sel(kernel=kernel).values for kernel in pair)
            rows.append((name, n, *pair, *paired_gain(prompts, *profiles, units=units, resamples=resamples)))
    columns = ["model", "tokens", "before", "after", *Gain._fields]
    return with_decisions(pd.DataFrame(rows, columns=columns), ["before", "after"])


def mended_share(scores: pd.DataFrame) -> pd.Series:
    """Return what mean queries and keys mend of what the measured kernels would, by model and tokens.

    Parameters
    ----------
    scores
        From :func:`rotary_scores`.

    >>> rows = [("m", 256, "uniform", 0.4), ("m", 256, "mean", 0.2), ("m", 256, "measured", 0.1)]
    >>> mended_share(pd.DataFrame(rows, columns=["model", "tokens", "kernel", "W1"])).round(3).tolist()
    [0.667]
    """
    W1 = scores.pivot(index=["model", "tokens"], columns="kernel", values="W1")
    return (W1["uniform"] - W1["mean"]) / (W1["uniform"] - W1["measured"])


def logit_variances(studies: Studies, distances: Sequence[int]) -> pd.DataFrame:
    """Return the variance of logits by distance, mean over heads and layers, in squared nats.

    Columns are ``model``, ``tokens``, ``source`` (``keys`` or ``both``), ``distance`` and ``variance``.

    Parameters
    ----------
    studies
        From :func:`read_rotary`.
    distances
        Which, from 0.
    """
    rows = []
    for (name, n), x in studies.items():
        for source in x["source"].values.tolist():
            variances = x["variance"].sel(source=source).mean("layer").values
            rows += [(name, n, source, distance, float(variances[distance])) for distance in distances]
    return pd.DataFrame(rows, columns=["model", "tokens", "source", "distance", "variance"])


def angled_rotary(studies: Studies, kept: Kept) -> pd.Series:
    """Return W₁ of the rollout from mean queries and keys with skip and branch at right angles, by model and tokens.

    Parameters
    ----------
    studies, kept
        As for :func:`rotary_scores`.
    """
    found = {}
    for (name, n), x in studies.items():
        measured = kept[f"{name}.{CORPORA[n]}"]
        q = joined_profile(mean_kernels(x, measured), measured["lambda_frobenius"].values, power=2.0)
        found[name, n] = normalised_wasserstein(q, measured["influence"].values)
    return pd.Series(found, name="angles").rename_axis(["model", "tokens"])
