"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write ``content`` to a temporary file beside ``path`` and move it there: no half-written output.

    Raises
    ------
    OSError
        If the folder does not exist or cannot be written; ``path`` is then left as it was.
    """
    data = content.encode() if isinstance(content, str) else content
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected a file to write, received a directory")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:  # say which file was wanted, not the temporary one
        raise type(error)(error.errno, error.strerror, str(path)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
