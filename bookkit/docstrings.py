"""A Sphinx extension: docstrings in the house style, which reads well in an editor, as reStructuredText.

The house style ends a docstring with ``Source: paper, equation`` and an example, writes formulas as plain text, and
says what a constant is in prose. Sphinx wants headings for the first, would read ``|x|`` and ``lambda_`` in formulas as
references, and takes what stands before a constant's first colon for its type.
"""

from __future__ import annotations

import re
from typing import Any


def setup(app: Any) -> dict[str, Any]:
    """Divide every docstring before napoleon (priority 500) reads its sections; escape what napoleon makes of it."""
    app.connect("autodoc-process-docstring", divide, priority=400)
    app.connect("autodoc-process-docstring", protect, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def divide(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Give the lines of one docstring their sections, in place; an empty comment keeps an attribute's first line whole.

    >>> lines = ["Bits that are kept: 10."]
    >>> divide(None, "data", "BITS", 10, None, lines)
    >>> lines
    ['..', '', 'Bits that are kept: 10.']
    """
    whole = ["..", ""] if what in ("attribute", "data", "property") else []
    lines[:] = whole + sections(lines)


def protect(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape the lines of one docstring, in place."""
    lines[:] = [escape(line) for line in lines]


def sections(lines: list[str]) -> list[str]:
    """Give what follows ``Source:``, and the examples, headings of their own.

    Without one they would belong to the section above, to the last parameter for instance.

    >>> sections(["Source: Wu et al. 2025,", "theorem 4.1."])
    ['', 'Source', '------', 'Wu et al. 2025,', 'theorem 4.1.']
    """
    divided: list[str] = []
    for line in lines:
        if line.startswith("Source: "):
            divided += ["", "Source", "------", line.removeprefix("Source: ")]
        elif line.startswith(">>>") and "Examples" not in divided:
            divided += ["", "Examples", "--------", line]
        else:
            divided.append(line)
    return divided


def escape(line: str) -> str:
    r"""Escape bars and trailing underscores outside of literals and examples.

    >>> print(escape("Return |x - y| for ``lambda_`` and lambda_."))
    Return \|x - y\| for ``lambda_`` and lambda\_.
    """
    if line.lstrip().startswith((">>>", "...")):
        return line
    parts = re.split(r"(``.*?``|`[^`]*`_?)", line)
    parts[::2] = [re.sub(r"(?<!\\)\||(?<=\w)_(?!\w)", r"\\\g<0>", text) for text in parts[::2]]
    return "".join(parts)
