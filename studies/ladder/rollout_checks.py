"""Checks of what Herasimchyk et al. say of their rollouts, in the ten small models."""

from __future__ import annotations

import numpy as np

from posbias.comparison.distances import unit
from posbias.rollout.profiles import UShape, u_shape
from studies.checks import Check
from studies.ladder import scores
from studies.ladder.evidence import MODELS, Small

STRETCH = 9
"""Tokens over which a measured profile is averaged, where its trough is sought."""
LEAST = 0.01
"""Smaller differences of W1 are not counted."""


def still_gains(small: Small, order: np.ndarray, pair: tuple[str, str]) -> list[bool]:
    """Return for each model whether a gain is significant with measured positions in another order."""
    found = []
    for m in MODELS:
        moved = {f"{m}.builtin": scores.rearranged(small.judged[m], order)}
        gain = scores.gain_table(moved, [m], [pair], resamples=200)
        found.append(bool(gain["low"].item() > 0))
    return found


def gain_checks(small: Small) -> list[Check]:
    """Return the checks that residual stream and content bring the rollout closer."""
    kept = {f"{m}.builtin": x for m, x in small.judged.items()}
    gains = scores.gain_table(kept, MODELS, [("a", "b"), ("b", "c")], resamples=small.resamples)
    table = scores.rollout_distances(kept).pivot(index="model", columns="prediction", values="W1").loc[list(MODELS)]
    low, high = table.min(), table.max()
    n = small.judged[MODELS[0]].sizes["position"]
    reversed_, shuffled = np.arange(n)[::-1], np.random.default_rng(0).permutation(n)
    gained = gains.query("before == 'a'")["decided"] > 0
    content = gains.query("before == 'b'")
    finer, coarser = content["decided"] > 0, content["decided"] < 0
    much = content["gain"].where(content["decided"] > 0, 0) >= LEAST
    backwards = np.array(still_gains(small, reversed_, ("b", "c")))[finer.to_numpy()]
    return [
        Check(
            "RA-T2-T3", "our models, (b) against (a)",
            "Layer shares are closer to the measured influence than attention only.", bool(gained.all()),
            f"{gained.sum()} of {len(MODELS)}: attention only {low['a']:.2f} to "
            f"{high['a']:.2f}, layer shares {low['b']:.3f} to {high['b']:.3f}",
            "the residual's gain in W1 is not significant by Holm's rule in a model",
            {
                "measured influence reversed in one model": still_gains(small, reversed_, ("a", "b")),
                "its positions shuffled in one model": still_gains(small, shuffled, ("a", "b")),
            },
            "no gain from the residual in some model", {"in_part": bool(gained.any())},
            f"in {gained.sum()} of {len(MODELS)}",
        ),
        Check(
            "RA-T2-T3", "our models, (c) against (b)", "With self-preference layer shares are closer.",
            bool(finer.all()),
            f"closer in {finer.sum()} of {len(MODELS)} (by {LEAST} or more in {much.sum()}), "
            f"further in {coarser.sum()}; with self-preference {low['c']:.3f} to {high['c']:.3f}",
            "content's gain in W1 is not significant by Holm's rule in some model",
            {"measured influence reversed in one model": list(map(bool, backwards))},
            "content moves the rollout away from the measured influence in some models",
            {"in_part": bool(finer.any())}, f"in {finer.sum()} of {len(MODELS)}",
        ),
    ]  # fmt: skip


def shapes(small: Small) -> tuple[dict[str, UShape], dict[str, dict[str, UShape]]]:
    """Return the shape of what is measured and of the rollouts a and b, by model."""
    measured = {m: u_shape(unit(x["influence"].values), smooth=STRETCH) for m, x in small.judged.items()}
    predicted = {}
    for m, x in small.judged.items():
        predicted[m] = {kind: u_shape(unit(x["rollout"].sel(variant=kind).values)) for kind in "ab"}
    return measured, predicted


def shape_check(small: Small) -> Check:
    """Return the check that layer shares have a U exactly where it is measured."""
    measured, predicted = shapes(small)
    agreeing = [predicted[m]["b"].present == measured[m].present for m in MODELS]
    flattened = []
    for m, agrees in zip(MODELS, agreeing, strict=True):
        if agrees:
            flattened.append(predicted[m]["a"].present == measured[m].present)
    without = [m for m in MODELS if not predicted[m]["b"].present]
    return Check(
        "RA-F1-F2", "our models", "Measured influence has a U, and layer shares have one.", all(agreeing),
        f"by its definition, without a test, a U is measured in "
        f"{sum(u.present for u in measured.values())} of {len(MODELS)} models, and layer "
        f"shares have one in {len(MODELS) - len(without)}",
        "a model has a U in layer shares and not as measured, or the reverse",
        {"the residual left out of layer shares": flattened},
        f"layer shares have none for {', '.join(without)}, whose positions they do not see",
        {"in_part": any(agreeing)},
        f"by its definition {sum(u.present for u in measured.values())} of {len(MODELS)} have one, and layer shares "
        f"of {len(MODELS) - len(without)}",
    )  # fmt: skip


def rollout_checks(small: Small) -> list[Check]:
    """Return the checks of the paper's rollouts."""
    return [*gain_checks(small), shape_check(small)]
