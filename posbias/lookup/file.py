"""The result of a lookup: one labelled netCDF file with where its numbers came from, and what it says in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from posbias import errors, netcdf
from posbias.lookup.tasks import MAIN, OF_TASK, SCORES, SHARES, TASKS
from posbias.predict import find

LAYOUT, SCHEMA = "posbias_retrieval", 1
"""Name of the attribute that tells such a file, and the number of the layout; raised when a meaning changes."""
TEMPERATURE = "temperature "
"""Before the number, in the attribute ``change`` of a run whose content logits were divided."""
MEASURED = "measured"
"""Name of the measured profile among the predicted ones."""
ENDS = ("mean", "low", "high")
"""Of a number with its interval."""

READ = ("overall", "difference_p_value", "place_start", "group_first", "group_last", "group_prompts")
"""Variables of every file that are read, beside the task's scores."""
ATTRIBUTES = (
    "model", "revision", "task", "made_of", "dataset", "pairs", "length", "segment", "cue", "chance", "change",
)  # fmt: skip
"""Provenance that is read; the file has more."""

LEVEL = 0.05
"""Places differ at p values up to this one."""
MOST_CHANGE = 200
"""Signs of the description of a change: that of a bias for each head of a large model fills pages."""
ORDER_OPEN = "places are not told apart: their order is noise, and so are rank correlations with it"
"""Stands with rank correlations of scores that do not differ between places."""


def write_lookup(path: Path, results: xr.Dataset) -> None:
    """Write a data set that :func:`~posbias.lookup.run.look_up` returns, as netCDF, whole or not at all."""
    packed = {"zlib": True, "complevel": 4, "shuffle": True}
    netcdf.write(path, results, {str(name): packed for name, x in results.data_vars.items() if x.ndim > 1})


def read_lookup(path: Path | str) -> xr.Dataset:
    """Read the file of a lookup, or raise ValueError if it is none, of another layout, or incomplete."""
    results = netcdf.load_layout(Path(path), LAYOUT, SCHEMA, "a lookup")
    task = str(results.attrs.get("task"))
    if task not in OF_TASK:
        raise errors.invalid(f"{path}: task", f"one of {', '.join(OF_TASK)}", task)
    means = [f"{score}_mean" for score in OF_TASK[task]]
    scores = [*OF_TASK[task], *means, *(f"{score}_{end}" for score in OF_TASK[task] for end in ENDS[1:])]
    there = {*results, *results.attrs}
    if missing := [name for name in (*READ, *scores, *ATTRIBUTES) if name not in there]:
        raise errors.invalid(str(path), "a complete lookup", f"none of {', '.join(missing)}")
    prompts = netcdf.integer_attribute(Path(path), results.attrs, "prompts")
    if prompts != results.sizes["prompt"]:
        raise errors.invalid(f"{path}: prompts", f"{results.sizes['prompt']}, which the file has", prompts)
    for name in (*OF_TASK[task], *means):
        errors.finite_array(f"{path}: {name}", results[name].values, ndim=(1,))
    return results


# What it says


class Stretch(NamedTuple):
    """A group of places: its first and last place, and its number."""

    first: int
    last: int
    group: int


def title(results: xr.Dataset) -> str:
    """Return model and task in a few words."""
    return f"{str(results.attrs['model']).removeprefix('reference/')}, {TASKS[str(results.attrs['task'])]}"


