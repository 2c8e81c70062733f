"""Where a model stands: reference models, untrained networks and published models, in the table that ships."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float

from posbias.comparison.samples import SMOOTH
from posbias.rollout.profiles import mean_position, u_shape

TABLE = Path(__file__).parents[1] / "data" / "known_models.csv"
"""Where the table ships; ``studies.reference.known_models`` makes it."""
KINDS = ("reference", "published", "untrained")
"""Trained for this project, measured by the paper's authors, and networks with the weights that were drawn."""
NUMBERS = ("mean", "first", "last", "depth", "mixing", "a", "b", "c")
"""Mean position, shares of the first and last token, depth of the trough, Σλ, and W₁ of rollouts."""
COLUMNS = ("name", "kind", "architecture", "layers", "length", "corpus", *NUMBERS, "source")


def shape_numbers(influence: Float[np.ndarray, "n"]) -> dict[str, float]:
    """Return ``mean``, ``first``, ``last`` and ``depth`` of a measured profile; the depth of few positions is NaN.

    >>> shape_numbers(np.array([0.5, 0.0, 0.5]))
    {'mean': 0.5, 'first': 0.5, 'last': 0.5, 'depth': nan}
    """
    depth = u_shape(influence, smooth=SMOOTH).depth if influence.size > SMOOTH else np.nan
    return {
        "mean": mean_position(influence),
        "first": float(influence[0]),
        "last": float(influence[-1]),
        "depth": depth if np.isfinite(depth) else np.nan,
    }


@cache
def known_models(path: Path = TABLE) -> pd.DataFrame:
    """Return the table, a row a model with :data:`COLUMNS`; NaN where a number is not known."""
    return pd.read_csv(path, comment="#", keep_default_na=False, na_values={name: [""] for name in NUMBERS})
