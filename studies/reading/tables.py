"""What the answers of ``results/reading.nc`` say of the law of reading by place, and of its rivals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from scipy.optimize import minimize

from posbias.comparison.resampling import interval, resample_weights
from posbias.lookup.reading import distances, fit_choices, fit_law, log_likelihood, shares

CARRIED = ("four", "sixteen", "between", "around", "inside")
"""Lists to which γ of eight documents is carried over."""
UNITS = ("places", "tokens", "share")
"""In what distance may count: documents of the list, tokens, and documents divided by their number."""
OWN = "place, exponential fall, own bonus of the first"
"""The law with a bonus for the first document alone, if it is asked for."""

Counts = Float[np.ndarray, "C P P"]
Tables = Float[np.ndarray, "*B P P"]
"""Counts of one table, place asked and place read, or of several at once."""
Statistic = Callable[[Tables], Any]
"""A number of each table."""


def count_answers(entry: xr.Dataset) -> Counts:
    """Return answers by set, competing document asked for, and competing document read.

    Every competing document of a set is asked for in turn; other documents are left out.
    """
    asked = entry["asked"].values.astype(int)
    source = entry["source"].values.astype(int)
    return (source[..., None] == asked[:, None, :]).astype(float)


def steps_between(entry: xr.Dataset, unit: str) -> Float[np.ndarray, "P P"]:
    """Return how far competing documents are apart, in a unit of :data:`UNITS`; a mean over sets."""
    asked = entry["asked"].values.astype(int)
    if unit == "tokens":
        middle = np.take_along_axis(entry["token"].values[:, 0], asked, axis=1)
        return np.abs(middle[:, :, None] - middle[:, None, :]).mean(0)
    apart = np.abs(asked[0][:, None] - asked[0][None, :]).astype(float)
    return apart / (entry.sizes["document"] if unit == "share" else 1)


def rival_features(places: int) -> dict[str, Float[np.ndarray, "P P K"]]:
    """Return what the law and its rivals weigh, by name."""
    apart, right = distances(places), np.eye(places)[..., None]
    place = np.broadcast_to(np.eye(places)[:, 1:], (places, places, places - 1))
    ends = np.zeros((places, places, 2))
    ends[:, 0, 0] = ends[:, -1, 1] = 1
    falls = {"exponential": apart, "Gaussian": apart**2, "power": np.log1p(apart)}
    found = {"place alone": place, "place, bonus": np.concatenate([place, right], -1)}
    for name, fall in falls.items():
        found[f"place, {name} fall"] = np.concatenate([place, -fall[..., None]], -1)
    found["both ends, exponential fall"] = np.concatenate([ends, -apart[..., None]], -1)
    found["exponential fall alone"] = -apart[..., None]
    found["place, exponential fall, bonus"] = np.concatenate([place, -apart[..., None], right], -1)
    return found | own_features(places)


def own_features(places: int) -> dict[str, Float[np.ndarray, "P P K"]]:
    """Return rivals in which an end has a bonus of its own: it is read more if it is asked for, and only then.

    In a *trend* the later a document is that is asked for, the later are those that are read: a product of both places.
    With a pull for each place it is the same as a Gaussian of distance, without naming distance.
    """
    apart, ends, own = distances(places)[..., None], np.zeros((places, places, 2)), np.zeros((places, places, 2))
    place = np.broadcast_to(np.eye(places)[:, 1:], (places, places, places - 1))
    middle = np.arange(places) - (places - 1) / 2
    trend = np.outer(middle, middle)[..., None] / places
    right = np.eye(places)[..., None]
    ends[:, 0, 0] = ends[:, -1, 1] = own[0, 0, 0] = own[-1, -1, 1] = 1
    parts = {
        "place, own bonus of the first": (place, own[..., :1]),
        "both ends, own bonuses": (ends, own),
        "place, trend, bonus": (place, trend, right),
        "place, trend, own bonus of the first": (place, trend, own[..., :1]),
        "both ends, exponential fall, own bonus of the first": (ends, -apart, own[..., :1]),
        OWN: (place, -apart, own[..., :1]),
        "place, exponential fall, own bonuses": (place, -apart, own),
    }
    return {name: np.concatenate(features, -1) for name, features in parts.items()}


ALONG: dict[str, Callable[[np.ndarray], list[np.ndarray]]] = {
    "": lambda place: [],
    "distance": lambda place: [-np.abs(np.subtract.outer(place, place))],
    "trend": lambda place: [np.outer(place, place)],
}
"""What may tie the document read to the one asked for: nothing, distance, or a trend of later ones for later ones."""


def by_pulls(counts: Float[np.ndarray, "P P"], along: str = "") -> Float[np.ndarray, "P P"]:
    """Return how many wrong answers would be from each document if only the pull of its place counted.

    With ``along`` one of :data:`ALONG` counts, too. What counts is fitted to the wrong answers; right ones are as many
    as seen, by a coefficient of each document.
    """
    P = len(counts)
    place = np.broadcast_to(np.eye(P)[:, 1:], (P, P, P - 1))
    own = np.eye(P)[:, :, None] * np.eye(P)[:, None, :]
    features = np.concatenate([place, own, *[x[:, :, None] for x in ALONG[along](np.linspace(-1, 1, P))]], -1)
    z = features @ fit_choices(features, counts)[0]
    share = np.exp(z - z.max(1, keepdims=True))
    expected = share / share.sum(1, keepdims=True) * counts.sum(1, keepdims=True)
    return np.asarray(expected * (1 - np.eye(P)))


def first_come(places: int, right: float, wrong: float) -> Float[np.ndarray, "P P"]:
    """Return shares of a reader who goes from the first document on and takes the first that fits.

    The right one fits with one probability, each other with another; who took none takes the last.
    """
    fits = np.full((places, places), wrong)
    np.fill_diagonal(fits, right)
    fits[:, -1] = 1.0
    passed = np.cumprod(np.concatenate([np.ones((places, 1)), 1 - fits[:, :-1]], 1), 1)
    return passed * fits


def fit_first_come(counts: Float[np.ndarray, "P P"]) -> Float[np.ndarray, "P P"]:
    """Return the shares of :func:`first_come` that fit best."""

    def missed(x: Float[np.ndarray, "2"]) -> float:
        p = first_come(len(counts), *(1 / (1 + np.exp(-x))))
        return -log_likelihood(np.maximum(p, 1e-9), counts)

    best = minimize(missed, np.array([0.0, -2.0]), method="Nelder-Mead").x
    return np.maximum(first_come(len(counts), *(1 / (1 + np.exp(-best)))), 1e-9)


def rival_shares(counts: Float[np.ndarray, "P P"]) -> dict[str, Float[np.ndarray, "P P"]]:
    """Return the shares that each rival expects once it is fitted."""
    found = {}
    for name, features in rival_features(len(counts)).items():
        w, _ = fit_choices(features, counts)
        z = features @ w
        weights = np.exp(z - z.max(1, keepdims=True))
        found[name] = weights / weights.sum(1, keepdims=True)
    return found | {"first-come": fit_first_come(counts)}


def rival_table(fitted: Counts, judged: Counts) -> pd.DataFrame:
    """Return how well what is fitted to some sets expects the answers of others.

    ``behind`` is how many nats less than the law, with its interval over the judging sets.
    """
    expected = rival_shares(fitted.sum(0))
    law = np.log(expected["place, exponential fall"])
    rows = {}
    for name, p in expected.items():
        each = ((law - np.log(p)) * judged).sum((1, 2))
        low, high = interval(resample_weights(len(each)) @ each)
        found = float((np.log(p) * judged).sum())
        rows[name] = {"log-likelihood": found, "behind": each.sum(), "low": low, "high": high}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("fitted to the other half")


def saturated(counts: Float[np.ndarray, "P P"]) -> float:
    """Return the log-likelihood of a table's own shares."""
    return log_likelihood(counts / np.maximum(counts.sum(1, keepdims=True), 1), counts)


