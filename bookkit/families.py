"""The table of supported families on the page *Operations*: ``python -m bookkit.families`` writes it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posbias.models.families import FAMILIES, Family

PAGE = Path(__file__).parents[1] / "book" / "operations.md"
BEGIN, END = "<!-- table of families -->", "<!-- end of the table -->"
COLUMNS = ("`model_type`", "positions", "MLP beside attention", "fused attention", "special")


def table() -> str:
    """Return the rows of the table of families as Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(_cells(row)) + " |" for _, row in sorted(FAMILIES.items())]
    return "\n".join(lines)


def _cells(row: Family) -> tuple[str, ...]:
    special = []
    if row.output not in (row.attention, f"{row.attention}.dense"):
        special.append("attention's output is normed")
    if not row.norm:
        special.append("no norm before attention")
    if row.latent:
        special.append("latent values")
    if row.gate:
        special.append("attention's averages are gated")
    special += [f"layers of {kind.replace('_', ' ')}" for kind in row.mixers.values()]
    positions = "by configuration" if callable(row.position) else row.position
    return f"`{row.name}`", positions, _said(row.parallel), _said(row.fused), ", ".join(special)


def _said(value: Any) -> str:
    return "by configuration" if callable(value) else "yes" if value else ""


def written(page: str) -> str:
    """Return the page with the table of today."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
