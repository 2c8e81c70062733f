"""How influence falls with distance from the last token: power laws, exponentials and constants are fitted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.optimize import least_squares
from scipy.special import exp1

from posbias.comparison.samples import Sample

FORMS = ("power", "exponential", "constant")
"""γ + β (r + 1)^{-p}, γ + β e^{-r/ℓ}, and γ, of the distance r from the last token; nothing is below 0."""
LEFT_OUT = 1 / 8
"""Share of the prompt at its start that is not fitted: the rise there is no matter of distance."""


@dataclass(frozen=True)
class Fit:
    """Hold a form that is fitted to the logarithm of a profile by least squares."""

    form: str
    gamma: float
    beta: float
    rate: float  # the exponent p, or 1/ℓ

    def __call__(self, r: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
        """Return what the form has at distances ``r``."""
        if self.form == "constant":
            return np.full(r.shape, self.gamma)
        return self.gamma + self.beta * _fall(self.form, r, self.rate)

    def error(self, r: Float[np.ndarray, "m"], q: Float[np.ndarray, "m"]) -> float:
        """Return the root mean square of log q less the logarithm of the form."""
        return float(np.sqrt(np.mean((np.log(q) - np.log(self(r))) ** 2)))


def by_distance(p: Float[np.ndarray, "n"], left_out: float = LEFT_OUT) -> tuple[np.ndarray, np.ndarray]:
    """Return distances from the last token, nearest first, and the profile there, without the prompt's start.

    >>> by_distance(np.array([0.1, 0.2, 0.3, 0.4]), 0.25)
    (array([0., 1., 2.]), array([0.4, 0.3, 0.2]))
    """
    kept = p.size - int(left_out * p.size)
    return np.arange(kept, dtype=np.float64), p[::-1][:kept]


def fit(form: str, r: Float[np.ndarray, "m"], q: Float[np.ndarray, "m"], start: Fit | None = None) -> Fit:
    """Fit a form; from several places unless ``start`` says where.

    >>> r = np.arange(100.0)
    >>> found = fit("power", r, 0.001 + 0.3 * (r + 1) ** -0.8)
    >>> round(found.rate, 4), round(found.gamma, 5)
    (0.8, 0.001)
    """
    z = np.log(q)
    if form == "constant":
        return Fit(form, float(np.exp(z.mean())), 0.0, 0.0)

    def off(x: np.ndarray) -> np.ndarray:
        return np.asarray(np.logaddexp(x[0], x[1] + np.log(_fall(form, r, np.exp(x[2])))) - z)

    def slopes(x: np.ndarray) -> np.ndarray:
        falls = -np.exp(x[2]) * (np.log1p(r) if form == "power" else r)  # the logarithm of the fall, and its slope
        above = 1 / (1 + np.exp(x[1] + falls - x[0]))
        return np.stack([above, 1 - above, (1 - above) * falls], axis=1)

    rates = [0.5, 1.0, 2.0] if form == "power" else [1 / 100, 1 / 20, 1 / 4]
    starts = [(z.min(), z[0], np.log(rate)) for rate in rates] + [(z.min() - 5, z[0], np.log(rates[1]))]
    if start is not None:
        starts = [(np.log(start.gamma), np.log(start.beta), np.log(start.rate))]
    bounds = ([-40.0, -40.0, -9.0], [5.0, 5.0, 2.5])
    found = min(
        (least_squares(off, np.clip(x, *bounds), slopes, bounds, xtol=1e-5, ftol=1e-7) for x in starts),
        key=lambda x: x.cost,
    )
    return Fit(form, *(float(value) for value in np.exp(found.x)))


def fall_row(p: Float[np.ndarray, "n"], left_out: float = LEFT_OUT) -> dict[str, float]:
    """Return the errors of all forms, those at the farther half of distances by a fit to the nearer, and p."""
    r, q = by_distance(p, left_out)
    half = r.size // 2
    row: dict[str, float] = {}
    for form in FORMS:
        whole, near = fit(form, r, q), fit(form, r[:half], q[:half])
        row |= {form: whole.error(r, q), f"{form} beyond": near.error(r[half:], q[half:])}
        if form == "power":
            row |= {"p": whole.rate, "floor": whole.gamma * r.size / q.sum()}
    return row


def fall_table(samples: dict[str, Sample], *, resamples: int = 100, left_out: float = LEFT_OUT) -> pd.DataFrame:
    """Return :func:`fall_row` of every sample, a row each, with a 95% interval of log(exponential/power)."""
    rows = {}
    for name, sample in samples.items():
        r, q = by_distance(sample.profile, left_out)
        first = {form: fit(form, r, q) for form in FORMS[:2]}
        ratios = []
        for drawn in sample.resampled(resamples):
            own = by_distance(drawn, left_out)[1]
            power, exponential = (fit(form, r, own, first[form]).error(r, own) for form in FORMS[:2])
            ratios.append(np.log(exponential / power))
        low, high = np.quantile(ratios, [0.025, 0.975])
        rows[name] = {**fall_row(sample.profile, left_out), "low": low, "high": high}
    return pd.DataFrame.from_dict(rows, orient="index")


def mean_head_kernel(r: Float[np.ndarray, "m"], heads: int) -> Float[np.ndarray, "m"]:
    """Return what the mean of ALiBi's heads gives to distance r, far from the start, for slopes 2^{-8h/H}.

    K(r) = (1/(8 log 2)) ∫_r^{r+1} (e^{-m₀ s} - e^{-m₁ s}) ds/s with m₀ = 2^{-8-4/H} and m₁ = 2^{-4/H}: the mean over
    heads by the midpoint rule in log m, two exponential integrals. A distance of 0 is taken as 1e-9.

    Source: this project.

    >>> mean_head_kernel(np.array([1.0, 10.0]), 16).round(4).tolist()
    [0.0862, 0.0166]
    """
    r = np.maximum(r, 1e-9)
    least, most = 2 ** (-8 - 4 / heads), 2 ** (-4 / heads)
    between = [exp1(m * r) - exp1(m * (r + 1)) for m in (least, most)]
    return np.asarray((between[0] - between[1]) / (8 * np.log(2)))


def _fall(form: str, r: Float[np.ndarray, "m"], rate: float) -> Float[np.ndarray, "m"]:
    """Return what falls from 1 at distance 0, never quite to 0."""
    return np.maximum((r + 1) ** -rate if form == "power" else np.exp(-r * rate), 1e-300)
