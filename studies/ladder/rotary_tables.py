"""Kernels of rotary models beside the measured ones, as kernels and as predictions of influence, in tables.

``studies`` are entries by model and tokens of a prompt, ``kept`` holds summaries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein
from posbias.comparison.fits import recency_fit
from posbias.comparison.scores import Gain, paired_gain
from posbias.measure.corpus import known_units
from posbias.predict import layer_masks
from studies.ladder.rotary_kernels import distance_kernels, distance_logits
from studies.ladder.scores import with_decisions
from studies.results import of_kind

KINDS = {256: "rotary", 1024: "rotary-1024"}
"""Tokens of a prompt → kind of entry."""
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
"""Kernels of the entries, and how a page writes them."""

Studies = Mapping[tuple[str, int], xr.Dataset]
Kept = Mapping[str, xr.Dataset]


def read_rotary(kept: Kept, models: Sequence[str]) -> dict[tuple[str, int], xr.Dataset]:
    """Return the entries on rotary kernels, model and tokens → results, models first."""
    found = {(name, n): x for n, kind in KINDS.items() for name, x in of_kind(kept, kind, models).items()}
    return {(name, n): found[name, n] for name in models for n in KINDS if (name, n) in found}


def mean_kernels(study: xr.Dataset, measurement: xr.Dataset) -> Float[np.ndarray, "T n n"]:
    """Return the kernels from mean queries and keys, averaged over heads, with the windows of the measurement."""
    n, scale = study.sizes["position"], study["scale"].values[:, None, None]
    logits = scale * distance_logits(study["query"].values, study["key"].values, study["theta"].values, n)
    masks = layer_masks(measurement)
    return np.stack([distance_kernels(z, mask).mean(0) for z, mask in zip(logits, masks, strict=True)])


def rotary_scores(studies: Studies, kept: Kept) -> pd.DataFrame:
    """Return how good every kernel is, as a kernel and as a prediction, and two baselines: a row each.

    Columns are ``model``, ``tokens``, ``kernel`` (a key of :data:`LABELS`, ``last`` or ``recency``), ``W1`` to the
    measured influence, ``variation`` (total variation to the measured kernel, averaged over queries and layers), and
    ``sink`` (mean weight on position 0); what a row cannot have is missing.
    """
    rows = []
    for (name, n), x in studies.items():
        p = kept[f"{name}.{CORPORA[n]}"]["influence"].values
        profiles = {kernel: x["profile"].sel(kernel=kernel).values for kernel in LABELS}
        profiles |= {"last": np.eye(p.size)[-1], "recency": recency_fit(p)}
        variation, sink = (x[of].mean("layer").to_pandas() for of in ("variation", "first"))
        for kernel, q in profiles.items():
            apart = np.nan if kernel == "measured" else variation.get(kernel)
            W1 = normalised_wasserstein(q, p)
            rows.append((name, n, kernel, W1, apart, sink.get(kernel)))
    table = pd.DataFrame(rows, columns=["model", "tokens", "kernel", "W1", "variation", "sink"])
    return table.astype({"variation": float, "sink": float})


def rotary_gains(studies: Studies, kept: Kept, pairs: Sequence[tuple[str, str]], *, resamples: int) -> pd.DataFrame:
    """Return how much nearer the second kernel of each pair is, with its 95% interval over documents.

    Columns are ``model``, ``tokens``, ``before``, ``after``, ``gain``, ``low``, ``high``, ``p_value`` and ``decided``,
    its sign where it stands among all models and lengths.
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
