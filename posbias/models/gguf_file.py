"""Models in one GGUF file, as llama.cpp has them: which file it is, what its numbers are, and what they are made into.

transformers dequantises the weights. It leaves unread what it has no place for, without a word; a file with more than
it reads is refused here, by its number of weights and by settings that change what a model computes. What it makes of
a file is kept in the user's cache folder, for a second command to read: found by the file's SHA-256 and by
transformers' version, written whole or not at all, and used only if each file is still what was written.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

from posbias import errors
from posbias.files import data_folder, digest

UNREAD = ("rope.scaling.", "attention.sliding_window")
"""How names of settings begin that change a model, and that transformers may not read."""
MANIFEST, WEIGHTS = "kept.json", ".safetensors"
"""Says how weights were rounded and has a digest of each other file; that of weights is checked when they are read."""


def find_gguf(name: str) -> Path | None:
    """Return the GGUF file that a name is, or the only one of a folder without a config.json; None for any other."""
    if name.endswith(".gguf") and os.path.isfile(name):
        return Path(name)
    folder = os.path.isdir(name) and not os.path.isfile(os.path.join(name, "config.json"))
    files = list(Path(name).glob("*.gguf")) if folder else []
    return files[0] if len(files) == 1 else None


def read_gguf(file: Path) -> Any:
    """Return the reader of a whole GGUF file whose architecture and settings transformers converts, or raise."""
    where = f"model {file}"
    if find_spec("gguf") is None:
        raise errors.invalid(where, "the package gguf, which reads it: pip install gguf", "none installed")
    from gguf import GGUFReader
    from transformers.modeling_gguf_pytorch_utils import GGUF_TO_TRANSFORMERS_MAPPING

    try:
        reader = GGUFReader(file)
        architecture = str(read_value(reader, "general.architecture"))
    except Exception as error:  # of a torn file anything: it is read as it is written
        raise errors.invalid(where, "a whole GGUF file", str(error)[:120] or type(error).__name__) from None
    mapping: Any = GGUF_TO_TRANSFORMERS_MAPPING["config"]
    known = {name: keys for name, keys in mapping.items() if name not in ("general", "tokenizer")}
    if architecture not in known:
        raise errors.invalid(where, f"an architecture that transformers converts: {', '.join(known)}", architecture)
    context = read_value(reader, f"{architecture}.context_length")
    for key in (key.removeprefix(f"{architecture}.") for key in reader.fields):
        value = read_value(reader, f"{architecture}.{key}")
        if not key.startswith(UNREAD) or key in known[architecture] or value == "none":
            continue
        if key != "attention.sliding_window" or (context and 0 < value < context):
            raise errors.invalid(where, "settings that transformers reads", f"{key} = {value}, which it leaves out")
    return reader


@contextmanager
def read_once(reader: Any) -> Iterator[None]:
    """Have transformers take this reader, if one is given, and one table of names: it makes both anew at every step.

    The bar that it shows meanwhile cannot be turned off otherwise.
    """
    import gguf

    own, table = gguf.GGUFReader, gguf.get_tensor_name_map
    gguf.get_tensor_name_map = cache(table)
    if reader is not None:
        gguf.GGUFReader = lambda *_: reader  # type: ignore[misc, assignment]
    try:
        with redirect_stderr(StringIO()):
            yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = own, table  # type: ignore[misc]


def read_value(reader: Any, key: str) -> Any:
    """Return the value of a field, None where there is none."""
    field = reader.fields.get(key)
    return None if field is None else field.contents()


def quantisation_of(reader: Any) -> str:
    """Return how most weights of a file were rounded: ``Q4_1``, ``F32``, …; ``unknown`` if the file does not say."""
    from gguf import LlamaFileType

    known = {int(one): one.name.removeprefix("MOSTLY_").removeprefix("ALL_") for one in LlamaFileType}
    return known.get(read_value(reader, "general.file_type"), "unknown")


def check_size(where: str, reader: Any, model: Any) -> None:
    """Raise ValueError unless a model has as many weights as its file; an output layer may be its embedding."""
    sizes = {x.name: int(x.n_elements) for x in reader.tensors}
    if getattr(model.config, "tie_word_embeddings", False):
        sizes.pop("output.weight", None)
    there, read = sum(sizes.values()), sum(x.numel() for x in model.parameters())
    if there != read:
        raise errors.invalid(
            where, f"a model of all {there:,} weights of its file", f"{read:,} that transformers reads"
        )


@dataclass
class Kept:
    """Name the folder of a GGUF file, and say how its weights were rounded; None as long as nothing is there."""

    file: Path
    folder: Path
    quantisation: str | None = None

    def check(self, weights: bool) -> None:
        """Read how weights were rounded if they, or all other files, are what was written; forget all of it if not."""
        try:
            there = json.loads((self.folder / MANIFEST).read_text(encoding="utf-8"))
            files = {name: known for name, known in there["files"].items() if name.endswith(WEIGHTS) == weights}
            torn = [name for name, known in files.items() if digest(self.folder / name) != known]
            self.quantisation = str(there["quantisation"])
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            torn = [MANIFEST]
        if torn:
            say(f"{self.folder / torn[0]}: expected what was written, received a torn file; it is made anew")
            shutil.rmtree(self.folder, ignore_errors=True)
            self.quantisation = None


def open_kept(file: Path) -> Kept | None:
    """Return where a file's weights are or will be kept, None where nothing can be written; a line says what is so."""
    folder = data_folder() / "gguf" / f"{digest(file)}-transformers-{version('transformers')}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder.parent).close()
    except OSError as error:
        say(f"{folder.parent}: expected a cache folder to write, received {errors.short(error)}; {file.name} is read")
        return None
    kept = Kept(file, folder)
    if folder.exists():
        kept.check(weights=False)
    if kept.quantisation is not None:
        say(f"{file.name}: weights kept in {folder}")
    return kept


def write_kept(kept: Kept, quantisation: str, *parts: Any) -> None:
    """Write model, tokenizer and configuration; a line says where, or why they could not be written."""
    try:
        with tempfile.TemporaryDirectory(dir=kept.folder.parent, prefix=".", ignore_cleanup_errors=True) as made:
            for part in parts:
                part.save_pretrained(made)
            files = {path.name: digest(path) for path in Path(made).iterdir()}
            said = json.dumps({"quantisation": quantisation, "files": files})
            (Path(made) / MANIFEST).write_text(said, encoding="utf-8")
            if not kept.folder.exists():  # by another process
                os.rename(made, kept.folder)
    except Exception as error:  # what writes weights has errors of its own
        say(f"{kept.folder}: expected room for weights, received {errors.short(error)}; they are not kept")
        return
    kept.quantisation = quantisation
    say(f"{kept.file.name}: weights are now kept in {kept.folder} (--no-cache keeps none)")


def say(line: str) -> None:
    """Say something on standard error."""
    sys.stderr.write(f"posbias: {' '.join(line.split())}\n")
