"""What is kept of rollouts and gradients, as tables: by layer, refinement, join, hop and single path.

``gap``, ``hops`` and ``paths`` are entries by model, made by the parts of those names; ``kept`` holds summaries, MODEL
and corpus.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr

from posbias.comparison.distances import normalised_wasserstein, unit
from posbias.comparison.fits import fit_coherence
from posbias.comparison.scores import Gain, paired_gain
from posbias.measure.corpus import known_units
from posbias.measure.rollouts import measured_rollout
from posbias.rollout.paths import damped_profile, paths_by_hops, recombined
from posbias.rollout.profiles import mean_position
from studies.ladder.joining import JOINS, joined_profile
from studies.ladder.scores import with_decisions

Entries = Mapping[str, xr.Dataset]

READINGS = ("norms", "direction", "gradient", "values")
"""Readings of λ_t that have one number for each layer."""
PLAIN = {"kernel": "uniform", "mixing": "norms", "step": "kept", "join": "sizes"}
"""The rollout of measured kernels, as :func:`~studies.ladder.gap.measure_refinements` names it."""
ANGLES = {"join": "angles"}
FREE = {"kernel": "content-free"}
WAYS = {
    "rollout": {},
    "λ at every position": {"mixing": "positions"},
    "λ along g": {"mixing": "direction"},
    "λ of the gradient": {"mixing": "gradient"},
    "λ of values": {"mixing": "values"},
    "gain of the MLPs": {"step": "gain"},
    "heads by value norm": {"kernel": "values"},
    "heads by output norm": {"kernel": "projected"},
    "heads as vectors": {"kernel": "vectors"},
    "right angles": ANGLES,
    "right angles, λ of the gradient": ANGLES | {"mixing": "gradient"},
    "right angles, λ of values": ANGLES | {"mixing": "values"},
    "right angles, heads as vectors": ANGLES | {"kernel": "vectors"},
    "right angles, all three": ANGLES | {"kernel": "vectors", "mixing": "values", "step": "gain"},
    "(b)": FREE,
    "(b), right angles": FREE | ANGLES,
    "(b), right angles, λ of values": FREE | ANGLES | {"mixing": "values"},
}
"""Name of a refinement → how it differs from :data:`PLAIN`."""
AGREE = 0.2
"""Total variation between the shares of hops up to which they count as roughly right; set after looking."""
SHAPED = 4
"""Hops up to which the shape of a part is compared: there is little beyond."""


def layer_table(gap: Entries) -> pd.DataFrame:
    """Return a row for each model and layer.

    ``layer`` counts from 1 and ``height`` from 0 (first) to 1 (last). ``gap`` is W₁ between the rollout of measured
    kernels, begun at the top, and the profile of the gradient that enters the layer; ``alone`` is W₁ if the layer
    starts from the measured profile above it. ``cosine`` is that between what comes around the attention and what
    comes through it, and ``gain`` how much more the gradient grows at the last token than elsewhere in the rest of
    the layer (missing for the last layer, where there is nothing elsewhere).
    """
    return pd.concat([_layers(x).assign(model=name) for name, x in gap.items()], ignore_index=True)


def _layers(x: xr.Dataset) -> pd.DataFrame:
    """Return the rows of one model."""
    T, entering, lam = x.sizes["layer"], unit(x["entering"].values), x["lambda_norms"].values[:, None]
    rolled = unit(x["rolled"].sel(few_kernels="uniform", few_mixings="norms", join="sizes").values)
    alone = (1 - lam) * entering[1:] + lam * unit(x["stepped"].sel(kernel="uniform").values)
    gain = x["gain"].values[:, -1] / x["gain"].values[:, :-1].mean(-1)
    gain[-1] = np.nan
    return pd.DataFrame(
        {
            "layer": np.arange(1, T + 1),
            "height": np.linspace(0, 1, T),
            "gap": [normalised_wasserstein(*pair) for pair in zip(rolled[:-1], entering[:-1], strict=True)],
            "alone": [normalised_wasserstein(*pair) for pair in zip(alone, entering[:-1], strict=True)],
            "cosine": x["join_cosine"].values,
            "gain": gain,
        }
    )


def model_readings(gap: Entries) -> pd.DataFrame:
    """Return what was read off each model in other ways, a row each.

    :data:`READINGS` are sums over layers of readings of λ; ``weights_fixed`` and ``no_final_norm`` are W₁ by which the
    measured profile moves with attention weights held fixed, and without the final norm's Jacobian.
    """
    rows = {}
    for name, x in gap.items():
        sums = {kind: float(x[f"lambda_{kind}"].sum()) for kind in READINGS}
        moves = {"weights_fixed": ("influence_values", "influence")}
        moves |= {"no_final_norm": ("influence_past_norm", "influence_beside")}
        rows[name] = sums | {
            move: normalised_wasserstein(*(unit(x[p].values) for p in two)) for move, two in moves.items()
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def refined_profiles(x: xr.Dataset) -> dict[str, np.ndarray]:
    """Return the profile that each refinement makes for one model.

    Beside :data:`WAYS` these are rollouts prompt by prompt, and paths of one hop count added in squares.
    """
    found = {way: x["prediction"].sel(PLAIN | change) for way, change in WAYS.items()}
    found |= {"each prompt's own kernels": x["own"], "squares over paths": x["quadrature"].sel(kernel="uniform")}
    return {way: unit(profile.values) for way, profile in found.items()}


def refinement_table(gap: Entries, kept: Entries, *, resamples: int = 1000) -> pd.DataFrame:
    """Return ``model``, ``way``, ``W1``, ``gain`` over the plain rollout with its interval, and ``decided``.

    Refinements of (b) are held against (b), the others against the rollout of measured kernels. The interval is over
    the documents of the kept measurement, the same ones for both distances.
    """
    rows = []
    for name, x in gap.items():
        measured, found = kept[f"{name}.builtin"], refined_profiles(x)
        prompts, p, units = measured["influence_prompts"].values, measured["influence"].values, known_units(measured)
        for way, q in found.items():
            base = found["(b)" if way.startswith("(b)") else "rollout"]
            gain = paired_gain(prompts, base, q, units=units, resamples=resamples)
            rows.append((name, way, normalised_wasserstein(q, p), *gain))
    return with_decisions(pd.DataFrame(rows, columns=["model", "way", "W1", *Gain._fields]), ["way"])


def way_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each way the mean W₁, and in how many models it is better or worse by ``decided``.

    >>> rows = [("m", "right angles", 0.1, 1), ("l", "right angles", 0.3, 0)]
    >>> table = pd.DataFrame(rows, columns=["model", "way", "W1", "decided"])
    >>> way_summary(table).to_dict("index")
    {'right angles': {'W1': 0.2, 'better': 1, 'worse': 0}}
    """
    counted = table.assign(better=table["decided"] > 0, worse=table["decided"] < 0)
    return counted.groupby("way", sort=False).agg({"W1": "mean", "better": "sum", "worse": "sum"})


