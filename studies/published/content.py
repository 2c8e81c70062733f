"""Two assumptions of the theory in trained models: mean content logits are two constants, and attention is ordered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from matplotlib.figure import Figure

from posbias.measure.corpus import Corpus
from posbias.measure.run import measure
from posbias.models.loading import Source
from posbias.rollout.order import stochastic_monotonicity
from posbias.settings import Settings
from studies.checks import Check
from studies.palette import MODEL_COLOURS
from studies.reference import training_seeds
from studies.reference.similarity import (
    BIN_WIDTH,
    BINS,
    bin_centres,
    entropy_similarity,
    measure_similarity,
)
from studies.results import load, of_kind, seeds_of

LENGTH = 256
LARGE = "SmolLM2"
"""A pretrained model of 135 million parameters."""
TINY, RARE = 1.5e-3, 0.01
"""Limits of the mean excess over all triples, and of the share of violated triples in a layer."""
LATER = {"post_hoc": True}
Kernels = Float[np.ndarray, "... n n"]


@dataclass(frozen=True, eq=False)
class Content:
    """Hold what was measured of one model here, and what is kept of eleven."""

    model: str
    prompts: int
    here: xr.Dataset
    few: xr.Dataset

    @cached_property
    def models(self) -> dict[str, xr.Dataset]:
        """Kept measurements of the ten small models, and of the pretrained one."""
        found = dict(of_kind(load("models"), "builtin", list(MODEL_COLOURS)))
        return found | {LARGE: load("real")["smollm2.wiki-256"]}

    @cached_property
    def trainings(self) -> list[xr.Dataset]:
        """The ten small models from three seeds each."""
        names = [name for name in self.models if name != LARGE]
        seeds = training_seeds.complete(seeds_of(load("models"), "builtin", names))
        return [x for files in seeds.values() for x in files.values()]

    @property
    def share(self) -> float:
        """The share of the prompts that the smaller measurement has."""
        return (self.prompts // 4) / self.prompts

    @cached_property
    def heads(self) -> pd.DataFrame:
        """The fit of every head."""
        return fits_by_head(self.here, self.few, self.share)

    @cached_property
    def attention(self) -> Kernels:
        """The mean attention matrix of each layer."""
        A = self.here["attention"].values.astype(float)
        return np.asarray(A / A.sum(-1, keepdims=True))

    @cached_property
    def order(self) -> pd.DataFrame:
        """How far the worst layer of each model is from attention that is ordered."""
        rows = {}
        for name, x in self.models.items():
            rows[name] = [float(x[f"monotonicity_{y}"].max()) for y in ("violated", "shortfall")]
        return pd.DataFrame(rows, ["violated", "shortfall"]).T


def read_content(model: str = "reference/bloom-12", prompts: int = 24) -> Content:
    """Return mean content logits and attention of a model on prompts of the built-in corpus."""
    asked = []
    for count in (prompts, prompts // 4):
        asked.append(Settings(
            Source(model), Corpus("builtin"), count, LENGTH, 8, "float32", "cpu",
            quantities=("kernels", "content", "logits"), kernel_size=LENGTH,
        ))  # fmt: skip
    here = measure(asked[0]).assign(measure_similarity(asked[0]))
    return Content(model, prompts, here, measure(asked[1]))


def constant_plus_diagonal(logits: Float[np.ndarray, "n n"]) -> tuple[float, float, float]:
    """Return the least-squares fit c + d·1[i = j] of visible logits, and the variance left.

    >>> constant_plus_diagonal(np.array([[3.0, np.nan], [1.0, 5.0]]))
    (1.0, 3.0, 0.6666666666666666)
    """
    values = np.asarray(logits, dtype=np.float64)
    on = np.eye(len(values), dtype=bool)
    seen = ~np.isnan(values)
    c = float(values[seen & ~on].mean())
    d = float(values[on].mean()) - c
    return c, d, float(((values - c - d * on)[seen] ** 2).mean())


def fits_by_head(many: xr.Dataset, few: xr.Dataset, share: float) -> pd.DataFrame:
    """Return the fit of every head, and what it would leave with any number of prompts.

    The variance that noise adds falls as one over the number of prompts, so a measurement with a ``share`` of them
    separates the two.
    """
    rows = []
    for t in range(many.sizes["layer"]):
        for h in range(many.sizes["head"]):
            logits, fewer = (x["content_logits"].values[t, h].astype(float) for x in (many, few))
            _, d, variance = constant_plus_diagonal(logits)
            step = float(np.diagonal(logits).mean() - np.diagonal(logits, -1).mean())
            rows.append((d, step, variance, constant_plus_diagonal(fewer)[2]))
    table = pd.DataFrame(rows, columns=["diagonal", "step", "variance", "variance_few"])
    left = np.maximum(table["variance"] - share * table["variance_few"], 0) / (1 - share)
    return table.assign(structure=left)


def diagonal_stands_out(many: xr.Dataset, few: xr.Dataset, share: float) -> bool:
    """Say whether the median head's diagonal is further from the rest than that varies."""
    heads = fits_by_head(many, few, share)
    left = float(heads["structure"].median()) ** 0.5
    return bool(left < min(heads["diagonal"].abs().median(), heads["step"].abs().median()))


