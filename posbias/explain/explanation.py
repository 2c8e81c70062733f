"""What one prompt's parts do, as tables by token and by segment, in words and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.explain.prompt import label, line, without_label
from posbias.files import check_output

if TYPE_CHECKING:
    import pandas as pd

TEMPLATE = Path(__file__).with_name("words.txt")
SPACED = "the answer that is explained but for a space in front: add it to --answer, or leave it out"
"""What is said of an answer that the model would give with other tokens."""


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Hold what the parts of one prompt do.

    Parameters
    ----------
    model, target, value
        Name of the model; what influence is a derivative of, in words, and what that is for this prompt.
    tokens
        A token a row: its text, its segment (0 for start tokens), and its ``share`` of influence; none of a model that
        is served.
    segments
        A segment a row: its ``label`` (its heading, or its number), its text and number of tokens; ``removed``, the
        change of the target's log-probability, in nats, without the segment; its ``share`` of influence;
        ``contributed``, its share of the contributions to the state of the prompt's last token. What was not measured
        is missing.
    own_answer, is_own
        What the model itself answers, its likeliest token each time, and whether the answer that was given begins so;
        None if none was given.
    is_spaced
        Whether the two differ in the white space alone that an answer begins with.
    looked
        Of documents, which one heads that were given look at, and which one the model's own answer is from.
    """

    model: str
    target: str
    value: float
    tokens: pd.DataFrame
    segments: pd.DataFrame
    own_answer: str | None = None
    is_own: bool | None = None
    is_spaced: bool = False
    looked: tuple[str, ...] = ()

    def report(self, path: str | PathLike[str]) -> Path:
        """Write one HTML page that needs no other file and no network, and return its path.

        Parameters
        ----------
        path
            The .html file to write; one that is there is replaced.
        """
        from posbias.explain.page import write_page

        said = [*answer(self.segments), *self.looked]
        return write_page(check_output(path, ".html", "path"), self, answer=said, spaced=SPACED)

    def _facts(self) -> dict[str, str]:
        """Return what is shown beside the table, by name."""
        count = str(len(self.tokens)) if len(self.tokens) else f"about {self.segments['tokens'].sum()}"
        facts = {
            "prompt": f"{count} tokens in {len(self.segments)} segments, {self.model}",
            "target": f"{self.target}: {self.value:.4g}",
        }
        if self.own_answer is not None:
            how = "which begins with" if self.is_own else "not"
            how = SPACED if self.is_spaced else f"{how} the answer that is explained"
            facts["the model itself answers"] = f"{line(self.own_answer, 60)!r}, {how}"
        return facts

    def _table(self) -> pd.DataFrame:
        """Return the segments as they are printed, without what is missing for all of them."""
        names = {"label": "segment", "removed": "deleted", "share": "gradient", "contributed": "contributions"}
        table = self.segments[[*names]].rename(columns=names).dropna(axis=1, how="all").round(3)
        table.insert(1, "text", [line(without_label(*two)) for two in self.segments[["text", "label"]].to_numpy()])
        return table

    def __repr__(self) -> str:
        facts = [f"{name}: {value}" for name, value in self._facts().items()]
        table = self._table().to_string(na_rep="–", index=False)
        return "\n".join([*facts, table, *answer(self.segments), *self.looked])


def segment_table(texts: Sequence[str], **columns: Any) -> pd.DataFrame:
    """Return a row for each segment: its label, its text and what columns say."""
    import pandas as pd

    labels = [label(text, k) for k, text in enumerate(texts, 1)]
    table = {"label": labels, "text": texts, **columns}
    return pd.DataFrame(table, pd.RangeIndex(1, len(texts) + 1, name="segment"))


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
