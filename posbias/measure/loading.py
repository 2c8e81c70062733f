"""Models and tokenizers from a directory or the hub: no pickle and no remote code unless asked for.

A model is what its files say, or it is refused: weights that are missing, unknown, or of another shape are named, and
whatever cannot be read is said to be absent, unanswered for, or broken.
"""

from __future__ import annotations

import copy
import os
import re
import sys
from contextlib import nullcontext, redirect_stderr
from dataclasses import replace
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any

import huggingface_hub.utils.logging as hub_logging
import torch
from huggingface_hub import errors as hub_errors
from safetensors import SafetensorError
from transformers import AutoConfig, AutoTokenizer, GgufConfig
from transformers.utils import logging
from transformers.utils.hub import cached_file, extract_commit_hash

from posbias import errors
from posbias.measure.adapters import check_adapter, found_adapter, named_base, with_adapter
from posbias.measure.digest import file_digests, folder_digest
from posbias.measure.gguf_file import check_size, find_gguf, quantisation_of, read_gguf
from posbias.measure.memory import has_fast_bfloat16, memory_available, shape_of
from posbias.measure.opening import ADAPTER, check_config
from posbias.measure.settings import ATTENTION, Opening
from posbias.measure.settings import DTYPES as DTYPE_NAMES
from posbias.measure.weights import check_files, check_prefix, check_weights
from posbias.networks.auto import causal_class
from posbias.networks.description import FIELD, biases_of
from posbias.networks.families import check_family, longest_of, row_of, text_config
from posbias.networks.given_biases import attach_biases
from posbias.shipped import PREFIX, model_folder

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
"""Files of which one at least lies in the directory of a tokenizer."""

NO_FOLDER = "no such folder"
"""Where transformers is told to look for an adapter."""

DTYPES = {name: getattr(torch, name) for name in DTYPE_NAMES}

MOST = {"num_hidden_layers": 1000, "num_attention_heads": 2**31, "hidden_size": 2**40, "vocab_size": 2**40}
"""Numbers that every configuration has, with the largest of which a model is planned, to see whether it fits."""


