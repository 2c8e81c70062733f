"""Reference models and held-out documents: what comes with the package, checked by checksum.

The package has one reference model and the documents; a checkout of the book has two more among its studies, and
``make models`` brings the others. An installed package finds others in ``reference`` of ``POSBIAS_DATA``.
"""

import bz2
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from posbias import errors
from posbias.files import data_folder, digest

FOLDER = Path(__file__).parent / "data" / "reference"
CHECKOUT = Path(__file__).parents[1] / "studies" / "reference" / "models"
REGISTRY = FOLDER.with_name("reference.registry")
WEIGHTS = "model.safetensors"
PREFIX = "reference/"
"""In front of the name of a reference model where a directory or an id on the hub can stand too."""

HELD_OUT = "held-out.npz"
LONGER = "longer.json.bz2"
"""Pages of Django's documentation: documents that are long enough for prompts of 1,024 tokens."""
MODULES = FOLDER.with_name("held_out_modules.csv")
"""The module or topic that each held-out document is from, a line each under a heading."""


@cache
def registry() -> dict[str, str]:
    """Return the name and SHA-256 of every file of the reference models, and of the documents."""
    lines = REGISTRY.read_text(encoding="utf-8").splitlines()
    return dict(line.split() for line in lines if line and not line.startswith("#"))


def reference_names() -> list[str]:
    """Return the names of all reference models, here or not."""
    return sorted({name.split("/")[0] for name in registry() if "/" in name})


def shipped_names() -> list[str]:
    """Return the names of the reference models whose weights are here: one in an installed package."""
    here = {file.parent.name for place in (FOLDER, CHECKOUT) for file in place.glob(f"*/{WEIGHTS}")}
    return [name for name in reference_names() if name in here]


def reference_folder(name: str) -> Path:
    """Return the folder of a reference model's files, unchecked, with its weights if they are in one."""
    places = (FOLDER, CHECKOUT, data_folder() / "reference")
    folders = [place / name for place in places if (place / name).is_dir()]
    if folders:
        return max(folders, key=lambda folder: (folder / WEIGHTS).is_file())
    inside = ", ".join(f"{PREFIX}{other}" for other in shipped_names()) or "no reference model"
    raise FileNotFoundError(
        f"{PREFIX}{name}: expected its files in {places[0]}, {places[1]} or {places[2]}, received none; {inside} comes "
        f"with the package; in a checkout of the book, make models brings all: give its folder "
        f"studies/reference/models/{name}"
    )


def model_folder(model: str) -> str:
    """Return where a model is: the folder of ``reference/NAME``, any other directory or id unchanged."""
    if not model.startswith(PREFIX) or Path(model).exists():
        return model
    name = model.removeprefix(PREFIX)
    if name not in reference_names():
        raise errors.invalid("model", f"reference/ and one of {', '.join(reference_names())}", model)
    folder = reference_folder(name)
    for file in registry():
        if file.startswith(f"{name}/"):
            _check(file, folder.parent)
    return str(folder)


def _check(file: str, folder: Path) -> Path:
    """Return the path of a file in ``folder``; ValueError if its checksum is not the registry's."""
    path = folder / file
    received = f"sha256:{digest(path)} of {path.stat().st_size:,} bytes" if path.is_file() else "no file"
    if received.split()[0] != registry()[file]:
        remedy = "make models brings it" if folder == CHECKOUT else "install posbias again or restore it"
        raise errors.invalid(f"{path}: checksum", registry()[file], f"{received}; {remedy}")
    return path


def held_out_documents() -> list[str]:
    """Return the texts of the held-out documents, from token ids: Python's own texts differ between its versions."""
    from tokenizers import Tokenizer

    name = shipped_names()[0]
    tokenizer = Tokenizer.from_file(str(_check(f"{name}/tokenizer.json", reference_folder(name).parent)))
    with np.load(_check(HELD_OUT, FOLDER)) as file:
        parts = np.split(file["ids"], np.cumsum(file["lengths"])[:-1].astype(np.int64))
    return tokenizer.decode_batch([part.tolist() for part in parts], skip_special_tokens=False)


def builtin_documents() -> Iterator[str]:
    """Yield the built-in documents: those held out, then the longer ones, which are read when they are asked for."""
    yield from held_out_documents()
    yield from (text for _, text in _longer())


def builtin_units() -> list[str]:
    """Return the module, topic or page that each built-in document is from: documents of one are alike."""
    return held_out_modules() + [page for page, _ in _longer()]


@cache
def _longer() -> list[tuple[str, str]]:
    """Return page and text of each of the longer documents."""
    return [(page, text) for page, text in json.loads(bz2.decompress(_check(LONGER, FOLDER).read_bytes()))]


def held_out_modules() -> list[str]:
    """Return the module (``asyncio/queues.py``) or topic (``topic/for``) that each held-out document is from.

    A module gives its docstrings and several pieces of its source, a document each: documents of one module are alike.

    >>> modules = held_out_modules()
    >>> len(modules), len(set(modules)), modules[0]
    (512, 107, 'statistics.py')
    """
    return MODULES.read_text(encoding="utf-8").splitlines()[1:]
