"""Mean content logits and mean kernels as tables: the two-number form, what it leaves, and monotonicity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein
from posbias.predict import predict
from posbias.rollout.kernels import attention_kernel, mix_heads
from posbias.rollout.logits import position_logits
from posbias.rollout.masks import causal, sliding_window
from posbias.rollout.order import stochastic_monotonicity
from studies.reference.similarity import BIN_WIDTH, REGIONS, bin_centres, entropy_similarity

CONTENTS = ("position only", "constant and diagonal", "mean content")
"""What a kernel is computed from, beside the position logits."""


def constant_plus_diagonal(logits: Float[np.ndarray, "n n"]) -> tuple[float, float, float]:
    """Return the least-squares fit c + d·1[i = j] of the visible content logits: c, d, and the variance that it leaves.

    Source: residual-aware paper, Proposition 4.5 (the form) and appendix E (that it is close).

    >>> constant_plus_diagonal(np.array([[3.0, np.nan], [1.0, 3.0]]))
    (1.0, 2.0, 0.0)
    """
    values = np.asarray(logits, dtype=np.float64)
    on = np.eye(len(values), dtype=bool)
    seen = ~np.isnan(values)
    c = float(values[seen & ~on].mean())
    d = float(values[on].mean()) - c
    return c, d, float(((values - c - d * on)[seen] ** 2).mean())


def without_noise(
    variance: Float[np.ndarray, "*shape"], fewer: Float[np.ndarray, "*shape"], share: float
) -> Float[np.ndarray, "*shape"]:
    """Return s² of v_N = s² + σ²/N from two measurements, (v_N - share · v_fewer) / (1 - share), at least 0.

    >>> without_noise(np.array([1.5]), np.array([3.0]), 0.25)  # s² = 1, σ²/N = 0.5
    array([1.])
    """
    return np.maximum(variance - share * fewer, 0) / (1 - share)


def fits_by_head(many: xr.Dataset, few: xr.Dataset, share: float) -> pd.DataFrame:
    """Return the constant-plus-diagonal fit of every head: a row for each layer and head, counted from 1.

    Index (layer, head). Columns: ``diagonal``, the offset of the diagonal in logits; ``step``, by how much it is
    above the entries next to it; ``variance`` and ``variance_few``, what the fit leaves; ``structure``, what it
    would leave with any number of prompts.
    """
    rows = []
    for t in range(many.sizes["layer"]):
        for h in range(many.sizes["head"]):
            logits, fewer = (x["content_logits"].values[t, h].astype(np.float64) for x in (many, few))
            _, d, variance = constant_plus_diagonal(logits)
            step = float(np.diagonal(logits).mean() - np.diagonal(logits, -1).mean())
            rows.append((t + 1, h + 1, d, step, variance, constant_plus_diagonal(fewer)[2]))
    table = pd.DataFrame(rows, columns=["layer", "head", "diagonal", "step", "variance", "variance_few"])
    left = without_noise(table["variance"].to_numpy(), table["variance_few"].to_numpy(), share)
    return table.assign(structure=left).set_index(["layer", "head"])


def diagonal_stands_out(many: xr.Dataset, few: xr.Dataset, share: float) -> bool:
    """Tell whether the median head's diagonal is further from the rest, and its neighbours, than those vary."""
    heads = fits_by_head(many, few, share)
    left = float(heads["structure"].median()) ** 0.5
    return bool(left < min(heads["diagonal"].abs().median(), heads["step"].abs().median()))


def with_logits(measured: xr.Dataset, logits: Float[np.ndarray, "T H n n"]) -> xr.Dataset:
    """Return a measurement with other mean content logits."""
    return measured.assign(content_logits=(measured["content_logits"].dims, logits))


def shuffled_keys(rows: Float[np.ndarray, "... n n"], *, seed: int = 0) -> Float[np.ndarray, "... n n"]:
    """Return matrices in which the keys that each query sees are shuffled, for all matrices alike.

    >>> shuffled_keys(np.array([[1.0, 0.0], [0.3, 0.7]]), seed=3).tolist()
    [[1.0, 0.0], [0.7, 0.3]]
    """
    rng, out = np.random.default_rng(seed), rows.copy()
    for i in range(rows.shape[-1]):
        out[..., i, : i + 1] = rows[..., i, rng.permutation(i + 1)]
    return out


def leaning_back(A: Float[np.ndarray, "n n"], share: float) -> Float[np.ndarray, "n n"]:
    """Return a kernel whose later rows give up to ``share`` of their mass to the first token, the more the later.

    >>> leaning_back(np.array([[1.0, 0.0], [0.5, 0.5]]), 0.5).tolist()
    [[1.0, 0.0], [0.75, 0.25]]
    """
    n = len(A)
    moved = share * np.arange(n)[:, None] / max(n - 1, 1)
    return (1 - moved) * A + moved * np.eye(n)[0]


def without_diagonal(logits: Float[np.ndarray, "... n n"]) -> Float[np.ndarray, "... n n"]:
    """Return logits whose diagonal is that next to it: each entry takes what is at its left.

    >>> without_diagonal(np.array([[5.0, np.nan], [1.0, 7.0]])).tolist()
    [[1.0, nan], [1.0, 1.0]]
    """
    out, i = logits.copy(), np.arange(1, logits.shape[-1])
    out[..., i, i] = logits[..., i, i - 1]
    out[..., 0, 0] = out[..., 1, 1]
    return out


