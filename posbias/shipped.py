"""Reference models and held-out documents: what comes with the package, and where the rest is had by checksum.

A checkout of the repository has all reference models. An installed package has one of them and the documents; the
others are read from the user's cache, into which they are fetched from the repository when they are first asked for.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np

from posbias import errors
from posbias.files import data_folder

REPOSITORY = "https://github.com/posbias/posbias"
URL = f"{REPOSITORY}/raw/v{version('posbias')}/posbias/data/reference/"
"""Where the files of reference models are fetched from, the repository at the tag of this version."""

FOLDER = Path(__file__).parent / "data" / "reference"
REGISTRY = FOLDER.with_name("reference.registry")
PREFIX = "reference/"
"""In front of the name of a reference model where a directory or an id on the hub can stand too."""

HELD_OUT = "held-out.npz"
MODULES = FOLDER.with_name("held_out_modules.csv")
"""The module or topic that each held-out document is from, a line each under a heading."""


@cache
def registry() -> dict[str, str]:
    """Return the name and SHA-256 of every file of the reference models, and of the held-out documents."""
    lines = REGISTRY.read_text(encoding="utf-8").splitlines()
    return dict(line.split() for line in lines if line and not line.startswith("#"))


def registry_text(folder: Path) -> str:
    """Return the registry of ``folder`` as it stands in ``reference.registry``: a line for each file, by name."""
    files = sorted(path for path in (*folder.glob("*/*"), folder / HELD_OUT) if path.is_file())
    lines = [f"{path.relative_to(folder).as_posix()} {_sha256(path)}\n" for path in files]
    return "".join(["# SHA-256 of the files in data/reference: reference models and held-out documents\n", *lines])


def reference_names() -> list[str]:
    """Return the names of all reference models, those that come with the package and those that are fetched."""
    return sorted({name.split("/")[0] for name in registry()} - {HELD_OUT})


def shipped_names() -> list[str]:
    """Return the names of the reference models that are in the package: one, or all in a checkout."""
    return [name for name in reference_names() if (FOLDER / name / "config.json").is_file()]


def cache_folder() -> Path:
    """Return where fetched reference models are: ``reference`` in ``POSBIAS_DATA``, or in the user's cache folder."""
    return data_folder() / "reference"


def model_folder(model: str) -> str:
    """Return where a model is: the folder of ``reference/NAME``, any other directory or id unchanged.

    Parameters
    ----------
    model
        ``reference/`` and a name, a directory, or an id on the hub. A directory of that name comes first. A
        reference model that is not in the package is fetched as :func:`download` does.

    Raises
    ------
    ValueError
        For an unknown reference model, with those that there are, and for a file with another checksum.
    OSError
        If a model that is not on this machine cannot be reached.
    """
    if not model.startswith(PREFIX) or Path(model).exists():
        return model
    name = model.removeprefix(PREFIX)
    if name not in reference_names():
        raise errors.invalid("model", f"reference/ and one of {', '.join(reference_names())}", model)
    if name not in shipped_names():
        return str(download(name))
    for file in _files(name):
        _check(file)
    return str(FOLDER / name)


def download(name: str, url: str | None = None) -> Path:
    """Return the folder of a reference model in :func:`cache_folder`, after fetching the files that it lacks.

    Parameters
    ----------
    name
        One of :func:`reference_names`.
    url
        Where the registry's names are found; :data:`URL` unless given.

    Raises
    ------
    ValueError
        For an unknown name, and if a file there, or one that came, has another checksum: the first is left as it is,
        the second is not kept.
    OSError
        If a file cannot be reached or written.
    """
    if name not in reference_names():
        raise errors.invalid("reference model", f"one of {', '.join(reference_names())}", name)
    folder, url = cache_folder(), url or URL
    missing = [file for file in _files(name) if not os.path.lexists(folder / file)]
    for file in _files(name):
        if file not in missing:
            _check(file, folder, "it was left as it is: move it away, and it is fetched again")
    if missing:
        _fetch(name, missing, folder, url)
    return folder / name


