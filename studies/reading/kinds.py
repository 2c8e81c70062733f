"""The law by kind of fact: the sets of eight documents have facts of three kinds, one kind in each set."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from posbias.lookup.contexts import KINDS, make_contexts
from posbias.lookup.reading import end_pulls, fit_law, shares
from posbias.lookup.tasks import Task
from studies.reading import tables
from studies.reading.evidence import Evidence, P, later_share, named
from studies.reading.tables import Counts

PERMUTATIONS = 200


def kind_of(begin: str) -> str:
    """Return the kind of a fact by how its question begins.

    >>> kind_of("The access code of the Vanlin office is")
    'number'
    """
    return dict(KINDS)[sentence_of(begin)]


def begins_of_sets(seen: Evidence) -> list[str]:
    """Return how a question of each set of ``eight`` and ``eight-new`` begins; they are made of seeds 0 and 1."""
    found = []
    for seed, half in enumerate((seen.first, seen.new)):
        contexts = make_contexts(Task("documents", P), len(half), seed)
        found += [context.asks["competing"][0].begin for context in contexts]
    return found


def kinds_of_sets(seen: Evidence) -> list[str]:
    """Return the kind of each set's facts."""
    return [kind_of(begin) for begin in begins_of_sets(seen)]


def sentence_of(begin: str) -> str:
    """Return the sentence that a question's beginning fills with a name.

    >>> sentence_of("The access code of the Vanlin office is")
    'The access code of the {} office is'
    """
    return next(text for text, _ in KINDS if re.fullmatch(text.replace("{}", ".+"), begin))


def over_sentences(seen: Evidence, draws: int = 400) -> dict[str, float]:
    """Return 95% intervals of γ, both pulls and the share of later documents if sentences are drawn, too.

    Of the sentences as many are drawn with replacement as there are, and of each its sets.
    """
    sentences = np.array([sentence_of(begin) for begin in begins_of_sets(seen)])
    groups = [seen.sets["eight"][sentences == x] for x in sorted({*sentences})]
    rows = []
    for rng in np.random.default_rng(0).spawn(draws):
        counts = np.zeros_like(groups[0][0])
        for k in rng.integers(len(groups), size=len(groups)):
            counts = counts + rng.choice(groups[k], len(groups[k])).sum(0)
        rows.append([fit_law(counts)[0], both_ends(counts), later_share(counts)])
    found = {"kinds_sentences": float(len(groups))}
    for name, low, high in zip(("sharpness", "ends", "later"), *np.quantile(rows, [0.025, 0.975], axis=0), strict=True):
        found |= {f"kinds_drawn_{name}_low": float(low), f"kinds_drawn_{name}_high": float(high)}
    return found


def end_of(place: int) -> Any:
    """Return what gives the pull of one end, 0 for the first or 1 for the last, more than of those between."""
    return lambda counts: end_pulls(fit_law(counts)[1])[place]


def both_ends(counts: tables.Tables) -> Any:
    """Return the pulls of both ends together, which do not depend on whether the finger slips to one side."""
    return end_pulls(fit_law(counts)[1]).sum(0)


def kind_rows(seen: Evidence) -> dict[str, Counts]:
    """Return the sets of each kind, and all of them."""
    kinds, sets = np.array(kinds_of_sets(seen)), seen.sets["eight"]
    return {f"{kind}s": sets[kinds == kind] for kind in sorted(set(kinds))} | {"all": sets}


def kind_table(seen: Evidence) -> pd.DataFrame:
    """Return γ, pulls of the ends, bonus and share of later documents by kind of fact, with 95% intervals over sets."""
    wanted = {"γ": lambda n: fit_law(n)[0], "first place": end_of(0), "last place": end_of(1)}
    wanted |= {"both together": both_ends, "bonus": tables.bonus, "later": later_share}
    rows = {}
    for name, counts in kind_rows(seen).items():
        row: dict[str, Any] = {"sets": len(counts)}
        for title, statistic in wanted.items():
            row[title] = "{:.2f} ({:.2f} to {:.2f})".format(*tables.of_resamples(counts, statistic))
        rows[name] = row
    return pd.DataFrame(rows).T.rename_axis("facts are")


def gain_of_kinds(sets: Counts, kinds: np.ndarray) -> float:
    """Return how much a law for each kind adds to twice the log-likelihood of one law for all."""
    apart = sum(fit_law(sets[kinds == kind].sum(0))[2] for kind in np.unique(kinds))
    return float(2 * (apart - fit_law(sets.sum(0))[2]))


def kind_numbers(seen: Evidence) -> dict[str, float]:
    """Return what laws by kind gain, and what they gain if the kinds are dealt to sets at random."""
    kinds, sets, rng = np.array(kinds_of_sets(seen)), seen.sets["eight"], np.random.default_rng(0)
    gain = gain_of_kinds(sets, kinds)
    drawn = np.array([gain_of_kinds(sets, rng.permutation(kinds)) for _ in range(PERMUTATIONS)])
    apart = sum(expected_of(counts) for name, counts in kind_rows(seen).items() if name != "all")
    numbers = {}
    for name, counts in kind_rows(seen).items():
        numbers[f"kinds_factor_{name}"] = float(np.exp(fit_law(counts.sum(0))[0]))
        numbers |= named(f"kinds_ends_{name}", tables.of_resamples(counts, both_ends))
        numbers |= named(f"kinds_later_{name}", tables.of_resamples(counts, later_share))
    return numbers | {
        "kinds_gain": gain, "kinds_dealt": float(np.median(drawn)), "kinds_most": float(np.quantile(drawn, 0.95)),
        "kinds_p": float((1 + (drawn >= gain).sum()) / (1 + PERMUTATIONS)),
        "kinds_first": float(apart[0, 0]), "one_first": float(expected_of(sets)[0, 0]), "seen_first": sets.sum(0)[0, 0],
        "kinds_third": float(apart[2, 0]), "one_third": float(expected_of(sets)[2, 0]), "seen_third": sets.sum(0)[2, 0],
        "one_inner": float(expected_of(sets).diagonal()[INNER].sum()),
        "seen_inner": sets.sum(0).diagonal()[INNER].sum(),
    }  # fmt: skip


INNER = slice(3, 7)
"""Places 4 to 7."""


def expected_of(sets: Counts) -> Any:
    """Return how many answers the law of some sets expects of them, by place asked and place read."""
    total = sets.sum(0)
    sharpness, pulls, _ = fit_law(total)
    return shares(pulls, sharpness) * total.sum(1, keepdims=True)
