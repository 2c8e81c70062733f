"""Checks of long states and sinks: a lemma and a proposition inside networks, and what SmolLM2's first token gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import transformers
import xarray as xr
from jaxtyping import Int
from torch import Tensor

from posbias.measure.corpus import Corpus, make_prompts
from posbias.models.loading import Source
from posbias.report.stats import LONG
from studies.checks import Check
from studies.real.checks import readings_part
from studies.real.lemma import lemma_holds, spread

ALLOWED = 1e-5
"""States that differ by less of their size are said to be equal."""
NETWORK, LENGTH = "llama-12", 64
"""The network in which states are made longer, and the tokens of its prompts."""
SMALL: dict[str, Any] = {
    "n_layer": 3,
    "n_embd": 64,
    "n_head": 4,
    "vocab_size": 99,
    "n_positions": LENGTH,
}

Kept = Mapping[str, xr.Dataset]


def sink_checks(kept: Kept) -> list[Check]:
    """Return the checks of the sink: what it gets and gives, why λ falls, and which token becomes it."""
    return [share_check(kept), lemma_check(), states_check(), heads_check(kept)]


def share_check(kept: Kept) -> Check:
    """Return the check that the first token contributes less than the attention that it gets."""
    whole = kept["smollm2.wiki-256"]
    ratio = whole["norm_ratio"].values
    apart = whole["lambda_token"].values / whole["lambda_frobenius"].values
    _, attention, contributed = whole["first_share"].values
    long, rng = ratio > LONG, np.random.default_rng(0)
    mixed = [rng.permutation(ratio) for _ in range(20)]
    return Check(
        "S-share", "", "By contributions the sink gives far less than the attention that it gets.",
        readings_part(ratio, apart, attention, contributed),
        f"SmolLM2: {long.sum()} of {len(ratio)} layers have a state over {LONG} times the median one; there "
        f"the first token gets {attention[long].mean():.0%} of the attention and gives "
        f"{contributed[long].mean():.1%} of what comes from others",
        "the ratio of the readings and the longest state have a rank correlation of .5 or less over layers, "
        "or the first token contributes more than half of the share of attention that it gets where states "
        "are long",
        {"layers shuffled": [readings_part(x, apart, attention, contributed) for x in mixed],
         "attention in place of contributions": [readings_part(ratio, apart, attention, attention)]},
        "the readings do not part where states are long", {"post_hoc": True},
    )  # fmt: skip


def lemma_check() -> Check:
    """Return the check of the lemma on one long state."""
    source = Source(f"reference/{NETWORK}")
    network = source.load_model(torch.float64, "cpu", None)
    ids = torch.from_numpy(make_prompts(Corpus("builtin"), source.load_tokenizer(), 2, LENGTH).ids)
    some = range(0, network.config.num_hidden_layers, 3)
    held = all(lemma_holds(network, ids, t, c) for t in some for c in (3.0, 30.0, 300.0))
    wrong: dict[str, dict[str, Any]] = {
        "every state longer": {"every": True},
        "attention 1% larger": {"output": 1.01},
    }
    return Check(
        "S-lambda", "", "One long state lowers λ by Frobenius norms, and λ by tokens hardly.", held,
        f"{len(some)} layers of {NETWORK}, the first state up to 300 times as long",
        "an attention output or another token's λ moves by a thousandth, the reading by tokens by more than "
        "1/n, or the Frobenius reading is above its bound",
        {what: fails_alone(network, ids, some, how) for what, how in wrong.items()},
        "the lemma fails in the network", {"kind": "proved"},
    )  # fmt: skip


def fails_alone(network: Any, ids: Int[Tensor, "B n"], some: range, how: Mapping[str, Any]) -> list[bool]:
    """Return in which layers the lemma would hold of what is broken."""
    return [lemma_holds(network, ids, t, 30.0, **how) for t in some]


def repeated(token: int, first: int | None = None) -> Int[Tensor, "n"]:
    """Return a prompt of one token, repeated, behind another one if ``first`` is given."""
    ids = torch.full((LENGTH,), token)
    ids[0] = token if first is None else first
    return ids


def states_check() -> Check:
    """Return the check that equal tokens have equal states, but with learned positions."""
    sources = [Source(f"reference/{name}") for name in (NETWORK, "bloom-8")]
    every = [source.load_model(torch.float64, "cpu", None) for source in sources]
    torch.manual_seed(0)
    config = transformers.GPT2Config(**SMALL)
    learned = [transformers.GPT2LMHeadModel(config).double() for _ in range(5)]
    prompts = [repeated(token) for token in (11, 23, 42)]
    largest = max(spread(x, ids) for x in every for ids in prompts)
    in_front = [repeated(token, first=5) for token in (11, 23, 42)]
    broken = {
        "learned positions": [spread(x, prompts[0]) for x in learned],
        "another token in front": [spread(x, ids) for x in every for ids in in_front],
        "different tokens": [spread(x, torch.arange(7, 71)) for x in every],
    }
    return Check(
        "S-tokens", "states", "Equal tokens have equal states, but with learned positions.", largest < ALLOWED,
        f"states of a repeated token are within {largest:.0e} of each other in {NETWORK} (rotary) and bloom-8 "
        "(ALiBi)",
        f"states of a repeated token differ by {ALLOWED:g} of their size or more",
        {what: (np.array(found) < ALLOWED).tolist() for what, found in broken.items()},
        "states of equal tokens differ", {"kind": "proved"},
    )  # fmt: skip


def heads_check(kept: Kept) -> Check:
    """Return the check that no head has a sink on a repeated token."""
    heads: Any = kept["smollm2.sinks"]["heads"].mean(("prompt", "layer")).to_pandas()
    on_repeated, in_front_of = heads.loc["repeated", ["none", "end-of-text"]]
    return Check(
        "S-tokens", "heads", "On a repeated token no head has a sink.", on_repeated < 0.01,
        f"SmolLM2 has a sink in {on_repeated:.0%} of its heads on a repeated token, in {in_front_of:.0%} with "
        "a start token in front",
        "a hundredth of SmolLM2's heads has a sink on a repeated token",
        {"other texts": [x < 0.01 for x in heads.drop("repeated").to_numpy().ravel()],
         "a start token in front": [x < 0.01 for x in heads.loc["repeated"].drop("none")]},
        "heads have a sink on a repeated token", {"post_hoc": True},
    )  # fmt: skip


def head_numbers(kept: Kept) -> dict[str, float]:
    """Return in how many heads the first token is a sink, of SmolLM2 and at most of a small model."""
    heads: Any = kept["smollm2.sinks"]["heads"].mean(("prompt", "layer")).to_pandas()
    small = [x["heads"].mean(("prompt", "layer")).sel(text="natural", front="none").item()
             for name, x in kept.items() if name.endswith(".sinks-builtin")]  # fmt: skip
    return {
        "real_heads_natural": heads.loc["natural", "none"],
        "real_heads_random": heads.loc["random", "none"],
        "real_heads_small": max(small),
    }
