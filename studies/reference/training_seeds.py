"""Models trained from other seeds: what is measured of them, and the spread over seeds beside that over prompts.

A seed's file is named MODEL.seed-SEED.PART.nc. Prompts are the same for every seed, so that what differs between seeds
is training alone; what differs between prompts is had by leaving out groups of them, a module's prompts together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float, Int

from posbias import errors
from posbias.comparison.resampling import resample_weights
from posbias.measure.accumulators import LayerSums
from posbias.measure.corpus import document_units
from posbias.measure.positions import read_positions
from posbias.measure.prompt_units import prompt_units, unit_groups
from posbias.measure.run import measured
from posbias.measure.study import Settings, Study
from posbias.measure.summary import summarise
from posbias.rollout.cells import cells_of
from posbias.rollout.order import stochastic_monotonicity

GROUPS = 8
"""Groups of prompts, of which one at a time is left out."""
"""The name of a file, without its suffix."""
LARGE = ("influence_signed_prompts", "position_bias", "stepped", "pulled", "rolled")
"""What files of seeds leave out."""


def measure_seed(settings: Settings) -> xr.Dataset:
    """Measure a model, and keep the summary with what tells the spread over prompts.

    Beside the summary there are ``offset_groups`` (group, layer, head), the diagonal offset of content logits in each
    of :data:`GROUPS` groups of prompts; ``shortfall_without`` (group, layer), the mean excess prefix mass of the mean
    kernel of all prompts but the group's; and ``group`` (prompt).

    Raises
    ------
    ValueError, OSError
        As :func:`~posbias.measure.run.measure` does, and if there are fewer modules than groups.
    """
    study = Study(settings)
    units = document_units(study.prompts.origins, settings.corpus.dataset)
    if units.max() < 1:
        raise errors.invalid("prompts", "some of two modules or more", f"{units.size} of one")
    group = unit_groups(units, min(GROUPS, int(units.max()) + 1))
    offsets, kernels = map(np.stack, zip(*(group_means(study, group == k) for k in np.unique(group)), strict=True))
    fields = {
        "offset_groups": (("group", "layer", "head"), offsets, "diagonal offset of content logits, by group"),
        "shortfall_without": (("group", "layer"), shortfalls_without(kernels, np.bincount(group)), "excess without it"),
        "group_of": (("prompt",), group, "group of each prompt"),
    }
    found = {name: (dims, x, {"long_name": text}) for name, (dims, x, text) in fields.items()}
    return summarise(measured(study)).assign(found)


def group_means(study: Study, chosen: np.ndarray) -> tuple[Float[np.ndarray, "T H"], Float[np.ndarray, "T n n"]]:
    """Return the diagonal offset of content logits, and the attention kernels, both as means over chosen prompts.

    Parameters
    ----------
    study
        Model and prompts.
    chosen
        Which of the prompts, a truth value for each.
    """
    instrument, n, ids = study.instrument, study.settings.length, study.ids[torch.from_numpy(chosen)]
    positions = read_positions(instrument, n)
    layers = [LayerSums(instrument.H, cells_of(n, n), where, ("kernels", "content")) for where in instrument.devices()]
    for batch in ids.split(study.settings.batch_size):
        instrument.forward(batch, lambda seen: layers[seen.layer].add(seen))
    means = [layer.means(len(ids), int(positions.reach[t])) for t, layer in enumerate(layers)]
    offsets = [found["content_diagonal"] - found["content_offdiagonal"] for found in means]
    return np.stack(offsets), np.stack([found["attention"] for found in means])


def shortfalls_without(kernels: Float[np.ndarray, "G T n n"], sizes: Int[np.ndarray, "G"]) -> Float[np.ndarray, "G T"]:
    """Return the mean excess prefix mass of the kernels of all prompts but those of one group, for each group.

    Parameters
    ----------
    kernels
        Mean over each group.
    sizes
        Prompts in each.
    """
    sums = kernels * sizes[:, None, None, None]
    rest = sums.sum(0) - sums
    rest /= rest.sum(-1, keepdims=True)
    return np.array([[stochastic_monotonicity(A).shortfall for A in layers] for layers in rest])


def jackknife_error(without: Float[np.ndarray, "G ..."]) -> Float[np.ndarray, "..."]:
    """Return the standard error of a statistic from its values without each of G groups, √((G-1)/G Σ (θ_g - θ̄)²).

    Source: the delete-a-group jackknife (Efron and Tibshirani 1993, chapter 11).

    >>> x = np.array([1.0, 2.0, 6.0])  # of a mean it is the usual one
    >>> jackknife_error((x.sum() - x) / 2) - x.std(ddof=1) / 3**0.5 < 1e-12
    np.True_
    """
    G = len(without)
    if G < 2:
        raise errors.invalid("groups", "two or more", G)
    return np.asarray(np.sqrt((G - 1) / G * ((without - without.mean(0)) ** 2).sum(0)))


def complete(seeds: Mapping[str, dict[int, xr.Dataset]], wanted: int = 3) -> dict[str, dict[int, xr.Dataset]]:
    """Return the models that have as many seeds as wanted, or more."""
    return {model: files for model, files in seeds.items() if len(files) >= wanted}


def by_seed(seeds: Mapping[str, dict[int, xr.Dataset]]) -> dict[str, xr.Dataset]:
    """Return measurements by MODEL.seed-SEED, so that tables of many models take each seed for a model of its own.

    >>> by_seed({"bloom-8": {0: xr.Dataset(), 2: xr.Dataset()}}).keys()
    dict_keys(['bloom-8.seed-0', 'bloom-8.seed-2'])
    """
    return {f"{model}.seed-{seed}": x for model, files in seeds.items() for seed, x in files.items()}


def split_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with ``model`` as in :func:`by_seed` with the two in columns of their own, ``model`` and ``seed``.

    >>> split_seeds(pd.DataFrame({"model": ["bloom-8.seed-2"], "W1": [0.1]})).to_dict("records")
    [{'model': 'bloom-8', 'W1': 0.1, 'seed': 2}]
    """
    names = table["model"].str.rsplit(".seed-", n=1)
    return table.assign(model=names.str[0], seed=names.str[1].astype(int))


