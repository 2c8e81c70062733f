"""What a table of segments says, in sentences: which deletion matters most, and whether the others agree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from posbias.explain.prompt import line, without_label

if TYPE_CHECKING:
    import pandas as pd

TEMPLATE = Path(__file__).with_name("words.txt")
SPACED = "the answer that is explained but for a space in front: add it to --answer, or leave it out"
"""What is said of an answer that the model would give with other tokens."""


def answer(segments: pd.DataFrame) -> list[str]:
    """Return the answers that the segments give, none for one segment; of three or more the last one is set apart."""
    from jinja2 import Environment, StrictUndefined

    if len(segments) < 2:
        return []
    table = segments if len(segments) < 3 else segments.iloc[:-1]
    ways = {"gradient": table["share"], "contributions": table["contributed"]}
    tops = {way: int(x.idxmax()) for way, x in ways.items() if x.notna().all()}
    removed = table["removed"]
    tried = bool(removed.notna().any())
    template = Environment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    words = template.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        table=table, line=line, without_label=without_label, tops=tops,
        last=segments["share"].iloc[-1] if len(segments) > 2 else None,
        least=int(removed.idxmin()) if tried else None, raised=int(removed.idxmax()) if tried else None,
    )  # fmt: skip
    return words.splitlines()
