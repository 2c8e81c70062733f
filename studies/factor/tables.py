"""Influence of passages as place + content: effects, what is left over, and what predicts the effect of place.

A passage's *log share* is the logarithm of its influence less the mean of these over its prompt, in nats: what is
common to a prompt has no part in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Int

from posbias.comparison.distances import normalised_wasserstein
from posbias.comparison.multiplicity import decide, sign_p_value
from posbias.comparison.resampling import interval, resample_weights

LEFT = 0.25
"""Most of the variance that place and content of other prompts may leave, for influence to be called a product."""


@dataclass(frozen=True)
class Shares:
    """Hold log shares by set, order and place, and which passage stands there."""

    y: Float[np.ndarray, "S O K"]
    passage: Int[np.ndarray, "S O K"]

    @property
    def place(self) -> Float[np.ndarray, "K"]:
        """The effect of place, the mean over passages and sets."""
        return np.asarray(self.y.mean((0, 1)))

    @property
    def content(self) -> Float[np.ndarray, "S K"]:
        """The effect of content, each passage's mean over places."""
        return np.asarray(self.by_passage(self.y).mean(1))

    def by_passage(self, x: Float[np.ndarray, "S O K"]) -> Float[np.ndarray, "S O K"]:
        """Return numbers by place sorted by passage."""
        return np.take_along_axis(x, np.argsort(self.passage, axis=-1), axis=-1)

    def placed(self, content: Float[np.ndarray, "S K"]) -> Float[np.ndarray, "S O K"]:
        """Return numbers by passage where the passages stand."""
        return np.take_along_axis(np.broadcast_to(content[:, None], self.y.shape), self.passage, axis=-1)

    def half(self, which: int) -> Shares:
        """Return one of the two halves of the orders, in each of which places and passages are balanced."""
        rows = np.s_[:, which * self.y.shape[2] : (which + 1) * self.y.shape[2]]
        return Shares(self.y[rows], self.passage[rows])


def log_shares(entry: xr.Dataset) -> Shares:
    """Return the log shares of a measurement."""
    y = np.log(entry["influence"].values.astype(np.float64))
    return Shares(y - y.mean(-1, keepdims=True), entry["passage"].values.astype(int))


def predicted_place(
    profile: Float[np.ndarray, "n"], places: int, tokens: int, front: int = 0
) -> Float[np.ndarray, "K"]:
    """Return the effect of place that a profile by token predicts: logarithms of its sums, less their mean.

    >>> predicted_place(np.array([0.1, 0.1, 0.3, 0.5]), 2, 1, 1).round(3).tolist()
    [-0.549, 0.549]
    """
    sums = np.asarray(profile, dtype=np.float64)[front : front + places * tokens].reshape(places, tokens).sum(1)
    return np.asarray(np.log(sums) - np.log(sums).mean())


def left_over(shares: Shares, place: Float[np.ndarray, "K"] | None = None) -> dict[str, Float[np.ndarray, "S"]]:
    """Return for each set what predictions from *other* prompts leave of the sum of squares, and that itself, ``all``.

    The effect of place is that of the other sets (or what is given), the content of a passage its mean in the other
    half of the orders; ``place`` and ``content`` are the predictions with one effect alone.
    """
    sets = len(shares.y)
    where = np.broadcast_to(place, (sets, shares.y.shape[2])) if place is not None else (
        (shares.y.mean(1).sum(0) - shares.y.mean(1)) / (sets - 1)
    )  # fmt: skip
    left = {name: np.zeros(sets) for name in ("all", "place", "content", "both")}
    for half, other in ((shares.half(0), shares.half(1)), (shares.half(1), shares.half(0))):
        at, said = np.broadcast_to(where[:, None], half.y.shape), half.placed(other.content)
        for name, guess in {"all": 0.0, "place": at, "content": said, "both": at + said}.items():
            left[name] += ((half.y - guess) ** 2).sum((1, 2))
    return left


def left_table(
    every: Mapping[str, Shares], places: Mapping[str, np.ndarray] | None = None, *, resamples: int = 1000
) -> pd.DataFrame:
    """Return for each model the shares of variance that predictions from other prompts leave.

    Columns ``place``, ``content`` and ``both``; ``low`` and ``high`` of the last over resampled sets; ``place_helps``
    and ``content_helps``, whether adding that effect to the other leaves less, by Holm's rule over all models.
    """
    rows, p_values = {}, []
    for name, shares in every.items():
        left = left_over(shares, None if places is None else places[name])
        weights = resample_weights(len(shares.y), resamples)
        drawn = weights @ left["both"] / (weights @ left["all"])
        low, high = interval(drawn)
        p_values.append([sign_p_value(weights @ (left[alone] - left["both"])) for alone in ("content", "place")])
        found = {what: left[what].sum() / left["all"].sum() for what in ("place", "content", "both")}
        rows[name] = found | {"low": float(low), "high": float(high)}
    table = pd.DataFrame.from_dict(rows, orient="index")
    gains = np.stack([table["content"] - table["both"], table["place"] - table["both"]], axis=1)
    signs = decide(gains.ravel(), np.ravel(p_values)).reshape(-1, 2)
    return table.assign(place_helps=signs[:, 0] > 0, content_helps=signs[:, 1] > 0)