class Source(Opening):
    """Which model is wanted and what it is allowed to do: its configuration, tokenizer and weights, when asked for.

    With an adapter of peft beside it, or in the place of a model, it is the model that the adapter makes of its base.
    """

    def config(self) -> Any:
        """Return the configuration, of a supported family and with numbers of which a model is made."""
        path, base = _directory("model", self.model), self._base
        if base is not None:
            return base.config()
        if self._gguf is None and path is not None:
            check_config(path / "config.json", f"model {self.model}")
        config = self._from("model", AutoConfig, self.model)
        check_family(config.to_dict(), row=False)
        if row_of(config) is not None:  # of a model of text and pictures what its row is of
            config = text_config(config)
        check_shape(f"model {self.model}", config)
        return config

    def name(self) -> str:
        """Return what the model is called in results: of a local path only the last part, which says enough."""
        if self._adapter is None:
            return last_part(self.model)
        base = self._base
        return f"{last_part(self.model)}, adapter{'' if base is None else f' of {base.name()}'}"

    def version(self) -> str:
        """Return what tells this model from others of its name.

        For a model in a directory a digest of every byte of its files, for one on the hub its commit. The base of an
        adapter, and a tokenizer from elsewhere, are named after it in the same way.
        """
        path, base = _directory("model", self.model), self._base
        if path is not None:
            own = _digest(self.model, path)
        else:
            file = cached_file(self.model, "config.json" if base is None else ADAPTER, revision=self.revision)
            own = extract_commit_hash(file, None) or self.revision or "unknown"
        if base is not None:
            own += f", base {base.version()}"
        if self.tokenizer is None or self.tokenizer == self.model:
            return own
        other = _directory("tokenizer", self.tokenizer)
        if other is None:
            return f"{own}, tokenizer {_tokenizer_commit(self.tokenizer)}"
        if path is not None and path.resolve() == other.resolve():
            return own
        return f"{own}, tokenizer {_digest(self.tokenizer, other)}"

    def quantisation(self) -> str | None:
        """Return how the weights of a GGUF file were rounded before they were made 32 bits again, None for others."""
        return None if self._gguf is None else f"{quantisation_of(self._gguf)} (GGUF), dequantised"

    def tokenizer_name(self) -> str:
        """Return what the tokenizer is called in results."""
        return last_part(self.tokenizer or self.model)

    def load_tokenizer(self) -> Any:
        """Return the tokenizer; transformers would make an empty one of a directory without its files."""
        name, base = self.tokenizer or self.model, self._base
        path = _directory("tokenizer", name)
        if (
            base is not None
            and self.tokenizer is None
            and not (path and any((path / x).is_file() for x in TOKENIZER_FILES))
        ):
            return base.load_tokenizer()
        if path is not None and not find_gguf(name) and not any((path / x).is_file() for x in TOKENIZER_FILES):
            raise errors.invalid(f"tokenizer {name}", f"a directory with one of {', '.join(TOKENIZER_FILES)}", "none")
        tokenizer = self._from("tokenizer", AutoTokenizer, name)
        if len(tokenizer) <= len(tokenizer.all_special_tokens):
            raise errors.invalid(f"tokenizer {name}", "one with tokens that are not special", "none of them")
        return tokenizer

    def load_model(self, dtype: torch.dtype, device: str, device_map: str | None, attention: str = "eager") -> Any:
        """Return the model with the position biases that it is given, on one device or spread by ``device_map``.

        It is what its files say, or it is refused: see :func:`~posbias.measure.weights.check_weights`.
        """
        base, adapter = self._base, self._adapter
        model = (base or self)._load_base(dtype, device, device_map, attention)
        if adapter is not None:
            model = with_adapter(f"model {self.model}", model, adapter, pickle=self.allow_pickle)
        return model

    def check_weights(self) -> None:
        """Raise ValueError unless the weights of a model in a directory, or of its adapter's base, can be read."""
        source = self._base or self
        if (path := _directory("model", source.model)) is not None and source._gguf is None:
            check_files(path, pickle=self.allow_pickle)

    def _load_base(self, dtype: torch.dtype, device: str, device_map: str | None, attention: str) -> Any:
        """Return the model that an adapter changes, or the model where there is none."""
        where, config = f"model {self.model}", self.config()
        check_attention(config, attention)
        if not self.trust_remote_code and getattr(config, "quantization_config", None) is None:
            check_runs(where, config, dtype, resident=device_map is None)
        path = _directory("model", self.model)
        if path is not None and self._gguf is None:
            check_files(path, pickle=self.allow_pickle)
        options: dict[str, Any] = {"dtype": dtype, "attn_implementation": attention, "device_map": device_map}
        options |= {"use_safetensors": None if self.allow_pickle else True}
        options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}  # refused below, by name
        options |= {
            "adapter_kwargs": {"subfolder": NO_FOLDER}
        }  # else transformers looks for adapters, and is not strict
        if self._gguf is not None:
            options["quantization_config"] = GgufConfig(dequantize=True)
        if self.strip_prefix:
            options["key_mapping"] = {f"^{re.escape(self.strip_prefix)}": ""}
        try:
            model, found = self._from("model", causal_class(config), self.model, **options)
            if self.strip_prefix:
                folder = path or Path(str(cached_file(self.model, "config.json", revision=self.revision))).parent
                check_prefix(where, folder, self.strip_prefix)
            keys = {key: found[f"{key}_keys"] for key in ("missing", "unexpected", "mismatched")}
            check_weights(where, model, **keys)
            if self._gguf is not None:
                check_size(where, self._gguf, model)
            attach_biases(model)
            return model if device_map is not None else model.to(device)
        except torch.OutOfMemoryError:
            low = dtype.itemsize == 4 and has_fast_bfloat16(torch.device(device))
            advice = f"one that does not; try --device-map auto{', or --dtype bfloat16' if low else ''}"
            raise errors.invalid(f"model {self.model}", f"one that fits on {device_map or device}", advice) from None

    @cached_property
    def _gguf(self) -> Any:
        """The reader of the GGUF file that the model is in, None for a model in other files."""
        file = find_gguf(self.model)
        return None if file is None else read_gguf(file)

    @cached_property
    def _adapter(self) -> Path | None:
        """The folder of the adapter, None if there is none; one that cannot be merged is refused."""
        folder = found_adapter(self.model, _directory("model", self.model), self.revision)
        if folder is not None:
            check_adapter(f"model {self.model}", folder, pickle=self.allow_pickle)
        return folder

    @cached_property
    def _base(self) -> Source | None:
        """The model that an adapter was made for where the adapter lies alone, None where the model is here."""
        folder = self._adapter
        if folder is None or (folder / "config.json").is_file():
            return None
        name, revision = named_base(f"model {self.model}", folder)
        base = replace(self, model=name, revision=revision, tokenizer=None)
        try:
            if base._adapter is not None:
                raise errors.invalid(f"model {name}", "a model without an adapter", "one with an adapter")
            base.config()
        except ValueError as error:
            raise errors.invalid(f"model {self.model}", "an adapter whose base is there", str(error)[:160]) from None
        return base

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
            raise _reason(what, name, self.revision, error, there=path is not None) from None