def _forward(way: Mapping[str, str]) -> bool:
    """Say whether a combination can be read in a forward pass alone."""
    return way["mixing"] in ("norms", "positions") and way["step"] == "kept"


CHOICES: dict[str, Callable[[Mapping[str, str]], bool]] = {
    "any measured kernel": lambda way: way["kernel"] != "content-free",
    "forward pass alone": lambda way: way["kernel"] != "content-free" and _forward(way),
    "content-free, forward pass": lambda way: way["kernel"] == "content-free" and _forward(way),
}
"""What a choice among all combinations may use."""


def combinations(x: xr.Dataset) -> list[dict[str, str]]:
    """Return every combination of kernel, mixing, step and join that was rolled out."""
    return [dict(zip(PLAIN, way, strict=True)) for way in itertools.product(*(x[dim].values.tolist() for dim in PLAIN))]


def held_out_choices(gap: Entries, kept: Entries) -> pd.DataFrame:
    """Return the combination with the lowest mean W₁ on all other models, judged on the one that was left out.

    Columns are ``model`` (left out), ``choice`` (one of :data:`CHOICES`), ``way`` and ``W1``.
    """
    ways = combinations(next(iter(gap.values())))
    distances = {}
    for name, x in gap.items():
        p = kept[f"{name}.builtin"]["influence"].values
        distances[name] = [normalised_wasserstein(unit(x["prediction"].sel(way).values), p) for way in ways]
    table = pd.DataFrame(distances)
    rows = []
    for choice, allowed in CHOICES.items():
        here = table[[allowed(way) for way in ways]]
        for name in gap:
            best = here.drop(columns=name).mean(axis=1).idxmin()
            rows.append((name, choice, way_name(ways[best]), here.loc[best, name]))
    return pd.DataFrame(rows, columns=["model", "choice", "way", "W1"])


def way_name(way: Mapping[str, str]) -> str:
    """Return in what a combination differs from the plain rollout, in words.

    >>> way_name(PLAIN | {"join": "angles", "mixing": "values"}), way_name(PLAIN)
    ('values, angles', 'plain')
    """
    return ", ".join(way[dim] for dim, plain in PLAIN.items() if way[dim] != plain) or "plain"