def is_product(
    every: Mapping[str, Shares], places: Mapping[str, np.ndarray] | None = None, *, resamples: int = 1000
) -> bool:
    """Tell whether in all models both effects help, and together leave at most :data:`LEFT` of the variance."""
    table = left_table(every, places, resamples=resamples)
    return bool((table["place_helps"] & table["content_helps"] & (table["both"] <= LEFT)).all())


def places_permuted(shares: Shares, rng: np.random.Generator) -> Shares:
    """Return shares of which it is forgotten where in its prompt each passage stood."""
    order = rng.permuted(np.broadcast_to(np.arange(shares.y.shape[2]), shares.y.shape), axis=-1)
    y, passage = (np.take_along_axis(x, order, axis=-1) for x in (shares.y, shares.passage))
    return Shares(y, passage)


def contents_permuted(shares: Shares, rng: np.random.Generator) -> Shares:
    """Return shares of which it is forgotten which passage of its prompt stood where."""
    return replace(shares, passage=rng.permuted(shares.passage, axis=-1))


def place_table(
    every: Mapping[str, Shares], predictions: Mapping[str, Mapping[str, np.ndarray]], *, resamples: int = 1000
) -> pd.DataFrame:
    """Return how near predicted effects of place are to the measured one, by model and prediction.

    ``r`` is Pearson's correlation over places, ``rms`` the root mean square of the difference in nats, with its
    interval over sets, and ``W1`` the distance between the shares of places that the effects make.
    """
    rows = []
    for model, shares in every.items():
        weights = resample_weights(len(shares.y), resamples)
        drawn = weights @ shares.y.mean(1) / weights.sum(1, keepdims=True)
        for name, guess in predictions[model].items():
            low, high = interval(_rms(drawn - guess))
            rows.append({
                "model": model, "prediction": name,
                "r": np.corrcoef(guess, shares.place)[0, 1] if np.ptp(guess) else np.nan,
                "rms": float(_rms(shares.place - guess)), "low": float(low), "high": float(high),
                "W1": normalised_wasserstein(_parts(shares.place), _parts(guess)),
            })  # fmt: skip
    return pd.DataFrame(rows)


def _rms(x: Float[np.ndarray, "... K"]) -> Float[np.ndarray, "..."]:
    """Return the root mean square along the last axis."""
    return np.asarray(np.sqrt((x**2).mean(-1)))


def _parts(effect: Float[np.ndarray, "K"]) -> Float[np.ndarray, "K"]:
    """Return the shares of equal passages that differ in their places alone."""
    return np.asarray(np.exp(effect) / np.exp(effect).sum())


def moves(shares: Shares, guess: Float[np.ndarray, "K"]) -> tuple[Float[np.ndarray, "S"], Float[np.ndarray, "S"]]:
    """Return for each set how many changes of log share between two orders have the predicted sign, and of how many."""
    seen = shares.by_passage(shares.y)
    said = shares.by_passage(np.broadcast_to(guess, shares.y.shape))
    first, second = np.triu_indices(shares.y.shape[1], 1)
    change, predicted = seen[:, first] - seen[:, second], said[:, first] - said[:, second]
    moved = predicted != 0
    return ((change * predicted > 0) & moved).sum((1, 2)).astype(float), moved.sum((1, 2)).astype(float)


def move_table(
    every: Mapping[str, Shares], predictions: Mapping[str, Mapping[str, np.ndarray]], *, resamples: int = 1000
) -> pd.DataFrame:
    """Return how often it is foretold whether a passage gains or loses by another order, by model and prediction.

    ``right`` is the share of right signs, with its interval over sets; ``decided`` is 1 where it is more than a half by
    Holm's rule among the models, -1 where it is less, and 0 where that is open.
    """
    rows = []
    for model, shares in every.items():
        weights = resample_weights(len(shares.y), resamples)
        for name, guess in predictions[model].items():
            right, moved = moves(shares, guess)
            drawn = weights @ right / (weights @ moved)
            low, high = interval(drawn)
            rows.append({
                "model": model, "prediction": name, "right": right.sum() / moved.sum(),
                "low": float(low), "high": float(high), "p_value": sign_p_value(drawn - 0.5),
            })  # fmt: skip
    table = pd.DataFrame(rows)
    signs = pd.Series(0, index=table.index)
    for _, own in table.groupby("prediction"):
        signs[own.index] = decide(own["right"].to_numpy() - 0.5, own["p_value"].to_numpy())
    return table.assign(decided=signs)
