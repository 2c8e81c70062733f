"""Texts that come with every Python: the standard library's topics, docstrings and sources, in two parts."""

from __future__ import annotations

import ast
import hashlib
import sysconfig
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

HELD_OUT = 4
"""One source in this many is held out, by a digest of its name: the same everywhere."""

PIECE = 2000
"""Minimum number of characters in a piece of source code."""

LEFT_OUT = frozenset(
    "site-packages dist-packages test tests encodings idlelib lib2to3 turtledemo pydoc_data ensurepip __phello__ "
    "__pycache__ distutils".split()
)
"""Folders that are not read: installed packages, tests, tables without prose, and what newer versions dropped."""


@dataclass(frozen=True)
class Document:
    """Hold one text, and the topic (``topic/for``) or module (``asyncio/queues.py``) that it comes from."""

    name: str
    text: str


def documents(part: str) -> Iterator[Document]:
    """Yield the texts of one part, ``train`` or ``held-out``, in an order that does not depend on names.

    A module gives one document of its docstrings and pieces of its source code, which are cut before top-level
    definitions and have at least :data:`PIECE` characters; all are in one part. Python's texts differ between versions
    and distributors: the documents do too.
    """
    held_out = part == "held-out"
    found = [*(topic for topic in _topics() if is_held_out(topic.name) == held_out), *_modules(held_out)]
    return iter(sorted(found, key=lambda document: _digest(f"{document.name} {document.text[:200]}")))


def is_held_out(name: str) -> bool:
    """Tell whether the documents of this name are held out.

    >>> [is_held_out(name) for name in ("json/decoder.py", "argparse.py", "topic/for")]
    [False, False, False]
    """
    return _digest(name) % HELD_OUT == 0


def docstrings(source: str) -> str:
    r"""Return the docstrings of a module with the names they belong to.

    >>> print(docstrings('def f():\n    "Do it."'))
    f
    Do it.
    """
    found = []
    for node in _statements(_parsed(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                found.append(f"{getattr(node, 'name', '')}\n{text}".strip())
    return "\n\n".join(found)


def pieces(source: str, least: int = PIECE) -> list[str]:
    r"""Return a module's source cut before top-level definitions into pieces of at least ``least`` characters.

    >>> pieces("import re\ndef f(): ...\ndef g(): ...\n", least=12)
    ['import re\ndef f(): ...\n', 'def g(): ...\n']
    """
    lines = source.splitlines(keepends=True)
    tree = _parsed(source)
    starts = [
        min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    out = [""]
    for start, stop in zip([0, *starts], [*starts, len(lines)], strict=True):
        block = "".join(lines[start:stop])
        if len(out[-1]) >= least:
            out.append(block)
        else:
            out[-1] += block
    if len(out) > 1 and len(out[-1]) < least:
        out[-2:] = [out[-2] + out[-1]]
    return out


def _topics() -> Iterator[Document]:
    try:
        from pydoc_data.topics import topics
    except ModuleNotFoundError:  # some distributors leave them out
        return
    for name, text in sorted(topics.items()):
        yield Document(f"topic/{name}", text.strip() + "\n")


def _modules(held_out: bool) -> Iterator[Document]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(folder.rglob("*.py")):
        relative = path.relative_to(folder)
        if LEFT_OUT & set(relative.parts) or relative.name.startswith("_sysconfigdata"):
            continue
        if is_held_out(relative.as_posix()) != held_out:
            continue
        try:
            source = path.read_text(encoding="utf-8")
            texts = [docstrings(source), *pieces(source)]
        except (UnicodeDecodeError, SyntaxError):
            continue
        for text in texts:
            if text.strip():
                yield Document(relative.as_posix(), text)


@lru_cache(maxsize=1)
def _parsed(source: str) -> ast.Module:
    """Parse a module; its docstrings and its pieces are asked for one after the other."""
    return ast.parse(source)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what :func:`ast.walk` does, in its order, but for expressions, which define nothing with a docstring."""
    left: deque[ast.AST] = deque([tree])
    while left:
        node = left.popleft()
        left.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
        yield node


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
