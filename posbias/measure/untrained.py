"""Networks at birth: a configuration, a seed, and the family's own initialisation; no weights are read or fetched.

A configuration comes from a small table of published sizes, or from a ``config.json`` on this machine: the twin at
birth of the checkpoint that it belongs to. The weights are drawn as transformers draws them for the family. For some
models that is not what their authors trained from (Pythia and MPT have initialisations of their own): it is then the
family's shape at the model's size under the family's default.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, set_seed
from transformers.utils import logging

from posbias import errors
from posbias.measure.corpus import Vocabulary
from posbias.measure.loading import TOKENIZER_FILES, Source, check_attention, last_part
from posbias.measure.request import GIVEN, check_config, check_init_options, init_file
from posbias.measure.shape import check_shape
from posbias.networks.description import biased_fields
from posbias.networks.families import family_of
from posbias.networks.given_biases import attach_biases
from posbias.shipped import PREFIX

NO_SHAPE = (
    "transformers_version", "architectures", "_name_or_path", "dtype", "torch_dtype", "use_cache", "auto_map",
    "task_specific_params", "quantization_config",
)  # fmt: skip
"""Fields of a configuration that do not change the network at birth: left out of its digest."""


@dataclass(frozen=True)
class Size:
    """Say what a published model's shape is.

    Parameters
    ----------
    family
        ``model_type`` of transformers.
    fields
        What differs from the family's defaults in transformers.
    source
        Whose configuration it is, and where its fields were read.
    """

    family: str
    fields: Mapping[str, Any]
    source: str

    def config(self) -> Any:
        """Return the configuration."""
        return AutoConfig.for_model(self.family, **self.fields)


SIZES: Mapping[str, Size] = {
    "gpt2": Size("gpt2", {}, "openai-community/gpt2, as in nanoGPT's model.py; transformers' defaults"),
    "gpt2-medium": Size(
        "gpt2",
        {"n_embd": 1024, "n_layer": 24, "n_head": 16},
        "openai-community/gpt2-medium, as in nanoGPT's model.py",
    ),
    "opt-125m": Size("opt", {}, "facebook/opt-125m, a published copy of its config.json; transformers' defaults"),
    "pythia-160m": Size(
        "gpt_neox",
        {
            "vocab_size": 50304,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "eos_token_id": 0,
        },
        "EleutherAI/pythia-160m, as in the repository's models/160M/pythia-160m.yml and LitGPT's config.py",
    ),
    "pythia-410m": Size(
        "gpt_neox",
        {
            "vocab_size": 50304,
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
            "eos_token_id": 0,
        },
        "EleutherAI/pythia-410m, as in the model card's table of sizes and LitGPT's config.py",
    ),
    "bloom-560m": Size(
        "bloom",
        {"hidden_size": 1024, "n_layer": 24, "n_head": 16, "pad_token_id": 3},
        "bigscience/bloom-560m, a published copy of its config.json",
    ),
    "qwen2-0.5b": Size(
        "qwen2",
        {
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "max_position_embeddings": 131072,
            "max_window_layers": 24,
            "rope_theta": 1_000_000.0,
            "tie_word_embeddings": True,
            "bos_token_id": 151643,
            "eos_token_id": 151643,
        },
        "Qwen/Qwen2-0.5B, a published copy of its config.json",
    ),
    "falcon-rw-1b": Size(
        "falcon",
        {
            "vocab_size": 50304,
            "hidden_size": 2048,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "alibi": True,
            "multi_query": False,
            "parallel_attn": False,
            "bias": True,
        },
        "tiiuae/falcon-rw-1b, a published extract of its config.json; biases follow from KerasHub's number of "
        "parameters, and the ids of start and end tokens are transformers' defaults",
    ),
    "tinyllama-1.1b": Size(
        "llama",
        {
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "num_hidden_layers": 22,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "rms_norm_eps": 1e-5,
        },
        "TinyLlama/TinyLlama-1.1B-Chat-v1.0, a published copy of its configuration",
    ),
    "llama-3.2-1b": Size(
        "llama",
        {
            "vocab_size": 128256,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500_000.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 32.0,
                "high_freq_factor": 4.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": 8192,
            },
            "tie_word_embeddings": True,
            "bos_token_id": 128000,
            "eos_token_id": 128001,
        },
        "meta-llama/Llama-3.2-1B, a published copy of its config.json and LitGPT's config.py",
    ),
    "mpt-125m": Size(
        "mpt",
        {"d_model": 768, "n_heads": 12, "n_layers": 12, "expansion_ratio": 4, "vocab_size": 50368},
        "mosaicml/llm-foundry, scripts/train/yamls/pretrain/mpt-125m.yaml; that model learns its positions, "
        "transformers gives every MPT ALiBi instead",
    ),
}
"""Published sizes by name, with the source of each."""

_SMALL = {"vocab_size": 2048, "hidden_size": 256, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}

BODIES: Mapping[str, Size] = {
    "bloom-12x256": Size("bloom", {**_SMALL, "n_layer": 12, "n_head": 8}, "ours: the family's defaults at this size"),
    "llama-12x256": Size(
        "llama",
        {
            **_SMALL,
            "num_hidden_layers": 12,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "intermediate_size": 688,
            "max_position_embeddings": 2048,
        },
        "ours: the family's defaults at this size",
    ),
}
"""Sizes of ours by name, 12 layers of width 256: bodies for position biases."""


@dataclass(frozen=True)
class Birth(Source):
    """Say which network at birth is wanted: a source whose weights are drawn, never read.

    Parameters
    ----------
    model
        A name of :data:`SIZES` or :data:`BODIES`, a ``config.json`` or a directory with one, or ``reference/NAME`` for
        a reference model that is on this machine. A path of that name comes first.
    tokenizer
        Directory, id or ``reference/NAME``, for prompts that are cut from text; the one beside the configuration unless
        given. Random tokens need none.
    seed
        Of the weights, from 0 to 2³² - 1.
    position_bias
        Description of position biases that take the place of the configuration's own positions: ALiBi is replaced,
        rotation switched off. None leaves the configuration as it is.
    spread
        Standard deviation of the initial weights; the family's own unless given.

    Raises
    ------
    ValueError
        For a seed out of range, a spread that is not above 0, and for what belongs to weights: a revision, pickles,
        code that comes with a model, a prefix of their names.

    >>> Birth("gpt2", seed=3).name()
    'gpt2 (untrained)'
    """

    seed: int = 0
    position_bias: Any = None
    spread: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers, and that nothing is asked for that only weights have."""
        names = ("revision", "allow_pickle", "trust_remote_code", "strip_prefix")
        check_init_options(**{name: getattr(self, name) for name in names})
        errors.seed("seed", self.seed)
        if self.spread is not None and not 0 < self.spread < float("inf"):
            raise errors.invalid("spread", "a number above 0", self.spread)

    def config(self) -> Any:
        """Return the configuration, of a supported family.

        Raises
        ------
        ValueError
            For a name that is neither in the table nor a path, with the names; for a file that is no configuration, of
            a family without a row, or with numbers of which no model is made; for position biases that are not for its
            family, layers and heads.
        """
        config = self._as_it_is()
        if self.spread is not None:
            config.initializer_range = self.spread
        if self.position_bias is not None:
            T, H = config.num_hidden_layers, config.num_attention_heads
            for name, value in biased_fields(config.model_type, self.position_bias, T, H).items():
                setattr(config, name, value)
        return config

    def _as_it_is(self) -> Any:
        """Return the configuration of the table or the file."""
        file = self._file()
        if file is None:
            return {**SIZES, **BODIES}[self.model].config()
        config = _read(file)
        family_of(config)
        check_shape(f"init {file}", config)
        return config

    def commit(self) -> str | None:
        """Return None: nothing is on the hub."""
        return None

    def name(self) -> str:
        """Return what the network is called in results."""
        file = self._file()
        if file is None or self.model.startswith(PREFIX):
            name = self.model
        else:
            name = file.resolve().parent.name if file.name == "config.json" else file.stem
        return f"{name}{'' if self.position_bias is None else GIVEN} (untrained)"

    def version(self) -> str:
        """Return a digest of the configuration, and the seed of the weights."""
        fields = {name: value for name, value in self.config().to_diff_dict().items() if name not in NO_SHAPE}
        digest = hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode()).hexdigest()
        return f"config-{digest[:16]}, seed {self.seed}"

    def tokenizer_name(self) -> str:
        """Return what the tokenizer is called in results."""
        name = self._tokenizer()
        return "none" if name is None else last_part(name)

    def load_tokenizer(self) -> Any:
        """Return the tokenizer; where there is none, the vocabulary, of which random tokens can be drawn."""
        name = self._tokenizer()
        return Vocabulary(int(self.config().vocab_size)) if name is None else Source(name).load_tokenizer()

    def load_model(self, dtype: torch.dtype, device: str, device_map: str | None, attention: str = "eager") -> Any:
        """Return the network with weights drawn on the CPU: the same bits for every device, attention and bias.

        Raises
        ------
        ValueError
            If it is to be spread over devices, or does not run on two tokens: parts of its configuration that do not
            fit each other show only then.
        """
        check_init_options(device_map=device_map)
        config = self.config()
        check_attention(config, attention)
        with random_state_kept():
            set_seed(self.seed)
            model = AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=dtype)
            attach_biases(model)
        model = model.eval().to(device)
        try:
            with torch.no_grad():
                model(torch.zeros(1, 2, dtype=torch.long, device=device), use_cache=False)
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            reason = " ".join(str(error).split())[:200]
            raise errors.invalid(f"init {self.model}", "a configuration whose model runs", reason) from None
        return model

    def _file(self) -> Path | None:
        """Return the file of the configuration, None for a name of the table; raise if it is neither."""
        return init_file(self.model)

    def _tokenizer(self) -> str | None:
        """Return the tokenizer that is given, else the one beside the configuration, else None."""
        if self.tokenizer is not None:
            return self.tokenizer
        file = self._file()
        beside = file is not None and any((file.parent / name).is_file() for name in TOKENIZER_FILES)
        return (self.model if self.model.startswith(PREFIX) else str(file.parent)) if file and beside else None


def special_tokens(config: Any) -> set[int]:
    """Return the ids that a configuration keeps for padding, start and end.

    In several families the padding token's embedding is zero: among random tokens it would divide by nothing.

    >>> from transformers import OPTConfig
    >>> special_tokens(OPTConfig())
    {1, 2}
    """
    found = (getattr(config, name, None) for name in ("pad_token_id", "bos_token_id", "eos_token_id"))
    ids = [x for value in found for x in (value if isinstance(value, list | tuple) else [value])]
    return {int(x) for x in ids if x is not None}


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Put the states of Python's, numpy's and torch's random numbers back when the block ends."""
    python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - transformers seeds it
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(of_numpy)  # noqa: NPY002


def _read(file: Path) -> Any:
    """Return the configuration in a file, or raise ValueError with what is wrong with it."""
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    check_config(file, f"init {file}")
    try:
        return AutoConfig.from_pretrained(file, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # code of others: what it raises is no part of any interface
        reason = " ".join(str(error).split())[:200]
        raise errors.invalid(f"init {file}", "a configuration that transformers reads", reason) from None
