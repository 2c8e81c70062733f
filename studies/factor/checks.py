"""Checks that a passage's influence is a product of its place and its content, in the ten small models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from studies.checks import Check
from studies.factor import tables as t
from studies.factor.tables import Shares
from studies.palette import MODEL_COLOURS
from studies.results import of_kind

Every = Mapping[str, Shares]
Effects = Mapping[str, Float[np.ndarray, "K"]]
V = TypeVar("V")


@dataclass(frozen=True)
class Moved:
    """Hold log shares of passages by model, and the effects of place that influence on other texts predicts."""

    shares: Every
    forecast: Effects

    @cached_property
    def left(self) -> pd.DataFrame:
        """The shares of variance that place and content of other prompts leave."""
        return t.left_table(self.shares)

    @property
    def fine(self) -> pd.Series:
        """Models of which the claim holds."""
        left = self.left
        return left["place_helps"] & left["content_helps"] & (left["both"] <= t.LEFT)


def load_moved(kept: Mapping[str, xr.Dataset], trained: Mapping[str, xr.Dataset]) -> Moved:
    """Return the passages of ``results/factor.nc``, with forecasts from influence in ``results/models.nc``."""
    moved = of_kind(kept, "6x40", list(MODEL_COLOURS))
    forecast = {}
    for name, x in moved.items():
        profile = trained[f"{name}.builtin"]["influence"].values
        sizes = (x.sizes["place"], int(x.attrs["tokens"]), int(x.attrs["front"]))
        forecast[name] = t.predicted_place(profile, *sizes)
    return Moved({name: t.log_shares(x) for name, x in moved.items()}, forecast)


def exchanged_models(values: Mapping[str, V]) -> Iterator[dict[str, V]]:
    """Yield what belongs to one model given to another, in every cyclic way."""
    names, given = list(values), list(values.values())
    for shift in range(1, len(names)):
        yield dict(zip(names, given[-shift:] + given[:-shift], strict=True))


def redrawn(some: Every, change: Callable[..., Shares], runs: int = 20) -> Iterator[dict[str, Shares]]:
    """Yield the same log shares with something forgotten, drawn anew in each run."""
    for rng in np.random.default_rng(0).spawn(runs):
        yield {name: change(x, rng) for name, x in some.items()}


def signs_of(shares: Every, forecast: Effects) -> pd.DataFrame:
    """Return how often it is foretold whether a passage gains by another order, by model."""
    return t.move_table(shares, {name: {"profile": x} for name, x in forecast.items()}).set_index("model")


def errors_of(shares: Every, forecast: Effects) -> pd.DataFrame:
    """Return how far forecasts of the effect of place are off, and how large the effect is, by model."""
    guess = {name: {"profile": x, "none": 0 * x} for name, x in forecast.items()}
    sizes = t.place_table(shares, guess, resamples=2)
    return sizes.pivot(index="model", columns="prediction", values="rms")


def predicts_place(shares: Every, forecast: Effects) -> bool:
    """Say whether forecasts have the signs right and miss less than half of the effect, in every model."""
    sizes = errors_of(shares, forecast)
    signs = (signs_of(shares, forecast)["decided"] == 1).all()
    return bool(signs and (sizes["profile"] < sizes["none"] / 2).all())


def factor_checks(seen: Moved) -> list[Check]:
    """Return the checks of the product, and of the forecast of its factor by place."""
    return [product_check(seen), forecast_check(seen)]


def product_check(seen: Moved) -> Check:
    """Return the check that place and content suffice."""
    left, fine = seen.left["both"], seen.fine
    holding = {name: x for name, x in seen.shares.items() if fine[name]}
    effects = {name: x.place for name, x in holding.items()}
    broken = {
        "places permuted": [t.is_product(x) for x in redrawn(holding, t.places_permuted)],
        "contents permuted": [t.is_product(x) for x in redrawn(holding, t.contents_permuted)],
        "another model's place effect": [t.is_product(holding, x) for x in exchanged_models(effects)],
    }
    return Check(
        "X-factor", "product", "A passage's influence is a product of place and content.",
        t.is_product(seen.shares),
        f"place and content of other prompts leave {left.min():.1%} to {left.max():.1%} of the variance; both "
        f"help, and little is left, in {len(holding)} of {len(fine)} models",
        "in a model more than a quarter of the variance is left, or one of the two effects does not help (sets "
        "resampled, Holm)",
        broken, "the product does not suffice in " + " and ".join(x for x in seen.shares if not fine[x]),
        {"in_part": bool(fine.mean() > 0.5)},
    )  # fmt: skip


def forecast_check(seen: Moved) -> Check:
    """Return the check that influence on other texts predicts the effect of place."""
    signs, sizes = (
        signs_of(seen.shares, seen.forecast)["right"],
        errors_of(seen.shares, seen.forecast),
    )
    permuted = redrawn(seen.shares, t.places_permuted)
    return Check(
        "X-factor", "forecast", "The mean profile predicts the effect of place.",
        predicts_place(seen.shares, seen.forecast),
        f"signs of changes between orders right in {signs.min():.0%} to {signs.max():.0%}; error at most "
        f"{(sizes['profile'] / sizes['none']).max():.0%} of the effect",
        "in a model the share of right signs is not above one half (sets resampled, Holm), or the error is half "
        "of the effect",
        {"places permuted": [predicts_place(x, seen.forecast) for x in permuted],
         "another model's profile": [predicts_place(seen.shares, x) for x in exchanged_models(seen.forecast)]},
        "in a model it does not", {"post_hoc": True},
    )  # fmt: skip


def factor_numbers(seen: Moved) -> dict[str, float]:
    """Return what the prose says of the product."""
    left, signs = seen.left, signs_of(seen.shares, seen.forecast)["right"]
    assert set(left.index[left["both"] > t.LEFT]) == {"nope-12"}
    assert set(left.index[~left["content_helps"]]) == {"mistral-12"}
    return {
        "influence_product": int(seen.fine.sum()),
        "influence_left_fine": left["both"][seen.fine].max(),
        "influence_left_most": left.loc["nope-12", "both"],
        "influence_signs_least": signs.min(),
        "influence_signs_most": signs.max(),
    }
