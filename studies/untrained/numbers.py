"""Numbers of the page ``untrained``, by the names that its prose gives them, and its figure."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from studies.sizes import SIZES
from studies.untrained import evidence as e
from studies.untrained import gates
from studies.untrained.checks import u_counts
from studies.untrained.evidence import Untrained
from studies.untrained.spread import NU, spread_numbers

CURVES = {"untrained": ("-", "the law (squares added)"), "aligned": ("--", "sizes added")}


def numbers(seen: Untrained) -> dict[str, Any]:
    """Return all of them."""
    found = real_numbers(seen) | width_numbers(seen) | family_numbers(seen) | spread_numbers()
    return found | other_numbers(seen) | gate_numbers(seen)


def real_numbers(seen: Untrained) -> dict[str, Any]:
    """Return how near predictions are in published architectures, and what the last tenth has."""
    found: dict[str, Any] = {"births_models": len(seen.millions)}
    for short, name in {"law": "untrained", "aligned": "aligned", "b": "b"}.items():
        found[f"births_{short}_mean"] = e.of(seen.hushed, name)["W1"].mean()
    each = e.of(seen.hushed, "untrained").groupby("model")["W1"].mean()
    found |= {"births_law_least": each.min(), "births_law_most": each.max()}
    of_random = seen.real[seen.real["part"] == "random"]
    pair = of_random.pivot_table("W1", "model", "prediction")
    found["births_law_768"] = pair.loc["gpt2", "untrained"]
    found["births_law_2048"] = pair.loc["tinyllama-1.1b", "untrained"]
    for short, model in {"bloom": "bloom-560m", "qwen2": "qwen2-0.5b"}.items():
        p = seen.kept[model, "random"]["influence"].values.mean(0)
        found[f"births_{short}_late"] = np.array_split(p, 10)[-1].sum() / p.sum()
    size = list(seen.millions.values())
    return found | {"births_smallest": round(size[0]), "births_largest": round(size[-1])}


def width_numbers(seen: Untrained) -> dict[str, Any]:
    """Return the widest architecture in which the law holds, and the width at which it leaves out most."""
    widths = {name: SIZES[name].config().hidden_size for name in seen.millions}
    (loudest,) = seen.loud
    widest = max(width for name, width in widths.items() if name != loudest)
    ends = round(0.5**0.5 / NU**2, -2)  # 2 (ν²d)² = 1
    assert widest < ends < widths[loudest]
    spread = seen.spread.groupby("model").max()
    return {
        "births_width_most": f"{widest:,}",
        "births_width_end": f"{ends:,.0f}",
        "births_spread": spread[loudest],
        "births_spread_others": spread[[name for name in seen.millions if name != loudest]].max(),
    }


def family_numbers(seen: Untrained) -> dict[str, Any]:
    """Return how near the law is in small architectures of many families."""
    usual = e.of(seen.small, "untrained").groupby("model")["W1"].mean()
    content = seen.spread.xs("small random", level="part")
    assert usual["gemma2"] < usual.drop(seen.odd).max()  # "does no harm"
    return {
        "births_small": len(usual),
        "births_near": int((usual <= usual.drop(seen.odd).max()).sum()),
        "births_families_broken": len(seen.odd),
        "births_families_most": usual.drop(seen.odd).max(),
        "births_qwen3": usual["qwen3"],
        "births_loud": content["qwen3"],
        "births_quiet": content[content < e.LOUD].max(),
        "births_gemma": usual["gemma"],
        "births_gemma2": usual["gemma2"],
        "births_gemma_random": e.law_distances(seen.kept, "influence_random")["gemma"],
    }


def gate_numbers(seen: Untrained) -> dict[str, float]:
    """Return how far the law is without MLPs and with gates that are alike, and in ReLU networks."""
    pairs, relu = e.gate_pairs(seen), gates.gate_table()
    return {
        "births_gates_law": pairs["untrained"].mean(),
        "births_gates_none": pairs["no steps"].mean(),
        "births_gates_alike": pairs["no gates"].mean(),
        "birth_gates_narrow": relu.loc[gates.RIGHT, "width 16"],
        "birth_gates": relu.loc[gates.RIGHT, "width 192"],
        "birth_no_gates": relu.loc[gates.ALIKE, "width 192"],
    }


def other_numbers(seen: Untrained) -> dict[str, float]:
    """Return what other papers' claims come to."""
    found = {f"births_u_{name}": float(x) for name, x in u_counts(seen).items()}
    turned = e.rotation_table(seen)
    found["births_rope_part"] = (turned["moved"] / turned["between"]).max()
    found["births_rope_networks"] = len(turned)
    pair = seen.real[seen.real["part"] == "random"].pivot_table("W1", "model", "prediction")
    ratio, gpt2 = pair["cesaro"] / pair["untrained"], ["gpt2", "gpt2-medium"]
    found["births_cesaro_gpt2"] = pair.loc[gpt2, "cesaro"].mean()
    found["births_law_gpt2"] = pair.loc[gpt2, "untrained"].mean()
    found["births_cesaro_least"] = ratio.drop(gpt2).min()
    found["births_cesaro_most"] = ratio.max()
    means = seen.real[~seen.real["model"].isin(seen.alibi)].groupby("prediction")[["spearman", "W1"]].mean()
    found["births_rank_law"] = means.loc["untrained", "spearman"]
    found["births_rank_aligned"], found["births_aligned_W1"] = means.loc["aligned"]
    return found


def draw_law(seen: Untrained) -> Figure:
    """Draw measured influence in each published architecture, the law, and its terms added as sizes."""
    of_law = e.of(seen.real[seen.real["part"] == "random"], "untrained")
    off = of_law.groupby("model")["W1"].mean()
    shape: Any = (2, (len(seen.millions) + 1) // 2)
    axes: Any
    fig, axes = plt.subplots(*shape, figsize=(6.4, 4.4), sharex=True, sharey=True)
    for ax, (name, millions) in zip(axes.flat, seen.millions.items(), strict=False):
        data = seen.kept[name, "random"].isel(seed=0)
        p = data["influence"].values
        ax.plot(p.size * p / p.sum(), color="0.7", linewidth=3, label="measured")
        for key, (style, label) in CURVES.items():
            q = data["profile"].sel(prediction=key).values
            ax.plot(q.size * q, style, linewidth=1, label=label)
        ax.set(yscale="log", ylim=(0.02, 200))
        ax.set_title(f"{name}\n{millions:.0f} M, {off[name]:.3f}", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel("position $j$")
    for ax in axes[:, 0]:
        ax.set_ylabel("× average token")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=3)
    return fig
