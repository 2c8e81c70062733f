"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary file beside ``path`` to write; it is moved there if all goes well, else removed.

    Raises
    ------
    OSError
        If the folder does not exist or cannot be written; ``path`` is then left as it was.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected a file to write, received a directory")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:  # say which file was wanted, not the temporary one
        raise type(error)(error.errno, error.strerror, str(path)) from None
    os.close(handle)
    try:
        yield Path(name)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def write_whole(path: Path, content: str | bytes) -> None:
    """Write ``content`` to a temporary file beside ``path`` and move it there: no half-written output.

    Raises
    ------
    OSError
        As :func:`whole_file` does.
    """
    with whole_file(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
