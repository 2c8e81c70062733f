"""One map for all ways to a flatter prior: how far what a network listens to is from uniform, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein
from posbias.comparison.resampling import t_interval
from studies.design.designed_tables import Seeds, body_and_kind, losses, prices, read_designed
from studies.design.remedy_tables import read_remedies, remedy_map
from studies.reference.influence_tables import sample_of

LABELS = {
    "rotary": "RoPE",
    "alibi": "ALiBi",
    "none": "no positions",
    "log": "log",
    "flat": "half local, half flat",
}
"""How a figure names positions that networks were trained with."""
MARKS, BODIES = {"llama-12": "o", "bloom-12": "s"}, {"llama-12": "Llama", "bloom-12": "BLOOM"}
COLOURS = {"rotary": "#CC79A7", "alibi": "#009E73", "none": "#7f7f7f", "log": "#0072B2", "flat": "#D55E00"}
"""Colours of kinds of positions."""
SMOOTH = 9
"""Width of the running mean that is drawn, in tokens."""
SHOWN = ("nearest", "given")
"""Which settings of the remedies the map has: those whose rollout is nearest to uniform, or the only ones."""
COLUMNS = ["way", "body", "name", "x", "x_low", "x_high", "y", "y_low", "y_high"]


def map_points(results: Path | str, profile: str = "influence") -> pd.DataFrame:
    """Return the points of the map.

    Parameters
    ----------
    results
        The folder ``results`` of the book.
    profile
        ``influence``, what was measured, or ``kernels``, the rollout of measured kernels.

    Returns
    -------
    table : DataFrame
        Columns ``way`` (trained or remedy), ``body``, ``name``; ``x``, normalised W₁ of the profile to uniform; ``y``,
        held-out loss above that of the body with its own positions, in nats a token; each with ``_low`` and ``_high``:
        Student's 95 % interval over seeds, or that over documents for a remedy. Networks of BLOOM's body are against
        BLOOM with its own ALiBi.
    """
    return pd.concat([_trained(Path(results), profile), _remedies(Path(results), profile)], ignore_index=True)[COLUMNS]


def _trained(results: Path, profile: str) -> pd.DataFrame:
    seeds = read_designed(results, "designed")
    table = prices(losses(seeds)).reset_index()
    rows = []
    for model in table["model"]:
        distances = []
        for x in seeds[model].values():
            p = sample_of(x).profile if profile == "influence" else x["rollout"].sel(variant=profile).values
            distances.append(normalised_wasserstein(p, np.full(p.size, 1 / p.size)))
        low, high = t_interval(distances)
        rows.append({"x": np.mean(distances), "x_low": max(low, 0.0), "x_high": high})
    table["name"] = [LABELS[kind] for kind in table["kind"]]
    found = pd.concat([table, pd.DataFrame(rows)], axis=1).assign(way="trained")
    return found.rename(columns={"price": "y", "price_low": "y_low", "price_high": "y_high"})


def _remedies(results: Path, profile: str) -> pd.DataFrame:
    studies = {key: x for key, x in read_remedies(results).items() if key[1] == 256}
    table = remedy_map(studies, profile)
    table = table[table["choice"].isin(SHOWN) & (table["remedy"] != "intact")]
    own = table[["x", "x_low", "x_high", "extra", "extra_low", "extra_high"]]
    own = own.rename(columns={"extra": "y", "extra_low": "y_low", "extra_high": "y_high"})
    return own.assign(way="remedy", body=table["model"], name=table["label"])


def draw(points: pd.DataFrame, ax: Any) -> None:
    """Draw the map: filled marks for trained networks, labelled for a legend, open ones with a number for remedies.

    Parameters
    ----------
    points
        Of :func:`map_points`.
    ax
        Matplotlib's axes.
    """
    kinds = {label: kind for kind, label in LABELS.items()}
    for _, point in points.query("way == 'trained'").iterrows():
        ends = (
            [[point.x - point.x_low], [point.x_high - point.x]],
            [[point.y - point.y_low], [point.y_high - point.y]],
        )
        colour = COLOURS[kinds[point["name"]]]
        lines = ax.errorbar(
            point.x, point.y, *reversed(ends), fmt=MARKS[point.body], color=colour, markersize=5, elinewidth=0.5
        )
        lines[0].set_label(f"{BODIES[point.body]}, {point['name']}")
    remedies = points.query("way == 'remedy'").reset_index()
    for k, point in remedies.iterrows():
        ax.plot(point.x, point.y, "o", markerfacecolor="none", color="black", markersize=4, linewidth=0.8)
        ax.annotate(str(k + 1), (point.x, point.y), xytext=(-8, -2), textcoords="offset points", fontsize=6)
    ax.axhline(0, color="#7f7f7f", linewidth=0.6)
    ax.set(xlabel="$W_1$ of influence to uniform", ylabel="loss above own positions (nats)", xlim=(0, None))


def remedy_numbers(points: pd.DataFrame) -> str:
    """Return what the numbers of a map mean, three to a line."""
    names = [f"{k} {name}" for k, name in enumerate(points.query("way == 'remedy'")["name"], 1)]
    return "\n".join("   ".join(names[k : k + 3]) for k in range(0, len(names), 3))


def level(files: Mapping[int, xr.Dataset]) -> Float[np.ndarray, "places"]:
    """Return measured influence n p_j as a running mean, the last token aside, the mean over the files of all seeds."""
    p = np.mean([sample_of(x).profile for x in files.values()], axis=0)
    return np.asarray(p.size * np.convolve(p[:-1], np.ones(SMOOTH) / SMOOTH, mode="valid"))


def lowest(files: Mapping[int, xr.Dataset]) -> float:
    """Return the lowest point of :func:`level`: of an even share, what the place that is heard least has."""
    return float(level(files).min())


def draw_profiles(seeds: Seeds, body: str, ax: Any) -> None:
    """Draw the measured influence of one body's networks, n p_j over j / n, the last token aside, means over seeds.

    Parameters
    ----------
    seeds
        Of :func:`~studies.design.designed_tables.read_designed`.
    body
        Of which networks.
    ax
        Matplotlib's axes.
    """
    for model, files in seeds.items():
        own, kind = body_and_kind(model)
        if own == body:
            heights = level(files)
            places = (np.arange(heights.size) + SMOOTH // 2) / (heights.size + SMOOTH)
            ax.plot(places, heights, color=COLOURS[kind], label=LABELS[kind], linewidth=0.9)
    ax.axhline(1, color="#7f7f7f", linewidth=0.6, linestyle="--")
    ax.set(xlabel="position $j/n$", yscale="log")
