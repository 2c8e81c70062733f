"""Models and tokenizers from a directory or the hub: no pickle and no remote code unless asked for.

A model is what its files say, or it is refused: weights that are missing, unknown, or of another shape are named, and
what cannot be read is said in one line.
"""

from __future__ import annotations

import hashlib
import sys
from contextlib import nullcontext, redirect_stderr
from functools import cache, cached_property
from io import StringIO
from pathlib import Path
from typing import Any

import huggingface_hub.utils.logging as hub_logging
import torch
from transformers import AutoConfig, AutoTokenizer, GgufConfig
from transformers.utils import logging
from transformers.utils.hub import cached_file, extract_commit_hash

from posbias import errors
from posbias.models.auto import causal_class
from posbias.models.description import FIELD, biases_of
from posbias.models.families import check_family, longest_of, row_of, text_config
from posbias.models.gguf_file import check_size, find_gguf, quantisation_of, read_gguf
from posbias.models.given_biases import attach_biases
from posbias.models.memory import check_weights_fit
from posbias.models.opening import check_config
from posbias.models.weights import check_weights
from posbias.settings import ATTENTION, Opening
from posbias.settings import DTYPES as DTYPE_NAMES
from posbias.shipped import model_folder

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
"""Files of which one at least lies in the directory of a tokenizer."""

CONTENT = (".safetensors", ".bin", ".json", ".model", ".txt", ".jinja", ".tiktoken", ".py")
"""Ends of the names of files that decide what a model computes or how text becomes tokens."""

MOST_LAYERS = 1000
"""With more it would take long to see that a model does not fit."""

NO_FOLDER = "no such folder"
"""Where transformers is told to look for an adapter."""

DTYPES = {name: getattr(torch, name) for name in DTYPE_NAMES}


class Source(Opening):
    """Which model is wanted and what it is allowed to do: its configuration, tokenizer and weights, when asked for."""

    def config(self) -> Any:
        """Return the configuration, of a supported family and with numbers of which a model is made."""
        path = _directory("model", self.model)
        if path is not None and self._gguf is None:
            check_config(path / "config.json", f"model {self.model}")
        config = self._from("model", AutoConfig, self.model)
        check_family(config.to_dict(), row=False)
        if row_of(config) is not None:  # of a model of text and pictures what its row is of
            config = text_config(config)
        check_shape(f"model {self.model}", config)
        return config

    def name(self) -> str:
        """Return what the model is called in results: of a local path only the last part, which says enough."""
        return last_part(self.model)

    def version(self) -> str:
        """Return what tells this model from others of its name.

        For a model in a directory a digest of its files, for one on the hub its commit. A tokenizer from elsewhere is
        named after it in the same way.
        """
        own = _version("model", self.model, self.revision)
        if self.tokenizer is None or self.tokenizer == self.model:
            return own
        other = _version("tokenizer", self.tokenizer)
        return own if own == other else f"{own}, tokenizer {other}"

    def quantisation(self) -> str | None:
        """Return how the weights of a GGUF file were rounded before they were made 32 bits again, None for others."""
        return None if self._gguf is None else f"{quantisation_of(self._gguf)} (GGUF), dequantised"

    def tokenizer_name(self) -> str:
        """Return what the tokenizer is called in results."""
        return last_part(self.tokenizer or self.model)

    def load_tokenizer(self) -> Any:
        """Return the tokenizer; transformers would make an empty one of a directory without its files."""
        name = self.tokenizer or self.model
        path = _directory("tokenizer", name)
        if path is not None and not find_gguf(name) and not any((path / x).is_file() for x in TOKENIZER_FILES):
            raise errors.invalid(f"tokenizer {name}", f"a directory with one of {', '.join(TOKENIZER_FILES)}", "none")
        tokenizer = self._from("tokenizer", AutoTokenizer, name)
        if len(tokenizer) <= len(tokenizer.all_special_tokens):
            raise errors.invalid(f"tokenizer {name}", "one with tokens that are not special", "none of them")
        return tokenizer

    def load_model(self, dtype: torch.dtype, device: str, device_map: str | None, attention: str = "eager") -> Any:
        """Return the model with the position biases that it is given, on one device or spread by ``device_map``.

        It is what its files say, or it is refused: see :func:`~posbias.models.weights.check_weights`.
        """
        where, config = f"model {self.model}", self.config()
        check_attention(config, attention)
        if device_map is None and getattr(config, "quantization_config", None) is None:
            check_weights_fit(config, dtype, torch.device(device))
        options: dict[str, Any] = {"dtype": dtype, "attn_implementation": attention, "device_map": device_map}
        options |= {"use_safetensors": None if self.allow_pickle else True}
        options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}  # refused below, by name
        options |= {"adapter_kwargs": {"subfolder": NO_FOLDER}}  # else transformers is not strict about adapters
        if self._gguf is not None:
            options["quantization_config"] = GgufConfig(dequantize=True)
        model, info = self._from("model", causal_class(config), self.model, **options)
        check_weights(where, model, **{key: info[f"{key}_keys"] for key in ("missing", "unexpected", "mismatched")})
        if self._gguf is not None:
            check_size(where, self._gguf, model)
        attach_biases(model)
        model = model.eval() if device_map is not None else model.eval().to(device)
        check_runs(where, model)
        return model

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
            elif auto is not AutoTokenizer and not self.allow_pickle and _is_pickled(path):
                expected, said = "weights in .safetensors", "pickled ones; give --allow-pickle if you trust them"
            else:
                expected = "files that transformers reads"
            raise errors.invalid(f"{what} {name}", expected, said) from None


