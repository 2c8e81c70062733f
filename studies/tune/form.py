"""What the other documents have to do with the loss: the same model where they state facts of other kinds.

Both forms are asked of the same sets: the names, the places and the model are the same, and only the kinds differ.
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from jaxtyping import Float

from posbias.lookup.scores import mean_with_interval, paired_difference
from studies import results
from studies.checks import ranged
from studies.tune.tables import BEFORE, ENDS, MIDDLE, Answers, middle_less_ends

FORMS = {"correct": "same kind of fact", "apart_correct": "other kinds"}
"""Scores of the answers, and what the other seven documents state."""
COLOURS = {"correct": "#000000", "apart_correct": "#0072B2"}
MODELS = {BEFORE: "as it is", "ends": "trained with the answer at the ends"}


def middle_by_form(arms: Answers, arm: str) -> dict[str, Float[np.ndarray, "C"]]:
    """Return by form the share of right answers at the places between the ends, for each set."""
    return {form: arms[arm][form].values[:, MIDDLE].astype(np.float64).mean(1) for form in FORMS}


def form_numbers(arms: Answers) -> dict[str, Any]:
    """Return what the prose says of the other documents' kinds; of a training only if it is there."""
    found: dict[str, Any] = {}
    for arm in [arm for arm in MODELS if arm in arms]:
        middle = middle_by_form(arms, arm)
        gain = paired_difference(middle["apart_correct"] - middle["correct"])
        found |= {f"why_form_{arm}": middle["apart_correct"].mean(), f"why_form_gain_{arm}": gain.mean}
        found[f"why_form_ends_{arm}"] = arms[arm]["apart_correct"].values[:, ENDS].astype(np.float64).mean()
        found[f"why_form_wrong_{arm}"] = 1 - middle["apart_correct"].mean()
        found[f"why_form_wrong_ends_{arm}"] = 1 - found[f"why_form_ends_{arm}"]
        found[f"why_form_points_{arm}"] = 100 * (found[f"why_form_ends_{arm}"] - found[f"why_form_{arm}"])
        found |= {f"why_form_low_{arm}": gain.low, f"why_form_high_{arm}": gain.high}
    return found


def form_table(arms: Answers) -> pd.DataFrame:
    """Return right answers at the ends and between them, and their difference, of SmolLM2 as it is, by form."""
    forms = {"same kind of fact": arms[BEFORE]["correct"].values}
    plain = results.load("documents").get("smollm2.plain")
    if plain is not None:
        forms["same kind, plain text"] = plain["correct"].sel(arm="competing").values
    forms["other kinds of facts"] = arms[BEFORE]["apart_correct"].values
    rows = {}
    for name, correct in forms.items():
        found = paired_difference(-middle_less_ends(correct.astype(np.float64)))
        rows[name] = {
            "ends": f"{correct[:, ENDS].mean():.1%}",
            "middle": f"{correct[:, MIDDLE].mean():.1%}",
            "ends less middle (95%)": ranged((found.mean, found.low, found.high)),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("the other seven state")


def draw_forms(arms: Answers) -> None:
    """Draw right answers by place for both forms: of the model as it is, and of the one trained at the ends."""
    models = [arm for arm in MODELS if arm in arms]
    figure, axes = plt.subplots(1, len(models), figsize=(3.2 * len(models), 3.1), sharey=True, squeeze=False)
    places = np.arange(1, arms[BEFORE].sizes["place"] + 1)
    for ax, arm in zip(axes[0], models, strict=True):
        for form, label in FORMS.items():
            mean, low, high = mean_with_interval(arms[arm][form].values, True)
            ax.errorbar(places, mean, [mean - low, high - mean], color=COLOURS[form], marker="o", ms=4, label=label)
        ax.set(title=MODELS[arm], xlabel="place of the right document", xticks=places, ylim=(0, 1.03))
    axes[0, 0].set(ylabel="right answers")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), title="the other seven state", fontsize=8, title_fontsize=8,
        loc="outside upper center", ncols=2,
    )  # fmt: skip
