"""Remedies for position bias in tidy tables: what each does to the rollout and to influence, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias import errors
from posbias.comparison.distances import wasserstein_to
from posbias.comparison.resampling import hull_interval, interval, resample_weights
from posbias.report.scoring import unit
from posbias.rollout.profiles import u_shape
from studies.result_files import read_study

LAST = 64
"""How many tokens at the end count as recent."""
STRETCH = 9
"""Width of the running mean under the trough of a measured profile, as for the influence of the models."""
RESAMPLES, SEED = 200, 0
"""Of the bootstrap over units, the same in the study and in its tables, so that all resamples are paired."""
TOLERATED = 0.1
"""Nats a token that a cheap setting may cost at most, on the prompts that are searched."""


@dataclass(frozen=True)
class Remedy:
    """Say what a remedy is, and how it is read here.

    Parameters
    ----------
    label
        As a figure writes it.
    source
        Where it is from.
    reading
        What is done here, where the source may do otherwise.
    parameters
        Names of what a setting holds.
    searched
        Whether its setting is searched, with as many evaluations as any other.
    """

    label: str
    source: str
    reading: str
    parameters: tuple[str, ...] = ()
    searched: bool = False


REMEDIES: Mapping[str, Remedy] = {
    "intact": Remedy("none", "the model as trained", "nothing is changed"),
    "layers": Remedy(
        "LPES: a rotary scale for each layer",
        "arXiv 2606.27705",
        "positions divided by a scale of at least 1, a cubic Bézier curve over depth; a small genetic search over its "
        "four control points, for the distance of the rollout to uniform in the place of accuracy on a task",
        ("p0", "p1", "p2", "p3"),
        True,
    ),
    "one scale": Remedy(
        "one rotary scale",
        "position interpolation",
        "positions of all layers and heads divided by one scale: the simple rival of a scale for each layer",
        ("scale",),
        True,
    ),
    "heads": Remedy(
        "Ms-PoE: rotary scales across heads",
        "arXiv 2403.04797",
        "positions divided by 1.2 to 1.8, linearly over a layer's heads, from the third layer on; heads in the order "
        "of the share of keys that stand out for the last query, most position-aware first, over several prompts",
        ("least", "most"),
    ),
    "channel": Remedy(
        "one positional channel scaled",
        "arXiv 2406.02536",
        "one of the three channels that are most monotone in position, multiplied by a factor from -1 to below 1 in "
        "what queries and keys read, in the middle half of the layers and for every query, not the last one alone",
        ("channel", "factor"),
        True,
    ),
    "calibration": Remedy(
        "calibrated attention",
        "arXiv 2406.16008",
        "every head's weights divided by their mean at the same distance (key 0: at the same query) on other prompts "
        "and normalised again, in all layers; the source subtracts what a document without content is given",
    ),
    "log": Remedy(
        "α log j added",
        "this book",
        "position logits α log j added to a model that was not trained with them, in all heads",
        ("alpha",),
        True,
    ),
    "flat": Remedy(
        "flat logits added",
        "this book",
        "position logits -log log(i / j), cut off at τ, added to a model that was not trained with them, in all heads",
        ("tau",),
        True,
    ),
    "mixed flat": Remedy(
        "flat logits in half of the heads",
        "this book",
        "the same in the second half of each layer's heads; the first half stays as it is",
        ("tau",),
        True,
    ),
    "chosen": Remedy(
        "a bias chosen by the engine",
        "this book",
        "position biases that one measurement suggests (an exponent or a slope for all, one for each layer, "
        "flat logits in some heads), at several strengths: each is tried, as settings of a search are",
        ("proposal", "strength"),
        True,
    ),
    "temperatures": Remedy(
        "a temperature for each layer",
        "the idea of arXiv 2606.27705",
        "content logits divided by a temperature, whose logarithm to base 2 is a cubic Bézier curve over depth, with "
        "the search of LPES: for models without rotary positions that can be scaled",
        ("p0", "p1", "p2", "p3"),
        True,
    ),
    "temperature": Remedy(
        "one temperature",
        "a simple rival",
        "content logits of all layers divided by one temperature",
        ("temperature",),
        True,
    ),
}
"""The remedies by name, and what of each is our reading."""
KNOWN = ("intact", "layers", "one scale", "heads", "channel", "calibration", "log", "flat", "mixed flat")
"""Those of the study of known remedies, for models with rotary positions."""
ADDED = ("intact", "chosen", "layers", "temperatures", "temperature")
"""Those of the study of added biases, for any model: of *layers* and *temperatures* the one that a model takes."""

CHOICES = {
    "given": "not searched",
    "nearest": "the rollout nearest to uniform",
    "cheap": f"the nearest of those that cost at most {TOLERATED:g} nats a token, if nearer than the intact model",
}
"""Which setting of a remedy a row has."""
VARIANTS = ("kernels", "own")
"""Rollouts: of mean kernels and mean λ, and the mean of each prompt's own."""
STATISTICS = {"W1": "distance to uniform", "last": f"share of the last {LAST} tokens", "first": "share of token 0"}
"""What is said of each profile."""

