"""Checks of what is said of absolute position in attention: what leaks, where from, and in which networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import false_discovery_control

from studies.absolute import leakage as theory
from studies.absolute.evidence import TEXT, Evidence, left_early
from studies.absolute.here import PATHS, Here, closed, other_paths
from studies.absolute.tables import Estimate, Kept, significant
from studies.checks import Check

LATER = {"post_hoc": True}
N = 8
"""Tokens of the relative logits."""
OFFSET = np.subtract.outer(range(N), range(N))


def weakened(estimate: Estimate, factor: float) -> Estimate:
    """Return an estimate of ``factor`` times the size, as noisy as it was."""
    draws = estimate.draws - (1 - factor) * estimate.value
    return Estimate(factor * estimate.value, draws)


def grows_as_proved(logits: Float[np.ndarray, "n n"], f: Float[np.ndarray, "n"], w: int) -> bool:
    """Say whether Z_i grows by exp f(i) while new keys come into the window of w, then stays."""
    Z = np.exp(logits).sum(1)
    step = np.where(np.arange(1, Z.size) < w, np.exp(f[1:]), 0)
    return bool((abs(np.diff(Z) - step) <= 1e-9 * Z[1:]).all())


def depends_on_position(many: Sequence[Float[np.ndarray, "n n"]]) -> bool:
    """Say whether log Z of each of these logits varies from query to query."""
    return all(np.ptp(np.logaddexp.reduce(x, axis=1)) > 1e-9 for x in many)


def windowed(f: Float[np.ndarray, "n"], w: int) -> Float[np.ndarray, "n n"]:
    """Return relative logits under a causal mask with a window."""
    return np.where((OFFSET >= 0) & (OFFSET < w), f[abs(OFFSET)], -np.inf)


def relative_checks() -> list[Check]:
    """Return the checks that log Z depends on position, for relative logits and for any."""
    rng = np.random.default_rng(0)
    cases = [(3 * rng.normal(size=N), w) for w in (2, 4, 8) for _ in range(50)]
    relative = [windowed(f, w) for f, w in cases]
    others = [x - np.logaddexp.reduce(x, axis=1)[:, None] for x in relative]
    closed_rows = [f[OFFSET % N] for f, w in cases[:20]]  # no mask: rows are alike, turned

    def grow(change: Callable[[Any], Any], wider: int = 0) -> bool:
        pairs = zip(relative, cases, strict=True)
        return all(grows_as_proved(x + change(x), f, w + wider) for x, (f, w) in pairs)

    def of_content(size: float) -> list[bool]:
        return [grow(lambda x: size * rng.normal(size=x.shape)) for _ in range(20)]

    broken = {
        "content of 1% of a nat added": of_content(1e-2),
        "content of a millionth of a nat added": of_content(1e-6),
        "a window one token wider than stated": [grow(lambda x: 0, 1)],
    }
    return [
        Check(
            "AP-1", "relative logits",
            "With relative logits the softmax denominator depends on the position.",
            grow(lambda x: 0),
            f"for {len(cases)} relative logits, with windows and without, Z grows by exp f(i) "
            "to one part in 10⁹ and is constant once the window is full",
            "Z of any of them takes another step than the proof's, at any query", broken,
            "Z takes another step", {"kind": "proved"},
        ),
        Check(
            "AP-1", "whatever the logits",
            "The denominator depends on the position whatever the logits are.",
            depends_on_position(relative + others),
            "log Z varies for relative logits; for other logits of the same attention it is 0 "
            "at every query",
            "some logits under a causal mask have one log Z for all queries",
            {"no mask, rows alike": [depends_on_position([x]) for x in closed_rows]},
            "subtracting log Z from the logits leaves attention as it is", {},
        ),
    ]  # fmt: skip


def mostly_significant(found: theory.Leakage) -> bool:
    """Say whether the leakage of more than half of the heads is significant after control."""
    return significant(theory.permutation_p_values(found.gram, units=found.units)) > 0.5


def denominator_check(here: Here) -> Check:
    """Return the check that the denominators of a trained model depend on the position."""
    mask, prompts = here.natural.denominators, len(here.text)
    flipped, weak = [], []
    for seed in range(20):  # content alone, as the null has it
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=prompts)
        turned = theory.Leakage(mask.gram * signs[:, None] * signs, mask.spread, mask.units)
        flipped.append(mostly_significant(turned))
    for factor in (0, 0.1, 0.2, 0.3):
        turn = np.eye(prompts) - (1 - factor) / prompts
        smaller = theory.Leakage(turn @ mask.gram @ turn, mask.spread, mask.units)
        weak.append(mostly_significant(smaller))
    return Check(
        "AP-1", "measured", "The denominators of a trained model depend on the position.",
        mostly_significant(mask),
        f"on {prompts} prompts the leaked variance of log Z is significant in "
        f"{significant(mask.p_values()):.0%} of heads",
        "log Z leaks significantly in half of the heads or fewer",
        {"signs of prompts flipped": flipped, "mean effect of position 0 to 0.3 times as large": weak},
        "log Z of most heads has no significant leakage on these prompts", {},
    )  # fmt: skip


def stream_check(seen: Evidence) -> Check:
    """Return the check that without the mask only the residual stream carries position."""
    kept, more = seen.kept, seen.results["components"]
    nothing = seen.results["control"]["p_value"].values.round(6)  # kept in 32 bits
    one = more["p_value"].sel(condition="llama-12 random rest", part="residual").values
    first_q, draw_q = (false_discovery_control(x.ravel()) for x in (nothing, one[0]))
    later = kept.variance(TEXT, "residual", slice(1, None))
    of_all, of_rest = (kept.share(f"llama-12 text {x}", "residual") for x in ("all", "rest"))

    def stream_alone(first_layer: Any, later: Estimate) -> bool:
        return bool(significant(first_layer) == 0 and later.low > 0)

    tiled = [np.tile(one[k], (len(nothing), 1)) for k in range(1, 12)]
    return Check(
        "AP-2", "",
        "Without the causal mask logits still leak absolute position, which only the residual stream can carry.",
        stream_alone(nothing, later),
        f"without the causal mask logits leak {of_all:.2%} of their variance, and "
        f"{of_rest:.2%} without the first key. In the first layer, with random tokens, "
        f"{(nothing <= 0.05).mean():.0%} of {first_q.size} tests have p ≤ 0.05 and the least q is "
        f"{first_q.min():.2f}; the first of the eight draws alone has a least q of "
        f"{draw_q.min():.2f}",
        "a head of the first layer is significant after control, or the later "
        "layers' interval reaches zero",
        {
            "a later layer in place of the first": [stream_alone(x, later) for x in tiled],
            "later layers leaking 0 or 2% of what they do": [
                stream_alone(nothing, weakened(later, x)) for x in (0, 0.02)
            ],
        },
        "the first layer leaks, or the later ones do not measurably", {},
    )  # fmt: skip


def contents(kept: Kept, condition: str, which: str) -> dict[str, Estimate]:
    """Return the share of log A that position explains, and the balance."""
    name = f"llama-12 {condition} {which}"
    return {"total": kept.share(name, "total"), "balance": kept.balance(name)}


def shares_agree(text: dict[str, Estimate], random: dict[str, Estimate]) -> bool:
    """Say whether position explains the same share of log A, to a quarter of the larger."""
    totals = [x["total"].value for x in (text, random)]
    return bool(abs(totals[0] - totals[1]) <= max(totals) / 4)


def contents_agree(text: dict[str, Estimate], random: dict[str, Estimate]) -> bool:
    """Say whether shares agree, and the interval of the ratio of balances contains 1."""
    ratio = random["balance"] / text["balance"]
    return bool(shares_agree(text, random) and ratio.low <= 1 <= ratio.high)


def content_checks(seen: Evidence) -> list[Check]:
    """Return the checks that random tokens leak as text does, with the first key and without."""
    found = []
    said = {
        "all": ("with the first key", "Random tokens leak about as much as text does."),
        "rest": ("without it", "They do so without the first key, too."),
    }
    for which, (part, claim) in said.items():
        both = [contents(seen.kept, x, which) for x in ("text", "random")]
        total, share = [x["total"].value for x in both], [x["balance"].value for x in both]
        ratio = both[1]["balance"] / both[0]["balance"]
        wrong = [contents(seen.kept, x, which) for x in ("identity", "scrambled", "first", "all")]
        against = "text under an intervention (rotations, embeddings) for random tokens"
        unsure = bool(max(ratio.high, 1 / ratio.low) > 2)
        found.append(Check(
            "AP-9", part, claim, contents_agree(*both),
            f"position explains {total[0]:.1%} of log A on text and {total[1]:.1%} on "
            f"random tokens; the balance is {share[0]:.3f} and {share[1]:.3f}, and their "
            f"ratio {ratio:.2f}",
            "the shares differ by a quarter, or the interval of the ratio of "
            "balances excludes 1",
            {against: [contents_agree(both[0], x) for x in wrong]},
            "the logits without the mask leak more with random tokens",
            LATER | {"in_part": shares_agree(*both), "undecided": unsure},
        ))  # fmt: skip
    return found


def embedding_checks(seen: Evidence) -> list[Check]:
    """Return the checks of replaced embeddings: of the first token, and of all."""
    left = left_early(seen)
    intact, first, whole = left["intact"], left["first"], left["all"]
    figure, same = f"the leaked share at early queries is {intact:.2%}; ", []
    for seed in range(20):
        draws = np.random.default_rng(seed).permutation(intact.draws)
        same.append((Estimate(intact.value, draws) / intact).high < 1)
    return [
        Check(
            "AP-6", "first embedding",
            "Replacing the start token's embedding removes some of what the logits without the mask leak.",
            first.high < 1,
            figure + f"{first:.2f} of it is left without the first embedding (0.60 by the paper's abstract)",
            "the interval of the ratio reaches 1", {"nothing replaced": same},
            "the component does not measurably shrink", {},
        ),
        Check(
            "AP-6", "all embeddings", "Replacing all embeddings does not.", whole.high >= 1,
            figure + f"{whole:.2f} of it is left without any embedding",
            "the interval of the ratio is below 1",
            {"the first embedding replaced": [first.high >= 1]},
            "with all embeddings replaced the component vanishes too", {},
        ),
    ]  # fmt: skip


def closed_check(here: Here) -> Check:
    """Return the check that the first token's states are the same in all prompts."""
    path = here.path(here.text[:PATHS])
    return Check(
        "AP-5", "", "The states of the first token are the same in all prompts.", closed(path),
        "the largest deviation over prompts of the first token's states is "
        f"{abs(path - path[0]).max():.1f}, at {path.shape[1]} points of the network",
        "a number of the trajectory differs between two prompts in its last bit",
        other_paths(here), "position 0 is not the same in all prompts", {"kind": "proved"},
    )  # fmt: skip


