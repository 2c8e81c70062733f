"""Checks of what the papers say of norms and recency with random tokens, and what each notices if broken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from studies.checks import Check
from studies.norms import recency
from studies.norms.simulated import FOUR, Simulated, random_tokens, twelve_layers

LAST_DIGIT = 1e-4
"""Of the printed probabilities."""


def cosine_check(seen: Simulated) -> Check:
    """Return the check that the recency probability grows with the cosine of the tokens."""
    rng, low, by = np.random.default_rng(0), seen.low, ["d", "residual", "layer"]
    curve = recency.growth(low).set_index(by).loc[64, "none", 2]
    dips, less = [], []
    for _ in range(20):
        row = rng.choice(np.flatnonzero(low["alpha"] >= 0.1))
        dips.append(recency.rises(recency.altered(low, [row], -0.05)))
    for rows in low.groupby(by).indices.values():
        start = low["probability"][rows[low["alpha"][rows].argmin()]]
        risen = low["probability"].to_numpy()[rows] - start
        less.append(recency.rises(recency.altered(low, rows, -1.1 * risen)))
    return Check(
        "LN-alpha", "α to 0.8", "The preference for later keys grows with the cosine of the tokens, up to 0.8.",
        recency.rises(low),
        "the recency probability never falls with α from 0 to 0.8 and ends higher, at all widths and layers, with a "
        f"residual connection and without (width 64, layer 2: {curve['first']:.4f} to {curve['last']:.4f})",
        "a curve falls by 4 standard errors from one α to the next, or ends less than 10 above its beginning",
        {
            "α shuffled within every curve": [recency.rises(recency.shuffled(low, "alpha", by, k)) for k in range(20)],
            "one probability of the grid lowered by 0.05": dips,
            "one curve that falls by a tenth of its rise": less,
        },
        "the recency probability falls with α somewhere", {},
    )  # fmt: skip


def print_check(seen: Simulated) -> Check:
    """Return the check that the printed probabilities are those of random tokens."""
    rng, entries, grid, beside = np.random.default_rng(0), seen.printed, seen.grid, seen.beside

    def met(shifts: Iterable[float]) -> bool:
        moved = []
        for entry, shift in zip(entries, shifts, strict=True):
            moved.append(replace(entry, probability=entry.probability + LAST_DIGIT * shift))
        return recency.print_is_met(recency.beside_print(grid, moved))

    one = []
    for row in np.eye(len(entries)):
        one += [met(3 * row), met(-3 * row)]
    every = [met(rng.choice([-1, 1], len(entries))) for _ in range(20)]
    tried = recency.sizes_tried(grid, entries)
    beyond = (tried["difference"] - LAST_DIGIT / 2).clip(lower=0) / tried["error"]
    sizes = tried.assign(beyond=beyond).groupby("size of a token")
    other = [recency.print_is_met(rows) for name, rows in sizes if not str(name).startswith("own")]
    counts = seen.usual["sequences"]
    fewest = min(counts[d, 0.5, "layernorm", "none", 1] for d in (16, 64))
    worst, number = beside["difference"].max(), len(beside)
    return Check(
        "LN-RP", "", "The printed probabilities are those of random tokens.", recency.print_is_met(beside),
        f"all {number} printed values are met within {worst:.5f}, where our errors are up to "
        f"{beside['error'].max():.5f}; layers 1 to 4, widths 16 to 1024, α from 0 to 0.8, three norms, with and "
        f"without residual connection, {grid['sequences'].min():,} sequences or more and {fewest:,} where a value is "
        "printed",
        "a printed value differs by 5 units of its last digit, or by 4 of our errors beyond rounding, or all "
        "differences together by what chance exceeds in one of 1,000 cases",
        {
            "one printed value off by three units of its last digit": one,
            "every one off by one unit, signs at random": every,
            "tokens of another size, where a residual sees it": other,
        },
        f"a printed value is missed by {worst:.5f}", {"kind": "reproduced"},
    )  # fmt: skip


def residual_check(seen: Simulated) -> Check:
    """Return the check that a residual connection lowers the recency probability and leaves some."""
    rng, low, by = np.random.default_rng(0), seen.low, ["d", "alpha", "layer"]
    kept = low.query("d < 256 and alpha >= 0.4").query("residual == 'pre'")
    bare = low.query("residual == 'none'").set_index(by)["probability"]
    removed: list[bool] = []
    idle: list[bool] = []
    for row, x in kept.iloc[rng.permutation(len(kept))[:20]].iterrows():
        for found, target in ((removed, 0.5), (idle, bare[tuple(x[by])])):
            found.append(recency.residual_weakens(recency.altered(low, [row], target - x["probability"])))
    of = low.set_index(["residual", *by])["probability"]
    without, mixed = (of[kind, 64, 0.5, 4] for kind in ("none", "pre"))
    return Check(
        "LN-res", "random tokens",
        "A residual connection weakens the preference for later keys and does not remove it: probability.",
        recency.residual_weakens(low),
        "the recency probability is nowhere higher with the residual connection, and is above 1/2 at widths 16 and "
        f"64 with α ≥ 0.4 (width 64, α = 0.5, layer 4: {without:.4f} to {mixed:.4f})",
        "it is higher with the residual by 4 errors anywhere or, at d=16, 64 and α ≥ 0.4, not lower by 4, or not "
        "above 1/2 by 5",
        {
            "no preference left in one setting with a residual": removed,
            "a residual without effect in one setting": idle,
        },
        "a residual raises the recency or removes it somewhere", {},
    )  # fmt: skip


def rise_weaker(depths: Iterable[pd.DataFrame]) -> bool:
    """Say whether the rise is smaller with a residual connection in all layers from 2 on."""
    return all(bool((x["slope"]["pre"] < x["slope"]["none"]).loc[2:].all()) for x in depths)


def rise_check(seen: Simulated) -> Check:
    """Return the check that a residual connection makes the rise of the logits smaller."""
    rng, alone, first = np.random.default_rng(0), [], seen.overtaken
    for _ in range(20):  # two draws of a network without a residual connection
        pairs = []
        for setting in FOUR:
            draws = [random_tokens(rng, *setting, 200) for _ in range(2)]
            one, other = (twelve_layers(X, ("none",)).loc["none"] for X in draws)
            pairs.append(pd.concat({"none": one, "pre": other}))
        alone.append(rise_weaker(pairs))
    smaller = [bool(x["slope"]["pre", 2] < x["slope"]["none", 2]) for x in seen.depths.values()]
    return Check(
        "LN-res", "rise of the logits",
        "A residual connection weakens the preference for later keys: rise, in layers 2 to 12.",
        rise_weaker(seen.depths.values()),
        "at widths 16 and 64 and α of 0.5 and 0.8 the rise of the logits in layer 2 is smaller with the residual "
        f"connection; in {len(first)} of {len(FOUR)} settings it is larger from layer {min(first)} to {max(first)} on, "
        "up to layer 12",
        "in a layer from 2 to 12 the rise is not smaller with the residual",
        {"a residual connection without effect, 200 sequences": alone},
        "without a residual connection the states of deep layers become parallel", {"in_part": all(smaller)},
    )  # fmt: skip


def share_left(rows: pd.DataFrame, share: float) -> Iterator[bool]:
    """Yield 20 times whether recency is gone if what is above 1/2 is reduced to a share, our errors drawn anew."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        noise = rows["error"] * rng.standard_normal(len(rows))
        yield recency.disappears(rows.assign(probability=0.5 + share * (rows["probability"] - 0.5) + noise))


