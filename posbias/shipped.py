"""What ships with the package: trained reference models and held-out documents, for work without a download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from posbias import checks

FOLDER = Path(__file__).parent / "data" / "reference"
PREFIX = "reference/"
"""In front of the name of a reference model where a directory or an id on the hub can stand too."""

HELD_OUT = "held-out.npz"


def reference_names() -> list[str]:
    """Return the names of the reference models that ship with the package."""
    return sorted(path.parent.name for path in FOLDER.glob("*/config.json"))


def model_folder(model: str) -> str:
    """Return where a model is: the folder of ``reference/NAME``, any other directory or id unchanged.

    Parameters
    ----------
    model
        ``reference/`` and a name, a directory, or an id on the hub. A directory of that name comes first.

    Raises
    ------
    ValueError
        For a reference model that does not ship, with those that do.
    """
    if not model.startswith(PREFIX) or Path(model).exists():
        return model
    name = model.removeprefix(PREFIX)
    if name not in reference_names():
        raise checks.refuse("model", f"reference/ and one of {', '.join(reference_names())}", model)
    return str(FOLDER / name)


def write_held_out(folder: Path, documents: list[np.ndarray]) -> None:
    """Write token ids of documents to ``folder``; :func:`held_out_documents` reads them."""
    lengths = np.array([ids.size for ids in documents], dtype=np.uint16)
    np.savez_compressed(folder / HELD_OUT, ids=np.concatenate(documents).astype(np.uint16), lengths=lengths)


def held_out_documents(folder: Path = FOLDER) -> list[str]:
    """Return the texts of the held-out documents, the same on every machine.

    Parameters
    ----------
    folder
        Where the token ids are, beside at least one model with its tokenizer.

    Raises
    ------
    ValueError
        If there are none.

    Python's own texts differ between versions: what ships are the token ids of those that no reference model saw,
    up to 1,024 of each document, and the tokenizer gives a text back from its ids unchanged.
    """
    from tokenizers import Tokenizer

    tokenizers = sorted(folder.glob("*/tokenizer.json"))
    if not tokenizers or not (folder / HELD_OUT).is_file():
        raise checks.refuse(str(folder), f"{HELD_OUT} and a model's tokenizer", "none")
    with np.load(folder / HELD_OUT) as file:  # plain arrays: numpy refuses pickles unless told otherwise
        parts = np.split(file["ids"], np.cumsum(file["lengths"])[:-1].astype(np.int64))
    tokenizer = Tokenizer.from_file(str(tokenizers[0]))
    return tokenizer.decode_batch([part.tolist() for part in parts], skip_special_tokens=False)
