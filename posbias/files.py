"""Files that are written whole or not at all, and the folder for files of others."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from posbias import errors

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""What the system says when a disk takes no more."""


def check_writable(path: Path) -> Path:
    """Return the file that ``path`` names, links followed, if it can be written; nothing is left there.

    Raises
    ------
    OSError
        If the folder does not exist or cannot be written, or ``path`` is there and is no file that may be written.
    """
    try:
        if not path.parent.exists():  # resolved, x/../m.nc would name a file although there is no x
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        path = path.resolve()
        if path.is_dir():
            raise IsADirectoryError(f"{path}: expected a file to write, received a directory")
        if path.exists() and not path.is_file():
            raise FileExistsError(f"{path}: expected a file to write, received a device or a pipe")
        if path.exists() and not path.stat().st_mode & 0o222:
            raise PermissionError(f"{path}: expected a file to write, received one that is read-only")
        tempfile.TemporaryFile(dir=path.parent).close()
    except (OSError, RuntimeError) as error:  # say which file was wanted, not the temporary one
        if isinstance(error, OSError) and error.strerror is None:
            raise
        reason = error if isinstance(error, OSError) else OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        raise type(reason)(reason.errno, reason.strerror, str(path)) from None
    return path


def check_folder(path: Path, field: str = "output") -> None:
    """Raise unless a folder is there and can be written, or can be made.

    Raises
    ------
    ValueError
        If something else is there.
    OSError
        If it cannot be written or made.
    """
    there = next(place for place in (path.absolute(), *path.absolute().parents) if os.path.lexists(place))
    if not there.is_dir():
        raise errors.invalid(field, "a folder, which is made if it is not there", f"the file {there}")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def remove_orphans(path: Path) -> None:
    """Remove what writes of ``path`` left beside it when their processes were killed; those of live ones stay.

    Which process a temporary file belongs to stands in its name. Files of another host are never touched.
    """
    path = path.resolve()
    start = f"{_prefix(path)}{_host()}."
    with suppress(OSError):
        for entry in os.scandir(path.parent):
            owner = entry.name.removeprefix(start).split(".")[0]
            if entry.name.startswith(start) and owner.isdigit() and not _alive(int(owner)):
                with suppress(OSError):
                    os.unlink(entry.path)


def _prefix(path: Path) -> str:
    """Return how the names of temporary files of ``path`` begin; a name may be too long for more."""
    return f".{path.name.encode()[:180].decode(errors='ignore')}."


@cache
def _host() -> str:
    """Return a digest of all within which a process has one number: host, boot, and namespace of processes."""
    said = [socket.gethostname()]
    with suppress(OSError):
        said.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        said.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:8]


def _alive(number: int) -> bool:
    """Tell whether there is a process of this number, whoever's it is."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary file beside ``path`` to write; it is moved there if all goes well, else removed.

    A symbolic link stays one: the file that it names is written. What earlier writes of this file left behind when they
    were killed is removed.

    Raises
    ------
    OSError
        If the folder does not exist or cannot be written, the disk is full, or ``path`` is there and is no file that
        may be written; it is then left as it was.
    """
    path = check_writable(path)
    remove_orphans(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{_prefix(path)}{_host()}.{os.getpid()}.")
    try:
        os.close(handle)
        yield Path(name)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.unlink(name)
        if isinstance(error, OSError) and error.errno in FULL:
            raise type(error)(error.errno, error.strerror, str(path)) from None
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
        raise errors.invalid("output", "another file than the one that is read", output)


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
