"""How the peak of (t + x choose x) e^(-x²θ²) moves with depth and angle: numerically, and as appendix H prints it."""

from __future__ import annotations

from studies.theorems.encodings import gaussian_peak


def numerical_slopes(t: int | float, theta: float, *, h: float = 1e-6) -> tuple[float, float]:
    """Return ∂x*/∂t and ∂x*/∂θ as central differences of the numerically solved peak.

    Parameters
    ----------
    t
        Layers after the first, > 0.
    theta
        Angle per token, > 0.
    h
        Relative step.

    >>> by_t, by_theta = numerical_slopes(4, 0.1)
    >>> by_t > 0 > by_theta
    True
    """
    by_t = gaussian_peak(t * (1 + h), theta**2) - gaussian_peak(t * (1 - h), theta**2)
    by_theta = gaussian_peak(t, (theta * (1 + h)) ** 2) - gaussian_peak(t, (theta * (1 - h)) ** 2)
    return by_t / (2 * h * t), by_theta / (2 * h * theta)


def printed_slopes(t: int | float, theta: float, *, squared: bool = False) -> tuple[float, float]:
    """Return the derivatives that appendix H prints, 1 / (2 s (x+t) + t/x) and -2x / (2 s + t / (x (x+t))), at x*.

    Parameters
    ----------
    t
        Layers after the first, > 0.
    theta
        Angle per token, > 0.
    squared
        Whether s is θ² and the second is multiplied by dθ²/dθ = 2θ; as printed, s is θ.

    Source: Wu et al. 2025, appendix H.

    >>> from studies.theorems.encodings import gaussian_peak_slopes
    >>> meant, derived = printed_slopes(4, 0.1, squared=True), gaussian_peak_slopes(4, 0.1)
    >>> all(abs(a / b - 1) < 1e-12 for a, b in zip(meant, derived))
    True
    """
    x, s = gaussian_peak(t, theta**2), theta**2 if squared else theta
    by_theta = -2 * x / (2 * s + t / (x * (x + t)))
    return 1 / (2 * s * (x + t) + t / x), by_theta * (2 * theta if squared else 1.0)
