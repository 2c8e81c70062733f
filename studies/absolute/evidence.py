"""What the kept measurements say of absolute position in attention, in the numbers that the page prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool, Float

from studies.absolute.tables import Estimate, Kept, start_table
from studies.results import load

PARTS = {
    "total": "attention weights, log A",
    "denominators": "denominators, log Z",
    "logits": "logits ℓ",
    "residual": "logits without the mask",
}
"""What leaks, and what a table calls it."""
ARCHITECTURES = {"mistral-12": "Mistral", "llama-12": "Llama", "llama-ntk-12": "Llama, larger base"}
FAVOURS = 2.0
"""A head favours the first token if it gives it so many times what uniform attention would."""
TEXT = "llama-12 text all"


@dataclass(frozen=True, eq=False)
class Evidence:
    """Hold the entries of ``results/absolute.nc``; what takes long is worked out once."""

    results: Mapping[str, xr.Dataset]

    @cached_property
    def kept(self) -> Kept:
        """Leaks of three models, under every condition."""
        return Kept(self.results["components"])

    @property
    def models(self) -> list[str]:
        """Models with rotary positions."""
        return [str(name) for name in self.kept.data["model"].values]

    @property
    def start(self) -> xr.Dataset:
        """What stands at position 0 and who reads it, of five models."""
        return self.results["start"]

    @cached_property
    def starts(self) -> pd.DataFrame:
        """The same as a table, with and without a start token."""
        return start_table(self.start, FAVOURS)

    @cached_property
    def seeds(self) -> pd.DataFrame:
        """Each network's balance, and its last four layers' less its first four's."""
        files, rows = {0: self.kept}, []
        for name, x in self.results.items():
            if name.startswith("seed-"):
                files[int(name[5:])] = Kept(x)
        for seed, kept in files.items():
            for model in kept.data["model"].values.tolist():
                name = f"{model} text near"
                rise = kept.balance(name, slice(-4, None)) - kept.balance(name, slice(4))
                rows.append((model, seed, kept.balance(name), rise))
        table = pd.DataFrame(rows, columns=["model", "seed", "balance", "rise"])
        return table.sort_values(["model", "seed"], ignore_index=True)

    @property
    def networks(self) -> pd.DataFrame:
        """The same as plain numbers."""
        plain = self.seeds.copy()
        for kind in ("balance", "rise"):
            plain[kind] = [x.value for x in plain[kind]]
        return plain


def load_evidence() -> Evidence:
    """Return what is kept."""
    return Evidence(dict(load("absolute")))


def shares_of_leak(kept: Kept, condition: str) -> dict[str, float]:
    """Return what each part leaks, as a share of what log A leaks."""
    found = {x: kept.variance(condition, x).value for x in PARTS}
    return {x: value / found["total"] for x, value in found.items()}


def left_early(seen: Evidence) -> dict[str, Estimate]:
    """Return the leaked share at early queries, and what is left of it with replaced embeddings."""
    kept = seen.kept
    intact = kept.share("llama-12 text early", "residual")
    first, whole = (kept.share(f"llama-12 {x} early", "residual") for x in ("first", "all"))
    return {"intact": intact, "first": first / intact, "all": whole / intact}


def favouring(seen: Evidence, model: str) -> Bool[np.ndarray, "T H"]:
    """Return which heads of a model favour its start token."""
    reading = seen.start.sel(reading=f"{model} start")
    first = reading["first"].mean("prompt").values  # nan past the last head
    return np.asarray(first >= FAVOURS * reading["uniform"].values[:, None])


def head_outputs(seen: Evidence, model: str, start: str) -> Float[np.ndarray, "T H"]:
    """Return how much the output of each head varies between prompts; nan past the last."""
    return np.asarray(seen.start["varies"].sel(reading=f"{model} {start}").values)