def rotation_checks(seen: Evidence) -> list[Check]:
    """Return the checks that other rotations keep the balance: with each other, and with the model's own."""
    kept = seen.kept
    conditions = {"own": "text", "identity": "identity", "scrambled": "scrambled"}
    rotated = {by: kept.balance(f"llama-12 {x} all") for by, x in conditions.items()}
    wrong = [kept.balance(f"llama-12 {x} all") for x in ("first", "all")]
    wrong += [weakened(rotated["identity"], x) for x in (0.2, 0.4)]
    labels = {"own": "with its own rotations", "identity": "with none"}
    labels["scrambled"] = "with exchanged rates"
    against = "no embedding of the first token, or balances 0.2 and 0.4 times identity's"

    def within(one: Estimate, other: Estimate) -> bool:
        small, large = sorted((one.value, other.value))
        return bool(0 < small and large < 2 * small)

    found = []
    for part, claim, name, of in (
        ("with each other", "Two replacements of the rotations give nearly the same balance.",
         "identity", ["scrambled"]),
        ("with the model's own", "The intact model has this balance too.",
         "own", ["identity", "scrambled"]),
    ):  # fmt: skip
        first = rotated[name]
        shown = ", ".join(f"{rotated[x]:.3f} {labels[x]}" for x in (name, *of))
        found.append(Check(
            "AP-4", part, claim,
            bool(first.low > 0 and all(within(first, rotated[x]) for x in of)),
            f"the balance is {shown}",
            "balances differ by a factor of two, or the first reaches zero",
            {against: [within(first, x) for x in wrong]},
            "without its rotations the model's denominators leak more", LATER,
        ))  # fmt: skip
    return found
