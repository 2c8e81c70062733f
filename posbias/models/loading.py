"""Models and tokenizers in files, on this machine or on the hub: what their files say, or refused, in one line."""

import hashlib
import json
import sys
from contextlib import nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import huggingface_hub.utils.logging as hub_logging
import torch
from transformers import AutoConfig, AutoTokenizer, GgufConfig
from transformers.utils import logging
from transformers.utils.hub import cached_file, extract_commit_hash

from posbias import errors
from posbias.files import digest
from posbias.models.families import causal_class, check_family, longest_of, row_of, text_config
from posbias.models.gguf_file import (
    Kept,
    check_size,
    find_gguf,
    open_kept,
    quantisation_of,
    read_gguf,
    read_once,
    say,
    write_kept,
)
from posbias.models.loaded import Loaded
from posbias.models.weights import check_weights, check_weights_fit
from posbias.settings import ATTENTION, Opening
from posbias.settings import DTYPES as DTYPE_NAMES
from posbias.shipped import model_folder

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
"""Files of which one at least lies in the directory of a tokenizer."""

CONTENT = (".safetensors", ".bin", ".json", ".model", ".txt", ".jinja", ".tiktoken", ".py")
"""Ends of the names of files that decide what a model computes or how text becomes tokens."""

NO_FOLDER = "no such folder"
"""Where transformers is told to look for an adapter."""

DTYPES = {name: getattr(torch, name) for name in DTYPE_NAMES}

NO_SHAPE = (
    "transformers_version", "architectures", "_name_or_path", "dtype", "torch_dtype", "use_cache", "auto_map",
    "task_specific_params", "quantization_config",
)  # fmt: skip
"""Fields of a configuration that do not change what it describes: left out of its digest."""


