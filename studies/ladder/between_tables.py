"""Where models lie between the law at birth and the aligned sum, and what leaves independence first, as tables.

A file is MODEL.between.nc for a reference model, MODEL.seed-S.between.nc for one that was trained from another seed,
and MODEL.seed-S.step-NNNNNN.nc for a state that was kept during a training. Whatever the folder holds is read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias import errors
from posbias.comparison.distances import normalised_wasserstein, wasserstein_to
from posbias.comparison.multiplicity import decided, sign_p_value
from posbias.comparison.resampling import interval, resample_weights
from posbias.measure.prompt_units import known_units
from posbias.netcdf import load
from posbias.report.scoring import training_record, unit
from posbias.rollout.profiles import mean_position, u_shape
from studies.reference.influence_tables import SMOOTH, Sample, u_decisions, with_profile

NAME = re.compile(r"(?P<model>[^.]+)(?:\.seed-(?P<seed>\d+))?\.(?P<part>between|step-\d+)$")
"""The name of a file, without its suffix."""
FINE = 0.01
"""Step of ρ in which the nearest profile is sought; between the values that files have, profiles are interpolated."""
STAGE = ("model", "seed", "step", "finished")
"""Columns that say which network a row is of."""

Files = Mapping[str, xr.Dataset]
"""Name → results of :func:`~studies.ladder.between.measure_between`."""


def read_between(folder: Path | str, models: Sequence[str]) -> dict[str, xr.Dataset]:
    """Return the files of the study ``between`` in a folder by name, ordered by model, seed and step.

    Attributes ``stage_model``, ``stage_seed``, ``stage_step`` and ``stage_finished`` are added. Of two files of one
    finished training the first by name is taken.

    Parameters
    ----------
    folder
        ``results/NN_name``.
    models
        Names of reference models, in the order wanted; files of others are left out.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    found: dict[tuple[int, int, int, bool], tuple[str, xr.Dataset]] = {}
    for path in sorted(Path(folder).glob("*.nc")):
        name = NAME.match(path.stem)
        if name is None or name["model"] not in models:
            continue
        model, finished = name["model"], name["part"] == "between"
        x, record = load(path), training_record(model)
        seed = int(name["seed"] if name["seed"] is not None else record["seed"])
        step = int(x.attrs.get("training_steps", record["steps"]))
        stage = {"stage_model": model, "stage_seed": seed, "stage_step": step, "stage_finished": int(finished)}
        key = (list(models).index(model), seed, step, finished)
        found.setdefault(key, (path.stem, x.assign_attrs(stage)))
    if not found:
        raise FileNotFoundError(f"{folder}: no file MODEL.between.nc of {', '.join(models)}")
    return dict(found[key] for key in sorted(found))


def finished(files: Files) -> dict[str, xr.Dataset]:
    """Return the files of trainings that have ended."""
    return {name: x for name, x in files.items() if x.attrs["stage_finished"]}


def courses(files: Files) -> dict[str, dict[str, xr.Dataset]]:
    """Return the trainings of which a state was kept before the end, MODEL, seed S → files in the order of steps."""
    found: dict[str, dict[str, xr.Dataset]] = {}
    for name, x in files.items():
        found.setdefault(f"{x.attrs['stage_model']}, seed {x.attrs['stage_seed']}", {})[name] = x
    return {run: own for run, own in found.items() if any(not x.attrs["stage_finished"] for x in own.values())}


def shown_courses(files: Files, most: int = 3) -> dict[str, list[str]]:
    """Return the names of the files of some trainings, those of other architectures before other seeds of one."""
    runs = {run: list(own) for run, own in courses(files).items()}
    before: dict[str, int] = {}
    rank = {}
    for run, names in runs.items():
        model = files[names[0]].attrs["stage_model"]
        rank[run] = before[model] = before.get(model, -1) + 1
    chosen = sorted(runs, key=rank.__getitem__)[:most]
    return {run: names for run, names in runs.items() if run in chosen}