def little_left(rows: pd.DataFrame) -> dict[str, list[bool]]:
    """Return what a check that recency is gone says if a little of it is left."""
    return {
        "a tenth of the recency left": list(share_left(rows, 0.1)),
        "a hundredth of it left": list(share_left(rows, 0.01)),
    }


def review_checks(seen: Simulated) -> list[Check]:
    """Return the checks of whether recency is gone without residuals, or without positions."""
    low, said = seen.low, {True: "passes", False: "fails"}
    lone, mixed = (seen.depths[16, 0.8]["slope"][kind] for kind in ("none", "pre"))
    clear = low.query("residual == 'pre' and probability > 0.5 + 10 * error")
    stripped = clear[["d", "alpha", "layer"]].merge(low.query("residual == 'none'"))
    stronger = int((stripped["probability"].to_numpy() > clear["probability"]).sum())
    no_norm = recency.disappears(seen.bare.query("layer > 2"))
    shuffled = seen.shuffled.reset_index().query("layer > 1")
    wide = recency.disappears(low.query("alpha == 0 and d >= 64"))
    return [
        Check(
            "LN-rebuttal", "without residuals",
            "Without a residual connection the preference for later keys disappears.",
            recency.disappears(stripped),
            f"without a residual connection the recency probability exceeds 1/2, and is higher than with one in "
            f"{stronger} of {len(clear)} settings; without a norm this check {said[no_norm]}. But at width 16 and α = "
            f"0.8 the rise of the logits goes from {lone[2]:.3f} in layer 2 to {lone[12]:.4f} in layer 12, with a "
            f"residual connection from {mixed[2]:.3f} to {mixed[12]:.3f}",
            "a late key is preferred, by 4 errors, in a setting that prefers it with a residual",
            little_left(stripped),
            "the order of the logits still favours later keys, and the factor h(j) rises most, without a residual "
            "connection; attention weights become even in deep layers and do not turn to earlier keys",
            {"in_part": bool(lone[12] < 0.01 * lone[2] and mixed[12] > 0.2)},
        ),
        Check(
            "LN-rebuttal", "embeddings without position", "Without embeddings of positions it disappears.",
            recency.disappears(shuffled),
            "with shuffled tokens of width 16 and α = 0.8 the recency probability is "
            f"{seen.shuffled['probability']['none', 2]:.3f} in layer 2, more in deeper layers; for wide tokens at "
            f"right angles (α = 0, widths from 64) the same check {said[wide]}",
            "a late key is preferred, by 4 errors, by layers 2 to 12", little_left(shuffled),
            "the mask alone makes late states shorter", {},
        ),
    ]  # fmt: skip


