"""The table of reference models: what each one is, and how it was trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from posbias import errors
from posbias.networks.description import NO_ROTATION, THETA, biased_fields
from posbias.rollout.logits import alibi_slopes

if TYPE_CHECKING:
    from transformers import PretrainedConfig

CONTEXT = 1024
"""Tokens that models without a table of positions take; all but one were trained on 256."""

BYTES_PER_STEP = 100
"""What the log takes of memory for each step: two losses as numbers, and as text when it is written."""

NTK = 4
"""Factor by which the NTK-scaled model's context is longer than that of the model it continues."""


@dataclass(frozen=True)
class Reference:
    """Say what a reference model is.

    Parameters
    ----------
    name
        Family and layers.
    family
        ``model_type`` of transformers.
    T, D, H
        Layers, width, heads.
    fields
        Further fields of the configuration.
    start_token
        Whether every text begins with a start token, as the family's own models have it.
    continues
        Reference model whose weights training continues from; None starts from the default initialisation.
    positions
        False for a model whose table of positions is zero and stays so.
    autocast
        Whether forward passes run in bfloat16; weights and their updates are always float32.
    steps, batch_size, length, rate
        Optimizer steps, sequences and tokens in each, and the highest learning rate.
    """

    name: str
    family: str
    T: int
    D: int
    H: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    start_token: bool = False
    continues: str | None = None
    positions: bool = True
    autocast: bool = True
    steps: int = 1200
    batch_size: int = 8
    length: int = 256
    rate: float = 2e-3

    def config(self, **changes: Any) -> PretrainedConfig:
        """Return the configuration for transformers, with ``changes``."""
        from transformers import AutoConfig

        from studies.reference.tokens import VOCABULARY

        special = {"bos_token_id": 1 if self.start_token else 0, "eos_token_id": 0, "pad_token_id": None}
        common = {"vocab_size": VOCABULARY, "tie_word_embeddings": True, "use_cache": False, **special}
        return AutoConfig.for_model(self.family, **{**common, **SHAPES[self.family](self), **self.fields, **changes})

    def biased(self, description: Any) -> Reference:
        """Return the same model with these position biases in the place of its own positions.

        Parameters
        ----------
        description
            As a ``config.json`` has it: see :mod:`posbias.networks.description`.

        Raises
        ------
        ValueError
            For a description that is none or of other layers or heads, and for a family that takes none.

        >>> reference("bloom-8").biased({"kind": "none"}).fields["position_bias"]
        {'kind': 'none'}
        """
        return replace(self, fields={**self.fields, **biased_fields(self.family, description, self.T, self.H)})

    def shortened(self, steps: int) -> Reference:
        """Return the same model, trained for ``steps`` steps."""
        errors.positive_integer("steps", steps, minimum=0)
        errors.fits("steps", steps, steps * BYTES_PER_STEP)
        return replace(self, steps=steps)


def _bloom(model: Reference) -> dict[str, Any]:
    return {"hidden_size": model.D, "n_layer": model.T, "n_head": model.H, "seq_length": CONTEXT}


def _mpt(model: Reference) -> dict[str, Any]:
    return {"d_model": model.D, "n_layers": model.T, "n_heads": model.H, "max_seq_len": CONTEXT}


def _gpt2(model: Reference) -> dict[str, Any]:
    longest = model.length if model.positions else CONTEXT
    dropout = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    return {"n_embd": model.D, "n_layer": model.T, "n_head": model.H, "n_positions": longest, **dropout}


def _named(model: Reference) -> dict[str, Any]:
    return {
        "hidden_size": model.D,
        "num_hidden_layers": model.T,
        "num_attention_heads": model.H,
        "max_position_embeddings": CONTEXT,
    }


def _llama(model: Reference) -> dict[str, Any]:
    width = 32 * round(model.D * 8 / 3 / 32)
    return {**_named(model), "num_key_value_heads": model.H, "intermediate_size": width}


SHAPES = {"bloom": _bloom, "mpt": _mpt, "falcon": _named, "gpt2": _gpt2, "llama": _llama, "mistral": _llama}
"""How each family's configuration names layers, width, heads and context."""

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
        Reference(
            "falcon-12", "falcon", 12, 128, 8, FALCON, autocast=False, steps=800
        ),  # its attention is slower in bfloat16
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
        # posbias design --target uniform --depth 12 --lambda 0.14 --heads 4 --local 2 --length 256
        _designed("llama-12", "flat", _mixed((0.25, 0.0625), 0.5637)),
        _designed("bloom-12", "none", {"kind": "none"}),
        _designed("bloom-12", "log", {"kind": "log", "alpha": 0.8}),  # Σλ - 1 of bloom-12, trained
        # the same with --lambda 0.15 --heads 8 --local 4
        _designed("bloom-12", "flat", _mixed((0.5, 0.25, 0.125, 0.0625), 0.6207)),
    )
}
"""The reference Llama and BLOOM with other position biases; they are trained as their bodies are and do not ship."""


def reference(name: str) -> Reference:
    """Return the row of a name, of a reference model or of one with designed position biases.

    Raises
    ------
    ValueError
        For an unknown name, with the known ones.

    >>> reference("bloom-8").H
    6
    """
    known = {**REFERENCES, **DESIGNED}
    if name not in known:
        raise errors.invalid("reference model", f"one of {', '.join(known)}", name)
    return known[name]
