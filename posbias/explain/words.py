"""What a table of segments says, in sentences: which has most, and why; what deletions do; the place with most."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from posbias.explain.prompt import line
from posbias.explain.shares import centred_logs

if TYPE_CHECKING:
    import pandas as pd

TEMPLATE = Path(__file__).with_name("words.txt")


def answer(segments: pd.DataFrame) -> list[str]:
    """Return the answers that the segments give, none for one segment; of three or more the last one is set apart."""
    from jinja2 import Environment, StrictUndefined

    if len(segments) < 2:
        return []
    table = segments if len(segments) < 3 else segments.iloc[:-1]
    most, (best, second) = table["share"].idxmax(), table["without_position"].nlargest(2).index
    whole, place = (np.exp(centred_logs(table[name].to_numpy())) for name in ("share", "profile"))
    at, density, tried = table.index.get_loc(most), table["profile"] / table["tokens"], table["removed"].notna().any()
    template = Environment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    words = template.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        table=table, line=line, most=most, best=best, second=second,
        last=segments["share"].iloc[-1] if len(segments) > 2 else None,
        overlaps=table["low"][best] <= table["high"][second],
        whole=whole[at] if len(table) > 2 else None, place=place[at],
        least=table["removed"].idxmin() if tried else None, raised=table["removed"].idxmax() if tried else None,
        dense=density.idxmax(), thin=density.idxmin(), ratio=density.max() / density.min(),
    )  # fmt: skip
    return words.splitlines()