def _directory(what: str, name: str) -> Path | None:
    """Return the directory of that name, reference model or GGUF file; None for what may be an id on the hub."""
    if (gguf := find_gguf(name)) is not None:
        return gguf.parent
    path = Path(model_folder(name))
    if path.is_file() or not name:
        received = "a file" if name else "an empty name"
        raise errors.invalid(f"{what} {name}", "a directory, or an id on the hub", received)
    return path if path.is_dir() else None


def _is_pickled(folder: Path) -> bool:
    return any(folder.glob("*.bin")) and not any(folder.glob("*.safetensors"))


def _version(what: str, name: str, revision: str | None = None) -> str:
    """Return a digest of a directory's files, or the commit of an id on the hub."""
    path = _directory(what, name)
    if path is not None:
        gguf = find_gguf(name)
        return folder_digest(path) if gguf is None else f"file-{_digest(gguf.resolve(), *_state(gguf))[:16]}"
    for file in ("config.json", *TOKENIZER_FILES):
        found = cached_file(name, file, revision=revision, _raise_exceptions_for_missing_entries=False)
        if found is not None:
            return extract_commit_hash(found, None) or revision or "unknown"
    return revision or "unknown"


def folder_digest(folder: Path) -> str:
    """Return ``files-`` and 16 hexadecimal digits: a digest of the names and contents of the files that count.

    They are those with an end of :data:`CONTENT`; folders inside the folder are not looked at.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix in CONTENT and path.is_file())
    digests = [(file.name, _digest(file.resolve(), *_state(file))) for file in files]
    found = hashlib.sha256("".join(f"{name} {digest}\n" for name, digest in digests).encode())
    return f"files-{found.hexdigest()[:16]}"


def _state(file: Path) -> tuple[int, int]:
    """Return what changes when a file does: its size, and the time."""
    return file.stat().st_size, file.stat().st_mtime_ns


@cache
def _digest(file: Path, size: int, changed: int) -> str:
    """Return the SHA-256 of a file, read once as long as its size and time stay the same."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def last_part(source: str) -> str:
    r"""Return the last part of a path that is there, anything else unchanged; bytes that are no text are written out.

    >>> last_part("someone/some-model"), last_part("model-\udcff")
    ('someone/some-model', 'model-\\udcff')
    """
    path = Path(source)
    name = path.resolve().name if path.exists() else source
    return errors.written_out(name)


def check_shape(where: str, config: Any) -> None:
    """Raise ValueError for numbers in a configuration, called ``where``, of which no model that we measure is made.

    >>> from transformers import GPT2Config
    >>> check_shape("gpt2", GPT2Config(n_layer=0))
    Traceback (most recent call last):
        ...
    ValueError: gpt2: num_hidden_layers: expected an integer of at least 1, received 0
    """
    if row_of(config) is None:  # nobody knows which numbers it has
        return
    sizes = ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size")
    T, H, hidden, _ = (errors.positive_integer(f"{where}: {name}", getattr(config, name, None)) for name in sizes)
    if T > MOST_LAYERS:
        raise errors.invalid(f"{where}: num_hidden_layers", f"at most {MOST_LAYERS}", T)
    window = getattr(config, "sliding_window", None)
    if window:  # 0 stands for none
        errors.positive_integer(f"{where}: sliding_window", window, minimum=2)
    if hidden % H and getattr(config, "head_dim", None) in (None, hidden // H):
        raise errors.invalid(f"{where}: num_attention_heads", f"a divisor of hidden_size {hidden}", H)
    if getattr(config, FIELD, None) is not None:
        biases_of(config.model_type, getattr(config, FIELD), T, H, where)
    if getattr(config, "use_bidirectional_attention", False):
        raise errors.invalid(f"{where}: use_bidirectional_attention", "false, for a causal mask", "true")
    if getattr(config, "slow_but_exact", False) and getattr(config, "pretraining_tp", 1) > 1:
        raise errors.invalid(f"{where}: slow_but_exact", "false, for the projection in one piece", "true")


def check_runs(where: str, model: Any) -> None:
    """Raise ValueError unless a model runs, on two tokens: parts of its configuration may not fit each other."""
    try:
        with torch.no_grad():
            model(torch.zeros(1, 2, dtype=torch.long, device=model.device), use_cache=False)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise errors.invalid(where, "a configuration whose model runs", errors.short(error)) from None


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
