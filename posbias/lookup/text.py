"""What a retrieval found in a few lines of plain text, for the command line and the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import xarray as xr

from posbias.lookup.answers import MAIN, OF_TASK, SCORES, SHARES
from posbias.lookup.prompt_profiles import profile_label
from posbias.lookup.tasks import TASKS

LEVEL = 0.05
"""Places differ at p values up to this one."""
MOST_CHANGE = 200
"""Signs of the description of a change: that of a bias for each head of a large model fills pages."""
ORDER_OPEN = "places are not told apart: their order is noise, and so are rank correlations with it"
"""Stands with rank correlations of scores that do not differ between places."""


class Stretch(NamedTuple):
    """Name a group of places and what was found there.

    Parameters
    ----------
    title
        Why it is named: best, middle, worst, first or last.
    first, last
        Its places.
    group
        Its index.
    """

    title: str
    first: int
    last: int
    group: int


def title(results: xr.Dataset) -> str:
    """Return model and task in a few words."""
    attrs = results.attrs
    return f"{str(attrs['model']).removeprefix('reference/')}, {TASKS[str(attrs['task'])]}"


def described(results: xr.Dataset) -> str:
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
    """Return how many there are of something.

    >>> _counted(1, "pair"), _counted(64, "pair")
    ('1 pair', '64 pairs')
    """
    return f"{count} {noun}{'s' * (count != 1)}"


def stretches(results: xr.Dataset) -> list[Stretch]:
    """Return the first, middle and last group of places, and those where the main score is best and worst."""
    mean = results[f"{MAIN[str(results.attrs['task'])]}_mean"].values
    first, last = results["group_first"].values, results["group_last"].values
    chosen = {
        "first": 0,
        "middle": len(mean) // 2,
        "last": len(mean) - 1,
        "best": int(mean.argmax()),
        "worst": int(mean.argmin()),
    }
    return [Stretch(name, int(first[k]), int(last[k]), k) for name, k in chosen.items()]


def score_text(results: xr.Dataset, name: str, group: int | None = None) -> str:
    """Return a score with its interval: of a group of places, or over all prompts.

    Parameters
    ----------
    results
        A retrieval.
    name
        Of the score.
    group
        Which group; None for all prompts.
    """
    if group is None:
        found = results["overall"].sel(score=name).values
    else:
        found = np.array([results[f"{name}_{end}"].values[group] for end in ("mean", "low", "high")])
    mean, low, high = (float(x) for x in found)
    how = ".2f" if name in SHARES else ".3f"
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
    yield f"{title(results)}: {described(results)}"
    parts = []
    for name in OF_TASK[task]:
        guess = f", chance {float(results.attrs['chance']):.2g}" if name == "accuracy_among" else ""
        unit = {"log_probability": " nats"}.get(name, "" if name in SHARES else " nats a token")
        parts.append(f"{SCORES[name][0]} {score_text(results, name)}{unit}{guess}")
    yield "; ".join(parts)
    main = MAIN[task]
    by_place = [
        f"{x.title} ({places_text(results, x)}) {score_text(results, main, x.group)}" for x in stretches(results)
    ]
    yield f"{SCORES[main][0]} by place: {'; '.join(by_place)}; {difference_text(results, main)}"
    if "rank_correlation" in results:
        found = [
            f"{profile_label(str(name))} {correlation_text(results, str(name), main)}"
            for name in results["profile_name"].values
        ]
        yield f"rank correlation of {SCORES[main][0]} by place with {'; '.join(found)}"
        if not differ(results, main):
            yield ORDER_OPEN


def difference_text(results: xr.Dataset, score: str) -> str:
    """Return whether places differ in a score, with the p value."""
    p = float(results["difference_p_value"].sel(score=score))
    return f"places {'differ' if differ(results, score) else 'are not told apart'} (p {p:.2g})"


def differ(results: xr.Dataset, score: str) -> bool:
    """Return whether places differ in a score: a rank correlation with what does not differ is one with noise."""
    return float(results["difference_p_value"].sel(score=score)) <= LEVEL


def correlation_text(results: xr.Dataset, profile: str, score: str) -> str:
    """Return a rank correlation with its interval, or why there is none."""
    mean, low, high = (float(x) for x in results["rank_correlation"].sel(profile_name=profile, score=score).values)
    if np.isnan(mean):
        return "none, for fewer than three groups of places or no difference between them"
    return f"{mean:+.2f}" + ("" if np.isnan(low) else f" ({low:+.2f} to {high:+.2f})")
