"""What was found of one prompt, as tables by token and by segment, in words and as a page."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from posbias import errors
from posbias.explain.prompt import WIDTH, line
from posbias.explain.words import answer
from posbias.files import check_writable
from posbias.measure.measurement import Measurement, checked_path, extra
from posbias.notebook import shown

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

    def to_pandas(self, by: str = "segment") -> pd.DataFrame:
        """Return the table by ``segment``, by ``token``, or by ``order`` and segment."""
        found = {"segment": self.segments, "token": self.tokens, "order": self.moves}
        if by not in found or found[by] is None:
            there = [name for name, table in found.items() if table is not None]
            raise errors.invalid("by", f"one of {', '.join(there)}", repr(by))
        return found[by].copy()  # type: ignore[union-attr]

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

    def _facts(self) -> list[tuple[str, str]]:
        """Return what is shown beside the table, by name."""
        found = [("target", f"{self.target}: {self.value:.4g}"), ("profile", self.profile.described)]
        if self.foretold is not None:
            found.append(
                ("other orders", "{} of {} changes have the sign that the profile gives".format(*self.foretold))
            )
        return found

    @property
    def _title(self) -> str:
        return f"A prompt of {len(self.tokens)} tokens in {len(self.segments)} segments, {self.model}"

    def _repr_html_(self) -> str:
        shares = [(f"{k}: {line(row['text'])}", numbers(row)) for k, row in self.segments.iterrows()]
        return shown(self._title, [*self._facts(), *shares], self.tokens["share"].to_numpy())

    def __repr__(self) -> str:
        rows = [f"{k:>3}  {line(row['text']):<{WIDTH}}  {numbers(row)}" for k, row in self.segments.iterrows()]
        facts = [f"{name}: {value}" for name, value in self._facts()]
        return "\n".join([self._title, *facts, *rows, *answer(self.segments)])


def numbers(row: pd.Series) -> str:
    """Return the numbers of a segment in words."""
    said = f"share {row['share']:.3f}, its place's {row['profile']:.3f}, without position {row['without_position']:.3f}"
    if row["low"] == row["low"]:
        said += f" ({row['low']:.3f} to {row['high']:.3f})"
    return said + ("" if row["removed"] != row["removed"] else f"; deleted {row['removed']:+.3f}")
