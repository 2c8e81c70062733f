"""Identity of files by their content: every byte of a model's weights, configuration and tokenizer.

Files are read in pieces. What was found is kept in the user's cache folder under the file's path, size, times and
inode, so that a large model is read once. A file that changed within the last two seconds is always read: a second
change may leave its times as they are.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tqdm import tqdm  # type: ignore[import-untyped]

from posbias import errors
from posbias.files import data_folder, write_whole

CONTENT = (".safetensors", ".bin", ".json", ".model", ".txt", ".jinja", ".tiktoken", ".py")
"""Ends of the names of files that decide what a model computes or how text becomes tokens."""

PIECE = 1 << 20
"""Bytes that are read at a time."""
LARGE = 1 << 28
"""Bytes from which on reading is shown on a terminal."""
SETTLED = 2.0
"""Seconds since a file's last change before its digest is kept; file systems count time in steps of up to two."""


def folder_digest(folder: Path) -> str:
    """Return ``files-`` and 16 hexadecimal digits: a digest of the names and contents of the files that count.

    They are those with an end of :data:`CONTENT`; folders inside the folder are not looked at.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix in CONTENT and path.is_file())
    if not files:
        raise errors.invalid(str(folder), f"files that end in {', '.join(CONTENT)}", "none")
    found = hashlib.sha256()
    for file, digest in zip(files, file_digests(files), strict=True):
        found.update(f"{file.name} {digest}\n".encode())
    return f"files-{found.hexdigest()[:16]}"


def file_digests(files: Iterable[Path]) -> list[str]:
    """Return the SHA-256 of every byte of each file, from the cache where a file is as it was."""
    files = [file.resolve() for file in files]
    cached = [_cached(file) for file in files]
    unread = sum(file.stat().st_size for file, digest in zip(files, cached, strict=True) if digest is None)
    shown = unread >= LARGE and sys.stderr.isatty()
    with tqdm(total=unread, desc="reading files", unit="B", unit_scale=True, disable=not shown, leave=False) as bar:
        return [digest or _read(file, bar.update) for file, digest in zip(files, cached, strict=True)]


def _read(file: Path, progress: Callable[[int], object]) -> str:
    """Return the digest of a file, and keep it if nothing changed while it was read."""
    before = _state(file)
    found = hashlib.sha256()
    with file.open("rb") as content:
        while piece := content.read(PIECE):
            found.update(piece)
            progress(len(piece))
    if _state(file) == before and _is_settled(file):
        try:
            entry = _entry(file)
            entry.parent.mkdir(parents=True, exist_ok=True)
            write_whole(entry, found.hexdigest())
        except (OSError, ValueError):
            pass  # a cache that cannot be written is no reason to stop
    return found.hexdigest()


def _cached(file: Path) -> str | None:
    """Return what was found when the file was last read, None if it may have changed since."""
    try:
        digest = _entry(file).read_text(encoding="ascii") if _is_settled(file) else ""
    except (OSError, ValueError):
        return None
    return digest if len(digest) == 64 and set(digest) <= set("0123456789abcdef") else None


def _state(file: Path) -> tuple[int, int, int, int]:
    """Return what changes when a file does: size, the times of content and of entry, inode."""
    said = file.stat()
    return said.st_size, said.st_mtime_ns, said.st_ctime_ns, said.st_ino


def _is_settled(file: Path) -> bool:
    """Tell whether the last change is long enough ago, and not in the future."""
    said = file.stat()
    return time.time() - max(said.st_mtime, said.st_ctime) > SETTLED


def _entry(file: Path) -> Path:
    """Return where the digest of a file in its present state is kept."""
    state = "\n".join([os.fspath(file), *map(str, _state(file))])
    return data_folder() / "digests" / hashlib.sha256(os.fsencode(state)).hexdigest()