def describe(results: xr.Dataset) -> str:
    """Return what was asked: pairs or texts, prompts and tokens."""
    attrs = results.attrs
    if attrs["task"] == "kv":
        what = f"{_counted(int(attrs['pairs']), 'pair')} ({attrs['made_of']})"
    else:
        what = f"segments of {attrs['segment']} tokens after a cue of {attrs['cue']} ({attrs['dataset']})"
    change = str(attrs["change"])
    short = change if len(change) <= MOST_CHANGE else f"{change[:MOST_CHANGE]} …"
    changed = "" if change == "none" else f", changed by {short}"
    return f"{what}, {_counted(int(attrs['prompts']), 'prompt')} of {attrs['length']} tokens{changed}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def stretches(results: xr.Dataset) -> dict[str, Stretch]:
    """Return by name the first, middle and last group of places, and those where the main score is best and worst."""
    mean = results[f"{MAIN[str(results.attrs['task'])]}_mean"].values
    first, last = results["group_first"].values, results["group_last"].values
    chosen = {"first": 0, "middle": len(mean) // 2, "last": len(mean) - 1}
    chosen |= {"best": int(mean.argmax()), "worst": int(mean.argmin())}
    return {name: Stretch(int(first[k]), int(last[k]), k) for name, k in chosen.items()}


def score_text(results: xr.Dataset, name: str, group: int | None = None) -> str:
    """Return a score with its interval: of a group of places, or over all prompts."""
    overall = results["overall"].sel(score=name).values
    found = overall if group is None else [results[f"{name}_{end}"].values[group] for end in ENDS]
    return _with_interval(found, ".2f" if name in SHARES else ".3f")


def _with_interval(numbers: Iterable[float], how: str) -> str:
    """Return a mean, with the ends of its interval in brackets where it has one."""
    mean, low, high = (float(x) for x in numbers)
    return f"{mean:{how}}" + ("" if np.isnan(low) else f" ({low:{how}} to {high:{how}})")


def places_text(results: xr.Dataset, stretch: Stretch) -> str:
    """Return which places a group has: pairs counted from 1, or tokens at which the segment's cue begins."""
    if results.attrs["task"] == "kv":
        first, last, what = stretch.first + 1, stretch.last + 1, "pair"
    else:
        starts, what = results["place_start"].values, "token"
        first, last = int(starts[stretch.first]), int(starts[stretch.last])
    return f"{what} {first}" if first == last else f"{what}s {first} to {last}"


def summary_lines(results: xr.Dataset) -> Iterator[str]:
    """Yield what was found: scores over all prompts, by place, and how they go with the profiles."""
    task = str(results.attrs["task"])
    yield f"{title(results)}: {describe(results)}"
    parts = []
    for name in OF_TASK[task]:
        guess = f", chance {float(results.attrs['chance']):.2g}" if name == "accuracy_among" else ""
        unit = {"log_probability": " nats"}.get(name, "" if name in SHARES else " nats a token")
        parts.append(f"{SCORES[name][0]} {score_text(results, name)}{unit}{guess}")
    yield ("" if does_task(results) else "does not do this task: ") + "; ".join(parts)
    main = MAIN[task]
    by_place = [
        f"{name} ({places_text(results, x)}) {score_text(results, main, x.group)}"
        for name, x in stretches(results).items()
    ]
    yield f"{SCORES[main][0]} by place: {'; '.join(by_place)}; {difference_text(results, main)}"
    if "rank_correlation" in results:
        names = [str(name) for name in results["profile_name"].values]
        found = [f"{profile_label(name)} {correlation_text(results, name, main)}" for name in names]
        yield f"rank correlation of {SCORES[main][0]} by place with {'; '.join(found)}"
        if not differ(results, main):
            yield ORDER_OPEN


def profile_label(name: str) -> str:
    """Return what a profile is called.

    >>> profile_label("measured"), profile_label("b")
    ('measured influence', 'layer shares')
    """
    return "measured influence" if name == MEASURED else find(name).label


def difference_text(results: xr.Dataset, score: str) -> str:
    """Return whether places differ in a score, with the p value."""
    p = float(results["difference_p_value"].sel(score=score))
    return f"places {'differ' if differ(results, score) else 'are not told apart'} (p {p:.2g})"


def does_task(results: xr.Dataset) -> bool:
    """Return whether a model does the task at all: over all prompts the score is above that of a guess, or of no copy.

    It is the lower end of the score's 95% interval that is compared, the score itself where there is none.
    """
    kv = results.attrs["task"] == "kv"
    mean, low, _ = results["overall"].sel(score="accuracy_among" if kv else "gain").values
    return float(mean if np.isnan(low) else low) > (float(results.attrs["chance"]) if kv else 0.0)


def differ(results: xr.Dataset, score: str) -> bool:
    """Return whether places differ in a score: a rank correlation with what does not differ is one with noise."""
    return float(results["difference_p_value"].sel(score=score)) <= LEVEL


def correlation_text(results: xr.Dataset, profile: str, score: str) -> str:
    """Return a rank correlation with its interval, or why there is none."""
    found = results["rank_correlation"].sel(profile_name=profile, score=score).values
    if np.isnan(found[0]):
        return "none, for fewer than three groups of places or no difference between them"
    return _with_interval(found, "+.2f")