def first_stages(places: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of networks before their first step."""
    return places[places["step"] == 0]


def sample_between(x: xr.Dataset) -> Sample:
    """Return a file's prompts, and the documents that they are from where it tells them."""
    influence, units = x["influence_prompts"].values.astype(np.float64), known_units(x)
    return Sample(influence, np.arange(len(influence)) if units is None else units)


def place_of(
    measured: Float[np.ndarray, "B n"], family: Float[np.ndarray, "R n"], coherences: Float[np.ndarray, "R"]
) -> tuple[Float[np.ndarray, "B"], Float[np.ndarray, "B"]]:
    """Return for each measured profile the ρ whose profile is nearest in W₁, and its distance.

    Parameters
    ----------
    measured
        Profiles, a row each.
    family
        Profiles at ``coherences``, which rise.

    >>> ends = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    >>> place_of(np.array([[0.7, 0.0, 0.3]]), ends, np.array([0.0, 1.0]))[0].round(2).tolist()
    [0.3]
    """
    if len(family) != len(coherences) or (np.diff(coherences) <= 0).any():
        raise errors.invalid("coherences", f"{len(family)} rising numbers", coherences)
    fine = np.arange(round(coherences[0] / FINE), round(coherences[-1] / FINE) + 1) * FINE
    above = np.clip(np.searchsorted(coherences, fine, side="right"), 1, len(coherences) - 1)
    weight = (fine - coherences[above - 1]) / (coherences[above] - coherences[above - 1])
    profiles = family[above - 1] * (1 - weight[:, None]) + family[above] * weight[:, None]
    distances = np.stack([wasserstein_to(profiles, p) for p in measured])
    best = distances.argmin(1)
    return fine[best], distances[np.arange(len(measured)), best]


def place_table(files: Files, kernel: str = "measured", *, resamples: int = 200) -> pd.DataFrame:
    """Return where each network lies between both limits, a row each.

    Parameters
    ----------
    files
        Of :func:`read_between`.
    kernel
        ``measured`` or ``content-free``.
    resamples
        Of the bootstrap over documents.

    Returns
    -------
    table : DataFrame
        Index ``name``. Columns: those of :data:`STAGE`; ``mean``, the mean position of measured influence, and
        ``mean_law``, ``mean_aligned``, ``mean_both``; W₁ to the measured influence of the ``law`` at birth, of the
        ``aligned`` sum, of
        the ``rollout`` of the same kernels, of the law with measured ``cosines``, with measured ``shares`` and with
        ``both``, and of the ``nearest`` profile of the family; its ρ, the ``place``, with ``low`` and ``high``;
        ``coherence`` where two parts of the gradient meet, that of ``paths`` and that of ``heads``; ``excess``, how
        much larger the size through attentions is than the law expects, the median over layers.
    """
    rows = {}
    for name, x in files.items():
        sample = sample_between(x)
        weights = resample_weights(sample.units, resamples)
        drawn = unit(weights[weights.any(1)] @ sample.influence)
        p, own = sample.profile, x.sel(kernel=kernel)
        family, grid = unit(own["profile"].values), own["coherence"].values.astype(float)
        law, aligned = limits_of(x, kernel)
        places, nearest = place_of(np.vstack([p, drawn]), family, grid)
        low, high = interval(places[1:])
        rollout = unit(x["rollout"].sel(variant="kernels" if kernel == "measured" else "b").values)
        rows[name] = {
            **{column: x.attrs[f"stage_{column}"] for column in STAGE},
            "mean": mean_position(p),
            "mean_law": mean_position(law),
            "mean_aligned": mean_position(aligned),
            "mean_both": mean_position(unit(own["predicted"].sel(reading="both").values)),
            "law": normalised_wasserstein(law, p),
            "aligned": normalised_wasserstein(aligned, p),
            "rollout": normalised_wasserstein(rollout, p),
            **{str(way): normalised_wasserstein(unit(own["predicted"].sel(reading=way).values), p)
               for way in x["reading"].values},
            "nearest": float(nearest[0]),
            "place": float(places[0]),
            "low": float(low),
            "high": float(high),
            **coherences(x),
            "excess": float(np.sqrt((x["share"] / x["expected_share"]).sel(sum="attention").median())),
        }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("name")


Limits = tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]
"""The law at birth and the aligned sum."""


def limits_of(x: xr.Dataset, kernel: str = "measured") -> Limits:
    """Return the law at birth and the aligned sum of a file with one kind of kernels."""
    own = x["profile"].sel(kernel=kernel)
    law, aligned = (unit(own.sel(coherence=end).values) for end in (0.0, 1.0))
    return law, aligned


def limit_profiles(files: Files, kernel: str = "content-free") -> dict[str, dict[str, np.ndarray]]:
    """Return the law at birth and the aligned sum of each reference model by name, ``birth`` and ``aligned``.

    Parameters
    ----------
    files
        Of :func:`read_between`; of other trainings and of unfinished ones nothing is returned.
    kernel
        As for :func:`limits_of`.
    """
    whole = {name.removesuffix(".between"): x for name, x in files.items() if name.endswith(".between")}
    named = {name: limits_of(x, kernel) for name, x in whole.items() if ".seed-" not in name}
    return {name: dict(zip(("birth", "aligned"), found, strict=True)) for name, found in named.items()}


