"""Residual-mixing schedules λ_1..λ_T: constant, power decay."""

import numpy as np
from jaxtyping import Float

from posbias import errors


def constant(T: int, lambda_: float) -> Float[np.ndarray, "T"]:
    """Return λ_t = λ for t = 1..T.

    >>> constant(3, 0.2).tolist()
    [0.2, 0.2, 0.2]
    """
    return errors.mixing_coefficients("lambda_const", np.full(errors.positive_integer("T", T), lambda_))


def power_decay(T: int, lambda_0: float, beta: float) -> Float[np.ndarray, "T"]:
    """Return λ_t = λ_0 t^(-β) for t = 1..T.

    For λ_0 > 0 the total Σλ_t stays finite as T grows exactly when β > 1.

    >>> power_decay(3, 0.6, 1.0).round(2).tolist()
    [0.6, 0.3, 0.2]
    """
    for field, value in (("lambda_0", lambda_0), ("beta", beta)):
        errors.finite_array(field, value, ndim=(0,))
    t = np.arange(1, errors.positive_integer("T", T) + 1, dtype=np.float64)
    return errors.mixing_coefficients("power_decay", lambda_0 * t**-beta)
