"""The report on a lookup: scores by place with intervals, and the profiles of the same prompts below them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xarray as xr
from markupsafe import Markup

from posbias.files import write_whole
from posbias.lookup import file as lookup
from posbias.lookup.file import MEASURED, TEMPERATURE, correlation_text, differ, difference_text, profile_label
from posbias.lookup.file import places_text as where
from posbias.lookup.tasks import MAIN, OF_TASK, SCORES
from posbias.report import page
from posbias.report.figures import place_panels
from posbias.report.tables import csv
from posbias.report.text import options, repeated

PANELS = {"kv": (("accuracy", "accuracy_among"), ("log_probability",)), "copy": (("gain",), ("loss", "loss_without"))}
"""Scores of each panel of the figure."""
UNITS = {"kv": ("accuracy", "nats"), "copy": ("gain, nats a token", "loss, nats a token")}
"""What the panels' axes have."""


def write_lookup_report(path: Path, results: xr.Dataset) -> Path:
    """Write the report on a lookup and return its path."""
    task = str(results.attrs["task"])
    names = [str(name) for name in results["profile_name"].values] if "profile" in results else []
    correlations = [[profile_label(x), *(correlation_text(results, x, s) for s in OF_TASK[task])] for x in names]
    open_orders = [f"By {SCORES[x][0]}, {lookup.ORDER_OPEN}." for x in OF_TASK[task] if not differ(results, x)]
    context = {
        "measurement": False,
        "title": lookup.title(results),
        "described": lookup.described(results),
        "answer": answer(results),
        "main": places_figure(results),
        "task": task,
        "scores": [SCORES[name][0] for name in OF_TASK[task]],
        "places": place_cells(results),
        "correlations": correlations,
        "open_orders": open_orders,
        "downloads": downloads(results, names),
        "provenance": [(name, value) for name, value in results.attrs.items() if name != lookup.LAYOUT],
        "commands": again(results),
    }
    write_whole(path, page.rendered(**context))
    return path


def answer(results: xr.Dataset) -> Iterator[Markup]:
    """Yield what was found."""
    task, score_text = str(results.attrs["task"]), lookup.score_text
    main, named = MAIN[task], {x.title: x for x in lookup.stretches(results)}
    if task == "kv":
        yield Markup(
            f"<strong>The answer is the most likely of the prompt's values in {score_text(results, 'accuracy_among')} "
            f"of the prompts</strong>, where a guess would be right in {float(results.attrs['chance']):.2g}; it is the "
            f"most likely of all tokens in {score_text(results, 'accuracy')}."
        )
    else:
        yield Markup(
            f"<strong>What the text has had before lowers its loss by {score_text(results, 'gain')} nats a "
            f"token</strong>, from {score_text(results, 'loss_without')} to {score_text(results, 'loss')}."
        )
    best, worst = named["best"], named["worst"]
    yield Markup(
        f"By {SCORES[main][0]} {difference_text(results, main)}: best is {where(results, best)} with "
        f"{score_text(results, main, best.group)}, worst {where(results, worst)} with "
        f"{score_text(results, main, worst.group)}."
    )
    if "profile" in results:
        found = correlation_text(results, MEASURED, main) if differ(results, main) else lookup.ORDER_OPEN
        yield Markup(f"Rank correlation of {SCORES[main][0]} by place with measured influence: {found}.")


def place_cells(results: xr.Dataset) -> Iterator[list[str]]:
    """Yield the table's rows: groups of places that are named, and all prompts."""
    names = OF_TASK[str(results.attrs["task"])]
    for x in lookup.stretches(results):
        yield [x.title, where(results, x), *(lookup.score_text(results, name, x.group) for name in names)]
    yield ["all", f"{results.attrs['prompts']} prompts", *(lookup.score_text(results, name) for name in names)]


def places_figure(results: xr.Dataset) -> page.Figure:
    """Return scores by place with their intervals, and the profiles below them."""
    task = str(results.attrs["task"])
    profiled = "profile" in results
    panels = {
        unit: {SCORES[x][0]: tuple(results[f"{x}_{end}"].values for end in lookup.ENDS) for x in names}
        for unit, names in zip(UNITS[task], PANELS[task], strict=True)
    }
    first = 1.0 if task == "kv" else float(results["place_start"].values[0])  # pairs are counted from 1, tokens from 0
    centres = (results["group_first"].values + results["group_last"].values) / 2
    labels = [profile_label(str(name)) for name in results["profile_name"].values] if profiled else []
    drawing = place_panels(
        panels,
        centres + first,
        dict(zip(labels, results["profile"].values, strict=True)) if profiled else {},
        np.arange(results.sizes["place_index"]) + first,
        chance=float(results.attrs["chance"]) if task == "kv" else None,
        xlabel="place: pair" if task == "kv" else "place: token at which the stretch begins",
    )
    main, named = MAIN[task], {x.title: x for x in lookup.stretches(results)}
    description = f"{len(panels) + profiled} panels over places: scores of {len(results['group'])} groups of places "
    description += "with intervals" + (", and influence profiles on a logarithmic axis." if profiled else ".")
    description += "".join(
        f" {named[k].title} {where(results, named[k])}: {SCORES[main][0]} "
        f"{lookup.score_text(results, main, named[k].group)}."
        for k in ("first", "middle", "last")
    )
    caption = f"Scores by place with 95 % intervals; by {SCORES[main][0]} {difference_text(results, main)}."
    caption += " Below, what the places of the same prompts have of influence, measured and predicted." * profiled
    return page.shown(drawing, description, caption)


def downloads(results: xr.Dataset, profiles: list[str]) -> list[page.Download]:
    """Return the data as files to save."""
    scores = OF_TASK[str(results.attrs["task"])]
    names = ["group_first", "group_last", "group_prompts", *(f"{x}_{end}" for x in scores for end in lookup.ENDS)]
    files = [
        page.Download("places.csv", "scores by group of places", csv({x: results[x].values for x in names})),
        page.Download("prompts.csv", "scores of each prompt", csv({x: results[x].values for x in ("place", *scores)})),
    ]
    if profiles:
        columns = {"place_start": results["place_start"].values}
        columns |= dict(zip(profiles, results["profile"].values, strict=True))
        files.append(page.Download("profiles.csv", "profiles by place", csv(columns)))
    return files


def again(results: xr.Dataset) -> list[str]:
    """Return the commands that make a file like this one, and its report."""
    attrs = {str(name): str(value) for name, value in results.attrs.items()}
    own = ("pairs",) if attrs["task"] == "kv" else ("length", "segment", "cue", "dataset")
    words = options(attrs, "model", "task", *own, "prompts", "profile_prompts", "batch_size", "seed", "dtype")
    words += ["--no-special-tokens"] * (attrs["special_tokens"] == "False")
    change = attrs["change"]
    if change.startswith(TEMPERATURE):
        return repeated("lookup", [*words, "--temperature", change.removeprefix(TEMPERATURE)], None)
    return repeated("lookup", words, None if change == "none" else change)