Studies = Mapping[tuple[str, int], xr.Dataset]
"""Model and tokens → results."""
KINDS = {256: "remedies", 1024: "remedies-1024"}
"""Tokens of a prompt → kind of study."""


def statistics_of(profiles: Float[np.ndarray, "B n"]) -> dict[str, Float[np.ndarray, "B"]]:
    """Return each profile's normalised W₁ to uniform, the share of the last tokens, and that of the first token.

    >>> {name: x.tolist() for name, x in statistics_of(np.array([[1.0, 0.0], [0.5, 0.5]])).items()}
    {'W1': [0.5, 0.0], 'last': [1.0, 1.0], 'first': [1.0, 0.5]}
    """
    n = profiles.shape[-1]
    uniform = np.full(n, 1 / n)
    return {"W1": wasserstein_to(profiles, uniform), "last": profiles[:, -LAST:].sum(-1), "first": profiles[:, 0]}


def read_remedies(results: Path, model: str = "llama-12") -> dict[tuple[str, int], xr.Dataset]:
    """Return the study of a model by model and tokens, as far as there are files.

    Parameters
    ----------
    results
        The folder ``results`` of the book.
    model
        Name of a reference model.

    Raises
    ------
    FileNotFoundError
        If there is no study at 256 tokens.
    """
    found = {(model, 256): read_study(results, KINDS[256], [model])[model]}
    for n, kind in KINDS.items():
        if (results / "design" / f"{model}.{kind}.nc").is_file():
            found[model, n] = read_study(results, kind, [model])[model]
    return found


def remedy_table(study: xr.Dataset) -> pd.DataFrame:
    """Return what every remedy does, a row for each setting that was measured on all prompts.

    Columns: ``remedy``, ``choice`` (a key of :data:`CHOICES`), ``setting`` in words; ``loss`` (nats a token) and
    ``extra``, what it costs against the intact model on the same prompts; ``tau``, the sum of λ; then for the
    profiles ``kernels``, ``own`` (rollouts) and ``influence`` (measured) the columns ``PROFILE_W1``, ``PROFILE_last``,
    ``PROFILE_first`` (:data:`STATISTICS`), ``PROFILE_trough`` (depth by :func:`~posbias.rollout.profiles.u_shape`) and
    ``PROFILE_U`` (whether there is one); ``score_worst`` and ``score_mean`` over places, where there is a score.
    ``…_low`` and ``…_high`` are 95 % intervals over documents' modules.

    Parameters
    ----------
    study
        Of :func:`~studies.design.remedies.measure_remedies`.
    """
    weights = _weights(study)
    loss = study["loss_prompts"].values.astype(np.float64)
    drawn = weights @ loss.T / weights.sum(1)[:, None]  # (resample, condition)
    rows = []
    for k, (remedy, choice) in enumerate(zip(study["remedy"].values, study["choice"].values, strict=True)):
        row: dict[str, object] = {"remedy": str(remedy), "choice": str(choice), "setting": setting_words(study, k)}
        row |= _with_interval("loss", loss[k].mean(), drawn[:, k])
        row |= _with_interval("extra", (loss[k] - loss[0]).mean(), drawn[:, k] - drawn[:, 0])
        row["tau"] = float(study["lambda_frobenius"][k].sum())
        profiles = {v: unit(study["rollout"].sel(variant=v)[k].values) for v in VARIANTS}
        influence = study["influence_prompts"][k].values.astype(np.float64)
        profiles["influence"] = unit(influence.sum(0))
        resampled = {v: study["rollout_resampled"].sel(variant=v)[k] for v in VARIANTS}
        again = statistics_of(unit(weights @ influence))
        for name, p in profiles.items():
            own = statistics_of(p[None])
            for statistic in STATISTICS:
                draws = again[statistic] if name == "influence" else resampled[name].sel(statistic=statistic).values
                least = 0.0 if statistic == "W1" else None
                row |= _with_interval(f"{name}_{statistic}", float(own[statistic][0]), draws, least)
            shape = u_shape(p, smooth=STRETCH if name == "influence" and p.size > STRETCH else 1)
            row |= {f"{name}_trough": shape.depth, f"{name}_U": shape.present}
        if "score" in study:
            score = study["score"][k].values.astype(np.float64)
            row |= {"score_worst": score.min(), "score_mean": score.mean()}
        rows.append(row)
    return pd.DataFrame(rows)


