"""The explorer page: the data of its presets, and the page without the book around it.

The page opens from disk too, where scripts may not fetch files, so the data are a script that sets one variable. What
a preset does not say, the page has defaults for; ``book/assets/explorer/state.js`` reads the fields.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.files import write_whole

DATA = Path("book") / "assets" / "explorer" / "data.js"
"""Where the data lie in the project; ``posbias explorer-data`` writes them."""
SlopeRule = Literal["rule", "geometric", "none"]
"""2^(-8h/H) filled up as ALiBi's authors do, the same without, or no slopes."""
HEADER = "/* Presets of the explorer. Made by `posbias explorer-data`; change bookkit/explorer.py, not this file. */"


@dataclass(frozen=True)
class Preset:
    """Describe a model as the explorer offers it.

    Parameters
    ----------
    name, label
        The name in links, letters, digits and hyphens, and the one that is read.
    collection
        ``published`` or ``reference``.
    n
        Tokens of the measurement.
    heads
        Heads of a layer.
    slopes, scale
        The rule that gives the heads' slopes, ``rule`` or ``geometric``, and the factor on it; ``none`` without ALiBi.
    window
        Tokens that a query sees, itself included; 0 for a causal mask.
    lambda_
        Residual mixing, T values, first layer first.
    mean
        One content value for the whole diagonal.
    diagonal
        Content on the diagonal, relative to the constant, by layer and head.
    single
        Whether ``diagonal`` holds numbers of single precision, which are then written as such.
    measured
        Influence of the positions on the last token as measured, where there is a curve.
    source
        Where λ, content and curve come from, in words.
    """

    name: str
    label: str
    collection: Literal["published", "reference"]
    n: int
    heads: int
    slopes: SlopeRule
    scale: float
    window: int
    lambda_: Float[np.ndarray, "T"]
    mean: float
    diagonal: Float[np.ndarray, "T H"]
    single: bool
    measured: Float[np.ndarray, "n"] | None
    source: str


def standalone_page(root: Path, folder: Path) -> Path:
    """Write the explorer as a page of its own, without the book around it, and return its path.

    Parameters
    ----------
    root
        The project: the page's body is that of ``book/explorer.md``.
    folder
        Where to put it; it gets ``book/explorer.html`` and ``_static/explorer``, as the built book has them.

    Raises
    ------
    ValueError
        If the chapter has no block of raw HTML.
    """
    source = root / "book" / "explorer.md"
    _, opening, rest = source.read_text(encoding="utf-8").partition("```{raw} html\n")
    body, closing, _ = rest.partition("\n```\n")
    if not opening or not closing:
        raise errors.invalid(str(source), "a block of raw HTML", "none")
    shutil.copytree(root / DATA.parent, folder / "_static" / "explorer", dirs_exist_ok=True)
    page = folder / "book" / "explorer.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    head = '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Explorer</title>\n'
    size = '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">\n'
    write_whole(page, f'{head}{size}<body><main class="bd-content">\n{body}\n</main></body></html>\n')
    return page


def explorer_script(presets: Iterable[Preset]) -> str:
    """Return the script with the presets: JSON, a layer to a line, set as ``PosbiasPresets``."""
    entries = []
    for preset in presets:
        fields = {
            "name": preset.name,
            "label": preset.label,
            "collection": preset.collection,
            "source": preset.source,
            "length": preset.n,
            "heads": preset.heads,
            "slopes": preset.slopes,
            "scale": preset.scale,
            "window": preset.window,
            "mean": preset.mean,
            "single": preset.single,
            "lambda": preset.lambda_.tolist(),
        }
        lines = [f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in fields.items()]
        rows = (f"[{','.join(_written(x, preset.single) for x in row)}]" for row in preset.diagonal)
        lines.append('  "diagonal": [\n' + ",\n".join(rows) + "\n  ],")
        curve = "null" if preset.measured is None else f"[{','.join(f'{x:.7g}' for x in preset.measured)}]"
        entries.append("{\n" + "\n".join(lines) + f'\n  "measured": {curve}\n}}')
    return f"{HEADER}\nvar PosbiasPresets = [{', '.join(entries)}];\n"


def _written(x: float, single: bool) -> str:
    """Return a number in the digits that tell it from its neighbours, of double precision to nine decimals."""
    if single:
        return np.format_float_positional(np.float32(x), unique=True, trim="-")
    return np.format_float_positional(x, precision=9, unique=False, trim="-")