class Source(Opening, Loaded):
    """Say which model in files is wanted and what it is allowed to do; what was read of it stays here."""

    def read_config(self) -> Any:
        """Read the configuration, of a supported family and with numbers of which a model is made."""
        self.about()  # raises for a GGUF file that is torn, or of an architecture that is not converted
        return _decoder(f"model {self.model}", self._from("model", AutoConfig, self.model))

    def name(self) -> str:
        """Return what the model is called in results: of a local path only the last part, which says enough."""
        return last_part(self.model)

    def version(self) -> str:
        """Return a digest of the model's files, or its commit on the hub; and of a tokenizer from elsewhere."""
        return self._version

    @cached_property
    def _version(self) -> str:
        own = _version("model", self.model, self.revision)
        if self.tokenizer is None or self.tokenizer == self.model:
            return own
        other = _version("tokenizer", self.tokenizer)
        return own if own == other else f"{own}, tokenizer {other}"

    def about(self) -> dict[str, str]:
        """Return what else files say of it: how weights of a GGUF file were rounded before they were made 32 bits."""
        if find_gguf(self.model) is None:
            return {}
        known = None if self._kept is None else self._kept.quantisation
        return {"quantisation": f"{known or quantisation_of(self._gguf)} (GGUF), dequantised"}

    def find_tokenizer(self) -> str | None:
        """Return the directory or id of the tokenizer, None where there is none."""
        return self.tokenizer or self.model

    def read_tokenizer(self) -> Any:
        """Read the tokenizer; transformers would make an empty one of a directory without its files."""
        name = self.find_tokenizer() or ""
        path = _directory("tokenizer", name)
        if path is not None and not find_gguf(name) and not any((path / x).is_file() for x in TOKENIZER_FILES):
            raise errors.invalid(f"tokenizer {name}", f"a directory with one of {', '.join(TOKENIZER_FILES)}", "none")
        tokenizer = self._from("tokenizer", AutoTokenizer, name)
        if len(tokenizer) <= len(tokenizer.all_special_tokens):
            raise errors.invalid(f"tokenizer {name}", "one with tokens that are not special", "none of them")
        return tokenizer

    def read_model(self, dtype: torch.dtype, device: str, device_map: str | None, attention: str) -> Any:
        """Read the weights, on one device or spread by ``device_map``; of a GGUF file they are kept."""
        config = self.config()
        check_attention(config, attention)
        if self._kept is not None:
            if self._kept.quantisation is not None:
                self._kept.check(weights=True)
            if self._kept.quantisation is None:
                self._keep()
        if device_map is None and getattr(config, "quantization_config", None) is None:
            check_weights_fit(config, dtype, torch.device(device))
        model = self._read_weights(dtype, device_map, attention)
        return model.eval() if device_map is not None else model.eval().to(device)

    def _read_weights(self, dtype: torch.dtype, device_map: str | None, attention: str) -> Any:
        """Return the model of all weights in its files, and of no others."""
        where, (_, converted) = f"model {self.model}", self._files("model", self.model)
        options: dict[str, Any] = {"dtype": dtype, "attn_implementation": attention, "device_map": device_map}
        options |= {"use_safetensors": True}
        options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}  # refused below, by name
        options |= {"adapter_kwargs": {"subfolder": NO_FOLDER}}  # else transformers is not strict about adapters
        if converted is not None:
            options["quantization_config"] = GgufConfig(dequantize=True)
        model, info = self._from("model", causal_class(self.config()), self.model, **options)
        check_weights(where, *(info[f"{key}_keys"] for key in ("missing", "unexpected", "mismatched")))
        if converted is not None:
            check_size(where, self._gguf, model)
        return model

    @cached_property
    def _gguf(self) -> Any:
        """The reader of the GGUF file that the model is in."""
        return read_gguf(find_gguf(self.model))  # type: ignore[arg-type]

    @cached_property
    def _kept(self) -> Kept | None:
        """Where what the GGUF file is made into is kept; None for a model in other files, and where nothing is."""
        file = find_gguf(self.model)
        return None if file is None or not self.cache else open_kept(file)

    def _keep(self) -> None:
        """Keep weights in 32 bits, the configuration and, if the file has one, the tokenizer."""
        assert self._kept is not None
        try:
            check_weights_fit(self.config(), torch.float32, torch.device("cpu"))
        except ValueError as error:
            say(f"{error}; no weights are kept")
            return
        parts = [self._read_weights(torch.float32, None, "eager"), self._from("model", AutoConfig, self.model)]
        with suppress(ValueError):
            parts.append(self._from("tokenizer", AutoTokenizer, self.model))
        write_kept(self._kept, quantisation_of(self._gguf), *parts)

    def _files(self, what: str, name: str) -> tuple[Path | None, Path | None]:
        """Return the directory to read, None for an id on the hub, and the GGUF file in it that is to be converted."""
        own, file = _directory(what, name), find_gguf(name)
        kept = self._kept if name == self.model else None
        if kept is None or kept.quantisation is None:
            return own, file
        has_it = what != "tokenizer" or (kept.folder / "tokenizer.json").is_file()
        return (kept.folder, None) if has_it else (own, file)

    def _from(self, what: str, auto: Any, name: str, **options: Any) -> Any:
        """Return what transformers makes of a directory or id, or say what is wrong with it."""
        logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        hub_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        if not sys.stderr.isatty():
            logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        options |= {"revision": self.revision if name == self.model else None}
        options = {key: x for key, x in options.items() if x is not None}
        path, file = self._files(what, name)
        if file is not None:
            options["gguf_file"] = file.name
        reader = self._gguf if file is not None and name == self.model else None
        try:
            with nullcontext() if file is None else read_once(reader):
                return auto.from_pretrained(path or name, trust_remote_code=self.trust_remote_code, **options)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # code of others, and of models: what it raises is no part of any interface
            said = errors.short(error)
            if "custom code" in said:
                expected, said = "none with code of its own, or --trust-remote-code", "one with code of its own"
            elif path is None:
                expected = "a directory, or an id that the hub answers for"
            elif auto is not AutoTokenizer and any(path.glob("*.bin")) and not any(path.glob("*.safetensors")):
                expected, said = "weights in .safetensors", "pickled ones; load them yourself, and posbias.open(model)"
            else:
                expected = "files that transformers reads"
            raise errors.invalid(f"{what} {name}", expected, said) from None