def shuffled_keys(rows: Kernels, seed: int = 0) -> Kernels:
    """Return matrices in which the keys that each query sees are shuffled."""
    rng, out = np.random.default_rng(seed), rows.copy()
    for i in range(rows.shape[-1]):
        out[..., i, : i + 1] = rows[..., i, rng.permutation(i + 1)]
    return out


def without_diagonal(logits: Kernels) -> Kernels:
    """Return logits whose diagonal is that next to it."""
    out, i = logits.copy(), np.arange(1, logits.shape[-1])
    out[..., i, i] = logits[..., i, i - 1]
    out[..., 0, 0] = out[..., 1, 1]
    return out


def quarter_diagonal(logits: Kernels) -> Kernels:
    """Return logits with a quarter of the diagonal's excess over the mean off it."""
    n = logits.shape[-1]
    off = ~np.isnan(logits) & ~np.eye(n, dtype=bool)
    rest = np.where(off, logits, 0).sum((-2, -1)) / off.sum((-2, -1))
    out, i = logits.copy(), np.arange(n)
    out[..., i, i] -= 0.75 * (logits[..., i, i].mean(-1) - rest)[..., None]
    return out


def with_logits(measured: xr.Dataset, change: Callable[[Kernels], Kernels]) -> xr.Dataset:
    """Return a measurement with its mean content logits changed."""
    logits = measured["content_logits"]
    return measured.assign(content_logits=(logits.dims, change(logits.values)))


def diagonal_check(seen: Content) -> Check:
    """Return the check that the diagonal of mean content logits stands out."""

    def stands_out(change: Callable[[Kernels], Kernels]) -> bool:
        here, few = (with_logits(x, change) for x in (seen.here, seen.few))
        return diagonal_stands_out(here, few, seen.share)

    shuffled = [stands_out(lambda x, k=k: shuffled_keys(x, k)) for k in range(5)]  # type: ignore[misc]
    heads = seen.heads
    left, size, step = (
        heads["structure"].median() ** 0.5, heads["diagonal"].abs().median(), heads["step"].abs().median()
    )  # fmt: skip
    return Check(
        "RA-F5", "", "Mean content logits are one constant and a shift of the diagonal.",
        diagonal_stands_out(seen.here, seen.few, seen.share),
        f"median head: diagonal offset {size:.2f} logits, {step:.2f} above the entries "
        f"next to it, standard deviation left without noise {left:.2f}",
        "what the form leaves, without noise, varies by as much as the diagonal "
        "is above the mean of the rest, or above the entries next to it",
        {
            "keys of each row shuffled": shuffled,
            "diagonal as high as next to it": [stands_out(without_diagonal)],
            "offset a quarter as large": [stands_out(quarter_diagonal)],
        },
        "the diagonal's offset is smaller than the variation around it", LATER,
    )  # fmt: skip


def similarity_of_means(logits: Kernels) -> pd.Series:
    """Return the similarity of the entries of mean content matrices, by region."""
    edges = np.concatenate([[-np.inf], bin_centres()[1:] - BIN_WIDTH / 2, [np.inf]])
    matrices = logits.reshape(-1, *logits.shape[2:])
    visible = ~np.isnan(logits[-1, 0])
    diagonal = np.eye(logits.shape[-1], dtype=bool)
    found = {}
    for name, region in {"diagonal": diagonal, "offdiagonal": visible & ~diagonal}.items():
        counts = [np.histogram(matrix[region], edges)[0] for matrix in matrices]
        found[name] = float(np.mean([entropy_similarity(count) for count in counts]))
    return pd.Series(found)


def similarity_check(seen: Content) -> Check:
    """Return the check that content logits are nearly uniform on the diagonal and off it."""
    logits = seen.here["content_logits"].values
    found = similarity_of_means(logits)
    single = [float(seen.here[f"similarity_{region}"].mean()) for region in found.index]

    def similar(changed: Kernels) -> bool:
        return bool(similarity_of_means(changed).min() > 0.5)

    return Check(
        "RA-T5", "", "Mean content logits are nearly uniform on the diagonal and off it.",
        bool(found.min() > 0.5),
        f"similarity of the mean matrix {found['diagonal']:.2f} within and "
        f"{found['offdiagonal']:.2f} off the diagonal ({seen.model}, {seen.prompts} prompts, "
        f"{BINS} bins of {BIN_WIDTH} logits)",
        "the similarity of the mean matrix is 1/2 or less in a region",
        {
            "each prompt's logits, not their mean": [min(single) > 0.5],
            "logits spread four times as far": [similar(4 * logits)],
            "keys of each row shuffled: no diagonal":
                [similar(shuffled_keys(logits, k)) for k in range(5)],
        },
        "entries of the mean matrix are spread over many bins", LATER,
    )  # fmt: skip


