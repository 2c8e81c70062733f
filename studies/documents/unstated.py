"""What deletion and heads name where a search for the answer does not find its source, in the page's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from posbias.comparison.resampling import interval, resample_weights
from studies.checks import Check
from studies.documents.tables import share_interval
from studies.results import load

INDIRECT, REAL, SEARCH, WRONG = (
    f"smollm2.{part}" for part in ("indirect", "real-sources", "real-search", "wrong-search")
)
"""Entries of ``results/remedies.nc``."""
FLOORS = "smollm2.floors"
"""The entry of ``results/questions.nc`` with answers to the same questions without any passage."""


def reworded_numbers(entry: xr.Dataset) -> dict[str, Any]:
    """Return how often the document is named that states the answer in other words; question k is about document k."""
    asked = np.arange(entry.sizes["document"])
    named = {
        "deletion": entry["removed"].values.argmin(-1) == asked,
        "reader": entry["reader"].values == asked,
        "fetched": entry["fetched"].values == asked,
    }
    found: dict[str, Any] = {"sets": len(entry["set"]), "prompts": named["reader"].size}
    found["right"] = int(entry["correct"].sum())
    for name, hits in named.items():
        low, high = share_interval(hits.mean(1))
        found[name] = int(hits.sum())
        found[f"{name}_said"] = f"{hits.sum()} (95% interval {low:.0%} to {high:.0%})"
    return {f"reworded_{name}": x for name, x in found.items()}


def step_numbers(entry: xr.Dataset) -> dict[str, Any]:
    """Return, of answers that one document states, how often it is named, and the one that says which that is."""
    source, bridge = entry["two_source"].values, entry["two_bridge"].values
    known = source >= 0
    falls = -entry["two_removed"].values
    order = (-falls).argsort(-1)
    found = {
        "prompts": source.size,
        "right": int(entry["two_correct"].sum()),
        "known": int(known.sum()),
        "deletion": int((order[..., 0] == source)[known].sum()),
        "reader": int((entry["two_reader"].values == source)[known].sum()),
        "bridge": int((order[..., 0] == bridge)[known].sum()),
        "second": int((order[..., 1] == bridge)[known].sum()),
        "fetched": int((entry["two_fetched"].values == bridge).sum()),
    }
    return {f"steps_{name}": x for name, x in found.items()}


def share_over_questions(
    hits: Bool[np.ndarray, "N"] | Float[np.ndarray, "N"], question: Int[np.ndarray, "N"]
) -> tuple[float, float, float]:
    """Return the share of answers whose passage is named, with its 95% interval over questions."""
    weights = resample_weights(question, 4000)
    low, high = interval(weights @ hits / weights.sum(1))
    return float(hits.mean()), float(low), float(high)


def names_right(entry: xr.Dataset) -> dict[str, Bool[np.ndarray, "N"]]:
    """Return by way of naming whether it names the right passage, of each right answer to a real question."""
    right = entry.isel(answer=entry["right"].values == 1)
    at = right["at"].values
    return {
        "deletion": right["removed"].values.argmin(-1) == at,
        "short": right["removed_short"].values.argmin(-1) == at,
        "reader": right["reader"].values == at,
        "fetched": right["fetched"].values == at,
        "last": at == entry.sizes["document"] - 1,
    }


def held_numbers(entry: xr.Dataset) -> dict[str, int]:
    """Return how often deletion names the passage that alone holds an answer to a real question word for word."""
    source = entry["source"].values
    known = source >= 0
    named = entry["removed"].values.argmin(-1) == source
    last = source == entry.sizes["document"] - 1
    return {
        "real_sources": int(known.sum()),
        "real_sources_named": int(named[known].sum()),
        "real_sources_last": int(last[known].sum()),
    }


def right_numbers(entry: xr.Dataset) -> dict[str, Any]:
    """Return how often each way names the right passage of right answers to real questions."""
    question = entry["question"].values[entry["right"].values == 1]
    hits = names_right(entry)
    found: dict[str, Any] = {"answers": question.size, "questions": len(np.unique(question))}
    found["rows"] = int(entry.attrs["prompts"])
    places = np.unique(entry["at"])
    found["asked"] = found["rows"] * len(places)
    before = load("questions")["smollm2.eight"]["correct"].sel(place=places).isel(question=slice(found["rows"]))
    found["before"] = int(before.sum())
    for name, x in hits.items():
        share, low, high = share_over_questions(x, question)
        found[name] = int(x.sum())
        found[f"{name}_range"] = f"{low:.0%} to {high:.0%}"
        found[f"{name}_said"] = f"{x.sum()} ({share:.0%}, {low:.0%} to {high:.0%})"
    found |= remembered_numbers(question, hits["deletion"])
    found["not_last"] = int((~hits["last"]).sum())
    found["not_last_missed"] = int((~hits["deletion"] & ~hits["last"]).sum())
    return {f"right_{name}": x for name, x in found.items()}


def remembered_numbers(question: Int[np.ndarray, "N"], hits: Bool[np.ndarray, "N"]) -> dict[str, Any]:
    """Return how often the passage is named of questions that are answered without any passage, and of the others."""
    closed = load("questions")[FLOORS]["correct"].sel(given="none").values[question] == 1
    share, low, high = share_over_questions(hits[~closed], question[~closed])
    return {
        "known": int(closed.sum()),
        "known_named": int(hits[closed].sum()),
        "known_questions": len(np.unique(question[closed])),
        "unknown": int((~closed).sum()),
        "unknown_named": int(hits[~closed].sum()),
        "unknown_said": f"{share:.0%}, {low:.0%} to {high:.0%}",
    }


LEAST = 0.8
"""Share of right answers whose passage deletion must name, set before the run (``studies.remedies.real_sources``)."""


def right_check(entry: xr.Dataset) -> Check:
    """Return the check that deletion names the passage of right answers to real questions."""
    right = entry.isel(answer=entry["right"].values == 1)
    question, hits = right["question"].values, names_right(entry)["deletion"]
    share, low, high = share_over_questions(hits, question)
    broken = []
    for rng in np.random.default_rng(0).spawn(20):
        drawn = rng.integers(entry.sizes["document"], size=hits.size) == right["at"].values
        broken.append(share_over_questions(drawn, question)[2] >= LEAST)
    return Check(
        "R-sources", "", "On real questions deletion names the passage of at least four in five right answers.",
        high >= LEAST,
        f"deletion names the passage of {hits.sum()} of {hits.size} right answers to {len(np.unique(question))} real "
        f"questions ({share:.2f}, {low:.2f} to {high:.2f})",
        f"the whole 95% interval over questions is below {LEAST} (undecided if the share is and the interval is not)",
        {"passages named at random": broken}, "the passage cannot be found by deletion",
        {"undecided": share < LEAST <= high},
    )  # fmt: skip


def numbers(kept: Mapping[str, xr.Dataset] | None = None) -> dict[str, Any]:
    """Return all numbers."""
    kept = load("remedies") if kept is None else kept
    found = reworded_numbers(kept[INDIRECT]) | step_numbers(kept[INDIRECT])
    found |= held_numbers(kept[REAL]) | right_numbers(kept[REAL])
    found |= search_numbers(kept[REAL], kept[SEARCH]) | wrong_numbers(kept[WRONG])
    return found | hit_numbers(found)


def search_numbers(entry: xr.Dataset, searched: xr.Dataset) -> dict[str, Any]:
    """Return how often a search for the first line of a right answer finds its passage, and how it differs."""
    at, question = searched["at"].values, searched["question"].values
    falls = entry["removed"].values[entry["right"].values == 1].argsort(-1)
    deletion, hits = falls[:, 0] == at, searched["searched"].values == at
    either_of = {
        "searched_two": hits | (searched["searched_next"].values == at),
        "deletion_two": (falls[:, :2] == at[:, None]).any(1),
        "either": deletion | hits,
    }
    found: dict[str, Any] = {"searched": int(hits.sum()), "again": int(searched["right"].sum())}
    found["neither"] = int((~either_of["either"]).sum())
    for name, x in {"searched": hits, **either_of}.items():
        share, low, high = share_over_questions(x, question)
        found[name] = int(x.sum())
        found[f"{name}_range"] = f"{low:.0%} to {high:.0%}"
        found[f"{name}_said"] = f"{x.sum()} ({share:.0%}, {low:.0%} to {high:.0%})"
    rank = load("questions")["smollm2.eight"]["rank"].values[question]  # of the right passage, by the question's words
    two = either_of["searched_two"]
    pairs = {"first": (hits, deletion), "two": (two, either_of["deletion_two"]), "asked": (two, rank <= 1)}
    for name, (ranked, fallen) in pairs.items():
        more, low, high = share_over_questions(ranked * 1.0 - fallen, question)
        found[f"{name}_more"] = f"{more:+.2f} ({low:+.2f} to {high:+.2f})"
    found |= {"asked_first": int((rank == 0).sum()), "asked_two": int((rank <= 1).sum())}
    closed = load("questions")[FLOORS]["correct"].sel(given="none").values[question] == 1
    named, right = searched["apart_by"].values, searched["apart_right"].values == 1
    looked = (named == 1) & right
    unknown = {"searched": hits, **either_of, "looked": looked}
    unknown["then"] = looked | (named != 1) & either_of["searched_two"]
    unknown["all"] = unknown["then"] | (rank == 0)
    unknown["asked_two"] = rank <= 1
    found |= {f"unknown_{name}": int(x[~closed].sum()) for name, x in unknown.items()}
    found |= {name: int(unknown[name].sum()) for name in ("then", "all")}
    return {f"right_{name}": x for name, x in (found | look_up_numbers(searched)).items()}


def look_up_numbers(searched: xr.Dataset) -> dict[str, float]:
    """Return how many right answers add names and numbers, and how many passages hold all of these."""
    adds, named = searched["apart"].values > 0, searched["apart_by"].values
    return {
        "names": int(adds.sum()),
        "looked_one": int((named == 1).sum()),
        "looked_one_right": int((searched["apart_right"].values[named == 1] == 1).sum()),
        "looked_none": int(adds.sum() - (named > 0).sum()),
        "first_rule": int((searched["named_right"].values[searched["named_by"].values == 1] == 1).sum()),
        "read": 2 - float((named == 1).mean()),
    }


def wrong_numbers(searched: xr.Dataset) -> dict[str, int]:
    """Return in how many passages the names and numbers of wrong answers stand."""
    still = searched.isel(answer=searched["right"].values == 0)  # those that are wrong when given once more
    named = still["apart_by"].values
    found = {
        "drawn": searched.sizes["answer"],
        "asked": named.size,
        "names": (still["apart"].values > 0).sum(),
        "one": (named == 1).sum(),
        "first_rule": (still["named_by"].values == 1).sum(),
    }
    found |= {"several": (named > 1).sum(), "none": (named == 0).sum()}
    return {f"wrong_{name}": int(x) for name, x in found.items()}


def hit_numbers(found: Mapping[str, Any]) -> dict[str, float | str]:
    """Return how many of all answers would have one passage with their names, and how many of these be right.

    The interval is of draws from Jeffreys' posterior of both shares.
    """
    asked, right = found["right_asked"], found["right_before"]
    rng, share = np.random.default_rng(0), []
    counts = (found["right_looked_one"], found["right_answers"]), (found["wrong_one"], found["wrong_asked"])
    drawn = [rng.beta(k + 0.5, of - k + 0.5, 4000) for k, of in counts]
    for of_right, of_wrong in ([k / of for k, of in counts], drawn):
        share.append(right * of_right / (right * of_right + (asked - right) * of_wrong))
    hits = right * counts[0][0] / counts[0][1] + (asked - right) * counts[1][0] / counts[1][1]
    low, high = interval(share[1])
    of_hits = f"{share[0]:.0%} ({low:.0%} to {high:.0%})"
    without = (right - share[0] * hits) / (asked - hits)
    return {"hits_all": hits, "hits_said": of_hits, "hits_base": right / asked, "hits_without": without}
