"""What the page on masks and position encodings prints of Wu et al.'s theorems: numbers, and value against bound."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from studies.checks import Check
from studies.theorems import decay, graphs, intervals, mask_checks, masks, paths, prefix_checks, rope, rope_checks
from studies.theorems import encodings as e
from studies.theorems.forces import rollout_history

DIGITS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LAYERS = 16
"""Depth at which the table has Theorem 4.1."""


def in_tens(x: float, digits: int = 0) -> str:
    """Write a number as 2·10⁻⁸.

    >>> in_tens(1.89e-8)
    '2·10⁻⁸'
    """
    mantissa, power = f"{x:.{digits}e}".split("e")
    return f"{mantissa}·10" + str(int(power)).translate(DIGITS)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Hold all networks, kernels and walks on which the theorems are tried."""

    example: masks.Example
    cases: masks.Cases
    even: masks.Even
    networks: tuple[Any, Any, Any]  # Of one head, of several paths, and four kinds to measure errors on
    decayed: decay.Decayed
    pairs: Any
    peaks: decay.Peaks
    turned: rope.Turned
    walks: rope.Walks

    @cached_property
    def residual(self) -> dict[str, tuple[Any, Any, Any]]:
        """The largest predicted influence of key 4 by mixing and depth, and its two bounds."""
        return masks.residual_courses(self.example, 4)


def load_evidence() -> Evidence:
    """Draw everything, from two seeds."""
    of_masks, of_steps = np.random.default_rng(1), np.random.default_rng(0)
    networks, cases = paths.draw_networks(of_masks), masks.draw_cases(of_masks)
    drawn = decay.draw_decayed(of_steps), decay.draw_pairs(of_steps), decay.draw_peaks(of_steps)
    turned = rope.draw_turned(of_steps)
    example, even = masks.load_example(), masks.even_attention()
    return Evidence(example, cases, even, networks, *drawn, turned, rope.roll_out())


def mask_numbers(seen: Evidence) -> dict[str, Any]:
    """Return what is said of masks."""
    example, delay, K = seen.example, seen.even.delay, masks.PREFIXES[-1]
    low, share, high = prefix_checks.shares_kept(example, K)
    by_V, smallest = masks.shrinking_floor()
    at_8, ends = masks.delays_at(8), {name: x[0][-1] for name, x in seen.residual.items()}
    errors = [paths.product_errors(x) for x in seen.networks[2]]
    numbers = {
        "n": masks.N, "T": masks.T, "eps": example.epsilon["causal"], "promised": in_tens(example.promised),
        "floor_promised": by_V, "floor_actual": in_tens(smallest), "rate": masks.rate_of_key(example, 2),
        "rate_bound": 1 - example.epsilon["causal"], "M_2": graphs.window_hops(masks.N, 2), "delay_2": delay[2],
        "delay_n": delay[masks.N], "delay_low": min(at_8), "delay_high": max(at_8), "K": K,
        "kept": share.min(), "kept_max": share.max(), "kappa": low.min(), "most": high.max(),
        "masks": len({graph.tobytes() for graph in example.allowed.values()}),
        "res_const": in_tens(ends["constant"], 1), "res_square": ends["summable"],
        "trials": masks.TRIALS, "selector_heads": errors[1][0], "selector_residual": errors[3][1],
    }  # fmt: skip
    return {f"graphs_{name}": x for name, x in numbers.items()}


def step_numbers(seen: Evidence) -> dict[str, Any]:
    """Return what is said of position encodings."""
    walks, moved, end = seen.walks, seen.peaks.moved, decay.N_LONG - 1
    deepest, x = int(walks.layers[-1]), walks.peak_at
    small = min(decay.SLOPES)
    jump = 1 + int((seen.peaks.peaks[small] == end).argmax())
    by_t, by_theta = rope_checks.slope_error(e.printed_slopes)
    scan = np.arange(1, 101) / 100
    profiles = {lam: decay.residual_profile(lam) for lam in scan}
    none = max(lam for lam, p in profiles.items() if not decay.hump(p))
    pairs = 10000.0 ** (-2 * np.arange(64) / 128)
    numbers = {
        "peak_none": moved["no content"], "peak_self": moved["to oneself"], "peak_away": moved["away from oneself"],
        "jump_alibi": jump / np.expm1(small) / end, "jump_rope": (deepest + 1) * walks.hop / end,
        "hop": walks.hop, "peak_step": np.polyfit(walks.layers, x[walks.layers - 1], 1)[0], "rope_T": deepest,
        "real": int(x[deepest - 1]), "fixed": rope.formula_peak(deepest - 1, rope.SINGLE),
        "wedge_low": rope.formula_peak(deepest - 1, 2 * rope.SINGLE / (deepest + 1)),
        "wedge_high": rope.formula_peak(deepest - 1, rope.SINGLE / deepest),
        "fit": rope.fitted_exponent(32), "slow": int((2047 * pairs <= np.pi).sum()), "h_t": by_t, "h_theta": by_theta,
        "residual_one": decay.hump(profiles[1.0]), "residual_half": decay.hump(profiles[0.5]),
        "residual_own": max(lam for lam, p in profiles.items() if p.argmax() == 0), "residual_none": none,
        "residual_steps": 16 * none, "usual": np.sqrt(2 / (np.pi * rope.STRENGTH)) / 1e-4,
    }  # fmt: skip
    return {f"encodings_{name}": x for name, x in numbers.items()}


