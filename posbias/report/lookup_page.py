"""The report on a retrieval: scores by place with intervals, and the profiles of the same prompts below them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from posbias.files import write_whole
from posbias.lookup.answers import MAIN, OF_TASK, SCORES
from posbias.lookup.file import TEMPERATURE
from posbias.lookup.prompt_profiles import MEASURED, profile_label
from posbias.lookup.text import (
    ORDER_OPEN,
    correlation_text,
    described,
    differ,
    difference_text,
    places_text,
    score_text,
    stretches,
    title,
)
from posbias.plotting import place_panels
from posbias.report import page
from posbias.report.figures import shown

PANELS = {"kv": (("accuracy", "accuracy_among"), ("log_probability",)), "copy": (("gain",), ("loss", "loss_without"))}
"""Scores of each panel of the figure."""
UNITS = {"kv": ("accuracy", "nats"), "copy": ("gain, nats a token", "loss, nats a token")}
"""What the panels' axes have."""

READING = {
    "kv": (
        "Each prompt has pairs of a key and a value, and ends with one of the keys: the answer is its value. Places "
        "are counted by pairs, from the first. Keys and values are words of the model's own vocabulary, drawn at "
        "random.",
        "Accuracy is strict: each token of the value must be the model's most likely one. Accuracy among the prompt's "
        "values asks only which of them is most likely, so that a model which knows that a value comes, and not "
        "which, is at the chance level. The log-probability of the value tells places apart where accuracy does not.",
    ),
    "copy": (
        "Each prompt is a text, and ends with a stretch of itself: a cue that is given and a segment that is scored. A "
        "place is the token at which the stretch begins in the text.",
        "The gain is what the first occurrence is worth: the loss on the segment where other text stands in its place, "
        "less the loss where it stands there. A model that does not copy has a gain of 0. At the last places the "
        "other text also takes away what stands just before the cue, so that some gain there is context, no copy.",
    ),
}
READING_BOTH = (
    "Bands and brackets are 95 % intervals: exact binomial ones of accuracies, else from resampled prompts (of texts, "
    "from resampled documents). They hold for each group of places alone: the best and the worst of many groups differ "
    "by chance too, so that the p value of no difference, by permutation of the prompts, says whether places differ at "
    "all.",
    "The profiles are of the same prompts, up to where the answer begins: measured influence (how strongly each token "
    "moves the probability of the most likely next token) and rollouts, summed over the tokens of each place.",
    "A rank correlation of +1 says that places are found in the order of their influence. A model that finds what is "
    "asked has influence there: to tell a prior from this, look at the rollouts, which know no answer.",
)


def write_retrieval_report(path: Path, results: xr.Dataset) -> Path:
    """Write the report on a retrieval and return its path.

    Parameters
    ----------
    path
        The file to write, whole or not at all.
    results
        From :func:`~posbias.lookup.file.read_retrieval`.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    write_whole(path, page.page(title(results), list(sections(results))))
    return path


def sections(results: xr.Dataset) -> Iterator[str]:
    """Yield the sections of the report in order."""
    task = str(results.attrs["task"])
    yield f"<h1>{page.text(title(results))}</h1>"
    yield page.paragraph(page.text(described(results)), "quiet")
    yield f'<div class="answer">{"".join(page.paragraph(x) for x in answer(results))}</div>'
    yield places_figure(results)
    titles = ("place", "", *(SCORES[name][0] for name in OF_TASK[task]))
    yield page.section("By place", page.table(titles, rows(results), words=(1,)))
    if "profile" in results:
        names = [str(name) for name in results["profile_name"].values]
        cells = [[profile_label(name), *(correlation_text(results, name, x) for x in OF_TASK[task])] for name in names]
        titles = ("rank correlation with", *(SCORES[name][0] for name in OF_TASK[task]))
        open_order = [
            page.paragraph(f"By {SCORES[x][0]}, {ORDER_OPEN}.") for x in OF_TASK[task] if not differ(results, x)
        ]
        yield page.section("Found where influence is?", page.table(titles, cells), *open_order)
    yield page.section("How to read it", page.items([*READING[task], *READING_BOTH]))
    yield data_section(results)
    yield again_section(results)


def answer(results: xr.Dataset) -> Iterator[str]:
    """Yield what was found, sentences of HTML."""
    task = str(results.attrs["task"])
    main, named = MAIN[task], {x.title: x for x in stretches(results)}
    if task == "kv":
        guess = float(results.attrs["chance"])
        yield (
            f"<strong>The answer is the most likely of the prompt's values in {score_text(results, 'accuracy_among')} "
            f"of the prompts</strong>, where a guess would be right in {guess:.2g}; it is the most likely of all "
            f"tokens in {score_text(results, 'accuracy')}."
        )
    else:
        yield (
            f"<strong>What the text has had before lowers its loss by {score_text(results, 'gain')} nats a "
            f"token</strong>, from {score_text(results, 'loss_without')} to {score_text(results, 'loss')}."
        )
    best, worst = named["best"], named["worst"]
    yield (
        f"By {page.text(SCORES[main][0])} {page.text(difference_text(results, main))}: best is "
        f"{places_text(results, best)} with {score_text(results, main, best.group)}, worst "
        f"{places_text(results, worst)} with {score_text(results, main, worst.group)}."
    )
    if "profile" in results:
        found = page.text(correlation_text(results, MEASURED, main) if differ(results, main) else ORDER_OPEN)
        yield f"Rank correlation of {page.text(SCORES[main][0])} by place with measured influence: {found}."


def rows(results: xr.Dataset) -> Iterator[list[str]]:
    """Yield the table's rows: groups of places that are named, and all prompts."""
    task = str(results.attrs["task"])
    for x in stretches(results):
        yield [x.title, places_text(results, x), *(score_text(results, name, x.group) for name in OF_TASK[task])]
    yield ["all", f"{results.attrs['prompts']} prompts", *(score_text(results, name) for name in OF_TASK[task])]