def leaning_back(A: Kernels, share: float) -> Kernels:
    """Return a matrix whose later rows give up to ``share`` of their mass to the first token."""
    n = len(A)
    given = share * np.arange(n)[:, None] / max(n - 1, 1)
    return np.asarray((1 - given) * A + given * np.eye(n)[0])


def violations(A: Kernels) -> Mapping[str, float]:
    """Return the share of violated triples of an attention matrix, and the mean excess over all."""
    found = stochastic_monotonicity(A)
    return {"violated": found.violated, "shortfall": found.shortfall}


def order_checks(seen: Content) -> list[Check]:
    """Return the checks that later queries attend later, but for violations that are tiny, and rare."""
    order, A = seen.order, seen.attention
    often = order[order["violated"] >= RARE]["violated"]
    rest = order[order["violated"] < RARE]

    def tiny(layer: Kernels) -> bool:
        return bool(max(order["shortfall"].max(), violations(layer)["shortfall"]) < TINY)

    def rare(layer: Kernels) -> bool:
        return bool(max(rest["violated"].max(), violations(layer)["violated"]) < RARE)

    before = [K for K in A if rare(K)] or list(A)  # few prompts: some layers are above
    of_seeds = [float(x["monotonicity_shortfall"].max()) for x in seen.trainings]
    named = ", ".join(f"{name} {share:.0%}" for name, share in often.items())
    return [
        Check(
            "RA-A4.1", "tiny", "Later queries attend later, up to tiny violations.",
            max(order["shortfall"].max(), *of_seeds) < TINY,
            f"largest mean excess prefix mass of any layer: {order['shortfall'].max():.2g} "
            f"({len(order)} models), {max(of_seeds):.2g} ({len(of_seeds)} trainings)",
            "the mean excess prefix mass over all triples is 0.0015 or more in a "
            "layer of a model or training",
            {
                "keys shuffled, in one layer": [tiny(shuffled_keys(K)) for K in A],
                "later rows give up to 5% to the first token": [tiny(leaning_back(K, 0.05)) for K in A],
            },
            f"at least {TINY} in a layer of a model or training", LATER,
        ),
        Check(
            "RA-A4.1", "rare", "Violations are rare.", often.empty,
            f"no layer has more than 1% violated triples in {len(rest)} of {len(order)} models",
            "1% of the triples or more are violated in a layer of any model",
            {
                "the other models, keys shuffled in one layer": [rare(shuffled_keys(K)) for K in before],
                "the same, later rows give up to 5% away": [rare(leaning_back(K, 0.05)) for K in before],
            },
            f"in some layer 1% or more of the triples are violated: {named}",
            LATER | {"in_part": len(often) < len(order) / 2},
        ),
    ]  # fmt: skip


def numbers(seen: Content) -> dict[str, Any]:
    """Return what the page quotes of both assumptions."""
    heads, order = seen.heads, seen.order
    null = pd.DataFrame([violations(shuffled_keys(K)) for K in seen.attention])
    few = similarity_of_means(shuffled_keys(seen.here["content_logits"].values))
    return {
        "content_prompts": seen.prompts,
        "content_left": heads["structure"].median() ** 0.5,
        "content_offset": heads["diagonal"].abs().median(),
        "content_step": heads["step"].abs().median(),
        "content_similar": similarity_of_means(seen.here["content_logits"].values).min(),
        "content_similar_shuffled": few.min(),
        "content_shortfall": order["shortfall"].max(),
        "content_null": null["shortfall"].max(),
        "content_null_rare": null["violated"].mean(),
        "content_often": order["violated"].max(),
        "content_often_model": order["violated"].idxmax(),
        "content_rare": int((order["violated"] < RARE).sum()),
        "content_judged": len(order),
    }


def draw_heat(seen: Content) -> Figure:
    """Draw mean content logits of three heads, the last 40 tokens."""
    offset = (seen.here["content_diagonal"] - seen.here["content_offdiagonal"]).values
    n, layers, tail = seen.here.sizes["query"], seen.here.sizes["layer"], 40
    extent = (n - tail - 0.5, n - 0.5, n - 0.5, n - tail - 0.5)
    fig, axes = plt.subplots(1, 3, figsize=(6.4, 2.6), sharey=True)
    for ax, t in zip(axes, (0, layers // 2, layers - 1), strict=True):
        h = int(np.argmax(abs(offset[t])))
        logits = seen.here["content_logits"].values[t, h, -tail:, -tail:]
        image = ax.imshow(logits, cmap="cividis", interpolation="nearest", extent=extent)
        ax.set(title=f"layer {t + 1}, head {h + 1}", xlabel="key $j$")
        ax.grid(False)
        fig.colorbar(image, ax=ax, shrink=0.6)
    axes[0].set_ylabel("query $i$")
    return fig


def content_checks(seen: Content) -> list[Check]:
    """Return all checks of content and attention."""
    return [diagonal_check(seen), similarity_check(seen), *order_checks(seen)]