def join_table(kept: Entries, kernels: Sequence[str] = ("b",), *, resamples: int = 1000) -> pd.DataFrame:
    """Return W₁ of rollouts with either join, for every measurement (by model) and kernel a row.

    ``sizes`` and ``angles`` are distances to the measured influence, ``gain`` (with its 95 % interval over documents,
    ``low`` to ``high``) is the first less the second, ``decided`` its sign where it stands among all models;
    ``mean_…`` are mean positions. Kernels are ``b``: content-free; ``c``: with content; ``kernels``: the measured ones,
    which summaries lack.
    """
    rows = []
    for model, x in kept.items():
        p, prompts, units = unit(x["influence"].values), x["influence_prompts"].values, known_units(x)
        for kernel in kernels:
            rollout = measured_rollout(x, kernel)
            A = rollout.dense()
            joined = {name: joined_profile(A, rollout.lambda_, power=power) for name, power in JOINS.items()}
            gain = paired_gain(prompts, joined["sizes"], joined["angles"], units=units, resamples=resamples)
            profiles = {"measured": p, **joined}
            rows.append(
                {"model": model, "kernel": kernel}
                | {name: normalised_wasserstein(q, p) for name, q in joined.items()}
                | gain._asdict()
                | {f"mean_{name}": mean_position(q) for name, q in profiles.items()}
            )
    return with_decisions(pd.DataFrame(rows), ["kernel"])


def join_powers(kept: Entries, powers: Sequence[float]) -> pd.DataFrame:
    """Return W₁ of rollouts (b) that join skip and branch by (xʳ + yʳ)^(1/r), a column for each r, by model.

    1 adds sizes, 2 is Pythagoras, and more approaches the larger of both.
    """
    found = {}
    for model, x in kept.items():
        p, rollout = unit(x["influence"].values), measured_rollout(x, "b")
        A = rollout.dense()
        profiles = [joined_profile(A, rollout.lambda_, power=power) for power in powers]
        found[model] = [normalised_wasserstein(q, p) for q in profiles]
    return pd.DataFrame.from_dict(found, "index", columns=list(powers)).rename_axis("model")


def hop_table(hops: Entries) -> pd.DataFrame:
    """Return a row for each model and number of hops.

    ``measured`` and ``rollout`` are the shares that ``hop`` has in the sizes of the gradient's parts and in rollout
    (b); ``W1`` is the distance between both parts as distributions, and ``early`` whether the rollout's has the lower
    mean position, for 1 to :data:`SHAPED` hops.
    """
    rows = []
    for name, x in hops.items():
        g, P = x["gradient_hops"].values.astype(np.float64), x["rollout_hops"].sel(variant="b").values
        measured, rollout = g.sum(1) / g.sum(), P.sum(1)
        for k in range(len(g)):
            row = {"model": name, "hop": k, "measured": measured[k], "rollout": rollout[k], "W1": np.nan, "early": None}
            if 1 <= k <= SHAPED:
                shapes = unit(P[k]), unit(g[k])
                row |= {
                    "W1": normalised_wasserstein(*shapes),
                    "early": mean_position(shapes[0]) < mean_position(shapes[1]),
                }
            rows.append(row)
    return pd.DataFrame(rows)


def hop_summary(hops: Entries) -> pd.DataFrame:
    """Return for each model how well the shares of hops agree, and how much cancels between hops.

    ``apart`` is the total variation between both distributions of hops, ``agrees`` whether it is below
    :data:`AGREE`; ``cancels`` the share of the parts' sizes that is lost when they are added as vectors, and
    ``uncancelled`` W₁ between the measured profile and the one whose parts' sizes are added.
    """
    table = hop_table(hops)
    apart = (table["measured"] - table["rollout"]).abs().groupby(table["model"], sort=False).sum() / 2
    rows = []
    for name, x in hops.items():
        g, influence = x["gradient_hops"].values, x["influence"].values
        cancels = 1 - float(influence.sum()) / float(g.sum())
        uncancelled = normalised_wasserstein(unit(g.sum(0)), unit(influence))
        rows.append((name, apart[name], apart[name] < AGREE, cancels, uncancelled))
    return pd.DataFrame(rows, columns=["model", "apart", "agrees", "cancels", "uncancelled"])


Shapes = dict[tuple[str, str], xr.DataArray]
"""Model and kernel → (Σ w^r)^{1/r} over the paths of k hops, for every power r: power, hop, position."""


def path_shapes(hops: Entries, kept: Entries) -> Shapes:
    """Return each hop's part of the rollouts (b), (c) and of measured kernels, with sizes added in every power."""
    shapes: Shapes = {}
    for name, x in hops.items():
        like = x["kernel_paths"]
        for kernel in "bc":
            rollout = measured_rollout(kept[f"{name}.builtin"], kernel)
            A = rollout.dense()
            parts = [paths_by_hops(A, rollout.lambda_, power) for power in like["power"].values]
            shapes[name, kernel] = like.copy(data=np.array(parts))
        shapes[name, "kernels"] = like
    return shapes


