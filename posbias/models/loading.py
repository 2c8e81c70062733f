"""Models and tokenizers: of files on this machine or the hub, or in memory.

A model is what its files say, or it is refused: no pickle, and no remote code unless asked for; weights that are
missing, unknown, or of another shape are named, and what cannot be read is said in one line.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any

import huggingface_hub.utils.logging as hub_logging
import torch
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, GgufConfig
from transformers.utils import logging
from transformers.utils.hub import cached_file, extract_commit_hash

from posbias import errors
from posbias.files import digest
from posbias.models.families import causal_class, check_family, longest_of, row_of, text_config
from posbias.models.gguf_file import check_size, find_gguf, quantisation_of, read_gguf
from posbias.models.opening import Vocabulary
from posbias.models.weights import check_weights, check_weights_fit
from posbias.settings import ATTENTION, DEFAULT, Opening, as_text, quantities_of
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

WRAPPERS = ("_orig_mod", "module")
"""What torch.compile, and what data-parallel training call the model that they wrap."""


class Source(Opening):
    """Which model is wanted and what it is allowed to do: its configuration, tokenizer and weights, when asked for."""

    def config(self) -> Any:
        """Return the configuration, of a supported family and with numbers of which a model is made."""
        self._gguf  # noqa: B018 - raises for a file that is torn, or of an architecture that is not converted
        return _decoder(f"model {self.model}", self._from("model", AutoConfig, self.model))

    def name(self) -> str:
        """Return what the model is called in results: of a local path only the last part, which says enough."""
        return last_part(self.model)

    def version(self) -> str:
        """Return a digest of the model's files, or its commit on the hub; and of a tokenizer from elsewhere."""
        own = _version("model", self.model, self.revision)
        if self.tokenizer is None or self.tokenizer == self.model:
            return own
        other = _version("tokenizer", self.tokenizer)
        return own if own == other else f"{own}, tokenizer {other}"

    def about(self) -> dict[str, str]:
        """Return what else files say of it: how weights of a GGUF file were rounded before they were made 32 bits."""
        return {} if self._gguf is None else {"quantisation": f"{quantisation_of(self._gguf)} (GGUF), dequantised"}

    def find_tokenizer(self) -> str | None:
        """Return the directory or id of the tokenizer, None where there is none."""
        return self.tokenizer or self.model

    def load_tokenizer(self) -> Any:
        """Return the tokenizer; where there is none, the vocabulary, of which random tokens can be drawn.

        transformers would make an empty one of a directory without its files.
        """
        name = self.find_tokenizer()
        if name is None:
            return Vocabulary(int(self.config().vocab_size))
        path = _directory("tokenizer", name)
        if path is not None and not find_gguf(name) and not any((path / x).is_file() for x in TOKENIZER_FILES):
            raise errors.invalid(f"tokenizer {name}", f"a directory with one of {', '.join(TOKENIZER_FILES)}", "none")
        tokenizer = self._from("tokenizer", AutoTokenizer, name)
        if len(tokenizer) <= len(tokenizer.all_special_tokens):
            raise errors.invalid(f"tokenizer {name}", "one with tokens that are not special", "none of them")
        return tokenizer

    def load_model(self, dtype: torch.dtype, device: str, device_map: str | None, attention: str = "eager") -> Any:
        """Return the model, on one device or spread by ``device_map``."""
        where, config = f"model {self.model}", self.config()
        check_attention(config, attention)
        if device_map is None and getattr(config, "quantization_config", None) is None:
            check_weights_fit(config, dtype, torch.device(device))
        options: dict[str, Any] = {"dtype": dtype, "attn_implementation": attention, "device_map": device_map}
        options |= {"use_safetensors": True}
        options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}  # refused below, by name
        options |= {"adapter_kwargs": {"subfolder": NO_FOLDER}}  # else transformers is not strict about adapters
        if self._gguf is not None:
            options["quantization_config"] = GgufConfig(dequantize=True)
        model, info = self._from("model", causal_class(config), self.model, **options)
        check_weights(where, *(info[f"{key}_keys"] for key in ("missing", "unexpected", "mismatched")))
        if self._gguf is not None:
            check_size(where, self._gguf, model)
        return model.eval() if device_map is not None else model.eval().to(device)

    @cached_property
    def _gguf(self) -> Any:
        """The reader of the GGUF file that the model is in, None for a model in other files."""
        file = find_gguf(self.model)
        return None if file is None else read_gguf(file)

    def _from(self, what: str, auto: Any, name: str, **options: Any) -> Any:
        """Return what transformers makes of a directory or id, or say what is wrong with it."""
        logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        hub_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        if not sys.stderr.isatty():
            logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        options |= {"revision": self.revision if name == self.model else None}
        options = {key: x for key, x in options.items() if x is not None}
        path, file = _directory(what, name), find_gguf(name)
        if file is not None:
            options["gguf_file"] = file.name
        try:
            with nullcontext() if file is None else redirect_stderr(StringIO()):  # of a bar that nothing turns off
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


