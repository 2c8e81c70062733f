"""What transformers makes of an architecture, read in its source files: nothing of it is imported, and no torch.

Its tables say of which architectures there are causal language models, masked ones and encoder-decoders, and the file
of an architecture's configuration names the kinds of its layers.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

Kind = Literal["causal", "hybrid", "encoder", "encoder-decoder", "other", "unknown"]
"""``hybrid`` has layers without attention, or no attention at all; ``other`` is no language model."""

NO_ATTENTION = {"linear_attention", "conv", "mamba", "recurrent", "hybrid", "hybrid_sliding", "moe"}
"""What transformers calls layers that have no attention, or something beside it, in ``layer_types``."""
HEADS = {"num_attention_heads", "n_head", "n_heads"}
"""Names of the number of attention heads: a configuration with none of them has no attention."""


def kind_of(fields: Mapping[str, Any]) -> Kind:
    """Return what the fields of a ``config.json`` describe.

    >>> [kind_of({"model_type": name}) for name in ("persimmon", "mamba", "modernbert", "t5", "vit", "no such")]
    ['causal', 'hybrid', 'encoder', 'encoder-decoder', 'other', 'unknown']
    """
    name = str(fields.get("model_type"))
    if "AutoModelForCausalLM" in (fields.get("auto_map") or {}):
        return "causal"  # by code of its own
    if name not in {*_table("auto_mappings", "CONFIG_MAPPING_NAMES"), "gpt-sw3"}:
        return "unknown"
    causal, masked, both = map(_models, ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM"))
    if fields.get("is_encoder_decoder", name in both):
        return "encoder-decoder"
    if name in masked and not fields.get("is_decoder"):
        return "encoder"
    if name not in {*causal, *left_out()}:
        return "other"
    kinds = fields.get("layer_types")
    if kinds:
        return "hybrid" if NO_ATTENTION & {*kinds} else "causal"
    words = _words(name)
    return "hybrid" if words and ((NO_ATTENTION - {"moe"}) & words or not HEADS & words) else "causal"


def left_out() -> dict[str, str]:
    """Return the classes of causal models that transformers lists by architecture elsewhere, as Mistral 4's."""
    found, causal = _models("IMAGE_TEXT_TO_TEXT"), _models("CAUSAL_LM")
    return {name: x for name, x in found.items() if str(x).endswith("ForCausalLM") and name not in causal}


def _models(task: str) -> dict[str, str]:
    return _table("modeling_auto", f"MODEL_FOR_{task}_MAPPING_NAMES")


@cache
def _table(file: str, table: str) -> dict[str, str]:
    """Return a table of transformers, by names of architectures, or raise ModuleNotFoundError."""
    found = (node for node in _parsed(_folder() / "auto" / f"{file}.py").body if isinstance(node, ast.Assign))
    value: Any = next(node.value for node in found if ast.unparse(node.targets[0]) == table)
    return dict(ast.literal_eval(value.args[0]))


def _words(name: str) -> set[str]:
    """Return the names and texts in the file of an architecture's configuration; none where it is elsewhere."""
    path = name.replace("-", "_").removesuffix("_text")
    file = _folder() / path / f"configuration_{path}.py"
    if not file.is_file():
        return set()
    nodes = [*ast.walk(_parsed(file))]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return texts | names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def _folder() -> Path:
    """Return the folder of transformers' models."""
    spec = find_spec("transformers")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'transformers'", name="transformers")
    return Path(spec.origin).parent / "models"


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))
