"""Mean positions of the paper's models: printed, by rollout, and with skip and branch at right angles."""

from __future__ import annotations

import numpy as np

from posbias.published import numbers
from posbias.rollout.profiles import mean_position
from studies.ladder.joining import joined_profile


def joined_means(name: str) -> dict[str, float]:
    """Return the mean position of a published model's influence as measured, and as predicted with either join.

    ``measured`` is the printed distance of attention alone, all of whose mass is on the first token; ``sizes`` and
    ``angles`` come from the published λ and slopes without content, joined as :mod:`studies.ladder.joining` does.

    Parameters
    ----------
    name
        One of :data:`posbias.published.numbers.MODELS`.

    Raises
    ------
    ValueError
        If there is no such model.

    Source: residual-aware paper, table 2 and the authors' configurations.

    >>> {key: round(value, 2) for key, value in joined_means("falcon-rw-7b").items()}
    {'measured': 0.63, 'sizes': 0.47, 'angles': 0.75}
    """
    measured = numbers.printed(2, name, "a").wasserstein
    config = numbers.config(name, "none")
    A = config.kernels().dense(0, config.sequence_length)  # without content all layers have one kernel
    A, lambdas = np.stack([A] * config.num_layers), config.lambdas()
    sizes, angles = (mean_position(joined_profile(A, lambdas, power=power)) for power in (1.0, 2.0))
    return {"measured": measured, "sizes": sizes, "angles": angles}