def _directory(what: str, name: str) -> Path | None:
    """Return the directory of that name, reference model or GGUF file; None for what may be an id on the hub."""
    if (gguf := find_gguf(name)) is not None:
        return gguf.parent
    try:
        path = Path(model_folder(name))
        if path.is_dir() and name:
            return path
        file = path.is_file()
    except (OSError, ValueError) as error:
        if name.startswith(PREFIX):
            raise
        raise errors.invalid(f"{what} {name[:80]}", "a directory, or an id on the hub", str(error)[:80]) from None
    if file or not name:
        raise errors.invalid(
            f"{what} {name}", "a directory, or an id on the hub", "a file" if file else "an empty name"
        )
    return None


def _digest(name: str, path: Path) -> str:
    """Return a digest of the files of a model or tokenizer in a directory, or of the GGUF file that it is in."""
    gguf = find_gguf(name)
    return folder_digest(path) if gguf is None else f"file-{file_digests([gguf])[0][:16]}"


def _tokenizer_commit(name: str) -> str:
    """Return the commit on the hub of a tokenizer, whichever of its files are there."""
    for file in TOKENIZER_FILES:
        try:
            return extract_commit_hash(cached_file(name, file), None) or "unknown"
        except OSError:
            continue
    return "unknown"


def _reason(what: str, name: str, revision: str | None, error: Exception, *, there: bool) -> ValueError:
    """Return the refusal: no such directory, no answer from the hub, no such model there, or a broken file."""
    first = " ".join(str(error).split())[:200] or type(error).__name__
    if "custom code" in first:
        wanted = "none with code of its own, or --trust-remote-code"
        return errors.invalid(f"{what} {name}", wanted, "one with code of its own")
    if isinstance(error, SafetensorError):
        return errors.invalid(f"{what} {name}", "whole .safetensors files", first)
    chain: list[BaseException] = [error]
    while (earlier := chain[-1].__cause__ or chain[-1].__context__) is not None and earlier not in chain:
        chain.append(earlier)

    def has(*kinds: type[BaseException]) -> bool:
        return any(isinstance(x, kinds) for x in chain)

    wanted, absent = "a directory, or an id that the hub answers for", "no such directory"
    if has(hub_errors.HFValidationError):
        return errors.invalid(f"{what} {name}", wanted, f"{absent}, and nothing that can be an id")
    if has(hub_errors.RevisionNotFoundError):
        return errors.invalid(f"revision of {name}", "a branch, tag or commit", revision)
    if has(hub_errors.GatedRepoError):
        return errors.invalid(f"{what} {name}", "an id that you have access to", "one that asks for a login")
    if has(hub_errors.RepositoryNotFoundError):
        return errors.invalid(f"{what} {name}", wanted, f"{absent}, and none of that id on the hub")
    unanswered = hub_errors.LocalEntryNotFoundError, hub_errors.OfflineModeIsEnabled, hub_errors.HfHubHTTPError
    if not there and has(*unanswered, ConnectionError):
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") else ""
        return errors.invalid(f"{what} {name}", wanted, f"{absent}, and no answer from the hub{offline}")
    return errors.invalid(f"{what} {name}", "files that transformers reads", first)


