"""The residual mixing λ of published models and of the book's ten small ones: numbers, checks and a figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from matplotlib.figure import Figure
from scipy.stats import binomtest, spearmanr

from posbias.comparison.multiplicity import holm
from studies.checks import Check
from studies.palette import FAMILY_COLOURS, MODEL_COLOURS, MODEL_STYLES
from studies.published import numbers as published
from studies.results import load, of_kind

READINGS = ("frobenius", "token")
"""By norms over the sequence, or token by token."""
PANELS = (
    ("bloom", "bloom-7b1"),
    ("mpt-7b", "mpt-30b", "falcon-rw-7b"),
    ("bloom-8", "bloom-12", "bloom-24"),
    ("mpt-12", "falcon-12"),
    ("llama-12", "llama-ntk-12", "mistral-12"),
    ("gpt2-12", "nope-12"),
)
"""Models in the panels of the figure; the first two are of published models."""

Schedules = Mapping[str, Float[np.ndarray, "T"]]


@dataclass(frozen=True)
class Mixing:
    """Hold what ``results/models.nc`` has of the ten small models, and λ of the five published ones."""

    kept: Mapping[str, xr.Dataset]
    trained: Mapping[str, xr.Dataset]
    theirs: Schedules

    @property
    def ours(self) -> Schedules:
        """λ of the small models by layer, by Frobenius norms."""
        return {name: x["lambda_frobenius"].values for name, x in self.trained.items()}

    @property
    def totals(self) -> pd.DataFrame:
        """Total mixing by model: in both readings, on other texts, and before training."""
        rows = {}
        for name, x in self.trained.items():
            rows[name] = {"tau": total(x), "token": total(x, "token")}
            rows[name] |= {text: total(self.kept[f"{name}.{text}"]) for text in ("wikitext-2", "random")}
            rows[name]["before"] = total(self.kept[f"{name}-untrained-default.builtin"])
        return pd.DataFrame.from_dict(rows, orient="index")

    @property
    def by_reading(self) -> pd.Series:
        """By what share the reading by tokens moves the total."""
        return self.totals["token"] / self.totals["tau"] - 1

    @property
    def inside(self) -> bool:
        """Whether every λ is between 0 and 1."""
        every = [x[f"lambda_{reading}"].values for x in self.trained.values() for reading in READINGS]
        found = np.concatenate(every)
        return bool((found > 0).all() and (found < 1).all())


def load_mixing() -> Mixing:
    """Return what is kept."""
    kept = load("models")
    theirs = {name: np.asarray(published.config(name).lambdas()) for name in published.MODELS}
    return Mixing(kept, of_kind(kept, "builtin", list(MODEL_COLOURS)), theirs)


def total(measured: xr.Dataset, reading: str = "frobenius") -> float:
    """Return τ = Σ_t λ_t of a measurement."""
    return float(measured[f"lambda_{reading}"].sum())


def trends(schedules: Schedules, level: float = 0.05) -> pd.Series:
    """Say of each schedule whether λ falls with depth, rises, or neither, at a level for all together.

    >>> falling = np.linspace(1, 0, 12)
    >>> trends({"a": falling, "b": falling[::-1], "c": falling[[0, 11, 1, 10]]}).tolist()
    ['falls', 'rises', 'none']
    """
    ranks, p = [], []
    for lambda_ in schedules.values():
        found = spearmanr(np.arange(len(lambda_)), lambda_)
        ranks.append(float(found.statistic))
        p.append(max(float(found.pvalue), 2 / math.factorial(len(lambda_))))
    way = np.where(np.array(ranks) < 0, "falls", "rises")
    return pd.Series(np.where(holm(np.array(p)) <= level, way, "none"), list(schedules))


def share_falling(schedules: Schedules) -> Any:
    """Return the 95% interval of the share of models in which λ falls, as if they were independent."""
    falling = int((trends(schedules) == "falls").sum())
    return binomtest(falling, len(schedules)).proportion_ci(0.95)


def may_mostly_fall(schedules: Schedules) -> bool:
    """Say whether λ may fall in most models."""
    return bool(share_falling(schedules).high > 0.5)


def share_below(schedules: Schedules) -> float:
    """Return the share of layers with λ below one half."""
    return float((np.concatenate(list(schedules.values())) < 0.5).mean())


def below_half(groups: Iterable[Schedules]) -> bool:
    """Say whether λ < 1/2 in more than nine layers of ten, in each group."""
    return all(share_below(schedules) > 0.9 for schedules in groups)


def schedule_checks(seen: Mixing) -> list[Check]:
    """Return the checks of how large λ is, and whether it falls with depth."""
    return [falls_check(seen), below_check(seen)]


def shuffled(schedules: Schedules, rng: np.random.Generator) -> Schedules:
    """Return schedules with their layers in another order."""
    return {name: rng.permutation(x) for name, x in schedules.items()}


def drawn(schedules: Schedules, rng: np.random.Generator) -> Schedules:
    """Return schedules of which every λ is anything from 0 to 1."""
    return {name: rng.uniform(size=x.size) for name, x in schedules.items()}


def falls_check(seen: Mixing) -> Check:
    """Return the check that λ falls with depth in most models."""
    found, rng = trends(seen.ours), np.random.default_rng(0)
    falling, rising = int((found == "falls").sum()), int((found == "rises").sum())
    mixed = [shuffled(seen.ours, rng) for _ in range(20)]
    ordered = {name: np.sort(x) for name, x in seen.ours.items()}
    return Check(
        "RA-F4", "falls with depth, measured", "In most models it falls with depth.", may_mostly_fall(seen.ours),
        f"measured: λ falls with depth in {falling} of {len(found)} models, rises in {rising}, no trend in the others "
        "(level 0.05 for all together)",
        "the 95% interval of the share of models in which the rank correlation of λ and depth is below 0, at level "
        "0.05 for all models together, is below one half (undecided if it contains it)",
        {"layers shuffled": list(map(may_mostly_fall, mixed)), "layers in the order of λ": [may_mostly_fall(ordered)]},
        "λ falls with depth in less than half of the models",
        {"undecided": bool(share_falling(seen.ours).low <= 0.5), "post_hoc": True},
    )  # fmt: skip


def below_check(seen: Mixing) -> Check:
    """Return the check that λ is below one half in nearly all layers."""
    groups, rng = (seen.ours, seen.theirs), np.random.default_rng(0)
    anything = [drawn(seen.ours, rng) for _ in range(20)]
    doubled = [{name: 2 * x for name, x in seen.ours.items()}, {name: 2 * x for name, x in seen.theirs.items()}]
    return Check(
        "RA-F4", "below one half", "It is below one half in most layers.", below_half(groups),
        f"λ below 1/2 in {share_below(seen.theirs):.0%} of the published and {share_below(seen.ours):.0%} of the "
        "measured layers",
        "λ reaches 1/2 in a tenth of the layers or more, published or measured",
        {"every λ anything from 0 to 1": [below_half([x]) for x in anything],
         "every λ twice as large": [below_half(doubled)]},
        "λ reaches 1/2 in a tenth of the layers or more", {"post_hoc": True},
    )  # fmt: skip


def numbers(seen: Mixing) -> dict[str, Any]:
    """Return what the prose says of λ."""
    totals, ours, theirs = seen.totals, trends(seen.ours), trends(seen.theirs)
    large = load("real")["smollm2.wiki-256"]
    found: dict[str, Any] = {
        "mixing_text": (totals["wikitext-2"] / totals["tau"] - 1).abs().max(),
        "mixing_random": (totals["random"] / totals["tau"] - 1).abs().max(),
        "mixing_reading": seen.by_reading.abs().max(),
        "mixing_low": totals["tau"].min(),
        "mixing_high": totals["tau"].max(),
        "mixing_start_low": totals["before"].min(),
        "mixing_start_high": totals["before"].max(),
        "mixing_models": len(ours),
        "mixing_falling": int((ours == "falls").sum()),
        "mixing_falling_theirs": int((theirs == "falls").sum()),
        "mixing_small_ours": share_below(seen.ours),
        "mixing_small_theirs": share_below(seen.theirs),
    }
    for reading in READINGS:
        thirds = large[f"lambda_{reading}"].values.reshape(3, -1).mean(1)
        assert thirds.argmin() == 1  # "lowest in the middle"
        found[f"mixing_large_{reading}"] = ", ".join(f"{x:.3f}" for x in thirds)
    return found


def draw_schedules(seen: Mixing) -> Figure:
    """Draw λ over relative depth, in five published models and ten small ones."""
    look = {name: (FAMILY_COLOURS[x.family], x.label) for name, x in published.MODELS.items()}
    look |= {name: (MODEL_COLOURS[name], name) for name in seen.trained}
    styles = MODEL_STYLES | {"bloom-7b1": "--", "mpt-30b": "--"}
    every = {**seen.theirs, **seen.ours}
    axes: Any
    fig, axes = plt.subplots(2, 3, figsize=(6.4, 5.0), sharex=True, sharey=True)
    for k, (ax, names) in enumerate(zip(axes.flat, PANELS, strict=True)):
        for name in names:
            colour, label = look[name]
            where = np.linspace(0, 1, len(every[name]))
            ax.plot(where, every[name], color=colour, linestyle=styles.get(name, "-"), label=label)
        ax.axhline(0.5, color="#7f7f7f", linewidth=0.8)
        ax.set(title="published" if k < 2 else "ours", ylim=(0, 1))
        ax.legend(loc="upper right", labelcolor="linecolor", handlelength=1.6)
    for ax in axes[1]:
        ax.set_xlabel("relative depth")
    for ax in axes[:, 0]:
        ax.set_ylabel(r"mixing $\lambda_t$")
    return fig