def mask_rows(seen: Evidence) -> list[tuple[Any, ...]]:
    """Return the rows of the table on masks: theorem, what is bounded, least allowed, found, and most allowed."""
    example = seen.example
    epsilon, value, K = example.epsilon, example.value["causal"][LAYERS - 1, -1], masks.PREFIXES[-1]
    printed = np.exp(mask_checks.forgetting(LAYERS, masks.N, 1, epsilon["causal"], masks.N)[-1])
    sharp = np.exp(mask_checks.forgetting_sharp(LAYERS, masks.N, 1, epsilon["causal"], masks.N)[-1])
    off = example.history["window 5"][-1, -1, 1:].sum()
    window = (masks.T, masks.N, 5, epsilon["window 5"], 2)
    kept, jumps = np.exp(graphs.log_window_bound(*window)[-1]), np.exp(graphs.log_jump_bound(*window)[-1])
    low, share, high = prefix_checks.shares_kept(example, K)
    causal, windowed = f"token {masks.N}, {LAYERS} layers", f"window of 5: not on token 1, {masks.T} layers"
    return [
        ("Lemma A.1", "smallest weight", in_tens(example.promised), f"{epsilon['causal']:.4f}", None),
        ("Theorem 4.1", causal, None, in_tens(value), f"{printed:.4f}; ours {sharp:.4f}"),
        ("Theorem 4.2", windowed, None, in_tens(off), f"{kept:.3f}; ours {jumps:.2f}"),
        ("Theorem 4.3", f"tokens of a prefix of {K}, {masks.T} layers", f"{low.min():.3f} (ours)",
         f"{share.min():.3f} to {share.max():.3f}", f"{high.max():.3f} (ours)"),
    ]  # fmt: skip


def step_rows(seen: Evidence) -> list[tuple[Any, ...]]:
    """Return the rows of the table on position encodings."""
    x = intervals.distances(decay.N)
    low, high = seen.decayed.constants.loc["random", ["C_min", "C_max"]]
    A = seen.decayed.kernels["random"]
    one = A[:, x >= 0] * np.exp(decay.SLOPE * x[x >= 0])
    four = np.exp(e.log_law_ratios(rollout_history(A, np.ones(decay.T))[1:5], decay.SLOPE)[-1] / 4)
    distance, sums = rope.walk_logs()
    far, T = 400, 8
    exponent = (e.log_walks(T - 1, far) - sums[T - 1][distance == far][0]) / rope.SINGLE / far**2
    least, most = rope_checks.least_square(T - 1, far) / far**2, rope_checks.mean_square(T - 1, far) / far**2
    bounds = f"{low:.3f}", f"{high:.3f}"
    return [
        ("Lemma 4.4", "attention, times $e^{mx}$", bounds[0], f"{one.min():.3f} to {one.max():.3f}", bounds[1]),
        ("Theorem 4.5", "4th root of 4 layers over the negative binomial form", bounds[0],
         f"{four.min():.3f} to {four.max():.3f}",
         bounds[1]),
        ("Theorem 4.7", f"exponent over $ax^2$, {T} layers, $x={far}$", f"{least:.3f} (ours); printed 0.5",
         f"{exponent:.3f}", f"{most:.3f} (ours)"),
    ]  # fmt: skip


def bounds_table(seen: Evidence) -> pd.DataFrame:
    """Return each theorem's value against its bounds."""
    columns = ["statement", "quantity", "least allowed", "found", "most allowed"]
    return pd.DataFrame(mask_rows(seen) + step_rows(seen), columns=columns).set_index("statement")


def checks(seen: Evidence) -> list[Check]:
    """Return the checks of all statements of the paper, and of ours."""
    example, cases, (single, many, _) = seen.example, seen.cases, seen.networks
    found = [mask_checks.floor_check(example), *mask_checks.causal_checks(example, cases)]
    found += mask_checks.window_checks(example, cases) + mask_checks.delay_checks(example, cases, seen.even)
    found += prefix_checks.prefix_checks(example, cases) + paths.path_checks(single, many)
    found += decay.decay_checks(seen.decayed, seen.pairs, seen.peaks)
    return found + rope_checks.rope_checks(seen.turned, seen.walks)