def config_digest(config: Any) -> Any:
    """Return a digest of what a configuration says of a network, to which more can be added."""
    fields = {name: x for name, x in config.to_diff_dict().items() if name not in NO_SHAPE}
    return hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode())


def _directory(what: str, name: str) -> Path | None:
    """Return the directory of that name, reference model or GGUF file; None for what may be an id on the hub."""
    if (gguf := find_gguf(name)) is not None:
        return gguf.parent
    path = Path(model_folder(name))
    if path.is_file() or not name:
        received = "a file" if name else "an empty name"
        raise errors.invalid(f"{what} {name}", "a directory, or an id on the hub", received)
    return path if path.is_dir() else None


def _version(what: str, name: str, revision: str | None = None) -> str:
    """Return a digest of a directory's files, or the commit of an id on the hub."""
    path = _directory(what, name)
    if path is not None:
        gguf = find_gguf(name)
        return folder_digest(path) if gguf is None else f"file-{digest(gguf)[:16]}"
    for file in ("config.json", *TOKENIZER_FILES):
        found = cached_file(name, file, revision=revision, _raise_exceptions_for_missing_entries=False)
        if found is not None:
            return extract_commit_hash(found, None) or revision or "unknown"
    return revision or "unknown"


def folder_digest(folder: Path) -> str:
    """Return ``files-`` and a digest of the names and contents of the files with an end of :data:`CONTENT`."""
    files = sorted(path for path in folder.iterdir() if path.suffix in CONTENT and path.is_file())
    found = hashlib.sha256("".join(f"{file.name} {digest(file)}\n" for file in files).encode())
    return f"files-{found.hexdigest()[:16]}"


def last_part(source: str) -> str:
    """Return the last part of a path that is there, anything else unchanged."""
    path = Path(source)
    return path.resolve().name if path.exists() else source


def _decoder(where: str, config: Any) -> Any:
    """Return the configuration of a causal language model; of one of text and pictures what its row is of."""
    check_family(config.to_dict(), row=False)
    if row_of(config) is not None:
        config = text_config(config)
    check_shape(where, config)
    return config


def check_shape(where: str, config: Any) -> None:
    """Raise ValueError for a configuration, called ``where``, of another mask, or with what transformers leaves out."""
    if row_of(config) is None:
        return
    if getattr(config, "position_bias", None) is not None:
        raise errors.invalid(
            f"{where}: position_bias", "none; a bias is given beside a model, as --condition bias:FILE", "some"
        )
    if getattr(config, "use_bidirectional_attention", False):
        raise errors.invalid(f"{where}: use_bidirectional_attention", "false, for a causal mask", "true")
    if getattr(config, "slow_but_exact", False) and getattr(config, "pretraining_tp", 1) > 1:
        raise errors.invalid(f"{where}: slow_but_exact", "false, for the projection in one piece", "true")


def check_attention(config: Any, attention: str) -> None:
    """Raise ValueError for a way to compute attention that there is not, or not in this model's family."""
    row = row_of(config)
    there = ATTENTION if row is None or row.is_fused(config) else ATTENTION[:1]
    if attention not in there:
        raise errors.invalid("attention", f"{' or '.join(there)} for {config.model_type}", repr(attention))


def check_fits(config: Any, tokenizer: Any, length: int) -> None:
    """Raise ValueError if n is beyond the model's context or the tokenizer has a token that the model has not.

    Ids may have gaps, so that the largest counts, not how many there are.
    """
    longest = longest_of(config)
    if longest is not None and length > longest:
        raise errors.invalid("length", f"at most {longest} tokens, the model's context", length)
    if len(tokenizer) > config.vocab_size:
        raise errors.invalid("tokenizer", f"at most the model's {config.vocab_size} tokens", f"{len(tokenizer)}")
    ids = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else {}
    token = max(ids, key=ids.__getitem__, default="")
    if token and ids[token] >= config.vocab_size:
        raise errors.invalid("tokenizer", f"ids below the model's {config.vocab_size}", f"{ids[token]} for {token!r}")


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
