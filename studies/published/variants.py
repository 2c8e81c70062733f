"""Variants (a), (b) and (c) of the published rollouts, as the files have them or as the architectures have it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.published import numbers
from posbias.published.architectures import architecture_faithful
from posbias.published.configuration import RolloutConfig
from posbias.rollout.profiles import mean_position

if TYPE_CHECKING:
    from pandas import DataFrame

VARIANTS = {"a": "(a) attention only", "b": "(b) with residual", "c": "(c) residual and content"}
"""The rollouts of the paper by their letters: λ = 1 and no content; measured λ; measured λ and content."""

READINGS = {
    "as published": (False, False),
    "slopes only": (True, False),
    "content only": (False, True),
    "both": (True, True),
}
"""What is taken from the architecture in place of the file: slopes, scale of the content logits."""


def variant_config(
    model: str, variant: str, n: int, dataset: str = "fineweb-edu", reading: str = "as published"
) -> RolloutConfig:
    """Return the configuration of one variant of a model's rollout for n tokens.

    Parameters
    ----------
    model
        A key of :data:`posbias.published.numbers.MODELS`.
    variant
        A key of :data:`VARIANTS`.
    n
        Tokens of the prompt, at least 1.
    dataset
        Text on which the mixing coefficients and the content logits were measured.
    reading
        A key of :data:`READINGS`.

    Raises
    ------
    ValueError
        For an unknown model, variant, data set or reading, with those that there are.

    Source: residual-aware paper, section 6.2.

    >>> float(variant_config("mpt-7b", "a", 8).lambdas().min())
    1.0
    """
    for field, value, known in (("variant", variant, VARIANTS), ("reading", reading, READINGS)):
        if value not in known:
            raise errors.invalid(field, f"one of {', '.join(known)}", value)
    config = numbers.config(model, "all", dataset).at_length(n)
    config = config if variant == "c" else config.without_content()
    config = config.without_residual() if variant == "a" else config
    slopes, content = READINGS[reading]
    described = numbers.MODELS[model]
    return architecture_faithful(config, described.family, described.head_dim, slopes=slopes, content=content)


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


def reading_frame(n: int) -> DataFrame:
    """Return the mean position of variants (b) and (c) of every model in every reading, for n tokens.

    One row each, with the columns model, label, variant, reading and mean (0 first token, 1 last).
    """
    import pandas as pd

    rows = [
        (name, described.label, variant, reading, mean_position(variant_profile(name, variant, n, reading=reading)))
        for name, described in numbers.MODELS.items()
        for variant in "bc"
        for reading in READINGS
    ]
    return pd.DataFrame(rows, columns=["model", "label", "variant", "reading", "mean"])
