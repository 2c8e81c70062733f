"""Influence of passages as place + content: effects, what is left over, and what predicts the effect of place.

A passage's *log share* is the logarithm of its influence less the mean of these over its prompt, in nats: what is
common to a prompt has no part in it. Orders are balanced, so that the sums of squares of place, content and rest add.
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
from posbias.comparison.resampling import interval, resample_weights, t_interval

LEFT = 0.25
"""Most of the variance that place and content of other prompts may leave, for influence to be called a product."""
SOURCES = ("place", "content", "place by set", "passage × place", "order of the others")
"""What the variance of log shares is made of: two effects and three parts of the rest."""


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


def squares(shares: Shares) -> dict[str, Float[np.ndarray, "S"]]:
    """Return sums of squares of each set: all, of its means by place, by passage, and by both."""
    sets, orders, K = shares.y.shape
    cells = np.zeros((sets, K, K))
    np.add.at(cells, (np.arange(sets)[:, None, None], np.arange(K), shares.passage), shares.y * K / orders)
    return {
        "all": (shares.y**2).sum((1, 2)),
        "place": orders * (shares.y.mean(1) ** 2).sum(1),
        "content": orders * (shares.content**2).sum(1),
        "both": orders / K * (cells**2).sum((1, 2)),
    }


def variance_parts(shares: Shares, weights: Float[np.ndarray, "B S"]) -> Float[np.ndarray, "B 5"]:
    """Return the shares of variance of :data:`SOURCES` for weights of the sets; they sum to 1."""
    sums = {name: weights @ x for name, x in squares(shares).items()}
    mean = weights @ shares.y.mean(1) / weights.sum(1, keepdims=True)
    place = shares.y.shape[1] * weights.sum(1) * (mean**2).sum(1)
    by_set, both = sums["place"] - place, sums["both"] - sums["place"] - sums["content"]
    parts = [place, sums["content"], by_set, both, sums["all"] - sums["both"]]
    return np.stack(parts, axis=1) / sums["all"][:, None]


def variance_table(entries: Mapping[str, xr.Dataset], *, resamples: int = 1000) -> pd.DataFrame:
    """Return for each entry the shares of variance, ``rest`` of the last three, with intervals over sets.

    ``spread`` is the standard deviation of a place's effect from set to set, root mean square over places, ``least``
    and ``most`` the effects of place at the ends of their range, in nats.
    """
    rows = {}
    for name, entry in entries.items():
        shares = log_shares(entry)
        sets = len(shares.y)
        (own,) = variance_parts(shares, np.ones((1, sets)))
        drawn = variance_parts(shares, resample_weights(sets, resamples))
        row = dict(zip(SOURCES, own, strict=True)) | {"rest": own[2:].sum()}
        for what, values in (("place", drawn[:, 0]), ("content", drawn[:, 1]), ("rest", drawn[:, 2:].sum(1))):
            row[f"{what}_low"], row[f"{what}_high"] = map(float, interval(values))
        spread = np.sqrt(shares.y.mean(1).var(axis=0, ddof=1).mean())
        rows[name] = row | {"spread": spread, "least": shares.place.min(), "most": shares.place.max()}
    return pd.DataFrame.from_dict(rows, orient="index")


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


def content_order(shares: Shares, guess: Float[np.ndarray, "K"] | None = None) -> float:
    """Return how often one prompt tells which of two passages has more content, by its other half of orders.

    Log shares of a prompt are corrected by an effect of place: by the one given, or if None by that of the other sets.
    """
    sets, _, K = shares.y.shape
    own = (shares.y.mean(1).sum(0) - shares.y.mean(1)) / (sets - 1)
    where = own if guess is None else np.broadcast_to(guess, own.shape)
    corrected = replace(shares, y=shares.y - where[:, None])
    first, second = np.triu_indices(K, 1)
    right = []
    for a, b in ((0, 1), (1, 0)):
        seen, truth = corrected.half(a).by_passage(corrected.half(a).y), shares.half(b).content[:, None]
        right.append((seen[..., first] - seen[..., second]) * (truth[..., first] - truth[..., second]) > 0)
    return float(np.mean(right))


def centred(x: Float[np.ndarray, "S O K"], passage: Int[np.ndarray, "S O K"]) -> Float[np.ndarray, "S O K"]:
    """Return numbers less what prompts, places of a set and passages explain of them."""
    x = x - x.mean(-1, keepdims=True)
    x = x - x.mean(1, keepdims=True)
    shares = Shares(x, passage)
    return x - shares.placed(shares.content)


def neighbour_table(every: Mapping[str, Shares], *, resamples: int = 1000) -> pd.DataFrame:
    """Return how a passage's log share follows the content of its neighbours, by model and ``side``.

    ``slope`` is in nats per nat of the content of the passage that stands before it or behind it, with its interval
    over sets; ``part`` the share of the rest that this explains. ``decided`` is the sign that stands by Holm's rule.
    """
    rows = []
    for model, shares in every.items():
        rest, said = centred(shares.y, shares.passage), shares.placed(shares.content)
        weights = resample_weights(len(shares.y), resamples)
        for side, step in (("before", 1), ("behind", -1)):
            beside = np.roll(said, step, axis=-1)
            beside[..., 0 if step == 1 else -1] = 0  # at the end stands no passage
            x = centred(beside, shares.passage)
            both, own, all_ = ((a * b).sum((1, 2)) for a, b in ((x, rest), (x, x), (rest, rest)))
            drawn = weights @ both / (weights @ own)
            low, high = interval(drawn)
            rows.append({
                "model": model, "side": side, "slope": both.sum() / own.sum(), "low": float(low), "high": float(high),
                "part": both.sum() ** 2 / own.sum() / all_.sum(), "p_value": sign_p_value(drawn),
            })  # fmt: skip
    table = pd.DataFrame(rows)
    signs = pd.Series(0, index=table.index)
    for _, own in table.groupby("side"):
        signs[own.index] = decide(own["slope"].to_numpy(), own["p_value"].to_numpy())
    return table.assign(decided=signs)


def copy_table(every: Mapping[str, Shares], places: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Return by how much the later of two equal passages exceeds what its place gives it, in nats, by model.

    The first and the last passage of a set are equal; ``places`` has effects of place from prompts without copies.
    ``low`` and ``high`` are Student's interval over sets.
    """
    rows = {}
    for model, shares in every.items():
        over = shares.by_passage(shares.y - places[model])[..., [0, -1]]
        where = np.argsort(shares.passage, axis=-1)[..., [0, -1]]
        later = ((over[..., 1] - over[..., 0]) * np.sign(where[..., 1] - where[..., 0])).mean(1)
        low, high = t_interval(later)
        rows[model] = {"later": later.mean(), "low": low, "high": high}
    return pd.DataFrame.from_dict(rows, orient="index")