def quarter_diagonal(logits: Float[np.ndarray, "... n n"]) -> Float[np.ndarray, "... n n"]:
    """Return logits whose diagonal stands above the mean off it by a quarter of what it does."""
    n = logits.shape[-1]
    off = ~np.isnan(logits) & ~np.eye(n, dtype=bool)
    rest = np.where(off, logits, 0).sum((-2, -1)) / off.sum((-2, -1))
    out, i = logits.copy(), np.arange(n)
    out[..., i, i] -= 0.75 * (logits[..., i, i].mean(-1) - rest)[..., None]
    return out


def fits_by_layer(heads: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each layer: the range of the diagonal's offset, and the standard deviations that are left."""
    by_layer = heads.groupby("layer")
    spread = by_layer[["variance_few", "variance", "structure"]].mean() ** 0.5
    table = by_layer["diagonal"].agg(lowest="min", highest="max").join(spread)
    return table.rename(columns={"variance_few": "std_few", "variance": "std", "structure": "std_structure"})


def kernel_distances(measured: xr.Dataset) -> pd.DataFrame:
    """Return how far kernels computed from less are from the measured mean kernel, heads averaged."""
    content, attention = measured["content_logits"].values, measured["attention"].values
    offset = (measured["content_diagonal"] - measured["content_offdiagonal"]).values
    layers, heads, n = content.shape[:3]
    rows = []
    for t in range(layers):
        added = {
            "position only": np.zeros((heads, n, n)),
            "constant and diagonal": offset[t][:, None, None] * np.eye(n),
            "mean content": np.nan_to_num(content[t].astype(float)),
        }
        computed = {name: _kernel(measured, t, logits) for name, logits in added.items()}
        rows.append({name: abs(A - attention[t]).sum(1).mean() / 2 for name, A in computed.items()})
    return pd.DataFrame(rows, index=pd.RangeIndex(1, layers + 1, name="layer"))


def _kernel(measured: xr.Dataset, t: int, content: Float[np.ndarray, "H n n"]) -> Float[np.ndarray, "n n"]:
    """Return the kernel of a layer from its position logits and content, heads averaged."""
    slopes, window, n = measured["slopes"].values[t], int(measured["window"].values[t]), content.shape[-1]
    mask = sliding_window(window) if window else causal()
    kernels = [attention_kernel(position_logits(n, m) + C, mask) for m, C in zip(slopes, content, strict=True)]
    return mix_heads(np.stack(kernels))


def similarity_of_means(measured: xr.Dataset) -> pd.Series:
    """Return the similarity of the entries of mean content matrices, by region, mean over heads and layers."""
    content = measured["content_logits"].values
    edges = np.concatenate([[-np.inf], bin_centres()[1:] - BIN_WIDTH / 2, [np.inf]])
    matrices = content.reshape(-1, *content.shape[2:])
    visible = ~np.isnan(content[-1, 0])
    diagonal = np.eye(content.shape[-1], dtype=bool)
    regions = {"diagonal": diagonal, "offdiagonal": visible & ~diagonal}
    found = {}
    for name, region in regions.items():
        counts = [np.histogram(matrix[region], edges)[0] for matrix in matrices]
        found[name] = float(np.mean([entropy_similarity(count) for count in counts]))
    return pd.Series(found)


def scaling_by_model(models: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return W₁ to the measured profile without content, with it, and with content that lacks the factor 1/√D_h."""
    rows = {}
    for name, x in models.items():
        root = float(x.attrs["head_dim"]) ** 0.5
        loud = x.assign({f"content_{region}": x[f"content_{region}"] * root for region in REGIONS})
        profiles = {
            "without": x["rollout"].sel(variant="b").values,
            "scaled": x["rollout"].sel(variant="c").values,
            "unscaled": predict(loud, "layer-shares-self"),
        }
        influence = x["influence"].values
        distances = {kind: normalised_wasserstein(p, influence) for kind, p in profiles.items()}
        rows[name] = {"root": root} | distances
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def second_softmax(measured: xr.Dataset) -> pd.DataFrame:
    """Return monotonicity of the measured kernels, and after position logits and a second softmax on the weights.

    Rows ``violated``, ``mean_gap`` and ``shortfall``, columns ``measured`` and ``again``; means over layers.

    Source: the authors' code (ml-uhh/position-bias, a514e09), which counts violations after the second softmax.
    """
    attention = measured["attention"].values.astype(float)
    attention /= attention.sum(-1, keepdims=True)
    again = []
    for weights, slopes in zip(measured["attention"].values, measured["slopes"].values, strict=True):
        logits = [weights + position_logits(len(weights), m) for m in slopes]
        again.append(mix_heads(np.stack([attention_kernel(z, causal()) for z in logits])))
    return pd.DataFrame({"measured": _monotonicity(attention), "again": _monotonicity(again)})


def _monotonicity(kernels: Sequence[Float[np.ndarray, "n n"]] | Float[np.ndarray, "T n n"]) -> dict[str, float]:
    found = [stochastic_monotonicity(A) for A in kernels]
    fields = ("violated", "mean_gap", "shortfall")
    return {field: float(np.mean([getattr(one, field) for one in found])) for field in fields}