def places_figure(results: xr.Dataset) -> str:
    """Return scores by place with their intervals, and the profiles below them."""
    task = str(results.attrs["task"])
    profiled = "profile" in results
    panels = {
        unit: {SCORES[name][0]: _ends(results, name) for name in names}
        for unit, names in zip(UNITS[task], PANELS[task], strict=True)
    }
    centres = (results["group_first"].values + results["group_last"].values) / 2
    labels = [profile_label(str(name)) for name in results["profile_name"].values] if profiled else []
    drawing = place_panels(
        panels,
        _positions(results, centres),
        dict(zip(labels, results["profile"].values, strict=True)) if profiled else {},
        _positions(results, np.arange(results.sizes["place_index"])),
        chance=float(results.attrs["chance"]) if task == "kv" else None,
        xlabel="place: pair" if task == "kv" else "place: token at which the stretch begins",
    )
    count = len(panels) + profiled
    main, named = MAIN[task], {x.title: x for x in stretches(results)}
    description = f"{count} panels over places: scores of {len(results['group'])} groups of places with intervals"
    description += ", and influence profiles on a logarithmic axis." if profiled else "."
    description += "".join(
        f" {named[k].title} {places_text(results, named[k])}: {SCORES[main][0]} "
        f"{score_text(results, main, named[k].group)}."
        for k in ("first", "middle", "last")
    )
    caption = f"Scores by place with 95 % intervals; by {SCORES[main][0]} {difference_text(results, main)}."
    caption += " Below, what the places of the same prompts have of influence, measured and predicted." * profiled
    return shown(drawing, description, caption)


def _ends(results: xr.Dataset, name: str) -> tuple[np.ndarray, ...]:
    """Return a score's mean in each group of places, and the ends of its intervals."""
    return tuple(results[f"{name}_{end}"].values for end in ("mean", "low", "high"))


def _positions(results: xr.Dataset, places: np.ndarray) -> np.ndarray:
    """Return places as they are counted on the axis: pairs from 1, or tokens."""
    if results.attrs["task"] == "kv":
        return np.asarray(places + 1.0)
    return np.asarray(places + float(results["place_start"].values[0]))


def data_section(results: xr.Dataset) -> str:
    """Return the data as files to save."""
    task = str(results.attrs["task"])
    groups = {name: results[name].values for name in ("group_first", "group_last", "group_prompts")}
    groups |= {f"{x}_{end}": results[f"{x}_{end}"].values for x in OF_TASK[task] for end in ("mean", "low", "high")}
    single = {name: results[name].values for name in ("place", *OF_TASK[task])}
    links = [("places.csv", groups, "scores by group of places"), ("prompts.csv", single, "scores of each prompt")]
    if "profile" in results:
        names = [str(name) for name in results["profile_name"].values]
        profiles = dict(zip(names, results["profile"].values, strict=True))
        links.append(("profiles.csv", {"place_start": results["place_start"].values, **profiles}, "profiles by place"))
    body = "".join(f"<li>{page.download(name, _csv(columns), f'{name}: {what}')}</li>" for name, columns, what in links)
    return page.section("The data", page.paragraph("This page holds them; nothing is fetched."), f"<ul>{body}</ul>")


def again_section(results: xr.Dataset) -> str:
    """Return provenance, and the commands to do it again."""
    attrs = {str(name): str(value) for name, value in results.attrs.items()}
    words = ["posbias", "retrieval", "--model", attrs["model"], "--task", attrs["task"]]
    own = ("pairs",) if attrs["task"] == "kv" else ("segment", "cue", "dataset")
    words += ["--length", attrs["length"]] if attrs["task"] == "copy" else []
    for name in (*own, "prompts", "profile_prompts", "batch_size", "seed", "dtype"):
        words += [f"--{name.replace('_', '-')}", attrs[name]]
    words += ["--no-special-tokens"] if attrs["special_tokens"] == "False" else []
    change = str(attrs["change"])
    if change.startswith(TEMPERATURE):
        words += ["--temperature", change.removeprefix(TEMPERATURE)]
    elif change != "none":
        words += ["--bias", "bias.json"]
    lines = [shlex.join([*words, "--output", "retrieval.nc"]), "posbias report retrieval.nc --output report.html"]
    if "--bias" in words:
        lines.insert(0, f"echo {shlex.quote(attrs['change'])} > bias.json")
    note = "Names of directories and files are kept without the folders they were in; give them as they are for you."
    known = [(name, value) for name, value in attrs.items() if name != "posbias_retrieval"]
    parts = [page.facts(known), "<h3>To do it again</h3>", page.commands(lines), page.paragraph(note, "quiet")]
    return page.section("Where the numbers come from", *parts)


def _csv(columns: dict[str, np.ndarray]) -> str:
    return str(pd.DataFrame(columns).to_csv(index=False, lineterminator="\n", float_format="%.9g"))
