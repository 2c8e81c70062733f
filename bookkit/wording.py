"""Words that are out: the notation page lists them, with what takes their place, and all pages are held to it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

ROW = re.compile(r"^\* - (.*`.*)\n  - (.*)\n  - (.*)$", re.MULTILINE)
"""A row of the list: words that are out, what takes their place, and what is kept: phrases, and pages by links."""
BLOCK = re.compile(r"^(```+)(?:\{code-cell\}|\{math\}|[a-z]+)[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
"""A block of code, a formula or commands: its marks, what is in it."""
HEADER = re.compile(r"---\n.*?^---\n|(?::[^\n]*\n)*", re.MULTILINE | re.DOTALL)
"""What a cell begins with: its caption, the text in place of its image, its tags."""
TITLED = re.compile(r"\{[\w:-]+\}`([^`<>]+)<[^`<>]*>`")
"""A link with a title of its own."""
UNREAD = re.compile(
    r"^(?:```+|:::+)(?:\{figure\}.*|\{[^}]*\})?|`+[^`]+`+|\$[^$]+\$|\]\([^)]*\)|<[a-z]+ [^>]*>", re.MULTILINE
)
"""What nobody reads as words: marks of blocks, then names in code, formulas, and where links lead."""


def words_out(root: Path, stems: Collection[str] = ()) -> list[str]:
    """Return where pages, or those of ``stems``, have a word that is out: a line each, with what replaces it.

    A name of a page that there is not is a KeyError.
    """
    pages = {page.stem: page for page in (*root.glob("*.md"), *(root / "book").glob("*.md"))}
    listed = root / "book" / "notation.md"
    return [f"{pages[stem].name}:{line}" for stem in sorted(stems or pages) for line in _found(pages[stem], listed)]


def _found(page: Path, listed: Path) -> Iterator[str]:
    """Yield line, what is expected and what was found, for every word of a page that the list has."""
    text = readable(page.read_text(encoding="utf-8"))
    for out, instead, kept in ROW.findall(listed.read_text(encoding="utf-8")):
        if re.search(rf"\b{page.stem}>`", kept):
            continue
        rest = re.sub(_any(kept), _blank, text) if "`" in kept else text
        for match in re.finditer(_any(out), rest):
            line, word = 1 + text.count("\n", 0, match.start()), " ".join(match[0].split())
            yield f"{line}: expected {instead}, received {word}"


def _any(cell: str) -> str:
    """Return a pattern of the words and phrases in code marks in a cell of the list."""
    phrases = [r"\s+".join(map(re.escape, phrase.split())) for phrase in re.findall("`(.+?)`", cell)]
    return rf"(?i)(?<![\w-])(?:{'|'.join(phrases)})(?![\w-])"


def readable(text: str) -> str:
    r"""Return the source of a page with spaces in place of all that is not read as words; its lines keep their numbers.

    Of code its captions, its comments and the strings with a space in them remain: labels of figures and tables.

    >>> readable("Read {doc}`this page <x>` and `code`.\n\n```{code-cell}\nx = 'y'  # z\n```\n").split()
    ['Read', 'this', 'page', 'and', '.', '#', 'z']
    """
    return UNREAD.sub(_blank, TITLED.sub(r"\1", BLOCK.sub(_shown, text)))


def _shown(block: re.Match[str]) -> str:
    """Return what is read of a block."""
    header = HEADER.match(block[2])
    start = header.end() if header else 0
    return f"\n{block[2][:start]}" + re.sub(r'("[^"\n]*"|#.*)|.', _label, block[2][start:])


def _label(code: re.Match[str]) -> str:
    """Return a comment, or a string with a space in it without the names and values in it; of other code a space."""
    return re.sub(r"\{[^{}]*\}|'\w+'", " ", code[1]) if code[1] and " " in code[1] else " "


def _blank(match: re.Match[str]) -> str:
    """Return spaces in place of all but the ends of lines."""
    return re.sub(r"\S", " ", match[0])
