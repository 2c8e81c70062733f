"""Adds an adapter of peft, from a folder, to the model."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from torch import nn

from posbias import errors
from posbias.conditions import FIELD, ChangedRun
from posbias.files import digest
from posbias.prompts import Prompt


@contextmanager
def adapter(model: nn.Module, folder: str | PathLike[str]) -> Iterator[None]:
    """Put an adapter into a model until the block ends; its own weights are as they were then."""
    check_folder(fspath(folder))
    try:
        from peft import PeftModel
    except ModuleNotFoundError:
        raise errors.invalid(FIELD, "peft, installed, for an adapter", "none") from None
    learned = [one for one in model.parameters() if one.requires_grad]
    training = model.training
    try:
        wrapped = PeftModel.from_pretrained(model, fspath(folder)).eval()  # type: ignore[arg-type]
    except Exception as error:  # of peft and of files anything
        raise errors.invalid(
            f"{FIELD} adapter {fspath(folder)}", "one that fits the model", errors.short(error)
        ) from None
    try:
        yield
    finally:
        wrapped.unload()
        model.train(training)
        for one in learned:
            one.requires_grad_(True)


def check_folder(folder: str) -> None:
    """Raise ValueError unless a folder has an adapter of peft."""
    if not (Path(folder) / "adapter_config.json").is_file():
        raise errors.invalid(f"{FIELD} adapter", "a folder with adapter_config.json", folder or "none")


class Condition(ChangedRun):
    changes = "model"
    needs = "a model in this process, peft, and the adapter's folder behind a colon"
    cost = "training"

    def __init__(self, argument: str) -> None:
        check_folder(argument)
        self.folder = argument

    def resolved(self, text: str, config: Any) -> str:
        """Return the folder's name, with the digest of what is in it."""
        files = sorted(file for file in Path(self.folder).glob("adapter_*") if file.is_file())
        return f"adapter:{Path(self.folder).name} {' '.join(digest(file)[:12] for file in files)}"

    def changed(self, model: Any, prompt: Prompt | None) -> AbstractContextManager[None]:
        return adapter(model, self.folder)
