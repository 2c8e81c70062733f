"""Models and tokenizers from a directory or the hub: no pickle and no remote code unless asked for."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging
from transformers.utils.hub import cached_file, extract_commit_hash

from posbias import checks
from posbias.measure.families import family_of
from posbias.shipped import model_folder

UNREADABLE = (OSError, ValueError, KeyError, TypeError, ImportError, AttributeError, StrictDataclassError)
"""What transformers raises for a configuration, a tokenizer or weights that are not as they should be."""

ATTENTION = ("eager", "sdpa")
"""How attention is computed: step by step, so that its weights are seen, or fused, so that they are never made."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Source:
    """Say which model is wanted and what it is allowed to do.

    Parameters
    ----------
    model
        Directory, id on the hub, or ``reference/NAME`` for one of :func:`~posbias.shipped.reference_names`.
    revision
        Branch, tag or commit on the hub; the default branch unless given.
    tokenizer
        Directory or id of the tokenizer; the model's own unless given.
    trust_remote_code
        Whether code that comes with the model may run.
    allow_pickle
        Whether weights that are not in safetensors may be loaded; such files can run code.
    """

    model: str
    revision: str | None = None
    tokenizer: str | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False

    def config(self) -> Any:
        """Return the configuration, of a supported family, or raise ValueError or OSError."""
        path = Path(model_folder(self.model))
        if path.is_dir() and not (path / "config.json").is_file():
            raise checks.refuse(f"model {self.model}", "a directory with a config.json", "one without")
        config = self._from("model", AutoConfig, self.model)
        family_of(config)
        return config

    def commit(self) -> str | None:
        """Return the commit on the hub that the model's files are of; None for a model in a directory."""
        folder = model_folder(self.model)
        if Path(folder).is_dir():
            return None
        return extract_commit_hash(cached_file(folder, "config.json", revision=self.revision), None)

    def name(self) -> str:
        """Return what the model is called in results: of a local path only the last part, which says enough."""
        return last_part(self.model)

    def version(self) -> str:
        """Return what tells this model from others of its name: the commit, the revision, or a digest of its files."""
        return self.commit() or self.revision or _digest(Path(model_folder(self.model)))

    def tokenizer_name(self) -> str:
        """Return what the tokenizer is called in results."""
        return last_part(self.tokenizer or self.model)

    def load_tokenizer(self) -> Any:
        """Return the tokenizer."""
        return self._from("tokenizer", AutoTokenizer, self.tokenizer or self.model)

    def load_model(self, dtype: torch.dtype, device: str, device_map: str | None, attention: str = "eager") -> Any:
        """Return the model, on one device or spread by accelerate's ``device_map``.

        Parameters
        ----------
        dtype
            Number format of the weights.
        device, device_map
            Where it goes; the second has precedence.
        attention
            ``eager`` or ``sdpa``, one of :data:`ATTENTION`.

        Raises
        ------
        ValueError
            For weights that cannot be read or do not fit on the device, and for fused attention where the family has
            none.
        """
        check_attention(self.config(), attention)
        options: dict[str, Any] = {"dtype": dtype, "attn_implementation": attention}
        options |= {"use_safetensors": None if self.allow_pickle else True}
        if device_map is not None:
            options["device_map"] = device_map
        try:
            model = self._from("model", AutoModelForCausalLM, self.model, **options)
            return model if device_map is not None else model.to(device)
        except torch.OutOfMemoryError:
            advice = "one that does not; try --device-map auto, or --dtype bfloat16"
            raise checks.refuse(f"model {self.model}", f"one that fits on {device_map or device}", advice) from None

    def _from(self, what: str, auto: Any, name: str, **options: Any) -> Any:
        logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        if not sys.stderr.isatty():
            logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        options |= {"revision": self.revision if name == self.model else None}
        options = {key: x for key, x in options.items() if x is not None}
        folder = model_folder(name)
        try:
            return auto.from_pretrained(folder, trust_remote_code=self.trust_remote_code, **options)
        except SafetensorError as error:
            raise checks.refuse(f"{what} {name}", "whole .safetensors files", error) from None
        except UNREADABLE as error:
            first = " ".join(str(error).split())[:200]
            wanted = "a directory, or an id that the hub answers for"
            if "custom code" in first:
                wanted, first = "none with code of its own, or --trust-remote-code", "one with code of its own"
            raise checks.refuse(f"{what} {name}", wanted, first) from None


def last_part(source: str) -> str:
    """Return the last part of a path that is there, anything else unchanged.

    >>> last_part("someone/some-model")
    'someone/some-model'
    """
    path = Path(source)
    return path.resolve().name if path.exists() else source


def _digest(folder: Path) -> str:
    """Return a digest of a model's files: names, sizes, and the first and last MiB of each."""
    found = hashlib.sha256()
    for file in sorted([folder / "config.json", *folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        size = file.stat().st_size
        found.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as content:
            found.update(content.read(1 << 20))
            content.seek(max(0, size - (1 << 20)))
            found.update(content.read(1 << 20))
    return f"files-{found.hexdigest()[:16]}"


def check_attention(config: Any, attention: str) -> None:
    """Raise ValueError for a way to compute attention that there is not, or not in this model's family."""
    family = family_of(config)
    there = ATTENTION if family.is_fused(config) else ATTENTION[:1]
    if attention not in there:
        raise checks.refuse("attention", f"{' or '.join(there)} for {family.name}", repr(attention))


def check_fits(config: Any, tokenizer: Any, length: int) -> None:
    """Raise ValueError if n is beyond the model's context or the tokenizer has more tokens than the model."""
    longest = family_of(config).longest(config)
    if longest is not None and length > longest:
        raise checks.refuse("length", f"at most {longest} tokens, the model's context", length)
    if len(tokenizer) > config.vocab_size:
        raise checks.refuse("tokenizer", f"at most the model's {config.vocab_size} tokens", f"{len(tokenizer)}")
