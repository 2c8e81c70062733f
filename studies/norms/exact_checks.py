"""Checks of the theorems on norms and recency: steps in rational numbers, closed forms against networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from jaxtyping import Float

from studies.checks import Check
from studies.norms import layernorm as theory
from studies.norms import layernorm_checks as forms
from studies.norms.layernorm_simulation import layer_logits
from studies.norms.simulated import ALPHAS, WIDTHS, N

Factor = Callable[..., Float[np.ndarray, "..."]]
SAID_WIDTHS, SAID_ALPHAS = ", ".join(map(str, WIDTHS)), ", ".join(map(str, ALPHAS))


def residual_kernel(n: int, g: Fraction, lam: Fraction) -> np.ndarray:
    """Return R = (1-λ) I + λ A of layer 1 in rational numbers.

    >>> print(residual_kernel(2, Fraction(1), Fraction(1))[1])
    [Fraction(1, 2) Fraction(1, 2)]
    """
    R = np.full((n, n), Fraction(0), dtype=object)
    for j in range(n):
        own = 1 / (1 + j * g)
        R[j, :j] = lam * g * own
        R[j, j] = 1 - lam + lam * own
    return R


def flat_and_rising(R: np.ndarray, alpha: Fraction) -> bool:
    """Say whether inner products with the last state are all equal, and its squared cosines rise."""
    out = (1 - alpha) * (R @ R.T) + alpha
    last = len(R) - 1
    squared = [out[last, j] ** 2 / (out[last, last] * out[j, j]) for j in range(last)]
    return len(set(out[last, :last])) == 1 and bool(all(np.diff(squared) > 0))


def last_over_first(d: int) -> float:
    """Return h(n-1) / h(1) - 1 for orthogonal tokens."""
    h = theory.inverse_norms(N, 0.0, theory.weight_ratio(0.0, d**0.5))
    return float(h[-2] / h[0] - 1)


def second_layer_check() -> Check:
    """Return the check that logits of layer 2 are flat without a norm and rise with one."""
    rng, R, third = np.random.default_rng(0), residual_kernel(5, Fraction(2, 7), Fraction(3, 5)), Fraction(1, 3)

    def scattered(n: int, d: int, alpha: float) -> Float[np.ndarray, "n d"]:
        return rng.standard_normal((n, d))

    bent, moved, random = [], [], []
    for k in range(20):
        B = R.copy()
        B[-1, k % 4] *= Fraction(101, 100)
        bent.append(flat_and_rising(B, third))
        order = np.r_[rng.permutation(N - 1), N - 1]
        moved.append(forms.second_layer_holds(forms.closed_form_table(WIDTHS[:2], N, order=order)))
        random.append(forms.second_layer_holds(forms.closed_form_table(WIDTHS[:2], N, tokens=scattered)))
    wrong = []
    for name in ("alpha", "g", "lambda_", "scale"):
        form = forms.with_error(theory.second_layer_logits, name, 0.999)
        wrong.append(forms.second_layer_holds(forms.closed_form_table(WIDTHS, N, form=form)))
    holds = flat_and_rising(R, third) and forms.second_layer_holds(forms.closed_form_table(WIDTHS, N))
    small, wider = WIDTHS[:2]
    return Check(
        "LN-T1", "second layer", "Behind a norm layer 2 prefers later keys; without one its logits are flat.",
        bool(holds and min(map(last_over_first, WIDTHS)) > 0),
        "every step of the proof is exact in rational numbers; networks and closed form agree to 1e-12 for widths "
        f"{SAID_WIDTHS}. With orthogonal tokens h(n-1)/h(1) - 1 is {last_over_first(small):.3f} at width {small} and "
        f"{last_over_first(wider):.4f} at width {wider}",
        "logits without a norm differ in j, those with one do not rise at every step, or a network departs from the "
        "closed form by more than 1e-12",
        {
            "one weight of a row one per cent larger": bent, "earlier keys in shuffled order": moved,
            "Gaussian tokens, whose cosines scatter": random, "α, g, λ or the scale off by one in a thousand": wrong,
        },
        "a step of the proof fails numerically", {"kind": "proved"},
    )  # fmt: skip


def ratio_check() -> Check:
    """Return the check that logits are in the ratio of h(j)."""

    def error(h: Factor = theory.inverse_norms) -> float:
        return forms.norm_ratio_error(WIDTHS[:2], ALPHAS, N, h=h)

    wrong = []
    for change in (0.9, 0.99, 0.999, 1.001):
        for name in ("alpha", "g"):
            wrong.append(error(forms.with_error(theory.inverse_norms, name, change)) < 1e-9)
    squared = error(lambda *n, **x: theory.inverse_norms(*n, **x) ** 2) < 1e-9
    return Check(
        "LN-alpha", "closed form", "Logits are in the ratio of h(j).", error() < 1e-9,
        "h(j) = ((1-α) q_j + α)^(-1/2): the ratios of logits of networks agree to 1e-9, for α from "
        f"{ALPHAS[0]} to {ALPHAS[-1]}",
        "S_nj/S_n1 departs from h(j)/h(1) by 1e-9 in a network with a norm",
        {"α or g off by 0.1 to 10 per cent": wrong, "h squared": [squared]},
        "logits are not in the ratio of h", {"kind": "proved"},
    )  # fmt: skip


def weakens(factor: Factor, ratios: Sequence[tuple[float, float]]) -> bool:
    """Say whether h starts at 1, and rises with λ and with j, for every α and g."""
    mixing = np.linspace(0, 1, 201)
    for alpha, g in ratios:
        h = np.array([factor(N, alpha, g, lam) for lam in mixing])
        rises = (np.diff(h[:, 1:], axis=0) > 0).all() and (np.diff(h[1:], axis=1) > 0).all()
        if not (rises and np.allclose(h[:, 0], 1)):
            return False
    return True


def with_cross_term(factor: float) -> Factor:
    """Return h with the term 2 λ (1-λ) a_j times a factor; with 1 it is h, for any g."""

    def h(n: int, alpha: float, g: float, lam: float) -> Float[np.ndarray, "n"]:
        own, _ = theory.row_weights(n, g)
        mixed = 2 * lam * (1 - lam) * own
        q = theory.row_concentration(n, g, lam) + (factor - 1) * mixed
        return 1 / np.sqrt((1 - alpha) * q + alpha)

    return h


def residual_check() -> Check:
    """Return the check that the factor h rises with the residual mixing."""
    ratios = []
    for d in WIDTHS[:2]:
        ratios += [(alpha, theory.weight_ratio(alpha, d**0.5)) for alpha in ALPHAS]
    heavy = [weakens(with_cross_term(1), [(0.5, g)]) for g in (1.05, 1.2, 2, 4, 8)]
    return Check(
        "LN-res", "exact cosines",
        "A residual connection weakens the preference for later keys and does not remove it: factor h.",
        weakens(theory.inverse_norms, ratios),
        "h lies between 1 and its value without a residual connection, and rises with λ = √d/(ρ+√d) from the one to "
        "the other",
        "h(1) is not 1, or h(j) falls with λ or with j",
        {
            "2λ(1-λ)a_j dropped, doubled, or off by 1 or 10 per cent": [
                weakens(with_cross_term(x), ratios) for x in (0, 0.9, 0.99, 1.01, 2)
            ],
            "g from 1.05 to 8: others weigh more than oneself": heavy,
        },
        "h does not rise with λ", {"kind": "proved"},
    )  # fmt: skip


def falls(S: Float[np.ndarray, "layers n n"], first: int = 3, last: int = 3) -> bool:
    """Say whether logits fall strictly with j < i in these layers."""
    return all(bool((np.diff(S[first - 1 : last, i, :i]) < 0).all()) for i in range(2, S.shape[-1]))


def early_checks() -> list[Check]:
    """Return the checks that without a norm layers from the third on prefer early keys, at exact cosines."""
    rng, normed, betas = np.random.default_rng(0), [], np.linspace(1.4, 8, 34)
    settings = []
    for d in WIDTHS:
        settings += [theory.exact_tokens(N, d, alpha) for alpha in ALPHAS]
    short = [layer_logits(X, 6, norm="none") for X in settings]
    for X in settings[: len(ALPHAS)]:
        normed += [layer_logits(X, 6, residual=kind) for kind in ("none", "pre", "post")]  # type: ignore[arg-type]
    places = [np.r_[rng.permutation(N - 1), N - 1] for _ in range(20)]
    moved = [short[0][:, k][:, :, k] for k in places]
    of_betas = []
    for size in (10, 40):
        for beta in betas:
            X = (beta * 64**0.5) ** 0.5 * theory.exact_tokens(size, 64, 0.0)
            of_betas.append(falls(layer_logits(X, 8, norm="none")))
    edge = 1.4 * (1 - np.exp(-1.4)) / (1 + np.exp(-1.4)) ** 2  # E_2 at (1-α) β = 1.4

    def broken(first: int, last: int) -> dict[str, list[bool]]:
        return {
            "LayerNorm before attention": [falls(S, first, last) for S in normed],
            "earlier tokens in shuffled order": [falls(S, first, last) for S in moved],
        }

    return [
        Check(
            "LN-deep", "short tokens", "Without a norm layer 3 prefers earlier keys: short tokens.",
            all(map(falls, short)) and all(of_betas) and bool(edge < np.log(2)),
            f"logits of layer 3 fall with j at tokens of length 1, widths {SAID_WIDTHS} and α {SAID_ALPHAS}, and at "
            f"{len(betas)} values of β from 1.4 to 8 for 10 and 40 orthogonal tokens",
            "a logit of layer 3 does not fall with j < i", broken(3, 3),
            "layer 3 without a norm does not turn to early tokens", {"kind": "proved"},
        ),
        Check(
            "LN-deep", "short tokens, layers 4 to 6", "So do layers 4 to 6.", all(falls(S, 4, 6) for S in short),
            f"logits of layers 4 to 6 fall with j at tokens of length 1, widths {SAID_WIDTHS} and α {SAID_ALPHAS}",
            "a logit does not fall with j < i", broken(4, 6),
            "a deeper layer without a norm does not turn to early tokens", {},
        ),
    ]  # fmt: skip


def exact_checks() -> list[Check]:
    """Return the checks of the theorems."""
    return [second_layer_check(), ratio_check(), residual_check(), *early_checks()]