def parts_table(seen: Evidence) -> pd.DataFrame:
    """Return what each part leaks on text, and in how many heads."""
    share, rows = shares_of_leak(seen.kept, TEXT), []
    for part, label in PARTS.items():
        of_own, heads = seen.kept.share(TEXT, part), seen.kept.heads(TEXT, part)
        rows.append((label, f"{share[part]:.0%}", f"{of_own:.1%}", f"{heads:.0%}"))
    covariance = 1 - share["denominators"] - share["logits"]
    rows.insert(3, ("covariance, −2 C(ℓ, log Z)", f"{covariance:.0%}", "–", "–"))
    columns = ["what leaks", "as a share of V(log A)", "leaked share of its own variance (95%)"]
    return pd.DataFrame(rows, columns=[*columns, "heads in which it leaks"])


def seeds_shown(seen: Evidence) -> pd.DataFrame:
    """Return the balance of nine networks, with intervals over documents."""
    table = seen.seeds.set_index(["model", "seed"])["balance"].unstack("seed")
    table = table.map(lambda x: f"{x.value:.1%} ({x.low:.1%} to {x.high:.1%})")
    table.columns = pd.Index([f"seed {seed}" for seed in table])
    return table.loc[list(ARCHITECTURES)].rename(index=ARCHITECTURES).rename_axis("balance of")


def numbers(seen: Evidence) -> dict[str, Any]:
    """Return what the page quotes."""
    found = leak_numbers(seen) | start_numbers(seen) | balance_numbers(seen)
    return {f"absolute_{name}": x for name, x in found.items()}


def leak_numbers(seen: Evidence) -> dict[str, Any]:
    """Return how much denominators and logits leak, and where logits have it from."""
    kept, more = seen.kept, seen.results["components"]
    whole, early, rest = (shares_of_leak(kept, f"llama-12 text {x}") for x in ("all", "early", "rest"))
    left = left_early(seen)
    return {
        "more": int(more.attrs["prompts"]),
        "more_length": int(more.attrs["length"]),
        "early": int(more.attrs["early"]),
        "explained": kept.share(TEXT, "total").value,
        "mask_of_whole": whole["denominators"],
        "logits_of_whole": whole["logits"],
        "stream_of_whole": whole["residual"],
        "gap_cross": 1 - whole["logits"] - whole["denominators"],
        "gap_stream": whole["logits"] - whole["residual"],
        "mask_of_early": early["denominators"],
        "logits_of_early": early["logits"],
        "mask_of_rest": rest["denominators"],
        "logits_of_rest": rest["logits"],
        "stream_of_rest": rest["residual"],
        "intact_early": left["intact"].value,
        "first_ratio": left["first"].value,
        "first_early": left["first"].value * left["intact"].value,
    }


def start_numbers(seen: Evidence) -> dict[str, Any]:
    """Return who favours a start token, and how much outputs vary."""
    bare = seen.starts[seen.starts["start"] == "bare"]
    same, others, sizes = [], [], []
    for name in seen.models:
        heads, outputs = favouring(seen, name), head_outputs(seen, name, "start")
        sizes.append(f"{heads.sum()} ({name})")
        same.append(float(outputs[heads].mean()))
        others.append(float(np.nanmean(outputs[~heads])))
    bare_shares = [shares_of_leak(seen.kept, f"{x} bare near")["residual"] for x in seen.models]
    return {
        "start_prompts": seen.start.sizes["prompt"],
        "start_spread": float(bare["last"].min()),
        "bare_favour": bare["sinks"].max(),
        "bare_stream": max(bare_shares),
        "favour_each": ", ".join(sizes),
        "favour_attention": seen.starts["attention"].max(),
        "varies_low": min(same),
        "varies_high": max(same),
        "others_low": min(others),
        "others_high": max(others),
    }


def balance_numbers(seen: Evidence) -> dict[str, Any]:
    """Return the balance of llama-12 as it is and under other rotations."""
    kept = seen.kept
    mask = {x: kept.variance(f"llama-12 {x} all", "denominators").value
            for x in ("text", "identity", "scrambled")}  # fmt: skip
    found: dict[str, Any] = {"balance_near": kept.balance("llama-12 text near").value}
    for name in ("text", "random", "identity", "scrambled"):
        found[f"balance_{name}"] = kept.balance(f"llama-12 {name} all").value
    found["mask_identity"] = mask["identity"] / mask["text"]
    return found | {"mask_scrambled": mask["scrambled"] / mask["text"]}
