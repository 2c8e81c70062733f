"""Adapters of peft in a directory, alone or beside the base that they change: merged into it through peft, or refused.

The base of an adapter that lies alone is the model that its configuration names; of one beside a model, that model.
Every tensor of the adapter is used and none is made up, as with a model's own weights.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from transformers.utils.hub import cached_file

from posbias import errors
from posbias.measure.hub import answers
from posbias.measure.opening import ADAPTER, read_object
from posbias.measure.weights import coded_layers

WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")


def found_adapter(name: str, path: Path | None, revision: str | None = None) -> Path | None:
    """Return the folder that has an adapter's files, None if the directory, or the id on the hub, has no adapter."""
    if path is not None:
        return path if (path / ADAPTER).is_file() else None
    from huggingface_hub import constants

    silent: dict[str, bool] = {
        f"_raise_exceptions_for_{what}": False for what in ("gated_repo", "missing_entries", "connection_errors")
    }
    silent["local_files_only"] = not answers(constants.ENDPOINT)  # the client would ask for half a minute
    try:
        files = [cached_file(name, file, revision=revision, **silent) for file in (ADAPTER, WEIGHTS[0])]
    except OSError:  # no such id, which is said where the model is read
        return None
    return Path(files[0]).parent if files[0] else None


def check_adapter(where: str, folder: Path, *, pickle: bool) -> Any:
    """Return an adapter's configuration as peft has it, or raise ValueError if it cannot be merged into its base."""
    fields = read_object(folder / ADAPTER)
    try:
        import peft  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        wanted = "no adapter, or peft installed, which merges it: pip install peft"
        raise errors.invalid(where, wanted, f"an adapter ({fields.get('peft_type', 'of no peft_type')})") from None
    if not (folder / WEIGHTS[0]).is_file() and not (pickle and (folder / WEIGHTS[1]).is_file()):
        pickled = (folder / WEIGHTS[1]).is_file()
        received = "a pickled one; give --allow-pickle if you trust it" if pickled else "none"
        raise errors.invalid(f"{where}: adapter", WEIGHTS[0], received)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fields that this kind of adapter does not have
            config = peft.PeftConfig.from_pretrained(str(folder))
    except Exception as error:  # code of others: what it raises is no part of any interface
        raise errors.invalid(f"{where}: {ADAPTER}", "what peft reads", _short(error)) from None
    if config.is_prompt_learning:
        raise errors.invalid(f"{where}: adapter", "one that changes weights", f"{config.peft_type.value}, of tokens")
    return config


def named_base(where: str, folder: Path) -> tuple[str, str | None]:
    """Return the name of the model that an adapter was made for, and its revision, as the adapter's folder has them.

    A path is one from here, or from the adapter's folder.
    """
    fields = read_object(folder / ADAPTER)
    name, revision = fields.get("base_model_name_or_path"), fields.get("revision")
    if not isinstance(name, str) or not name:
        raise errors.invalid(f"{where}: {ADAPTER}", "a base_model_name_or_path", repr(name)[:40])
    beside = folder / name
    return (str(beside) if not Path(name).is_dir() and beside.is_dir() else name), revision or None


def with_adapter(where: str, model: Any, folder: Path, *, pickle: bool) -> Any:
    """Return a model with an adapter merged into its weights; where these are codes, with the adapter in its layers."""
    config = check_adapter(where, folder, pickle=pickle)
    import peft

    if any(x.is_meta for x in model.parameters()):
        raise errors.invalid(where, "weights on one device, to merge an adapter into", "some that are kept elsewhere")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it warns of is refused below
            wrapped = peft.PeftModel(model, config)
            loaded = wrapped.load_adapter(str(folder), "default")
            unused = [*loaded.missing_keys, *loaded.unexpected_keys]
            if not unused:
                return wrapped.get_base_model() if coded_layers(model) else wrapped.merge_and_unload(safe_merge=True)
    except Exception as error:  # as above
        raise errors.invalid(f"{where}: adapter", "one that fits its base", _short(error)) from None
    received = f"{unused[0]} in one of them alone" + (f", and {len(unused) - 1} more" if unused[1:] else "")
    raise errors.invalid(f"{where}: adapter", "the tensors of its base's layers", received)


def _short(error: Exception) -> str:
    """Return what an error says, in one line of a screen's width."""
    return (" ".join(str(error).split()) or type(error).__name__)[:120]
