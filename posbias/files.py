"""Files that are written whole or not at all, and the folder for files of others."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posbias import errors
from posbias.processes import rank


def check_writable(path: Path) -> Path:
    """Return the file that ``path`` names, links followed, or raise unless it can be written."""
    try:
        path.parent.stat()  # which tempfile resolves, so that x/.. would do although there is no x
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:  # say which file was wanted, not the temporary one
        raise type(error)(error.errno, error.strerror, str(path)) from None
    file = Path(os.path.realpath(path))
    if file.is_dir():
        raise IsADirectoryError(f"{file}: expected a file to write, received a directory")
    return file


def check_path(path: str | os.PathLike[str], suffix: str | tuple[str, ...], field: str = "path") -> Path:
    """Return a path to a file with a suffix, or raise ValueError.

    >>> check_path("m.csv", ".nc", "output")
    Traceback (most recent call last):
    ValueError: output: expected a file name that ends in .nc, received m.csv
    """
    suffixes = (suffix,) if isinstance(suffix, str) else suffix
    expected = f"a file name that ends in {' or '.join(suffixes)}"
    if not isinstance(path, str | os.PathLike):
        raise errors.invalid(field, expected, repr(path))
    file = Path(path)
    if file.suffix not in suffixes:
        raise errors.invalid(field, expected, file.name or repr(str(path)))
    return file


def check_output(
    output: str | os.PathLike[str],
    suffix: str | tuple[str, ...] = ".nc",
    field: str = "output",
    *,
    overwrite: bool = True,
) -> Path:
    """Return the file to write, or raise unless it has a suffix, can be written, and is new or may be replaced."""
    file = check_writable(path := check_path(output, suffix, field))
    if path.exists() and not overwrite:
        raise errors.invalid(str(path), "a file that is not there yet, or --overwrite", "one that is there")
    return file


def check_partial(output: Path, *, resume: bool) -> Path:
    """Return where partial sums of a process go, or raise ValueError if some are there from which not to go on."""
    path = output.with_name(f"{output.name}.partial{rank() or ''}")
    if path.exists() and not resume:
        raise errors.invalid(str(path), "no partial sums of an unfinished run", "some; give --resume, or delete them")
    return path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary file beside ``path`` to write; it is moved there if all goes well, else removed.

    A symbolic link stays one: the file that it names is written. What was there stays if anything fails.
    """
    path = check_writable(path)
    short = path.name.encode()[:180].decode(errors="ignore")  # a name may be too long for more
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{short}.")
    os.close(handle)
    try:
        yield Path(name)
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write ``content`` to a temporary file beside ``path`` and move it there: no half-written output."""
    with whole_file(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def digest(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def data_folder() -> Path:
    """Return the folder for files that come from elsewhere: ``POSBIAS_DATA``, or the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("POSBIAS_DATA") or platformdirs.user_cache_dir("posbias")).expanduser()