def of_resamples(counts: Counts, statistic: Statistic, resamples: int = 400) -> tuple[float, float, float]:
    """Return a number of all sets, and its 95% interval over sets drawn with replacement."""
    low, high = interval(statistic(np.tensordot(resample_weights(len(counts), resamples), counts, 1)))
    return float(statistic(counts.sum(0))), float(low), float(high)


def bonus(counts: Tables) -> Float[np.ndarray, "*B"]:
    """Return the bonus for the right document, with distance in the law."""
    features = rival_features(counts.shape[-1])["place, exponential fall, bonus"]
    return fit_choices(features, counts)[0][..., -1]


def pull(counts: Tables, place: int) -> Float[np.ndarray, "*B"]:
    """Return how much more a place pulls than those between the ends."""
    b = fit_law(counts)[1]
    return np.asarray(b[..., place] - b[..., 1:-1].mean(-1))


def sharpness_by_unit(entry: xr.Dataset, counts: Tables, unit: str) -> Float[np.ndarray, "*B"]:
    """Return γ per unit, at least 1e-3 of the distance between neighbours."""
    apart = steps_between(entry, unit)
    scale = apart[0, 1]
    return np.maximum(fit_law(counts, apart / scale)[0], 1e-3) / scale


def unit_misses(entries: Mapping[str, xr.Dataset], counts: Mapping[str, Tables]) -> dict[str, Float[np.ndarray, "*B"]]:
    """Return for each unit the mean size of log γ, of the lists in :data:`CARRIED`, less that of eight."""
    found = {}
    for unit in UNITS:
        known = sharpness_by_unit(entries["eight"], counts["eight"], unit)
        there = [sharpness_by_unit(entries[k], counts[k], unit) for k in CARRIED if k in counts]
        found[unit] = np.abs(np.log(np.array(there) / known)).mean(0)
    return found


def dose(entry: xr.Dataset) -> tuple[Float[np.ndarray, "C 7 2"], Float[np.ndarray, "C 7 2"]]:
    """Return by set, distance and question whether the competitor was read, and whether one of both was."""
    asked, source = entry["asked"].values.astype(int), entry["source"].values.astype(int)
    pairs = asked.reshape(len(asked), -1, 2)
    other = pairs[..., ::-1].reshape(asked.shape)
    wrong, right = source == other, source == asked
    return wrong.reshape(pairs.shape) * 1.0, (wrong | right).reshape(pairs.shape) * 1.0


def dose_expected(pulls: Float[np.ndarray, "P"], sharpness: float) -> Float[np.ndarray, "d"]:
    """Return the share mistaken, by distance of the only competitor, that a law expects."""
    P, found = len(pulls), []
    for d in range(1, P):
        pairs = [shares(pulls[[i, i + d]], sharpness * d)[[0, 1], [1, 0]].mean() for i in range(P - d)]
        found.append(np.mean(pairs))
    return np.array(found)


def eighths(profile: Float[np.ndarray, "n"], places: int = 8) -> Float[np.ndarray, "P"]:
    """Return what each part of a profile has, with as many parts as places."""
    return np.array([part.sum() for part in np.array_split(profile, places)])
