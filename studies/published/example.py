"""The example of the page ``rollout``: twelve layers with ALiBi, and one small model against its layer shares."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.figure import Figure

from posbias import alibi_slopes, influence_profile, normalised_wasserstein, structured_kernels
from posbias.comparison.distances import spearman, total_variation, unit
from posbias.comparison.fits import power_fit
from posbias.rollout.clock import hop_distribution
from studies.palette import plot_profiles

TOKENS, LAYERS, HEADS, LAMBDA = 64, 12, 8, 0.1
TITLES = {"no residual, λ = 1": (1.0, (0.12, 1.2)), "fixed λ = 1/2": (0.5, (0.55, 0.42))}
TITLES |= {f"λ = {LAMBDA:g}": (LAMBDA, (0.68, 0.65))}
"""Curves of the figure: λ, and where the label is, as a share of the prompt and of the curve."""

Profile = Float[np.ndarray, "n"]


def profile(lambda_: float) -> Profile:
    """Return the rollout with the same λ in every layer."""
    kernels = structured_kernels(LAYERS, slope=alibi_slopes(HEADS))
    return influence_profile(kernels, np.full(LAYERS, lambda_), TOKENS)


def numbers() -> dict[str, float]:
    """Return what the prose says of the example."""
    omega = hop_distribution(np.full(LAYERS, LAMBDA))
    return {
        "rollout_T": LAYERS,
        "rollout_lambda": LAMBDA,
        "rollout_tau": LAYERS * LAMBDA,
        "rollout_last": profile(LAMBDA)[-1],
        "rollout_uniform": 1 / TOKENS,
        "rollout_half_first": profile(0.5)[0],
        "rollout_half_tau": LAYERS / 2,
        "rollout_w0": omega[0],
        "rollout_w1": omega[1],
        "rollout_hops": float(omega @ np.arange(omega.size)),
    }


def draw_profiles() -> Figure:
    """Draw the rollout without a residual stream, with one half, and with a tenth."""
    fig, ax = plt.subplots(figsize=(6.4, 3.2))
    profiles = {title: profile(lambda_) for title, (lambda_, _) in TITLES.items()}
    plot_profiles(ax, profiles, styles=dict(zip(profiles, [":", "--", "-"], strict=True)))
    ax.set_ylim(bottom=1e-4)
    for line, (title, q) in zip(ax.lines, profiles.items(), strict=False):
        share, up = TITLES[title][1]
        at = int(share * TOKENS)
        ax.text(at + 0.7, up * q[at], title, color=line.get_color())
    ax.text(0.4 * TOKENS, 1.1 / TOKENS, "uniform", color="#7f7f7f")
    return fig


def shifted(q: Profile, share: float = 0.1) -> Profile:
    """Return a profile moved towards the start by a share of the prompt; what leaves it is on the first token.

    >>> shifted(np.array([0.1, 0.2, 0.3, 0.4]), 1 / 3).round(3).tolist()
    [0.3, 0.3, 0.4, 0.0]
    """
    shift = round(share * (len(q) - 1))
    found = np.append(q[shift:], np.zeros(shift))
    found[0] += q[:shift].sum()
    return found


def compared(measured: Any) -> tuple[pd.DataFrame, dict[str, float]]:
    """Return how near predictions of a measurement are, and numbers that other pages quote."""
    q = unit(np.asarray(measured.influence))
    prompts = measured.results["influence_prompts"].values
    one, other = (unit(prompts[k::2].sum(0)) for k in (0, 1))
    pairs = {
        "layer shares": (unit(np.asarray(measured.rollout("layer-shares"))), q),
        "equal shares": (np.full(q.size, 1 / q.size), q),
        "everything on the last token": (np.eye(q.size)[-1], q),
        "a power law, one fitted number": (power_fit(q), q),
        "halves of the prompts": (one, other),
        "the measured profile, shifted by a tenth": (shifted(q), q),
    }
    rows = {}
    for name, (p, to) in pairs.items():
        rank = np.nan if np.ptp(p) == 0 else spearman(p, to)
        rows[name] = [normalised_wasserstein(p, to), total_variation(p, to), rank]
    columns = ["W1", "total variation", "rank correlation"]
    table = pd.DataFrame.from_dict(rows, "index", columns=columns).rename_axis("prediction")
    return table, {"rollout_measured_shift": table["W1"].iloc[-1]}