def exchanged(bare: pd.DataFrame, row: int) -> pd.DataFrame:
    """Return the table with layers 3 and 4 exchanged in the setting of a row."""
    same = (bare[["d", "alpha"]] == bare.loc[row, ["d", "alpha"]]).all(axis=1)
    return bare.assign(layer=bare["layer"].where(~same, bare["layer"].replace({3: 4, 4: 3})))


def early_checks(seen: Simulated) -> list[Check]:
    """Return the checks that without a norm layers 3 and 4 prefer early tokens, short and long."""
    rng, bare, long = np.random.default_rng(0), seen.bare.reset_index(drop=True), seen.long
    third = [int(row) for row in np.flatnonzero(bare["layer"] == 3)]
    near, chance = [], []
    for row in third:
        near.append(recency.turns_early(recency.altered(bare, [row], 0.499 - bare["probability"][row])))
    for _ in range(20):
        drawn = 0.5 + bare["error"] * rng.standard_normal(len(bare))
        chance.append(recency.turns_early(bare.assign(probability=drawn)))
    p = bare.set_index(["d", "alpha", "layer"])["probability"]
    large, wider = (long.query(f"d == {d} and layer == 4")["probability"].item() for d in (16, 64))
    turn = "layer 3 is not below 1/2 by 10 errors in a setting, or layer 4 above layer 3"
    return [
        Check(
            "LN-deep", "random tokens", "Layers 3 and 4 prefer earlier keys: random tokens.", recency.turns_early(bare),
            f"at width 16 and α = 0 the recency probability is {p[16, 0.0, 3]:.4f} in layer 3 and {p[16, 0.0, 4]:.4f} "
            "in layer 4; it is below 1/2 at all widths and α",
            turn,
            {
                "no preference, our errors": chance, "0.499 in layer 3 of one setting": near,
                "layers 3 and 4 of one setting exchanged": [recency.turns_early(exchanged(bare, k)) for k in third],
            },
            "a deeper layer without a norm does not turn to early tokens", {},
        ),
        Check(
            "LN-deep", "long tokens", "Layers 3 and 4 prefer earlier keys: long tokens.", recency.turns_early(long),
            f"with tokens of length √d the recency probability of layer 4 is {large:.3f} at width 16 and {wider:.4f} "
            "at width 64",
            turn, {"no preference, our errors": chance},
            "in a setting layer 3 is not early by 10 errors, or layer 4 is later; the cause is not shown",
            {"in_part": True},
        ),
    ]  # fmt: skip


def random_checks(seen: Simulated) -> list[Check]:
    """Return the checks on random tokens."""
    found = [cosine_check(seen), print_check(seen), residual_check(seen), rise_check(seen)]
    return [*found, *review_checks(seen), *early_checks(seen)]