@dataclass(frozen=True, eq=False)
class InMemory(Source):
    """Hold a model in memory, and its tokenizer: an object, a directory or an id; without one, random tokens."""

    network: Any = None
    tokenizer: Any = None

    def __post_init__(self) -> None:
        """Unwrap the model, and refuse one that cannot be measured."""
        network, given = self.network, type(self.network).__name__
        for name in WRAPPERS:
            if name == "_orig_mod" or not hasattr(network, "config"):
                network = getattr(network, name, network)
        if hasattr(network, "peft_config"):
            if any(one.is_prompt_learning for one in network.peft_config.values()):
                raise errors.invalid("model", "adapters that change weights, not ones that add tokens", given)
            network = network.get_base_model()
        if not hasattr(network, "get_output_embeddings") or network.get_output_embeddings() is None:
            raise errors.invalid("model", "a causal language model of transformers", given)
        object.__setattr__(self, "network", network)
        self.dtype()

    def config(self) -> Any:
        """Return the configuration, of a causal language model."""
        check_family(self.network.config.to_dict(), row=False)
        check_shape("model", self.network.config)
        return self.network.config

    def name(self) -> str:
        """Return what the model is called in results."""
        name = self.network.name_or_path
        return f"{last_part(name) if name else type(self.network).__name__} (in memory)"

    def version(self) -> str:
        """Return a digest of the configuration and of every parameter and buffer, in its own format."""
        found = config_digest(self.network.config)
        for name, x in sorted(self.network.state_dict().items()):
            for part in _plain(x):
                found.update(f"{name} {part.dtype} {tuple(part.shape)}\n".encode())
                found.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return f"memory-{found.hexdigest()[:16]}"

    def find_tokenizer(self) -> str | None:
        """Return the directory or id of the tokenizer, the name of one in memory, or None."""
        if self.tokenizer is None or isinstance(self.tokenizer, str):
            return self.tokenizer
        return getattr(self.tokenizer, "name_or_path", "") or type(self.tokenizer).__name__

    def load_tokenizer(self) -> Any:
        """Return the tokenizer that is in memory, else as of any other model."""
        in_memory = self.tokenizer is not None and not isinstance(self.tokenizer, str)
        return self.tokenizer if in_memory else super().load_tokenizer()

    def load_model(self, dtype: torch.dtype, device: str, device_map: str | None, attention: str = "eager") -> Any:
        """Return the model itself, which computes attention in the way that is asked for until it is given back."""
        check_attention(self.config(), attention)
        own = self.network.config._attn_implementation
        if own != attention:
            self.network.set_attn_implementation(attention)
        if self.network.config._attn_implementation != attention:
            raise errors.invalid("attention", f"{own}, which the model was made with", attention)
        return self.network

    def dtype(self) -> str:
        """Return the name of the model's number format, or raise ValueError if it is none of those that are known."""
        name = str(self.network.dtype).removeprefix("torch.")
        if name not in DTYPES:
            raise errors.invalid("model", f"numbers in {', '.join(DTYPES)}", name)
        return name

    def settings(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return settings with the model's own number format and device, or raise ValueError for what it cannot have.

        The law of untrained networks is read from weights, which adapters that are not merged change only as they work.
        """
        if any(hasattr(one, "base_layer") and not getattr(one, "merged", False) for one in self.network.modules()):
            if asked.get("quantities") is None:
                asked = {**asked, "quantities": [name for name in DEFAULT if name != "branches"]}
            elif "branches" in quantities_of(asked["quantities"]):
                raise errors.invalid("quantities", "none of branches beside adapters: merge them first", "branches")
        device = self.network.device
        for name, own in (("dtype", self.dtype()), ("device", str(device)), ("device_map", None)):
            given = as_text(asked.get(name))
            if given is not None and given not in (own, device.type if name == "device" else own):
                raise errors.invalid(name, f"{own or 'none'}, as the model in memory has it", given)
        return {**asked, "dtype": self.dtype(), "device": str(device)}


def config_digest(config: Any) -> Any:
    """Return a digest of what a configuration says of a network, to which more can be added."""
    fields = {name: x for name, x in config.to_diff_dict().items() if name not in NO_SHAPE}
    return hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode())


def _plain(x: Any) -> Iterator[Tensor]:
    """Yield the plain tensors that a parameter is made of: several, where it is quantised."""
    if not isinstance(x, Tensor):
        return
    if hasattr(x, "__tensor_flatten__"):
        for name in x.__tensor_flatten__()[0]:
            yield from _plain(getattr(x, name))
    else:
        yield x


@contextmanager
def lent(source: Source) -> Iterator[None]:
    """Give a model in memory back as it was: its mode, what is differentiated, and how attention is computed."""
    if not isinstance(source, InMemory):
        yield
        return
    network = source.network
    training = [module for module in network.modules() if module.training]
    learned = [parameter for parameter in network.parameters() if parameter.requires_grad]
    attention = source.network.config._attn_implementation
    try:
        yield
    finally:
        for module in training:
            module.training = True
        for parameter in learned:
            parameter.requires_grad_(True)
        if source.network.config._attn_implementation != attention:
            source.network.set_attn_implementation(attention)


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
        raise errors.invalid(f"{where}: position_bias", "none; a bias is given beside a model, as --bias", "some")
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
