"""From which documents wrong answers are, beside what four descriptions would give."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from jaxtyping import Float

from posbias.comparison.resampling import interval, resample_weights
from posbias.lookup.reading import distances
from studies.reading import tables
from studies.reading.evidence import Evidence, later_share, near_share, sixteen_expected, sixteen_fitted
from studies.reading.questions import share_interval

Counts = Float[np.ndarray, "P P"]


def asked_inside(counts: Counts) -> Counts:
    """Return the answers that ask for a place whose neighbours are no ends."""
    place = np.arange(len(counts))
    return counts * ((place >= 2) & (place < len(counts) - 2))[:, None]


def inner_near_share(counts: Counts) -> float:
    """Return the share of a neighbour among wrong answers of :func:`asked_inside`."""
    return near_share(asked_inside(counts))


def last_share(counts: Counts) -> float:
    """Return the share of the last document among wrong answers.

    >>> last_share(np.array([[5.0, 1, 1], [1, 5, 1], [0, 0, 5]]))
    0.5
    """
    return float(counts[:-1, -1].sum() / (counts.sum() - counts.trace()))


def share_from(asked: slice, read: slice) -> Callable[[Counts], float]:
    """Return what gives the share of some documents among wrong answers that ask for some."""

    def share(counts: Counts) -> float:
        wrong = (counts * (distances(len(counts)) > 0))[asked]
        return float(wrong[:, read].sum() / wrong.sum())

    return share


OF_SIXTEEN: dict[str, Callable[[Counts], float]] = {
    "wrong: from a neighbour": near_share,
    "wrong: from documents 7 to 12": share_from(slice(None), slice(6, 12)),
    "wrong, asked for 2 to 8: from the first six": share_from(slice(1, 8), slice(0, 6)),
    "wrong, asked for 9: from the first six": share_from(slice(8, 9), slice(0, 6)),
    "wrong, asked for 9: from the last four": share_from(slice(8, 9), slice(12, 16)),
    "wrong, asked for 10 to 15: from the last four": share_from(slice(9, 15), slice(12, 16)),
    "asked for the first: right": lambda counts: float(counts[0, 0] / counts[0].sum()),
    "asked for 7 to 12: right": lambda counts: float((counts.diagonal()[6:12] / counts[6:12].sum(1)).mean()),
}
"""What the page counts of sixteen documents."""


ASKED = {"2 to 8": slice(1, 8), "9": slice(8, 9), "10 to 15": slice(9, 15)}
READ = {"1 to 6": slice(0, 6), "7 to 12": slice(6, 12), "13 to 15": slice(12, 15), "16": slice(15, 16)}
"""Documents, of sixteen, that are asked for and that wrong answers are from."""


def sixteen_table(counts: Counts) -> pd.DataFrame:
    """Return from which of sixteen documents wrong answers are, by the documents that are asked for, and how many."""
    table = pd.DataFrame(index=list(ASKED))
    wrong = counts * (distances(len(counts)) > 0)
    for name, read in READ.items():
        table[name] = [share_from(asked, read)(counts) for asked in ASKED.values()]
    table["wrong answers"] = [f"{wrong[asked].sum():.0f}" for asked in ASKED.values()]
    return table.rename_axis("asked for / wrong answer from")


def sixteen_numbers(seen: Evidence) -> dict[str, float | str]:
    """Return what prose says of sixteen documents: right answers at the first, and where two blocks of mistakes are."""
    sets, counts = seen.sets["sixteen"], seen.totals["sixteen"].astype(float)
    said = {
        "first": "asked for the first: right",
        "early": "wrong, asked for 2 to 8: from the first six",
        "late": "wrong, asked for 10 to 15: from the last four",
        "middle": "asked for 7 to 12: right",
    }
    found: dict[str, float | str] = {f"sixteen_{short}": OF_SIXTEEN[name](counts) for short, name in said.items()}
    places = tables.by_pulls(counts)
    for short in ("early", "late", "middle"):
        low, high = share_interval(sets, OF_SIXTEEN[said[short]])
        found[f"sixteen_{short}_said"] = f"{found[f'sixteen_{short}']:.0%} ({low:.0%} to {high:.0%})"
    found |= {f"sixteen_{short}_places": OF_SIXTEEN[said[short]](places) for short in ("early", "late")}
    found["sixteen_near"] = OF_SIXTEEN["wrong: from a neighbour"](counts)
    found["sixteen_first_fitted"] = OF_SIXTEEN[said["first"]](sixteen_fitted(seen) * counts.sum(1, keepdims=True))
    return found


def sixteen_shown(seen: Evidence) -> pd.DataFrame:
    """Return the shares of :data:`OF_SIXTEEN` as seen, with all wrong documents alike, and as two laws expect."""
    counts = seen.totals["sixteen"].astype(float)
    asked = counts.sum(1, keepdims=True)
    right = np.diag(counts.diagonal())
    described = {
        "seen": counts,
        "all others alike": alike(counts) + right,
        "places": tables.by_pulls(counts) + right,
        "law, fitted to sixteen": sixteen_fitted(seen) * asked,
        "law, from eight": sixteen_expected(seen) * asked,
    }
    shown = pd.DataFrame(index=list(OF_SIXTEEN))
    for of, x in described.items():
        shown[of] = [share(x) for share in OF_SIXTEEN.values()]
    shown.loc[shown.index.str.endswith("right"), ["all others alike", "places"]] = np.nan
    return shown.rename_axis("share")


SHARES: dict[str, Callable[[Counts], float]] = {
    "near": near_share, "inner": inner_near_share, "later": later_share, "last": last_share,
}  # fmt: skip
"""What the page counts among wrong answers, by name."""


def alike(counts: Counts) -> Counts:
    """Return how many wrong answers would be from each document if all but the right one were read alike."""
    wrong = counts * (distances(len(counts)) > 0)
    return np.asarray(np.where(distances(len(counts)) > 0, wrong.sum(1, keepdims=True) / (len(counts) - 1), 0.0))


def inner_ahead(seen: Evidence, along: str) -> tuple[float, float, float]:
    """Return by how many nats what ties the document read to the one asked for is ahead of places, with its interval.

    Of wrong answers of :func:`asked_inside`, fitted to one half of the sets and judged on the other, both ways.
    """
    each = []
    for fitted, judged in ((seen.first, seen.new), (seen.new, seen.first)):
        known = asked_inside(fitted.sum(0).astype(float))
        asked = known.sum(1) > 0
        told = []
        for way in (along, ""):
            expected = tables.by_pulls(known, way)[asked]
            told.append(np.log(np.maximum(expected, 1e-9) / expected.sum(1, keepdims=True)))
        wrong = (judged * (distances(len(known)) > 0))[:, asked]
        each.append(((told[0] - told[1]) * wrong).sum((1, 2)))
    of_sets = np.concatenate(each)
    low, high = interval(resample_weights(len(of_sets)) @ of_sets)
    return float(of_sets.sum()), float(low), float(high)


def source_numbers(seen: Evidence) -> dict[str, str | float]:
    """Return each share of wrong answers with its interval over sets, and what four descriptions would give."""
    sets, total = seen.sets["eight"], seen.totals["eight"].astype(float)
    others = {"places": tables.by_pulls(total), "alike": alike(total)}
    others |= {along: tables.by_pulls(total, along) for along in ("distance", "trend")}
    own = tables.by_pulls(asked_inside(total))
    ahead = {along: inner_ahead(seen, along) for along in ("distance", "trend")}
    found: dict[str, str | float] = {"wrong_inner_own": inner_near_share(own)}
    found |= {f"wrong_inner_ahead_{along}": "{:.0f} ({:.0f} to {:.0f})".format(*x) for along, x in ahead.items()}
    for name, share in SHARES.items():
        low, high = share_interval(sets, share)
        found[f"wrong_{name}_seen"] = f"{share(total):.0%} ({low:.0%} to {high:.0%})"
        found |= {f"wrong_{name}_{other}": share(expected) for other, expected in others.items()}
    return found