def limit_decisions(
    samples: Mapping[str, Sample], limits: Mapping[str, Limits], *, resamples: int = 1000
) -> pd.DataFrame:
    """Return on which side of both limits the mean position of measured influence stands.

    Parameters
    ----------
    samples, limits
        Name → prompts, and name → limits.
    resamples
        Of the bootstrap over documents; more if so many networks could not be decided with them.

    Returns
    -------
    table : DataFrame
        Index ``name``; columns ``law`` and ``aligned``: ``within``, ``beyond``, or ``open`` where neither stands by
        Holm's rule over all that are asked about, both limits of all networks.
    """
    effects, p_values = [], []
    for name, sample in samples.items():
        n, (law, aligned) = sample.influence.shape[1], limits[name]
        inward = np.sign(mean_position(aligned) - mean_position(law))
        means = sample.resampled(max(resamples, 100 * len(samples))) @ np.linspace(0, 1, n)
        own = mean_position(sample.profile)
        for end, sign in ((law, inward), (aligned, -inward)):
            effects.append(sign * (own - mean_position(end)))
            p_values.append(sign_p_value(sign * (means - mean_position(end))))
    sides = decided(np.array(effects), np.array(p_values)).reshape(-1, 2)
    words = np.array(["beyond", "open", "within"])[sides + 1]
    return pd.DataFrame(words, index=pd.Index(list(samples), name="name"), columns=["law", "aligned"])


def lie_between(samples: Mapping[str, Sample], limits: Mapping[str, Limits], *, resamples: int = 1000) -> bool:
    """Tell whether every network stands within both limits by :func:`limit_decisions`."""
    return bool((limit_decisions(samples, limits, resamples=resamples) == "within").all(axis=None))


def moved_between(sample: Sample, limits: Limits, place: float) -> Sample:
    """Return a sample whose mean profile is at a place between both limits, by mean position, with its own noise.

    Parameters
    ----------
    sample
        Its noise is kept, prompt by prompt.
    limits
        Of its network.
    place
        0 at the law, 1 at the aligned sum; beyond 1 the rest comes from a point mass on the first token.
    """
    law, aligned = limits
    inner = min(place, 1.0)
    p = (1 - inner) * law + inner * aligned
    if place > 1:
        target = mean_position(law) + place * (mean_position(aligned) - mean_position(law))
        p = p * (target / mean_position(p))
        p[0] += 1 - p.sum()
    return with_profile(sample, p)


def valley_table(samples: Mapping[str, Sample], *, resamples: int = 1000) -> pd.DataFrame:
    """Return whether the measured influence of each network has a U, all of them being one family of comparisons.

    Index ``name``; columns of :func:`~studies.reference.influence_tables.u_decisions`, and the ``depth`` of the
    trough.
    """
    depth = {name: u_shape(sample.profile, smooth=SMOOTH).depth for name, sample in samples.items()}
    found = u_decisions(samples, smooth=SMOOTH, resamples=max(resamples, 50 * len(samples)))
    return found.assign(depth=pd.Series(depth)).rename_axis("name")


def keep_the_valley(samples: Mapping[str, Sample], ended: Collection[str]) -> bool:
    """Tell whether every trained network's influence has a U by ``u_decisions``, and none on the way there lacks one.

    Parameters
    ----------
    samples
        Name → prompts.
    ended
        Names of those whose training has ended; of the others a U may be open.
    """
    u = u_decisions(samples, smooth=SMOOTH, resamples=50 * max(len(samples), 10))["u"]
    return bool((u[u.index.isin(list(ended))] == "yes").all() and (u != "no").all())


def says_where(table: pd.DataFrame, *, resamples: int = 200) -> bool:
    """Tell whether coherence orders the places, by its interval, and errs less than one number for all."""
    found = agreement(table, resamples=resamples)
    return bool(found["low"] > 0 and found["error"] < found["spread"])


def coherences(x: xr.Dataset) -> dict[str, float]:
    """Return a model's coherence where two parts of the gradient meet, that of paths through one attention, of heads.

    Cross terms of all layers and prompts over what they would be if all were aligned.
    """
    total = {name: x[name].sum("few") for name in ("cross", "possible")}
    joins, heads = (
        {name: float(part.sel(join=which).sum()) for name, part in total.items()}
        for which in (["attention", "step"], ["heads"])
    )
    return {
        "coherence": joins["cross"] / joins["possible"],
        "paths": float(x["path_cross"].sum() / x["path_possible"].sum()),
        "heads": heads["cross"] / heads["possible"],
    }