def _fetch(name: str, missing: list[str], folder: Path, url: str) -> None:
    """Fetch files of a reference model; pooch moves each into ``folder`` once it has come whole."""
    import pooch
    from requests import RequestException

    (folder / name).mkdir(parents=True, exist_ok=True)
    wanted = {file: registry()[file] for file in missing}
    store = pooch.create(path=folder, base_url=url, registry=wanted, allow_updates=False)
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")  # else it tells of every file
    try:
        for file in missing:
            store.fetch(file, downloader=pooch.HTTPDownloader(timeout=10))
    except RequestException as error:
        cause = getattr(error.args[0], "reason", error) if error.args else type(error).__name__
        reason = " ".join(str(cause).split())[:200]
        shipped = ", ".join(f"{PREFIX}{other}" for other in shipped_names()) or "no reference model"
        raise ConnectionError(
            f"{PREFIX}{name}: expected {url} to answer, received {reason}; {shipped} comes with the package, "
            f"the others with 'git clone {REPOSITORY}': set POSBIAS_DATA to posbias/data in the clone"
        ) from None
    except ValueError:
        raise errors.invalid(f"{url}{file}: checksum", registry()[file], "another; the file was not kept") from None
    finally:
        logger.setLevel(level)


def _files(name: str) -> list[str]:
    return [file for file in registry() if file.startswith(f"{name}/")]


def _check(file: str, folder: Path | None = None, advice: str = "install posbias again or restore it") -> Path:
    """Return the path of a file in ``folder`` or the package; ValueError if its checksum is not the registry's."""
    path = (folder or FOLDER) / file
    received = f"{_sha256(path)} of {path.stat().st_size:,} bytes" if path.is_file() else "no file"
    if received.split()[0] != registry()[file]:
        raise errors.invalid(f"{path}: checksum", registry()[file], f"{received}; {advice}")
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def write_held_out(folder: Path, documents: list[np.ndarray]) -> None:
    """Write token ids of documents to ``folder``; :func:`held_out_documents` reads them."""
    lengths = np.array([ids.size for ids in documents], dtype=np.uint16)
    np.savez_compressed(folder / HELD_OUT, ids=np.concatenate(documents).astype(np.uint16), lengths=lengths)


def held_out_documents(folder: Path | None = None) -> list[str]:
    """Return the texts of the held-out documents, the same on every machine.

    Parameters
    ----------
    folder
        Where the token ids are, beside at least one model with its tokenizer; the package's own unless given.

    Raises
    ------
    ValueError
        If there are none, or a file is damaged.

    Notes
    -----
    Python's own texts differ between versions: what ships are the token ids of those that no reference model saw,
    up to 1,024 of each document, and the tokenizer gives a text back from its ids unchanged.
    """
    from tokenizers import Tokenizer

    if folder is None:
        folder = _check(HELD_OUT).parent
        tokenizers = [_check(f"{name}/tokenizer.json") for name in shipped_names()[:1]]
    else:
        tokenizers = sorted(folder.glob("*/tokenizer.json"))
    if not tokenizers or not (folder / HELD_OUT).is_file():
        raise errors.invalid(str(folder), f"{HELD_OUT} and a model's tokenizer", "none")
    try:
        # plain arrays: numpy refuses pickles unless told otherwise
        with (folder / HELD_OUT).open("rb") as stream, np.load(stream) as file:
            parts = np.split(file["ids"], np.cumsum(file["lengths"])[:-1].astype(np.int64))
    except (EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise errors.invalid(str(folder / HELD_OUT), "token ids and lengths of documents", error) from None
    try:
        tokenizer = Tokenizer.from_file(str(tokenizers[0]))
    except Exception as error:  # of no narrower type
        raise errors.invalid(str(tokenizers[0]), "a tokenizer", error) from None
    return tokenizer.decode_batch([part.tolist() for part in parts], skip_special_tokens=False)


def held_out_modules() -> list[str]:
    """Return the module (``asyncio/queues.py``) or topic (``topic/for``) that each held-out document is from.

    A module gives its docstrings and several pieces of its source, a document each: documents of one module are alike.

    Raises
    ------
    OSError
        If the file is not there.

    >>> modules = held_out_modules()
    >>> len(modules), len(set(modules)), modules[0]
    (512, 107, 'statistics.py')
    """
    return MODULES.read_text(encoding="utf-8").splitlines()[1:]
