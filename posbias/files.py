"""Files that are written whole or not at all, and the folder for files of others."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posbias import checks


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary file beside ``path`` to write; it is moved there if all goes well, else removed.

    A symbolic link stays one: the file that it names is written.

    Raises
    ------
    OSError
        If the folder does not exist or cannot be written, or ``path`` is there and is no file that may be written;
        it is then left as it was.
    """
    path = path.resolve()
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected a file to write, received a directory")
    if path.exists() and not path.is_file():
        raise FileExistsError(f"{path}: expected a file to write, received a device or a pipe")
    if path.exists() and not path.stat().st_mode & 0o222:
        raise PermissionError(f"{path}: expected a file to write, received one that is read-only")
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


def refuse_same(output: Path, source: Path) -> None:
    """Refuse an output that is the very file that is read, by whatever path.

    Raises
    ------
    ValueError
        If both are one file.
    """
    if output.exists() and source.exists() and output.samefile(source):
        raise checks.refuse("output", "another file than the one that is read", output)


def data_folder() -> Path:
    """Return the folder for files that come from elsewhere: ``POSBIAS_DATA``, or the user's cache folder.

    Raises
    ------
    ValueError
        If ``POSBIAS_DATA`` names a file, or the home of a user that there is not.
    """
    import platformdirs

    given = os.environ.get("POSBIAS_DATA") or platformdirs.user_cache_dir("posbias")
    try:
        folder = Path(given).expanduser()
    except RuntimeError as error:
        raise ValueError(f"POSBIAS_DATA: expected a folder, received {given} ({error})") from None
    if folder.is_file():
        raise ValueError(f"POSBIAS_DATA: expected a folder, received the file {folder}")
    return folder
