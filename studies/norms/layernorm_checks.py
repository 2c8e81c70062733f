"""Checks of the closed forms of LayerNorm's recency, as functions of the form, tokens and network that they check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from studies.norms.layernorm import exact_tokens, inverse_norms, second_layer_logits, weight_ratio
from studies.norms.layernorm_simulation import Norm, Residual, layer_logits

NETWORKS: tuple[tuple[Norm, Residual], ...] = (
    ("none", "none"),
    ("none", "pre"),
    ("layernorm", "none"),
    ("layernorm", "pre"),
    ("layernorm", "post"),
)
"""Norm before attention and residual of the networks that have a closed form; tokens have norm 1."""
ROUNDING = 1e-12
"""Relative difference of closed form and network that rounding explains."""

Form = Callable[..., Float[np.ndarray, "n n"]]
Tokens = Callable[[int, int, float], Float[np.ndarray, "n d"]]


def parameters(d: int, alpha: float, norm: Norm, residual: Residual) -> dict[str, Any]:
    """Return what :func:`~studies.norms.layernorm.second_layer_logits` takes for a network on tokens of norm 1.

    >>> parameters(16, 0.5, "layernorm", "pre")["lambda_"]
    0.8
    """
    normalised, root = norm != "none", d**0.5
    lambda_ = 1.0 if residual == "none" else 0.5
    if normalised and residual == "pre":
        lambda_ = root / (1 + root)
    scale = root if normalised else (4 if residual == "pre" else 1) / root
    g = weight_ratio(alpha, root if normalised else 1 / root)
    return {"alpha": alpha, "g": g, "lambda_": lambda_, "scale": scale, "normalised": normalised}


def closed_form_table(
    widths: Sequence[int],
    n: int,
    alpha: float = 0.5,
    *,
    form: Form = second_layer_logits,
    tokens: Tokens = exact_tokens,
    order: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Return how far a closed form of the second layer's logits is from each network, and the network's steps in j.

    >>> bool(closed_form_table([16], 4)["error"].max() < 1e-12)
    True
    """
    rows = []
    places = np.arange(n) if order is None else np.asarray(order)
    for d in widths:
        for norm, residual in NETWORKS:
            S = layer_logits(tokens(n, d, alpha), 2, norm=norm, residual=residual)[1][np.ix_(places, places)]
            closed = form(n, **parameters(d, alpha, norm, residual))
            steps = np.concatenate([np.diff(S[i, :i]) for i in range(2, n)])
            rows.append((d, norm, residual, abs(S / closed - 1).max(), steps.min(), steps.max()))
    return pd.DataFrame(rows, columns=["d", "norm", "residual", "error", "least", "largest"])


def second_layer_holds(table: pd.DataFrame) -> bool:
    """Tell whether the form meets every network, and logits are flat in j without a norm and rise with one.

    >>> second_layer_holds(closed_form_table([16], 4))
    True
    """
    flat, rising = table.query("norm == 'none'"), table.query("norm != 'none'")
    level = abs(flat[["least", "largest"]].to_numpy()).max()
    return bool(table["error"].max() < ROUNDING and level < 1e-14 and (rising["least"] > 0).all())


def norm_ratio_error(
    widths: Sequence[int],
    alphas: Sequence[float],
    n: int,
    *,
    h: Callable[..., Float[np.ndarray, "n"]] = inverse_norms,
) -> float:
    """Return the largest difference of S_nj/S_n1 in the networks with a norm from h(j)/h(1).

    >>> norm_ratio_error([16], [0.0, 0.5], 5) < 1e-11
    True
    """
    worst = 0.0
    for d in widths:
        for alpha in alphas:
            for norm, residual in NETWORKS[2:]:
                S = layer_logits(exact_tokens(n, d, alpha), 2, norm=norm, residual=residual)[1]
                given = parameters(d, alpha, norm, residual)
                factor = h(n, alpha=alpha, g=given["g"], lambda_=given["lambda_"])
                error = abs(S[-1, :-1] / S[-1, 0] - factor[:-1] / factor[0]).max()
                worst = max(worst, float(error))
    return worst


def with_error(form: Callable[..., Any], name: str, factor: float) -> Callable[..., Any]:
    """Return a form with one of its arguments multiplied by a factor: something that a check should reject.

    >>> with_error(lambda n, g: g, "g", 2.0)(3, g=0.25)
    0.5
    """

    def wrong(*args: Any, **given: Any) -> Any:
        return form(*args, **{**given, name: given[name] * factor})

    return wrong