def remedy_map(studies: Studies, profile: str = "kernels") -> pd.DataFrame:
    """Return the map: for each remedy the place of its rollout and its loss, and where the intact model is.

    Columns: ``model``, ``tokens``, ``remedy``, ``label``, ``choice``, ``setting``; ``x`` with ``x_low`` and ``x_high``
    (W₁ of a profile to uniform) and ``y`` with ``y_low`` and ``y_high`` (loss, nats a token); ``x0`` and ``y0``, the
    same of the intact model, from which an arrow starts; ``gain``, x0 - x, and ``extra``, y - y0, with paired
    intervals.

    Parameters
    ----------
    studies
        Of :func:`read_remedies`.
    profile
        ``kernels``, ``own`` or ``influence``.

    Raises
    ------
    ValueError
        For another profile.
    """
    if profile not in (*VARIANTS, "influence"):
        raise errors.invalid("profile", f"one of {', '.join((*VARIANTS, 'influence'))}", profile)
    parts = []
    for (model, n), study in studies.items():
        table = remedy_table(study)
        names = {f"{profile}_W1{end}": f"x{end}" for end in ("", "_low", "_high")}
        names |= {f"loss{end}": f"y{end}" for end in ("", "_low", "_high")}
        own = table[["remedy", "choice", "setting", *names, "extra", "extra_low", "extra_high"]].rename(columns=names)
        own = own.assign(model=model, tokens=n, x0=own["x"].iloc[0], y0=own["y"].iloc[0])
        own["label"] = [REMEDIES[name].label for name in own["remedy"]]
        drawn = _distances(study, profile)
        gains = drawn[:1] - drawn
        own["gain"] = own["x0"] - own["x"]
        own["gain_low"], own["gain_high"] = interval(gains.T)
        parts.append(own)
    return pd.concat(parts, ignore_index=True)


def search_table(study: xr.Dataset) -> pd.DataFrame:
    """Return every setting that was tried: ``remedy``, ``evaluation``, ``setting``, ``W1`` of the rollout and ``loss``.

    Both are of the few prompts that are searched; ``extra`` is the loss less that of the intact model on them, and
    ``frontier`` says whether no other setting of the remedy has a lower loss and is nearer to uniform.

    Parameters
    ----------
    study
        Of :func:`~studies.design.remedies.measure_remedies`.
    """
    intact = float(study.attrs["search_loss_intact"])
    rows = []
    for remedy in study["searched"].values:
        own = study.sel(searched=remedy)
        x, y = own["search_W1"].values, own["search_loss"].values
        for k in range(x.size):
            beaten = bool(((x < x[k]) & (y < y[k])).any())
            words = _words(str(remedy), own["search_setting"][k].values)
            rows.append((str(remedy), k, words, float(x[k]), float(y[k]), float(y[k] - intact), not beaten))
    return pd.DataFrame(rows, columns=["remedy", "evaluation", "setting", "W1", "loss", "extra", "frontier"])


def legend(names: Sequence[str] = KNOWN) -> pd.DataFrame:
    """Return a row for each remedy: ``remedy``, ``label``, ``source`` and what is our ``reading`` of it."""
    rows = [(name, x.label, x.source, x.reading) for name, x in REMEDIES.items() if name in names]
    return pd.DataFrame(rows, columns=["remedy", "label", "source", "reading"])


def setting_words(study: xr.Dataset, condition: int) -> str:
    """Return the setting of a condition, such as ``scale 2``."""
    return _words(str(study["remedy"].values[condition]), study["setting"].values[condition])


def _words(remedy: str, setting: Float[np.ndarray, "parameters"]) -> str:
    return ", ".join(f"{name} {x:.3g}" for name, x in zip(REMEDIES[remedy].parameters, setting, strict=False))


def _weights(study: xr.Dataset) -> Float[np.ndarray, "B N"]:
    """Return the weights of prompts in the resamples that the study drew."""
    return resample_weights(study["unit"].values, study.sizes["resample"], seed=SEED)


def _distances(study: xr.Dataset, profile: str) -> Float[np.ndarray, "conditions B"]:
    """Return the resampled distances of a profile to uniform."""
    if profile in VARIANTS:
        return np.asarray(study["rollout_resampled"].sel(variant=profile, statistic="W1").values)
    weights = _weights(study)
    return np.stack(
        [statistics_of(unit(weights @ x.astype(np.float64)))["W1"] for x in study["influence_prompts"].values]
    )


def _with_interval(
    name: str, value: float, draws: Float[np.ndarray, "B"], least: float | None = None
) -> dict[str, float]:
    """Return a number with its interval: a distance has the hull of two, for noise makes it larger."""
    low, high = interval(draws) if least is None else hull_interval(value, draws, least=least)
    return {name: float(value), f"{name}_low": float(low), f"{name}_high": float(high)}