def last_part(source: str) -> str:
    r"""Return the last part of a path that is there, anything else unchanged; bytes that are no text are written out.

    >>> last_part("someone/some-model"), last_part("model-\udcff")
    ('someone/some-model', 'model-\\udcff')
    """
    path = Path(source)
    name = path.resolve().name if path.exists() else source
    return errors.written_out(name)


def check_shape(where: str, config: Any) -> None:
    """Raise ValueError for numbers in a configuration, called ``where``, of which no model is made.

    >>> from transformers import GPT2Config
    >>> check_shape("gpt2", GPT2Config(n_layer=0))
    Traceback (most recent call last):
        ...
    ValueError: gpt2: num_hidden_layers: expected an integer of at least 1, received 0
    """
    row, found = row_of(config), {}
    if row is None:  # nobody knows which numbers it has
        return
    for name, most in MOST.items():
        found[name] = errors.positive_integer(f"{where}: {name}", getattr(config, name, None))
        if found[name] > most:
            raise errors.invalid(f"{where}: {name}", f"at most {most}", found[name])
    for name, least in (*((name, 1) for name in row.context), ("sliding_window", 2)):
        stated: Any = getattr(config, name, None)
        if stated is not None and (name, stated) != ("sliding_window", 0):  # 0 stands for none
            errors.positive_integer(f"{where}: {name}", stated, minimum=least)
    H, hidden, groups = found["num_attention_heads"], found["hidden_size"], getattr(config, "num_key_value_heads", None)
    if hidden % H and getattr(config, "head_dim", None) in (None, hidden // H):
        raise errors.invalid(f"{where}: num_attention_heads", f"a divisor of hidden_size {hidden}", H)
    if groups is not None and H % errors.positive_integer(f"{where}: num_key_value_heads", groups):
        raise errors.invalid(f"{where}: num_key_value_heads", f"a divisor of the {H} heads", groups)
    if getattr(config, FIELD, None) is not None:
        biases_of(config.model_type, getattr(config, FIELD), found["num_hidden_layers"], H, where)
    if getattr(config, "use_bidirectional_attention", False):
        raise errors.invalid(f"{where}: use_bidirectional_attention", "false, for a causal mask", "true")
    if getattr(config, "slow_but_exact", False) and getattr(config, "pretraining_tp", 1) > 1:
        raise errors.invalid(f"{where}: slow_but_exact", "false, for the projection in one piece", "true")


def check_runs(where: str, config: Any, dtype: torch.dtype, *, resident: bool = True) -> None:
    """Raise ValueError unless the model runs on two tokens and its weights fit into memory; none is taken to see it.

    ``resident`` is False where the weights are spread over devices, and need not all lie in this machine's memory.
    """
    try:
        model: Any = shape_of(copy.deepcopy(config)).eval()
        model.set_experts_implementation("batched_mm")  # of all ways the one that asks for no number
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    try:
        with torch.no_grad():  # with a cache, for without one some families look at the numbers
            if row_of(config) is not None:  # others may look at them in any case
                model(torch.zeros(1, 2, dtype=torch.long, device="meta"), use_cache=True)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        asks_for_numbers = isinstance(error, NotImplementedError) or "meta tensors" in reason
        if not asks_for_numbers:  # there are none yet, so that nothing is known before it runs
            raise errors.invalid(where, "a configuration whose model runs", reason) from None
    there = memory_available(torch.device("cpu")) if resident else None
    wanted = sum(x.numel() for x in model.parameters()) * dtype.itemsize
    if there is not None and wanted > there:
        received = f"weights of {wanted / 2**30:.1f} GiB in {str(dtype).removeprefix('torch.')}"
        raise errors.invalid(where, f"a model that fits in the {there / 2**30:.1f} GiB available", received)


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
