"""Longer documents for ``builtin``: pages of Django's documentation, cut into documents of a thousand words and more.

``python -m studies.reference.longer django-5.2.8.tar.gz FOLDER`` writes the file that ships from the source release of
that name (sha256 of the package index: 23254866a5bb9a2cfa6004e8b809ec6246eba4b58a7589bc2772f1bcc8456c7f).
"""

from __future__ import annotations

import bz2
import hashlib
import json
import sys
import tarfile
from pathlib import Path

from posbias.shipped import LONGER

FOLDERS = ("howto", "intro", "ref", "topics")
"""Folders of the documentation that are read: what is left out lists changes, or speaks to Django's authors."""
WORDS = 1040
"""Minimum number of words in a document: as many tokens, for every tokenizer that divides text at white space."""
MOST, DOCUMENTS = 3, 208
"""Most documents from one page, and in all."""


def pieces(text: str, least: int = WORDS) -> list[str]:
    r"""Return a text cut after paragraphs into pieces of at least ``least`` words; what is left over is dropped.

    >>> pieces("one two\n\nthree\n\nfour five", least=3)
    ['one two\n\nthree\n\n']
    """
    out, piece = [], ""
    for paragraph in text.split("\n\n"):
        piece += paragraph + "\n\n"
        if len(piece.split()) >= least:
            out.append(piece)
            piece = ""
    return out


def write_longer(release: Path, folder: Path) -> None:
    """Write the documents of a source release to ``folder``: page and text of each, in the order of their digests."""
    found = []
    with tarfile.open(release) as archive:
        for entry in archive:
            _, _, page = entry.name.partition("/docs/")
            if page.endswith(".txt") and page.split("/")[0] in FOLDERS and (file := archive.extractfile(entry)):
                found += [(f"django/{page}", text) for text in pieces(file.read().decode())[:MOST]]
    found.sort(key=lambda pair: hashlib.sha256(pair[1].encode()).digest())
    (folder / LONGER).write_bytes(bz2.compress(json.dumps(found[:DOCUMENTS], ensure_ascii=False).encode()))


if __name__ == "__main__":
    write_longer(Path(sys.argv[1]), Path(sys.argv[2]))
