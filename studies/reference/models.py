"""The table of reference models: what each one is, and how it was trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from posbias import errors
from posbias.rollout.logits import alibi_slopes
from studies.rotation import NO_ROTATION, THETA

if TYPE_CHECKING:
    from transformers import PretrainedConfig

CONTEXT = 1024
"""Tokens that models without a table of positions take; all but one were trained on 256."""

NTK = 4
"""Factor by which the NTK-scaled model's context is longer than that of the model it continues."""


@dataclass(frozen=True)
class Reference:
    """Say what a reference model is, and how it is trained."""

    name: str
    family: str  # ``model_type`` of transformers
    T: int
    D: int
    H: int
    fields: Mapping[str, Any] = field(default_factory=dict)  # further ones of the configuration
    start_token: bool = False  # in front of every text, as the family's own models have it
    continues: str | None = None  # the reference model whose weights training goes on from
    positions: bool = True  # False: the table of positions is zero and stays so
    autocast: bool = True  # forward passes in bfloat16; weights and their updates are always float32
    steps: int = 1200
    batch_size: int = 8
    length: int = 256
    rate: float = 2e-3  # the highest

    def config(self, **changes: Any) -> PretrainedConfig:
        """Return the configuration for transformers, with ``changes``."""
        from transformers import AutoConfig

        from studies.reference.tokens import VOCABULARY

        context = self.length if self.family == "gpt2" and self.positions else CONTEXT
        names = SHAPES.get(self.family, SHAPES["llama"])
        shape: dict[str, Any] = dict(zip(names, (self.D, self.T, self.H, context), strict=True))
        if self.family == "gpt2":
            shape |= {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
        elif self.family in ("llama", "mistral"):
            shape |= {"num_key_value_heads": self.H, "intermediate_size": 32 * round(self.D * 8 / 3 / 32)}
        special = {"bos_token_id": 1 if self.start_token else 0, "eos_token_id": 0, "pad_token_id": None}
        common = {"vocab_size": VOCABULARY, "tie_word_embeddings": True, "use_cache": False, **special}
        return AutoConfig.for_model(self.family, **{**common, **shape, **self.fields, **changes})

    def shortened(self, steps: int) -> Reference:
        """Return the same model, trained for ``steps`` steps."""
        errors.positive_integer("steps", steps, minimum=0)
        return replace(self, steps=steps)


SHAPES = {
    "bloom": ("hidden_size", "n_layer", "n_head", "seq_length"),
    "mpt": ("d_model", "n_layers", "n_heads", "max_seq_len"),
    "gpt2": ("n_embd", "n_layer", "n_head", "n_positions"),
    "llama": ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"),
}
"""What configurations of a family call width, layers, heads and context; those of other families as Llama's."""

FALCON = {"alibi": True, "multi_query": False, "new_decoder_architecture": False, "parallel_attn": False, "bias": True}
HEAD = 32  # width of a head in the models with rotary positions


def _rope(theta: float) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}


REFERENCES: Mapping[str, Reference] = {
    row.name: row
    for row in (
        Reference("bloom-8", "bloom", 8, 192, 6),
        Reference("bloom-12", "bloom", 12, 128, 8),
        Reference("bloom-24", "bloom", 24, 128, 8, steps=500, rate=1.5e-3),
        Reference("mpt-12", "mpt", 12, 128, 8, steps=800),
        # its attention is slower in bfloat16
        Reference("falcon-12", "falcon", 12, 128, 8, FALCON, autocast=False, steps=800),
        Reference("llama-12", "llama", 12, 128, 4, _rope(THETA), start_token=True),
        Reference(
            "llama-ntk-12",
            "llama",
            12,
            128,
            4,
            _rope(THETA * NTK ** (HEAD / (HEAD - 2))),  # the base that stretches the longest wave NTK times
            start_token=True,
            continues="llama-12",
            steps=200,
            batch_size=2,
            length=NTK * 256,
            rate=5e-4,
        ),
        Reference("mistral-12", "mistral", 12, 128, 4, {**_rope(THETA), "sliding_window": 64}, start_token=True),
        Reference("gpt2-12", "gpt2", 12, 128, 8, steps=800),
        Reference("nope-12", "gpt2", 12, 128, 8, positions=False, steps=800),
    )
}
"""The reference models by name. bloom-8 has six heads: not a power of two, so that its slopes follow the long rule."""


def _designed(body: str, kind: str, position_bias: Any) -> Reference:
    """Return a reference model with position biases of another kind in the place of its own; all else is equal."""
    row = REFERENCES[body]
    fields = {} if position_bias is None else {"position_bias": position_bias}
    return replace(row, name=f"{body}-{kind}", fields={**(NO_ROTATION if body == "llama-12" else {}), **fields})


def _mixed(slopes: tuple[float, ...], tau: float) -> list[dict[str, Any]]:
    """Return half of the heads local, with these slopes, and half flat."""
    local = [{"kind": "alibi", "slope": slope} for slope in slopes]
    return [*local, *([{"kind": "flat", "tau": tau}] * len(slopes))]


DESIGNED: Mapping[str, Reference] = {
    row.name: row
    for row in (
        _designed("llama-12", "none", None),
        _designed("llama-12", "alibi", [{"kind": "alibi", "slope": float(m)} for m in alibi_slopes(4)]),
        _designed("llama-12", "log", {"kind": "log", "alpha": 0.66}),  # Σλ - 1 of llama-12, trained
        # studies.design.search.design(Task(np.full(256, 1 / 256), np.full(12, 0.14), heads=4, local=2))
        _designed("llama-12", "flat", _mixed((0.25, 0.0625), 0.5637)),
        _designed("bloom-12", "none", {"kind": "none"}),
        _designed("bloom-12", "log", {"kind": "log", "alpha": 0.8}),  # Σλ - 1 of bloom-12, trained
        # the same with 0.15, heads=8, local=4
        _designed("bloom-12", "flat", _mixed((0.5, 0.25, 0.125, 0.0625), 0.6207)),
    )
}
"""The reference Llama and BLOOM with other position biases; they are trained as their bodies are and do not ship."""


def reference(name: str) -> Reference:
    """Return the row of a name, of a reference model or of one with designed position biases.

    >>> reference("bloom-8").H
    6
    """
    known = {**REFERENCES, **DESIGNED}
    if name not in known:
        raise errors.invalid("reference model", f"one of {', '.join(known)}", name)
    return known[name]
