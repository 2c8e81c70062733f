"""Rollouts of the published files in the paper's variants, and the printed distances about them.

Frames have a row for each printed distance, with the columns of :func:`entry_frame`. A distance from a known profile
confines the mean of the other, |mean(q) - mean(p)| ≤ W₁(p, q): a range is a pair (low, high) of mean positions, empty
if low > high.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from pandas import DataFrame

from posbias.comparison.distances import normalised_wasserstein
from posbias.configuration import ContentConfig, RolloutConfig
from posbias.rollout.logits import alibi_slopes
from posbias.rollout.profiles import mean_position
from studies.published import numbers

VARIANTS = {"a": "(a) attention only", "b": "(b) with residual", "c": "(c) residual and content"}
"""The rollouts of the paper by their letters: λ = 1 and no content; measured λ; measured λ and content."""

READINGS = {
    "as published": (False, False),
    "slopes only": (True, False),
    "content only": (False, True),
    "both": (True, True),
}
"""What is taken from the architecture in place of the file: slopes, scale of the content logits."""
POSITIONS_SCALED = {"bloom": False, "mpt": False, "falcon": True}
"""Whether a family divides the ALiBi term by √(head size), as all divide q·k; read in their implementations."""


def variant_config(
    model: str, variant: str, n: int, dataset: str = "fineweb-edu", reading: str = "as published"
) -> RolloutConfig:
    """Return the configuration of one variant of a model's rollout for n tokens.

    Source: residual-aware paper, section 6.2.

    >>> float(variant_config("mpt-7b", "a", 8).lambdas().min())
    1.0
    """
    config = numbers.config(model, "all", dataset).model_copy(update={"sequence_length": n})
    config = config if variant == "c" else numbers.without_content(config)
    config = numbers.without_residual(config) if variant == "a" else config
    slopes, content = READINGS[reading]
    scale = 1 / np.sqrt(numbers.MODELS[model].head_dim)
    attention, logits = config.attention_config, config.content_config
    if slopes:
        m = alibi_slopes(attention.num_heads) * (scale if POSITIONS_SCALED[numbers.MODELS[model].family] else 1.0)
        attention = attention.model_copy(update={"alibi_slopes": [m.tolist()]})
    if content:
        parts = {name: (scale * np.array(rows)).tolist() for name, rows in logits.model_dump().items()}
        logits = ContentConfig(**parts)
    return config.model_copy(update={"attention_config": attention, "content_config": logits})


@cache
def variant_profile(
    model: str, variant: str, n: int, dataset: str = "fineweb-edu", reading: str = "as published"
) -> Float[np.ndarray, "n"]:
    """Return the influence profile of :func:`variant_config`; computed once, and not to be written to.

    >>> variant_profile("mpt-7b", "b", 4).round(2).tolist()
    [0.74, 0.15, 0.07, 0.04]
    """
    p = variant_config(model, variant, n, dataset, reading).profile()
    p.flags.writeable = False
    return p


UNIT = 0.01
"""One unit of the last printed digit; a printed number is at most half of it from the exact one."""
CORPUS_LABELS = {"fineweb-edu": "FineWeb-Edu", "dclm": "DCLM", "wikipedia": "Wikipedia"}
"""The data sets as the paper names them."""


def entry_frame() -> DataFrame:
    """Return every printed distance with what the published files say about its rollout.

    Low and high round to what is printed, mean is that of the rollout, schedule the data set of its mixing: for (b) the
    authors' notebook takes that of FineWeb-Edu throughout.

    Source: residual-aware paper, tables 2 to 4.

    >>> entries = entry_frame()
    >>> entries.query("table == 2 and model == 'bloom'")["printed"].tolist()
    [0.65, 0.08, 0.01]
    """
    frame = numbers.printed_tables().rename(columns={"wasserstein": "printed"})
    frame = frame.assign(
        corpus=frame["dataset"].map(CORPUS_LABELS),
        label=frame["model"].map({name: model.label for name, model in numbers.MODELS.items()}),
        low=frame["printed"] - UNIT / 2,
        high=frame["printed"] + UNIT / 2,
        schedule=frame["dataset"].where(frame["variant"] == "c", numbers.CORPORA[0]),
    )
    profiles = (variant_profile(x.model, x.variant, x.n, x.schedule) for x in frame.itertuples())
    return frame.assign(mean=list(map(mean_position, profiles)))


def allowed_means(mean: float, distance: float) -> tuple[float, float]:
    """Return the means in [0, 1] that a profile at most ``distance`` away from one with ``mean`` may have.

    >>> allowed_means(0.75, 0.5)
    (0.25, 1.0)
    """
    return max(mean - distance, 0.0), min(mean + distance, 1.0)


def gaps_to(mean: float, means: Iterable[float]) -> tuple[float, float]:
    """Return the smallest and the largest |mean - x| over x in a range.

    >>> gaps_to(0.5, (0.25, 0.625))
    (0.0, 0.25)
    """
    ends = [mean - x for x in means]
    smallest = 0.0 if min(ends) <= 0 <= max(ends) else min(map(abs, ends))
    return smallest, max(map(abs, ends))


def means_by_collapse(entries: DataFrame) -> DataFrame:
    """Return the measured mean of each model that the printed distance of variant (a) allows.

    A rollout that has collapsed onto the first token is as far from a profile as that profile's mean, up to the
    mean of the rollout itself.
    """
    collapsed = entries.query("variant == 'a'").set_index("model")
    return pd.DataFrame({"low": collapsed["low"] - collapsed["mean"], "high": collapsed["high"] + collapsed["mean"]})


def by_pair(rows: DataFrame) -> Bool[np.ndarray, "rows"]:
    """Return whether printed_b and printed_c can be distances of two profiles, apart from each other, to a third.

    The triangle inequality, |W_b - W_c| ≤ apart ≤ W_b + W_c, within the rounding of both.

    >>> rows = pd.DataFrame({"printed_b": [0.25, 0.2, 0.1], "printed_c": [0.25, 0.2, 0.8], "apart": 0.5})
    >>> by_pair(rows).tolist()
    [True, False, False]
    """
    b, c = rows["printed_b"], rows["printed_c"]
    return np.asarray(((b - c).abs() <= rows["apart"] + UNIT) & (rows["apart"] <= b + c + UNIT))


def pair_frame(entries: DataFrame) -> DataFrame:
    """Return what the entries (b) and (c) of one model, table and data set say together."""
    rows = []
    for _, pair in entries.query("variant != 'a'").groupby(["table", "n", "dataset", "model"], sort=False):
        b, c = (pair.query("variant == @v").iloc[0] for v in "bc")
        apart = normalised_wasserstein(*(variant_profile(x.model, x.variant, x.n, x.schedule) for x in (b, c)))
        lows, highs = zip(*(allowed_means(x["mean"], x.high) for x in (b, c)), strict=True)
        row = {"printed_b": b.printed, "printed_c": c.printed, "mean_b": b["mean"], "mean_c": c["mean"]}
        row |= {"apart": apart, "low": max(lows), "high": min(highs), "room": max(lows) <= min(highs)}
        rows.append({**b[["table", "n", "dataset", "model", "label", "corpus"]], **row})
    pairs = pd.DataFrame(rows)
    return pairs.assign(consistent=by_pair(pairs))