def path_powers(shapes: Shapes, kept: Entries) -> pd.DataFrame:
    """Return W₁ for every power: ``model``, ``kernel``, ``power`` and ``W1``; each hop keeps the rollout's weight."""
    rows = []
    for (name, kernel), parts in shapes.items():
        p, weights = kept[f"{name}.builtin"]["influence"].values, parts.sel(power=1.0).sum("position").values
        for part in parts:
            W1 = normalised_wasserstein(recombined(weights, part.values), p)
            rows.append((name, kernel, float(part["power"]), W1))
    return pd.DataFrame(rows, columns=["model", "kernel", "power", "W1"])


def held_out_fits(shapes: Shapes, kept: Entries, kernel: str) -> pd.DataFrame:
    """Return what one number fitted on all models but one gives on that one, beside the unfitted powers 1 and 2.

    Columns are ``model`` (left out), ``sizes`` and ``vectors`` (W₁ for the powers 1 and 2), ``power`` chosen on the
    others with its ``chosen`` W₁, and the damping ``rho`` fitted on the others with its ``damped`` W₁.
    """
    mine = {name: parts for (name, own), parts in shapes.items() if own == kernel}
    plain = {name: parts.sel(power=1.0).values for name, parts in mine.items()}
    truth = {name: kept[f"{name}.builtin"]["influence"].values for name in mine}
    powers = path_powers({(name, kernel): parts for name, parts in mine.items()}, kept)
    W1 = powers.pivot(index="model", columns="power", values="W1")
    rows = []
    for name in mine:
        others = [other for other in mine if other != name]
        power = float(W1.loc[others].mean().idxmin())
        rho = fit_coherence([plain[other] for other in others], [truth[other] for other in others])
        damped = normalised_wasserstein(damped_profile(plain[name], rho), truth[name])
        own = W1.loc[name]
        rows.append((name, own[1.0], own[2.0], power, own[power], rho, damped))
    return pd.DataFrame(rows, columns=["model", "sizes", "vectors", "power", "chosen", "rho", "damped"])


def coherence(x: xr.Dataset) -> dict[str, float]:
    """Return the coherence of paths of one hop and of two, from a model's entry on paths.

    ``C1`` and ``C2`` are the shares of their size that vectors keep when they are added, over all paths of a hop
    count; ``unrelated`` is what C2 would be for unrelated directions. ``over_i`` is the share kept over positions in
    between with both layers fixed, ``over_i_unrelated`` that for unrelated directions. ``ratio`` is C2/C1 and
    ``power`` the r at which (Σ size^r)^{1/r} of two hops gives what the vectors do.
    """
    sizes, sums = x["sizes"].sum("position"), x["total"].sum("position")
    added = sizes.sel(power=1.0)
    C1, C2 = (float(sums.sel(hop=k) / added.sel(hop=k)) for k in (1, 2))
    two = float(added.sel(hop=2))
    of_two = sizes.sel(hop=2).values[::-1]  # falls with the power
    return {
        "C1": C1,
        "C2": C2,
        "unrelated": float(sizes.sel(hop=2, power=2.0)) / two,
        "over_i": float(x["middle"].sum()) / two,
        "over_i_unrelated": float(x["middle_random"].sum()) / two,
        "ratio": C2 / C1,
        "power": float(np.interp(float(sums.sel(hop=2)), of_two, x["power"].values[::-1])),
    }


def coherence_table(paths: Mapping[int, Entries]) -> pd.DataFrame:
    """Return a row of :func:`coherence` for each length of prompts, ``tokens``, and ``model``."""
    found = [(tokens, name, x) for tokens, entries in paths.items() for name, x in entries.items()]
    return pd.DataFrame([{"model": name, "tokens": tokens, **coherence(x)} for tokens, name, x in found])


def measured_damping(coherences: pd.DataFrame, shapes: Shapes, kept: Entries) -> pd.DataFrame:
    """Return W₁ of rollouts of measured kernels damped by measured coherence, ``by_ratio`` and ``by_C2``, by model.

    ``coherences`` are rows of :func:`coherence_table` of one length.
    """
    rows = {}
    for found in coherences.to_dict("records"):
        name = found["model"]
        parts, p = shapes[name, "kernels"].sel(power=1.0).values, kept[f"{name}.builtin"]["influence"].values
        rows[name] = {f"by_{by}": normalised_wasserstein(damped_profile(parts, found[by]), p) for by in ("ratio", "C2")}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")
