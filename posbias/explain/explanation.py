"""What one prompt's parts do, as tables by token and by segment, in words and as a page."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from posbias.explain.prompt import line
from posbias.explain.words import answer
from posbias.files import check_writable
from posbias.measure.measurement import Measurement, checked_path, extra

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Hold what the parts of one prompt do.

    Parameters
    ----------
    model, target, value
        Name of the model; what influence is a derivative of, in words, and what that is for this prompt.
    tokens
        A token a row: its text, its segment (0 for start tokens), its ``share`` of influence, and ``profile``, the mean
        share of its place in other prompts.
    segments
        A segment a row: its text, number of tokens, ``share`` and ``profile``; ``without_position``, its share divided
        by its place's, normalised over segments, with a 95% interval, ``low`` to ``high``, over the documents of the
        profile; ``removed``, the change of the target's log-probability, in nats, without the segment; ``if_first`` and
        ``if_last``, the change of its log share, in nats, that the profile expects if it came first, or directly before
        the last segment, which stays.
    moves
        Of other orders, an order and segment a row: its place, and the measured and the expected change of its log
        share, in nats; None unless asked for.
    profile
        The measurement of other prompts.
    """

    model: str
    target: str
    value: float
    tokens: pd.DataFrame
    segments: pd.DataFrame
    moves: pd.DataFrame | None
    profile: Measurement

    @property
    def foretold(self) -> tuple[int, int] | None:
        """How many changes by other orders had the sign that the profile gives them, of how many; None without any."""
        if self.moves is None:
            return None
        right = self.moves["right"].dropna()
        return int(right.sum()), len(right)

    def report(self, path: str | PathLike[str]) -> Path:
        """Write one HTML page that needs no other file and no network, and return its path.

        Parameters
        ----------
        path
            The .html file to write; one that is there is replaced.

        Raises
        ------
        ValueError
            If the name does not end in .html.
        OSError
            If it cannot be written.
        """
        file = check_writable(checked_path(path, ".html"))
        with extra("book"):
            from posbias.explain.page import write_page
        return write_page(file, self)

    def _facts(self) -> dict[str, str]:
        """Return what is shown beside the table, by name."""
        facts = {
            "prompt": f"{len(self.tokens)} tokens in {len(self.segments)} segments, {self.model}",
            "target": f"{self.target}: {self.value:.4g}",
            "profile": self.profile.described,
        }
        if self.foretold is not None:
            facts["other orders"] = "{} of {} changes have the sign that the profile gives".format(*self.foretold)
        return facts

    def _table(self) -> pd.DataFrame:
        """Return the segments as they are printed, without what is missing for all of them."""
        names = {"share": "share", "profile": "its place's", "without_position": "without position", "low": "from"}
        names |= {"high": "to", "removed": "deleted"}
        table = self.segments[[*names]].rename(columns=names).dropna(axis=1, how="all").round(3)
        table.insert(0, "text", self.segments["text"].map(line))
        return table

    def __repr__(self) -> str:
        facts = [f"{name}: {value}" for name, value in self._facts().items()]
        return "\n".join([*facts, self._table().to_string(na_rep="–", index_names=False), *answer(self.segments)])
