"""What the chapter on designed priors tells of trained decoders: the price in loss, and what is measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein
from posbias.comparison.resampling import t_interval
from posbias.rollout.profiles import mean_position
from studies.reference.influence_tables import SMOOTH, SMOOTH_LONG, sample_of, u_decisions
from studies.reference.models import DESIGNED, REFERENCES
from studies.reference.training_seeds import by_seed, complete, read_seeds, split_seeds

Seeds = Mapping[str, dict[int, xr.Dataset]]
"""Model → training seed → file of the study ``designed``."""

BODIES = {"llama-12": "rotary", "bloom-12": "alibi"}
"""The reference models that have designed twins, and the kind of their own positions."""
NEAR = 16
"""Last tokens whose influence is told apart, at 256 tokens; in proportion at other lengths."""
SHORT = 256
"""Tokens of a prompt in training."""


def body_and_kind(model: str) -> tuple[str, str]:
    """Return the reference model that a designed one is otherwise, and the kind of its positions.

    >>> body_and_kind("llama-12-log"), body_and_kind("bloom-12")
    (('llama-12', 'log'), ('bloom-12', 'alibi'))
    """
    if model in BODIES:
        return model, BODIES[model]
    body, _, kind = model.rpartition("-")
    return body, kind


def read_designed(results: Path | str, part: str) -> dict[str, dict[int, xr.Dataset]]:
    """Return the files of a part, ``designed`` or ``designed-1024``, of models with three seeds or more.

    Parameters
    ----------
    results
        The folder ``results`` of the book.
    part
        Of the study ``designed``.
    """
    models = [model for body in BODIES for model in (body, *DESIGNED) if body_and_kind(model)[0] == body]
    return complete(read_seeds(Path(results) / "design", part, models))


def losses(seeds: Seeds, *, beyond: int = 0) -> pd.DataFrame:
    """Return the mean loss of each model and seed over the places of a prompt from ``beyond`` tokens on.

    Returns
    -------
    table : DataFrame
        Index ``model``, a column for each seed, in nats a token.
    """
    rows = {}
    for model, files in seeds.items():
        rows[model] = {seed: float(_places(x, beyond).mean()) for seed, x in files.items()}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def prices(losses: pd.DataFrame, baseline: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return what each model's loss is above that of its body with its own positions, seed by seed.

    Parameters
    ----------
    losses
        From :func:`losses`.
    baseline
        Body → the model whose loss is the zero; the body itself unless given.

    Returns
    -------
    table : DataFrame
        Index ``model``. Columns ``body`` and ``kind``; ``loss`` with ``loss_low`` and ``loss_high``, Student's 95 %
        interval over seeds; ``price`` with ``price_low`` and ``price_high``, that of the differences between models of
        equal seeds, which saw the same batches.
    """
    rows = {}
    for model, values in losses.iterrows():
        body, kind = body_and_kind(str(model))
        zero = losses.loc[(baseline or {}).get(body, body)]
        low, high = t_interval(values.to_numpy())
        row: dict[str, object] = {"body": body, "kind": kind, "loss": values.mean(), "loss_low": low, "loss_high": high}
        above = (values - zero).dropna().to_numpy()
        down, up = t_interval(above) if above.any() else (0.0, 0.0)
        rows[model] = {**row, "price": above.mean(), "price_low": down, "price_high": up}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def reached(seeds: Seeds, *, variant: str = "b", resamples: int = 1000) -> pd.DataFrame:
    """Return what each model and seed listens to, and what a rollout of its biases and measured mixing predicts.

    Parameters
    ----------
    seeds
        From :func:`read_designed`.
    variant
        The rollout that predicts.
    resamples
        Of the bootstrap over modules, for the decision on a U.

    Returns
    -------
    table : DataFrame
        A row for each model and seed. Columns ``model``, ``seed``, ``body``, ``kind``; ``tau``, Σλ; ``flatness``,
        normalised W₁ of measured influence to the uniform profile; ``mean`` position; ``near``, the share of the last
        sixteenth of the prompt; ``last`` and ``first``, shares of these tokens; ``rollout``, its W₁ to the uniform
        profile; ``to rollout`` and ``to squares``, W₁ of measured influence to it and to the law of squares with the
        trained weights' gains (NaN where it was not computed); ``u``, the book's decision, corrected for all rows.
    """
    files = by_seed(seeds)
    samples = {name: sample_of(x) for name, x in files.items()}
    smooth = SMOOTH if len({x.sizes["position"] for x in files.values()} - {SHORT}) == 0 else SMOOTH_LONG
    decided = u_decisions(samples, smooth=smooth, resamples=max(resamples, 40 * len(samples)))
    rows = []
    for name, x in files.items():
        p, q = samples[name].profile, x["rollout"].sel(variant=variant).values
        uniform = np.full(p.size, 1 / p.size)
        rows.append(
            {
                "model": name,
                "tau": float(x["lambda_frobenius"].sum()),
                "flatness": normalised_wasserstein(p, uniform),
                "mean": mean_position(p),
                "near": float(p[-max(1, p.size * NEAR // SHORT) :].sum()),
                "last": float(p[-1]),
                "first": float(p[0]),
                "rollout": normalised_wasserstein(q, uniform),
                "to rollout": normalised_wasserstein(p, q),
                "to squares": _to_squares(x, p),
                "u": decided.loc[name, "u"],
            }
        )
    table = split_seeds(pd.DataFrame(rows))
    bodies = pd.DataFrame([body_and_kind(model) for model in table["model"]], columns=["body", "kind"])
    return pd.concat([table[["model", "seed"]], bodies, table.drop(columns=["model", "seed"])], axis=1)


def training_minutes(results: Path | str) -> float:
    """Return how long the trainings took together, in minutes of one core, from the files' own record."""
    found = read_designed(results, "designed")
    own = [x for model, files in found.items() if model not in REFERENCES for x in files.values()]
    return float(sum(x.attrs.get("training_seconds", np.nan) for x in own)) / 60


def _to_squares(x: xr.Dataset, p: Float[np.ndarray, "n"]) -> float:
    """Return W₁ of a profile to the law of squares, NaN where a file has none."""
    if "birth" not in x["variant"].values:
        return float("nan")
    return normalised_wasserstein(p, x["rollout"].sel(variant="birth").values)


def _places(x: xr.Dataset, beyond: int) -> np.ndarray:
    """Return losses (prompt, place) of places from ``beyond`` tokens on."""
    losses = x["loss_places"].values.astype(np.float64)
    return np.asarray(losses[:, beyond * losses.shape[1] // int(x.attrs["length"]) :])
