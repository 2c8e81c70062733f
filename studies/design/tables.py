"""What the chapters on designed priors show: the price in loss, what networks listen to, what remedies do, one map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from posbias.comparison.distances import normalised_wasserstein, unit
from posbias.comparison.resampling import hull_interval, interval, resample_weights, t_interval
from posbias.design import distance_to_even
from posbias.report.scoring import sample_of
from studies.design.known import REMEDIES, SEED, distances_to_even
from studies.reference.models import DESIGNED
from studies.reference.training_seeds import by_seed, complete, split_seeds
from studies.results import seeds_of

Seeds = Mapping[str, dict[int, xr.Dataset]]
"""Model → training seed → entry."""

BODIES = {"llama-12": "rotary", "bloom-12": "alibi"}
"""The reference models that have designed twins, and the kind of their own positions."""
LAWS = ("b", "untrained", "aligned")
"""Predictions for untrained networks: rollout of measured λ, law of untrained networks, its numbers added as sizes."""
LABELS = {
    "rotary": "RoPE", "alibi": "ALiBi", "none": "no encoding", "log": "log", "flat": "half local, half flat"
}  # fmt: skip
"""How a figure names positions that networks were trained with."""


def body_and_kind(model: str) -> tuple[str, str]:
    """Return the reference model that a designed one is otherwise, and the kind of its positions.

    >>> body_and_kind("llama-12-log"), body_and_kind("bloom-12")
    (('llama-12', 'log'), ('bloom-12', 'alibi'))
    """
    if model in BODIES:
        return model, BODIES[model]
    body, _, kind = model.rpartition("-")
    return body, kind


def read_designed(kept: Mapping[str, xr.Dataset], part: str) -> dict[str, dict[int, xr.Dataset]]:
    """Return the entries of a part, ``designed`` or ``designed-1024``, of models with three seeds or more."""
    models = [model for body in BODIES for model in (body, *DESIGNED) if body_and_kind(model)[0] == body]
    return complete(seeds_of(kept, part, models))


def losses(seeds: Seeds, *, beyond: int = 0) -> pd.DataFrame:
    """Return the mean loss in nats a token over places from ``beyond`` tokens on, a row a model and a column a seed."""
    rows = {}
    for model, entries in seeds.items():
        first = {seed: beyond * x.sizes["place"] // int(x.attrs["length"]) for seed, x in entries.items()}
        rows[model] = {
            seed: float(x["loss_places"][:, first[seed] :].astype(float).mean()) for seed, x in entries.items()
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def prices(losses: pd.DataFrame) -> pd.DataFrame:
    """Return the loss of each model, and its price: what it is above that of its body with its own positions.

    Columns ``body``, ``kind``, ``loss`` and ``price``; with ``_low`` and ``_high`` Student's 95% interval over seeds,
    that of the price from differences between models of equal seeds, which saw the same batches.
    """
    rows = {}
    for model, values in losses.iterrows():
        body, kind = body_and_kind(str(model))
        above = (values - losses.loc[body]).dropna().to_numpy()
        price = (above.mean(), *(t_interval(above) if above.any() else (0.0, 0.0)))
        row = {"body": body, "kind": kind, **_ends("loss", values.mean(), *t_interval(values.to_numpy()))}
        rows[model] = row | _ends("price", *price)
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def reached(seeds: Seeds) -> pd.DataFrame:
    """Return what each model and seed listens to, and what a rollout of its biases and measured mixing predicts.

    Columns ``model``, ``seed``, ``body``, ``kind``; ``tau``, Σλ; ``flatness``, normalised W₁ of measured influence to
    the uniform profile; ``rollout``, its W₁ to the uniform profile; ``to rollout`` and ``to squares``, W₁ of measured
    influence to it and to the law of untrained networks with the trained weights' gains (NaN without it).
    """
    rows = []
    for name, x in by_seed(seeds).items():
        p, q = sample_of(x).profile, x["rollout"].sel(variant="b").values
        squares = x["rollout"].sel(variant="untrained").values if "untrained" in x["variant"].values else None
        rows.append({
            "model": name,
            "tau": float(x["lambda_frobenius"].sum()),
            "flatness": distance_to_even(p),
            "rollout": distance_to_even(q),
            "to rollout": normalised_wasserstein(p, q),
            "to squares": np.nan if squares is None else normalised_wasserstein(p, squares),
        })  # fmt: skip
    table = split_seeds(pd.DataFrame(rows))
    body, kind = zip(*map(body_and_kind, table["model"]), strict=True)
    return table.assign(body=body, kind=kind)


def design_table(data: xr.Dataset) -> pd.DataFrame:
    """Return how near measured influence of untrained networks is to the predictions, and how near all are to even.

    A row for each bias and seed. ``measured``, and each of :data:`LAWS`: W₁ to the uniform profile; ``to_b``, …: W₁ of
    the measured profile to the prediction.
    """
    rows = []
    for bias in data["bias"].values:
        for seed in range(data.sizes["seed"]):
            one = data.sel(bias=bias).isel(seed=seed)
            p = unit(one["influence_prompts"].values.astype(np.float64).mean(0))
            laws = {name: one["profile"].sel(prediction=name).values for name in LAWS}
            row = {"bias": str(bias), "seed": seed, "measured": distance_to_even(p)}
            row |= {name: distance_to_even(q) for name, q in laws.items()}
            rows.append(row | {f"to_{name}": normalised_wasserstein(p, q) for name, q in laws.items()})
    return pd.DataFrame(rows)


def gated_table(data: xr.Dataset) -> pd.DataFrame:
    """Return how near the influence of untrained networks is to what a design promised.

    A row for each design, content and seed. ``to promise``, ``to own``: W₁ of the root mean square influence to the
    promised profile and to the law with all that is read of the network itself; ``promised``, ``measured``: of each to
    the uniform profile.
    """
    rows = []
    for name, content in ((x, y) for x in data["design"].values for y in data["content"].values):
        one = data.sel(design=name, content=content)
        promise = unit(one["promise"].values)
        for seed in range(data.sizes["seed"]):
            p = unit(np.sqrt((one["influence_prompts"].values[seed].astype(np.float64) ** 2).mean(0)))
            row = {"design": str(name), "content": str(content), "seed": seed}
            row |= {"promised": distance_to_even(promise), "measured": distance_to_even(p)}
            row["to promise"] = normalised_wasserstein(p, promise)
            rows.append(row | {"to own": normalised_wasserstein(p, unit(one["own"].values[seed]))})
    return pd.DataFrame(rows)


def remedy_table(study: xr.Dataset) -> pd.DataFrame:
    """Return what every remedy does, a row for each setting that was measured on all prompts.

    Columns: ``remedy``, ``label``, ``choice``; ``extra``, its loss above that of the intact model on the same prompts,
    in nats a token; ``kernels_W1`` and ``influence_W1``, the distance to uniform of the rollout and of what was
    measured; ``score_worst`` and ``score_mean`` over places, where there is a score. ``…_low`` and ``…_high`` are 95%
    intervals over documents' modules.
    """
    weights = resample_weights(study["unit"].values, study.sizes["resample"], seed=SEED)
    loss = study["loss_prompts"].values.astype(np.float64)
    drawn = weights @ loss.T / weights.sum(1)[:, None]  # (resample, condition)
    rollout, again = study["rollout"].sel(variant="kernels"), study["rollout_resampled"].sel(variant="kernels")
    rows = []
    for k, (remedy, choice) in enumerate(zip(study["remedy"].values, study["choice"].values, strict=True)):
        row: dict[str, Any] = {"remedy": str(remedy), "label": REMEDIES[str(remedy)].label, "choice": str(choice)}
        row |= _ends("extra", (loss[k] - loss[0]).mean(), *interval(drawn[:, k] - drawn[:, 0]))
        influence = study["influence_prompts"][k].values.astype(np.float64)
        drawn_influence = distances_to_even(unit(weights @ influence))
        for name, p, draws in (
            ("kernels", rollout[k].values, again[k].sel(statistic="W1").values),
            ("influence", influence.sum(0), drawn_influence),
        ):
            found = distance_to_even(unit(p))
            row |= _ends(f"{name}_W1", found, *hull_interval(found, draws, least=0.0))
        if "score" in study:
            score = study["score"][k].values.astype(np.float64)
            row |= {"score_worst": score.min(), "score_mean": score.mean()}
        rows.append(row)
    return pd.DataFrame(rows)


def map_points(kept: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return the points of the map of all ways to a flatter prior.

    Columns ``way`` (trained or remedy), ``body``, ``name``; ``x``, W₁ of measured influence to uniform; ``y``, held-out
    loss above that of the body with its own positions, in nats a token; each with ``_low`` and ``_high``: Student's
    95% interval over seeds, or that over documents for a remedy. A remedy has the setting whose rollout is nearest to
    uniform, or its only one.
    """
    seeds, rows = read_designed(kept, "designed"), []
    for model, price in prices(losses(seeds)).iterrows():
        distances = [distance_to_even(sample_of(x).profile) for x in seeds[str(model)].values()]
        low, high = t_interval(distances)
        row = {"way": "trained", "body": price["body"], "name": LABELS[price["kind"]]}
        row |= _ends("x", float(np.mean(distances)), max(low, 0.0), high)
        rows.append(row | _ends("y", price["price"], price["price_low"], price["price_high"]))
    remedies = remedy_table(kept["llama-12.remedies"]).query("choice != 'cheap' and remedy != 'intact'")
    names = {f"{name}{end}": f"{axis}{end}" for name, axis in (("influence_W1", "x"), ("extra", "y")) for end in ENDS}
    own = remedies.rename(columns=names | {"label": "name"}).assign(way="remedy", body="llama-12")
    trained = pd.DataFrame(rows)
    return pd.concat([trained, own[list(trained)]], ignore_index=True)


ENDS = ("", "_low", "_high")


def _ends(name: str, *ends: Any) -> dict[str, float]:
    """Return a number and the ends of its interval under their names."""
    return {f"{name}{end}": float(x) for end, x in zip(ENDS, ends, strict=True)}
