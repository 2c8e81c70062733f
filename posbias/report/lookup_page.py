"""The report on a lookup: scores by place with intervals, and the profiles of the same prompts below them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.colors import to_hex
from matplotlib.ticker import MaxNLocator

from posbias.files import write_whole
from posbias.lookup import file as lookup
from posbias.lookup.file import MEASURED, ORDER_OPEN, TEMPERATURE, differ
from posbias.lookup.tasks import MAIN, OF_TASK, SCORES
from posbias.plotting import FAMILY_COLOURS, LINE_STYLES
from posbias.report import page
from posbias.report.figures import in_style
from posbias.report.tables import csv
from posbias.report.text import options, repeated

PANELS = {"kv": (("accuracy", "accuracy_among"), ("log_probability",)), "copy": (("gain",), ("loss", "loss_without"))}
"""Scores of each panel of the figure."""
UNITS = {"kv": ("accuracy", "nats"), "copy": ("gain, nats a token", "loss, nats a token")}
"""What the panels' axes have."""


def write_lookup_report(path: Path, results: xr.Dataset) -> Path:
    """Write the report on a lookup and return its path."""
    task = str(results.attrs["task"])
    main, profiles = MAIN[task], [str(x) for x in results["profile_name"].values] if "profile" in results else []
    context: dict[str, Any] = {
        "measurement": False,
        "title": lookup.title(results),
        "described": lookup.described(results),
        "score": partial(lookup.score_text, results),
        "chance": f"{float(results.attrs['chance']):.2g}",
        "by": SCORES[main][0],
        "difference": lookup.difference_text(results, main),
        "ends": {
            name: (lookup.places_text(results, x), lookup.score_text(results, main, x.group))
            for name, x in lookup.stretches(results).items()
        },
        "order": lookup.correlation_text(results, MEASURED, main) if profiles and differ(results, main) else ORDER_OPEN,
        "main": places_figure(results),
        "task": task,
        "done": lookup.does_task(results),
        "scores": [SCORES[name][0] for name in OF_TASK[task]],
        "places": place_cells(results),
        "correlations": [
            [lookup.profile_label(x), *(lookup.correlation_text(results, x, s) for s in OF_TASK[task])]
            for x in profiles
        ],
        "open_orders": [f"By {SCORES[x][0]}, {ORDER_OPEN}." for x in OF_TASK[task] if not differ(results, x)],
        "downloads": downloads(results, profiles),
        "provenance": [(name, value) for name, value in results.attrs.items() if name != lookup.LAYOUT],
        "commands": again(results),
    }
    write_whole(path, page.rendered(**context))
    return path


def place_cells(results: xr.Dataset) -> Iterator[list[str]]:
    """Yield the table's rows: groups of places that are named, and all prompts."""
    names = OF_TASK[str(results.attrs["task"])]
    for title, x in lookup.stretches(results).items():
        found = (lookup.score_text(results, name, x.group) for name in names)
        yield [title, lookup.places_text(results, x), *found]
    yield ["all", f"{results.attrs['prompts']} prompts", *(lookup.score_text(results, name) for name in names)]


def places_figure(results: xr.Dataset) -> page.Figure:
    """Return scores by place with their intervals, and the profiles of the same prompts below them."""
    task, profiled, named = str(results.attrs["task"]), "profile" in results, lookup.stretches(results)
    score, panels = SCORES[MAIN[task]][0], len(PANELS[task]) + profiled
    description = f"{panels} panels over places: scores of {len(results['group'])} groups of places with intervals"
    description += ", and influence profiles on a logarithmic axis." if profiled else "."
    for name in ("first", "middle", "last"):
        found = lookup.score_text(results, MAIN[task], named[name].group)
        description += f" {name} {lookup.places_text(results, named[name])}: {score} {found}."
    caption = f"Scores by place with 95% intervals; by {score} {lookup.difference_text(results, MAIN[task])}."
    caption += " Below, what the places of the same prompts have of influence, measured and predicted." * profiled
    return page.shown(place_panels(results), description, caption)


@in_style
def place_panels(results: xr.Dataset) -> Any:
    """Draw scores against the middles of their groups, a panel for each unit, and the profiles in one below."""
    task, profiled = str(results.attrs["task"]), "profile" in results
    first = 1.0 if task == "kv" else float(results["place_start"].values[0])  # pairs are counted from 1, tokens from 0
    middles = (results["group_first"].values + results["group_last"].values) / 2 + first
    looks: Iterator[dict[str, Any]] = (
        {"color": to_hex(f"C{k}"), "linestyle": LINE_STYLES[k % len(LINE_STYLES)]} for k in count()
    )
    rows = len(PANELS[task]) + profiled
    figure, axes = plt.subplots(rows, 1, figsize=(6.4, 1.4 + 1.7 * rows), sharex=True)
    for ax, unit, names in zip(axes, UNITS[task], PANELS[task], strict=False):
        for name, look in zip(names, looks, strict=False):
            mean, low, high = (results[f"{name}_{end}"].values for end in lookup.ENDS)
            ax.plot(middles, mean, marker="." if len(middles) < 3 else None, label=SCORES[name][0], **look)
            ax.fill_between(middles, low, high, color=look["color"], alpha=0.25, linewidth=0)
        ax.set_ylabel(unit)
    if task == "kv":
        chance = float(results.attrs["chance"])
        axes[0].axhline(chance, color="#7f7f7f", linestyle="--", linewidth=0.9, label="chance among values")
        axes[0].set_ylim(-0.03, 1.03)
    places = np.arange(results.sizes["place_index"]) + first
    for k, p in enumerate(results["profile"].values if profiled else ()):
        look = next(looks) if k else {"color": FAMILY_COLOURS["measured"], "linewidth": 2.0}
        axes[-1].plot(places, p, label=lookup.profile_label(str(results["profile_name"].values[k])), **look)
        if not k:
            axes[-1].set(yscale="log", ylabel="share of influence", ylim=(float(p.max()) * 1e-3, None))
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[-1].set_xlabel("place: pair" if task == "kv" else "place: token at which the stretch begins")
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    return figure


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
