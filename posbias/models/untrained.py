"""Untrained networks: a configuration, a seed, and the family's own initialisation; no weights are read or fetched.

A configuration comes from a small table of published sizes, or from a ``config.json`` on this machine: the untrained
twin of the checkpoint that it belongs to. The weights are drawn as transformers draws them for the family. For some
models that is not what their authors trained from (Pythia and MPT have initialisations of their own): it is then the
family's shape at the model's size under the family's default.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig
from transformers.utils import logging

from posbias import errors
from posbias.models.auto import causal_class
from posbias.models.description import biased_fields
from posbias.models.families import check_family, row_of, text_config
from posbias.models.given_biases import attach_biases
from posbias.models.loading import TOKENIZER_FILES, Source, check_attention, check_runs, check_shape, last_part
from posbias.models.memory import check_weights_fit
from posbias.models.opening import GIVEN, Vocabulary, check_config, check_no_weights, untrained_file
from posbias.models.sizes import BODIES, SIZES
from posbias.shipped import PREFIX

NO_SHAPE = (
    "transformers_version", "architectures", "_name_or_path", "dtype", "torch_dtype", "use_cache", "auto_map",
    "task_specific_params", "quantization_config",
)  # fmt: skip
"""Fields of a configuration that do not change the untrained network: left out of its digest."""


@dataclass(frozen=True)
class Untrained(Source):
    """Say which untrained network is wanted: a source whose weights are drawn, never read.

    ``model`` is a name of :mod:`~posbias.models.sizes`, a ``config.json`` or a directory with one, or
    ``reference/NAME``; a path of that name comes first. ``tokenizer`` is needed for prompts that are cut from text
    alone. ``position_bias`` describes position biases that take the place of the configuration's own positions: ALiBi
    is replaced, rotation switched off. ``spread`` is the standard deviation of the initial weights, the family's own
    unless given.

    >>> Untrained("gpt2", seed=3).name()
    'gpt2 (untrained)'
    """

    seed: int = 0
    position_bias: Any = None
    spread: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers, and that nothing is asked for that only weights have."""
        names = ("revision", "allow_pickle", "trust_remote_code")
        check_no_weights(**{name: getattr(self, name) for name in names})
        errors.seed("seed", self.seed)
        if self.spread is not None and not 0 < self.spread < float("inf"):
            raise errors.invalid("spread", "a number above 0", self.spread)

    def config(self) -> Any:
        """Return the configuration, of a supported family."""
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
        file = untrained_file(self.model)
        if file is None:
            return {**SIZES, **BODIES}[self.model].config()
        where = f"untrained {file}"
        logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        check_config(file, where)
        try:
            config = AutoConfig.from_pretrained(file, local_files_only=True, trust_remote_code=False)
        except Exception as error:  # code of others: what it raises is no part of any interface
            reason = " ".join(str(error).split())[:200]
            raise errors.invalid(where, "a configuration that transformers reads", reason) from None
        check_family(config.to_dict(), row=False)
        if row_of(config) is not None:  # of a model of text and pictures what its row is of
            config = text_config(config)
        check_shape(where, config)
        return config

    def name(self) -> str:
        """Return what the network is called in results."""
        file = untrained_file(self.model)
        if file is None or self.model.startswith(PREFIX):
            name = self.model
        else:
            name = file.resolve().parent.name if file.name == "config.json" else file.stem
        return f"{errors.written_out(name)}{'' if self.position_bias is None else GIVEN} (untrained)"

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

        Parts of its configuration that do not fit each other show only when it runs, on two tokens.
        """
        check_no_weights(device_map=device_map)
        config = self.config()
        check_attention(config, attention)
        check_weights_fit(config, dtype, torch.device(device))
        with random_state_kept():
            torch.manual_seed(self.seed)
            model = causal_class(config).from_config(config, attn_implementation=attention, dtype=dtype)
            attach_biases(model)
        model = model.eval().to(device)
        check_runs(f"untrained {self.model}", model)
        return model

    def _tokenizer(self) -> str | None:
        """Return the tokenizer that is given, else the one beside the configuration, else None."""
        if self.tokenizer is not None:
            return self.tokenizer
        file = untrained_file(self.model)
        if file is None or not any((file.parent / name).is_file() for name in TOKENIZER_FILES):
            return None
        return self.model if self.model.startswith(PREFIX) else str(file.parent)


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
