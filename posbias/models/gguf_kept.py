"""What a GGUF file was made into, kept in the user's cache folder: weights in 32 bits, configuration and tokenizer.

A second command reads these in place of dequantising once more. They are found by the file's SHA-256 and by
transformers' version, written whole or not at all, and used only if each file is still what was written.
"""

import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from posbias import errors
from posbias.files import data_folder, digest

MANIFEST, WEIGHTS = "kept.json", ".safetensors"
"""Says how weights were rounded and has a digest of each other file; that of weights is checked when they are read."""


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