Statistic = Callable[[xr.Dataset, Float[np.ndarray, "N"]], float]
"""A number of a measurement whose prompts count as often as their weights say."""


def resampled_error(measurement: xr.Dataset, statistic: Statistic, *, resamples: int = 200) -> float:
    """Return the standard deviation of a statistic over resamples of the modules that prompts are from.

    Parameters
    ----------
    measurement
        With ``prompt`` in its dimensions.
    statistic
        Of measurement and weights.
    resamples
        Of the bootstrap.
    """
    weights = resample_weights(prompt_units(measurement), resamples)
    return float(np.std([statistic(measurement, w) for w in weights if w.any()], ddof=1))


SPREADS = ("over_seeds", "over_prompts", "ratio")
"""Columns of :func:`spread_table` beside those of the seeds."""


def spread_table(
    seeds: Mapping[str, dict[int, xr.Dataset]],
    value: Callable[[xr.Dataset], float],
    error: Callable[[xr.Dataset], float],
) -> pd.DataFrame:
    """Return a number of each model from each seed, its spread over seeds, and its error from prompts.

    Parameters
    ----------
    seeds
        Model → seed → measurement; two seeds or more each.
    value, error
        The number, and its standard error over prompts, of a measurement.

    Returns
    -------
    table : DataFrame
        Index ``model``. Columns: ``seed S`` for every seed; ``over_seeds``, the standard deviation of these;
        ``over_prompts``, the root mean square of their errors; ``ratio`` of the two.
    """
    rows = {}
    for model, files in seeds.items():
        values = {f"seed {seed}": value(x) for seed, x in files.items()}
        over_seeds = float(np.std(list(values.values()), ddof=1))
        over_prompts = float(np.mean([error(x) ** 2 for x in files.values()]) ** 0.5)
        ratio = over_seeds / over_prompts if over_prompts else float("inf")
        rows[model] = values | {"over_seeds": over_seeds, "over_prompts": over_prompts, "ratio": ratio}
    found = pd.DataFrame.from_dict(rows, orient="index", columns=None if rows else list(SPREADS))
    return found[[*sorted(set(found) - set(SPREADS)), *SPREADS]].rename_axis("model")


def range_text(values: pd.Series, form: str) -> str:
    """Return the smallest and the largest of some numbers as words, and that there are none if there are none.

    >>> range_text(pd.Series([2.0, 1.0]), ".1f"), range_text(pd.Series([1.0, 1.04]), ".1f"), range_text(pd.Series(), "")
    ('1.0 to 2.0', '1.0', 'none measured')
    """
    if values.empty:
        return "none measured"
    low, high = f"{values.min():{form}}", f"{values.max():{form}}"
    return low if low == high else f"{low} to {high}"