def layer_coherences(files: Files) -> pd.DataFrame:
    """Return the coherence of every layer, a row for each network, layer and kind.

    Columns are those of :data:`STAGE`, ``layer`` from 1, ``kind`` (attention, step or heads: what meets there; paths:
    those through this attention with those through the others'), ``coherence``, ``error`` of it over prompts (one
    standard error; missing for paths), and ``excess``, how much larger what comes through the branch is than the law
    at birth expects (missing for heads and paths).
    """
    rows = []
    for x in files.values():
        stage = {column: x.attrs[f"stage_{column}"] for column in STAGE}
        for join in x["join"].values:
            cross, possible = (x[name].sel(join=join).values for name in ("cross", "possible"))
            ratio = _ratio(cross.sum(-1), possible.sum(-1))
            each = _ratio(cross, possible)
            error = each.std(-1, ddof=1) / each.shape[-1] ** 0.5 if each.shape[-1] > 1 else np.full(len(each), np.nan)
            excess = np.full(len(ratio), np.nan)
            if join in x["sum"].values:
                excess = np.sqrt(_ratio(*(x[name].sel(sum=join).values for name in ("share", "expected_share"))))
            for t, found in enumerate(zip(ratio, error, excess, strict=True)):
                rows.append({**stage, "layer": t + 1, "kind": str(join), **_named(found)})
        pairs = x["pair_coherence"].values
        for t, row in enumerate(pairs):
            others = float(np.delete(row, t).mean()) if len(row) > 1 else 0.0
            rows.append({**stage, "layer": t + 1, "kind": "paths", **_named((others, np.nan, np.nan))})
    return pd.DataFrame(rows)


def _named(found: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip(("coherence", "error", "excess"), map(float, found), strict=True))


def _ratio(cross: np.ndarray, possible: np.ndarray) -> np.ndarray:
    return np.divide(cross, possible, out=np.zeros_like(possible, dtype=float), where=possible > 0)


def first_departures(layers: pd.DataFrame, level: float = 0.1) -> pd.DataFrame:
    """Return the first step at which a layer's coherence is larger than a level in size, at that step and two errors.

    Parameters
    ----------
    layers
        Of :func:`layer_coherences`, with all steps of the trainings that are asked for.
    level
        In size; departures above 0 and below it count alike.

    Returns
    -------
    table : DataFrame
        A row for each ``model``, ``seed``, ``kind`` and ``layer``: ``step``, missing where none is, and the
        ``coherence`` there.
    """
    clear = layers["coherence"].abs() - 2 * layers["error"].fillna(0) > level
    keys = ["model", "seed", "kind", "layer"]
    first = layers[clear].sort_values("step").groupby(keys, sort=False)[["step", "coherence"]].first()
    every = layers[keys].drop_duplicates()
    return every.merge(first, left_on=keys, right_index=True, how="left")


def departure_counts(layers: pd.DataFrame, level: float = 0.1) -> pd.DataFrame:
    """Return how many layers have left independence for the first time by each step, by kind.

    Parameters
    ----------
    layers, level
        As for :func:`first_departures`; the trainings of which states were kept.

    Returns
    -------
    table : DataFrame
        Index ``model``, ``seed`` and ``kind``; a column for each step of any of them, and ``of``, the layers.
    """
    runs = layers.groupby(["model", "seed"])["finished"].transform("min") == 0
    first = first_departures(layers[runs], level)
    groups = first.groupby(["model", "seed", "kind"], sort=False)
    steps = sorted(layers[runs]["step"].unique())
    counts = {f"step {step}": groups["step"].agg(lambda x, step=step: int((x <= step).sum())) for step in steps}
    return pd.DataFrame(counts).assign(of=groups["layer"].count())


def agreement(table: pd.DataFrame, coherence: str = "coherence", *, resamples: int = 1000) -> dict[str, float]:
    """Return how well a coherence says the place: rank correlation over rows with its interval, and mean error.

    Parameters
    ----------
    table
        Of :func:`place_table`; architectures are drawn again with all their rows.
    coherence
        Column to hold against ``place``.

    Returns
    -------
    found : dict
        ``spearman``, ``low``, ``high``, ``error``, the mean of |place - coherence|, and ``spread``, that of
        |place - mean place|: what is left when one number stands for all.
    """
    x, y = table[coherence].to_numpy(), table["place"].to_numpy()
    weights = resample_weights(table["model"].factorize()[0], resamples)
    drawn = []
    for row in weights.astype(int):
        some = np.repeat(np.arange(len(x)), row)
        drawn.append(_rank_correlation(x[some], y[some]))
    low, high = interval(np.array(drawn)[np.isfinite(drawn)])
    return {
        "spearman": _rank_correlation(x, y),
        "low": float(low),
        "high": float(high),
        "error": float(abs(y - x).mean()),
        "spread": float(abs(y - y.mean()).mean()),
    }


def _rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    ranks = [pd.Series(values).rank().to_numpy() for values in (x, y)]
    if any(np.ptp(values) == 0 for values in ranks):
        return float("nan")
    return float(np.corrcoef(*ranks)[0, 1])
