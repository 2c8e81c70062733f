"""Measure hybrids before training: influence by position, and what two rollouts make of what their layers add.

    python benchmarks/hybrids.py    # prints a table in Markdown and writes it to benchmarks/hybrids.md (minutes)

Networks of 8 layers of width 256, of which the fourth and the last attend; random tokens, three draws of the weights as
transformers draws them. It draws no steps for Mamba 2 and gated delta rules, all begin at the same; with *spread steps*
they begin where the authors of Mamba 2 have them, between .001 and .1.
"""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, set_seed

from posbias.comparison.distances import normalised_wasserstein, spearman
from posbias.measure.instrument import Instrument
from posbias.measure.quantities.contributions import LayerContributions
from posbias.models.mixers import Seen

HERE = Path(__file__).parent
WIDTH, LAYERS, PROMPTS, LENGTH, SEEDS = 256, 8, 8, 128, 3
COMMON = {
    "vocab_size": 2048, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 8,
    "num_key_value_heads": 2, "intermediate_size": 688, "max_position_embeddings": 2048, "head_dim": 32,
    "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
STATE = {"mamba_n_heads": 16, "mamba_d_state": 32, "num_local_experts": 0, "shared_intermediate_size": 688}
DELTA = {"linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 32}
DELTA |= {"linear_value_head_dim": 32, "num_experts": 0}
OTHERS = {"lfm2": "conv"}
ROWS = {
    "attention alone (`llama`)": ("llama", {}, False),
    "gated convolutions (`lfm2`)": ("lfm2", {}, False),
    "Mamba 2 (`granitemoehybrid`)": ("granitemoehybrid", STATE, False),
    "the same, spread steps": ("granitemoehybrid", STATE, True),
    "gated delta rule (`qwen3_next`)": ("qwen3_next", DELTA, False),
    "the same, spread steps ": ("qwen3_next", DELTA, True),
}
HEAD = (
    "before training", "influence: first eighth", "last eighth", "last token", "Σλ", "contributions: W₁", "rank",
    "\\|weights\\|: W₁", "rank", "own weight", "negative", "left of parts",
)  # fmt: skip


def build(kind: str, fields: dict, seed: int, *, spread: bool) -> torch.nn.Module:
    """Return a network with random weights."""
    set_seed(seed)
    if kind != "llama":
        other = OTHERS.get(kind, "linear_attention")
        fields = {**fields, "layer_types": ([other] * 3 + ["full_attention"]) * 2}
    config = AutoConfig.for_model(kind, **{**COMMON, **fields})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for module in model.modules() if spread else ():
        if hasattr(module, "dt_bias"):
            steps = torch.exp(torch.empty_like(module.dt_bias).uniform_(np.log(0.001), np.log(0.1)))
            module.dt_bias.data = steps + torch.log(-torch.expm1(-steps))  # whose softplus is the step
    return model


class Rollouts:
    """Carry two rollouts of a prompt back through the layers, and look at parts of layers without attention."""

    def __init__(self, instrument: Instrument) -> None:
        self.instrument = instrument
        end = torch.eye(LENGTH)[-1:]
        self.contributions, self.weights = end.clone(), end.clone()
        self.own: list[float] = []
        self.negative: list[float] = []
        self.left: list[float] = []

    def observe(self, seen: Seen) -> None:
        """Carry both through a layer."""
        layer = LayerContributions(self.instrument, seen.layer, LENGTH, whole=False)
        self.contributions = layer.add(seen, self.contributions)
        made = next(iter(self.instrument.mixer(seen.layer).prompts(seen)))
        A = made.weights(slice(0, LENGTH))
        parts = [made.parts(slice(i, i + 1))[:, 0] for i in range(LENGTH)]
        sizes = torch.stack([torch.nn.functional.pad(x.norm(dim=-1), (0, LENGTH - len(x))) for x in parts])
        kernel = sizes if A is None else A.abs().mean(0)
        share = float(seen.mixing[0])
        kernel = kernel / kernel.sum(-1, keepdim=True)
        self.weights = (1 - share) * self.weights + share * self.weights @ kernel
        if seen.shape[1] == 0:
            self.left.append(float(np.mean([float(x.sum(0).norm() / x.norm(dim=-1).sum()) for x in parts])))
            if A is not None:
                own = A.diagonal(dim1=1, dim2=2).abs().sum()
                others = A - torch.diag_embed(A.diagonal(dim1=1, dim2=2))
                self.own.append(float(own / A.abs().sum()))
                self.negative.append(float(others.clamp(max=0).abs().sum() / others.abs().sum()))


def measure(kind: str, fields: dict, *, spread: bool) -> list[float]:
    """Return what a row of the table says: means over prompts and draws of the weights."""
    influence, both, looked, total = [], [], [], []
    for seed in range(SEEDS):
        instrument = Instrument(build(kind, fields, seed, spread=spread))
        ids = torch.randint(1, 2048, (PROMPTS, LENGTH), generator=torch.Generator().manual_seed(seed))
        for prompt in ids:
            rollouts = Rollouts(instrument)
            found = instrument.measure(prompt[None], rollouts.observe)
            influence.append(found.influence[0].numpy())
            total.append(float(found.lambda_frobenius.sum()))
            both.append([rollouts.contributions[0].numpy(), rollouts.weights[0].numpy()])
            looked.append([np.mean(x) if x else np.nan for x in (rollouts.own, rollouts.negative, rollouts.left)])
    p = np.mean(influence, 0) / np.sum(np.mean(influence, 0))
    eighth = LENGTH // 8
    out = [p[:eighth].sum(), p[-eighth:].sum(), p[-1], np.mean(total)]
    for rollout in np.mean(both, 0):
        q = rollout / rollout.sum()
        out += [float(normalised_wasserstein(p, q)), float(spearman(p, q))]
    return out + list(np.mean(looked, 0))


def main() -> None:
    """Print the table and write it."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    for name, (kind, fields, spread) in ROWS.items():
        numbers = measure(kind, fields, spread=spread)
        cells = ["" if np.isnan(x) else f"{x:.3f}" if k not in (3, 5, 7) else f"{x:.2f}" for k, x in enumerate(numbers)]
        lines.append(f"| {name.strip()} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    said = (
        f"{LAYERS} layers of width {WIDTH}, {PROMPTS} prompts of {LENGTH} random tokens for each of {SEEDS} draws of "
        "the weights; `python benchmarks/hybrids.py`. Rank: rank correlation with influence. In layers without "
        "attention: the share of |weight| on the token itself, what of the rest is negative, and what is left of "
        "parts, ‖Σ T_ij‖ over Σ ‖T_ij‖."
    )
    (HERE / "hybrids.md").write_text("\n".join([*lines, "", said, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
