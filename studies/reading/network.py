"""Where in the network the place is known and where it is lost: numbers of the page, and their checks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool, Float, Int

from posbias.comparison.resampling import interval, resample_weights
from posbias.lookup.reading import count_sources, fit_choices, fit_law
from posbias.lookup.scores import paired_difference
from studies.checks import Check, ranged
from studies.reading.evidence import Evidence, P

PLACE = np.arange(P)
RUNS = 20
CALLED = {
    "as it is": "as it is",
    "positions × 0.5": "all rotary positions halved",
    "positions × 2": "all rotary positions doubled",
    "documents apart": "100 empty positions between documents",
    "positions dealt": "documents in other rotary slots, read in the same order",
    "numbers dealt": "documents called by other numbers",
    "each alone": "documents that do not see one another",
    "all at one place": "all documents at the same rotary positions",
    "the name again": "the name three times in front of the question",
}
"""What each condition of ``blur`` is called in a table."""
Sources = Int[np.ndarray, "C P"]


def answers_by(entry: xr.Dataset, dim: str) -> dict[str, Sources]:
    """Return the likeliest of the answers that documents state, by what was changed, set and place asked."""
    told = entry["told"].values.argmax(-1)
    return dict(zip(map(str, entry[dim].values), told, strict=True))


def gamma_of(source: Sources) -> float:
    """Return γ of the law that fits some answers."""
    return fit_law(count_sources(source).sum(0))[0]


def gamma_drawn(source: Sources, draws: Float[np.ndarray, "K C"]) -> Float[np.ndarray, "K"]:
    """Return γ of sets drawn again."""
    counts = count_sources(source)
    return np.asarray(fit_law(np.tensordot(draws, counts, 1))[0])


def pointing(seen: Evidence) -> Bool[np.ndarray, "C P where layer head"]:
    """Return in which judged prompts each head points at the document asked for."""
    heads = seen.kept["heads"]
    judged = heads["pointed"].values[heads.sizes["context"] // 2 :]
    return np.asarray(judged == PLACE[:, None, None, None])


def of_head(seen: Evidence, name: str) -> Bool[np.ndarray, "C P"]:
    """Return in which judged prompts a head points at the right document, while the question is read."""
    layer, head = map(int, name.split("."))
    return pointing(seen)[:, :, 0, layer, head]


def answered_wrongly(seen: Evidence) -> Bool[np.ndarray, "C P"]:
    """Return which judged prompts are answered wrongly."""
    heads = seen.kept["heads"]
    answered = heads["told"].values.argmax(-1)[heads.sizes["context"] // 2 :]
    return np.asarray(answered != PLACE)


def read_by_probe(seen: Evidence) -> Float[np.ndarray, "L"]:
    """Return in which share of prompts a probe of each layer names the document asked for."""
    probed = seen.kept["heads"]["probed"].values[0]
    return np.asarray((probed == PLACE[:, None]).mean((0, 1)))


def rights(seen: Evidence) -> dict[str, Bool[np.ndarray, "C P"]]:
    """Return which answers are right, by what was changed of heads."""
    return {name: x == PLACE for name, x in answers_by(seen.kept["changed"], "change").items()}


def heads_numbers(seen: Evidence) -> dict[str, Any]:
    """Return what the heads that point do, and what becomes of answers without them or with them sharper."""
    wrong, probe, right = answered_wrongly(seen), read_by_probe(seen), rights(seen)
    best = seen.kept["changed"].attrs["best"].split()
    finger, told = of_head(seen, best[0]), answers_by(seen.kept["changed"], "change")
    total = {name: int(x.sum()) for name, x in right.items()}
    sharper = sharpened(seen)
    numbers = {
        "half": len(finger), "judged": finger.size, "best_right": int(finger.sum()),
        "answer_right": 1 - wrong.mean(), "third": of_head(seen, best[2]).mean(),
        "probe": probe.max(), "probe_layer": int(probe.argmax()), "probe_end": probe[-1],
        "off": total["ten best off"], "asked": right["as it is"].size,
        "guessing": right["as it is"].size / P, "as": total["as it is"], "others": total["ten others off"],
        "gamma": gamma_of(told["as it is"]),
        "gamma_off": gamma_of(told["ten best off"]), "sharper": sharper.mean, "sharper_low": sharper.low,
        "sharper_high": sharper.high,
    }  # fmt: skip
    for part, at in (("ends", [0, P - 1]), ("middle", slice(1, P - 1))):
        as_is, off = (right[name][:, at] for name in ("as it is", "ten best off"))
        numbers |= {f"{part}_as": as_is.sum(), f"{part}_off": off.sum(), f"{part}_asked": off.size}
        numbers[f"{part}_guessing"] = off.size / P
    loss = paired_difference(right["ten others off"].mean(1) - right["ten best off"].mean(1))
    numbers |= {"loss_low": loss.low, "loss_high": loss.high}
    return {f"heads_{name}": x for name, x in numbers.items()}


def reader(seen: Evidence) -> tuple[str, Bool[np.ndarray, "C P"]]:
    """Return the head whose last row is most often on the document that the answer is from, and when it is.

    The last row is that of the token which the answer follows. The head is chosen on half of the sets.
    """
    heads = seen.kept["heads"]
    half, answered = heads.sizes["context"] // 2, heads["told"].values.argmax(-1)
    found = heads["pointed"].sel(where="last").values == answered[..., None, None]
    layer, head = np.unravel_index(found[:half].mean((0, 1)).argmax(), found.shape[2:])
    return f"{layer}.{head}", np.asarray(found[half:, :, layer, head])


def reader_numbers(seen: Evidence) -> dict[str, Any]:
    """Return how often the head that reads is on the document answered from, where answers are right and wrong."""
    wrong, (name, found) = answered_wrongly(seen), reader(seen)
    asked = seen.kept["heads"]["pointed"].sel(where="last").values[len(found) :]
    layer, head = map(int, name.split("."))
    on_right = asked[..., layer, head] == PLACE
    answered = seen.kept["heads"]["told"].values.argmax(-1)[len(found) :]
    more = (found * 1.0 - (answered == P - 1)) * wrong
    draws = resample_weights(len(more))
    low, high = interval(draws @ more.sum(1) / (draws @ wrong.sum(1)))
    return {
        "reader_more_low": low, "reader_more_high": high,
        "reader_layer": layer, "reader_head": head, "reader_wrong": found[wrong].mean(),
        "reader_asked": on_right[wrong].mean(),
        "reader_guess": (answered == P - 1)[wrong].mean(),
    }  # fmt: skip


def diluted(a: Sources, b: Sources, resamples: int = 400) -> tuple[float, float, float]:
    """Return γ of some answers over that of others to the same questions, with its interval over sets."""
    draws = resample_weights(len(a), resamples)
    low, high = interval(gamma_drawn(a, draws) / gamma_drawn(b, draws))
    return gamma_of(a) / gamma_of(b), float(low), float(high)


def dilution_numbers(seen: Evidence) -> dict[str, Any]:
    """Return what scores times log n do to right answers and γ of sixteen documents."""
    kept = seen.kept["diluted"]
    told = answers_by(kept, "change")
    right = {name: float((x == np.arange(x.shape[1])).mean()) for name, x in told.items()}
    ratio = dict(zip(("ratio", "low", "high"), diluted(told["log n"], told["as it is"]), strict=True))
    about = {"factor": float(kept["factor"].mean()), "sets": len(told["log n"])}
    numbers = ratio | about | {"right": right["log n"], "before": right["as it is"]}
    return {f"dilution_{name}": x for name, x in numbers.items()}


def dilution_check(seen: Evidence) -> Check:
    """Return the check that scores times log n bring γ of sixteen documents back to that of eight."""
    told, rng = answers_by(seen.kept["diluted"], "change"), np.random.default_rng(0)
    found, mixed = diluted(told["log n"], told["as it is"]), []
    for _ in range(10):
        swap = rng.random(len(told["log n"]))[:, None] < 0.5
        one = np.where(swap, told["as it is"], told["log n"])
        other = np.where(swap, told["log n"], told["as it is"])
        mixed.append(diluted(one, other, 40)[2] >= 2)
    return Check(
        "L-blur", "dilution", "A long list is read bluntly because its tokens dilute attention.", found[2] >= 2,
        f"γ times {ranged(found)} with scores times log n", "the interval of this factor is below 2",
        {"the two exchanged at random by set": mixed}, "γ rises less than twofold, as expected before the run",
        {"undecided": found[0] < 2},
    )  # fmt: skip


def sharpened(seen: Evidence) -> Any:
    """Return what sharper heads change at the four middle places."""
    right = rights(seen)
    return paired_difference(right["ten best × 2"][:, 2:6].mean(1) - right["as it is"][:, 2:6].mean(1))


def patched_cases(seen: Evidence) -> tuple[dict[str, Sources], Bool[np.ndarray, "C Q"], Int[np.ndarray, "Q"]]:
    """Return answers by patch, which questions are right in the other order and wrong in this, and their places."""
    patched = seen.kept["patched"]
    asked = patched["asked"].values
    after = answers_by(patched, "patch")
    return after, (patched["giver"].values.argmax(-1) == asked) & (after["as it is"] != asked), asked


def patch_numbers(seen: Evidence) -> dict[str, Any]:
    """Return what answers become if heads or streams are carried over from an order in which the right is first."""
    after, cases, asked = patched_cases(seen)
    first = {name: int(((x == 0) & cases).sum()) for name, x in after.items()}
    mended = {name: int(((x == asked) & cases).sum()) for name, x in after.items()}
    return {
        "patch_cases": int(cases.sum()), "patch_first": first["ten best heads"], "patch_sets": len(cases),
        "patch_best": mended["ten best heads"], "patch_first_before": first["as it is"],
        "patch_first_others": first["ten other heads"],
        "patch_place_20": first["stream 20"], "patch_place_22": first["stream 22"],
        "patch_fact_24": mended["stream 24"],
    }  # fmt: skip


def blur_rows(seen: Evidence) -> pd.DataFrame:
    """Return by condition of ``blur`` how many answers are right, γ, and the interval of its ratio to that as it is."""
    sources, rows = answers_by(seen.kept["blur"], "condition"), {}
    draws = resample_weights(len(sources["as it is"]), 400)
    base = gamma_drawn(sources["as it is"], draws)
    for name, source in sources.items():
        low, high = interval(gamma_drawn(source, draws) / base)
        right = int((source == PLACE).sum())
        rows[CALLED[name]] = {"right": right, "γ": gamma_of(source), "low": low, "high": high}
    return pd.DataFrame(rows).T.rename_axis("change")


def blur_shown(seen: Evidence) -> pd.DataFrame:
    """Return the same with the interval in words."""
    table = blur_rows(seen)
    ratio = [f"{row.low:.2f} to {row.high:.2f}" for row in table.itertuples()]
    return table[["right", "γ"]].assign(**{"ratio of γ": ratio})


def two_gammas(counts: Float[np.ndarray, "P P"], slots: Any) -> Float[np.ndarray, "2"]:
    """Return γ by reading order and by slot or number, fitted together."""
    pulls = np.broadcast_to(np.eye(P)[:, 1:], (P, P, P - 1))
    apart = [np.abs(np.subtract.outer(x, x)).astype(float)[..., None] for x in (PLACE, slots)]
    return fit_choices(np.concatenate([pulls, -apart[0], -apart[1]], axis=-1), counts)[0][-2:]


def slot_less_order(seen: Evidence, source: Sources, resamples: int = 400) -> tuple[float, float]:
    """Return the interval of γ by slot less γ by order."""
    slots, counts = np.array(seen.kept["blur"].attrs["dealt"]), count_sources(source)
    draws = resample_weights(len(source), resamples)
    each = np.array([two_gammas(np.tensordot(w, counts, 1), slots) for w in draws])
    low, high = interval(each[:, 1] - each[:, 0])
    return float(low), float(high)


def blur_numbers(seen: Evidence) -> dict[str, Any]:
    """Return what answers do if positions, numbers or sight of documents are changed."""
    sources, rows = answers_by(seen.kept["blur"], "condition"), blur_rows(seen)
    table, double = rows["right"], rows.loc[CALLED["positions × 2"]]
    low, high = slot_less_order(seen, sources["positions dealt"])
    right = {name: (x == PLACE).mean(1) for name, x in sources.items()}
    apart = paired_difference(right["documents apart"] - right["as it is"])
    late = np.flatnonzero(np.array(seen.kept["blur"].attrs["dealt"]) >= 4)
    size = sources["as it is"].size
    numbers = {
        "sets": len(sources["as it is"]), "asked": size, "guess": size / P, "gamma": gamma_of(sources["as it is"]),
        "same": int((sources["numbers dealt"] == sources["as it is"]).sum()),
        "late": int(np.isin(sources["positions dealt"], late).sum()),
        "late_before": int(np.isin(sources["as it is"], late).sum()),
        "apart": table[CALLED["documents apart"]], "as": table["as it is"], "apart_low": apart.low,
        "apart_high": apart.high, "alone": table[CALLED["each alone"]], "slot_low": low, "slot_high": high,
    }  # fmt: skip
    if low <= 0 <= high:
        numbers["slot_said"] = "Whether reading order or rotary position makes the distance, we cannot tell."
    else:
        numbers["slot_said"] = f"So {'rotary position' if low > 0 else 'reading order'} makes the distance."
    numbers |= {"double_low": double["low"], "double_high": double["high"]}
    gaps = rows.loc[CALLED["documents apart"]]
    numbers |= {"gaps_low": gaps["low"], "gaps_high": gaps["high"]}
    return {f"blur_{name}": x for name, x in numbers.items()}


def network_numbers(seen: Evidence) -> dict[str, Any]:
    """Return all numbers of heads, of what is carried over, and of what makes the finger blunt."""
    found = heads_numbers(seen) | reader_numbers(seen) | patch_numbers(seen)
    return found | blur_numbers(seen) | dilution_numbers(seen)


def points_everywhere(found: Bool[np.ndarray, "C P"], wrong: Bool[np.ndarray, "C P"]) -> bool:
    """Say whether a head points at the right document at each place, and where answers are wrong."""
    return bool((found.mean(0) >= 0.9).all() and found[wrong].mean() >= 0.9)


def loses_more(a: Any, b: Any) -> bool:
    """Say whether one change costs more right answers than another."""
    return bool(paired_difference(a - b).low > 0)


def head_checks(seen: Evidence) -> list[Check]:
    """Return the checks of heads: that they point, that answers need them, and that sharper ones do not help."""
    rng, right, wrong = np.random.default_rng(0), rights(seen), answered_wrongly(seen)
    best, points = seen.kept["changed"].attrs["best"].split()[0], pointing(seen)
    finger, row = of_head(seen, best), partial(Check, "L-heads")
    drawn = [points[:, :, 0, rng.integers(30), rng.integers(9)] for _ in range(RUNS)]
    others, off = (right[name].mean(1) for name in ("ten others off", "ten best off"))
    swapped = [rng.random(len(off)) < 0.5 for _ in range(RUNS)]
    mixed = [loses_more(np.where(s, off, others), np.where(s, others, off)) for s in swapped]
    sharper, middle = sharpened(seen), {name: x[:, 2:6].mean(1) for name, x in right.items()}
    signs = (-1.0) ** rng.integers(2, size=(RUNS, len(off)))
    turned = [loses_more(middle["ten best × 2"] * s, middle["as it is"] * s) for s in signs]
    return [
        row(
            "pointing", "A head points at the right document at every place.", points_everywhere(finger, wrong),
            f"head {best} points at the right document in {finger.sum()} of {finger.size} prompts",
            "it is right in less than 90% at a place or of wrong answers",
            {"heads drawn at random": [points_everywhere(x, wrong) for x in drawn]}, "a place is below 90%", {},
        ),
        row(
            "ablation", "Answers need the heads that point.", loses_more(others, off),
            f"{right['ten best off'].sum()} of {finger.shape[1] * len(off)} right without ten pointing heads, "
            f"{right['ten others off'].sum()} without ten others", "the interval of the difference includes 0",
            {"the two exchanged at random by set": mixed}, "ten others cost as much", {},
        ),
        row(
            "sharpening", "Sharper heads help in the middle.", bool(sharper.low > 0),
            f"{sharper.mean:+.2f} ({sharper.low:+.2f} to {sharper.high:+.2f}) at the middle places",
            "the interval of the gain includes 0", {"half of the sets with signs turned": turned},
            "sharper heads do not raise right answers in the middle, as expected before the run", {},
        ),
    ]  # fmt: skip


def patch_check(seen: Evidence) -> Check:
    """Return the check that patched heads mend wrong answers."""
    after, cases, asked = patched_cases(seen)
    mended = {name: (x == asked) & cases for name, x in after.items()}
    mends = (mended["ten best heads"] * 1.0 - mended["ten other heads"]).mean(1)
    signs = (-1.0) ** np.random.default_rng(0).integers(2, size=(RUNS, len(mends)))
    return Check(
        "L-heads", "patching", "Patched heads put more wrong answers right than ten others do.",
        bool(paired_difference(mends).low > 0),
        f"{mended['ten best heads'].sum()} of {cases.sum()} wrong answers become right, "
        f"{mended['ten other heads'].sum()} with ten others", "the interval of the difference over sets includes 0",
        {"the two exchanged at random by set": [bool(paired_difference(mends * s).low > 0) for s in signs]},
        "ten others mend as many", {},
    )  # fmt: skip


def blur_checks(seen: Evidence) -> list[Check]:
    """Return the checks that rotary positions make the finger blunt, and numbers do not."""
    rng, row = np.random.default_rng(0), partial(Check, "L-blur")
    sources, table = answers_by(seen.kept["blur"], "condition"), blur_rows(seen)
    half, double = (table.loc[CALLED[name]] for name in ("positions × 0.5", "positions × 2"))
    slot, number = (slot_less_order(seen, sources[name]) for name in ("positions dealt", "numbers dealt"))

    def by_another_order(name: str) -> bool:
        order = np.array([rng.permutation(P) for _ in sources[name]])
        return slot_less_order(seen, np.take_along_axis(order, sources[name], axis=1), 100)[0] > 0

    return [
        row(
            "rescaled", "Rotary positions make the finger blunt.", bool(half.high < 1 and double.low > 1),
            f"ratio of γ {half.low:.2f} to {half.high:.2f} at half, {double.low:.2f} to {double.high:.2f} at double",
            "γ does not fall at half, or does not rise at double positions",
            {"half taken for double": [bool(double.low > 1 and half.high > 1)]},
            "γ falls at double positions, too", {"in_part": bool(half.high < 1)},
        ),
        row(
            "slots", "Errors follow neighbours by rotary position.", slot[1] >= 0,
            f"γ by slot less γ by order: {slot[0]:.1f} to {slot[1]:.1f}", "γ by slot is below γ by reading order",
            {"documents permuted in each set": [by_another_order("positions dealt") for _ in range(5)]},
            "reading order decides", {"undecided": slot[0] <= 0},
        ),
        row(
            "numbers", "The numbers of documents do not count.", number[1] < 0,
            f"γ by number less γ by order: {number[0]:.1f} to {number[1]:.1f}",
            "γ by number is not below γ by reading order",
            {"documents permuted in each set": [by_another_order("numbers dealt") for _ in range(5)]},
            "numbers count", {},
        ),
    ]  # fmt: skip


def network_checks(seen: Evidence) -> list[Check]:
    """Return all checks of heads and of what makes the finger blunt."""
    found = [*head_checks(seen), patch_check(seen), *blur_checks(seen)]
    return found + ([dilution_check(seen)] if "diluted" in seen.kept else [])
