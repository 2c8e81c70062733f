"""What can be asked of a model by place, and what its answers are scored by; needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from posbias import errors
from posbias.settings import setting

TASKS = {"documents": "questions about documents", "kv": "key-value lookup"}
"""Name of a task, and what it is called in words."""
PLACES = {"documents": 8, "kv": 16}
"""Documents or pairs in a prompt, unless given."""
MADE_UP = {"documents": "invented facts", "kv": "invented words"}
"""What each task asks about where no rows are given."""
NOUNS = {"documents": "document", "kv": "pair"}
"""What a place of each task holds."""
PROMPTS = 40
"""Contexts that are made up unless given; of a user's own rows all are asked."""

ARMS = {
    "competing": "with all documents",
    "not_competing": "among documents of other questions",
    "closed_book": "without documents",
    "oracle": "with the document that answers alone",
}
"""What is put beside the document that holds the answer: its own prompt's, those of another question; floor and top."""
FLOORS = ("closed_book", "oracle")
"""Arms in which no place can matter."""
SCORES = {
    "correct": "1 where the answer is right, by the attribute score, else 0",
    "log_probability": "of the answer, nats: the sum over its tokens",
}
"""Name of a score, and what it is."""
WAYS = {
    "exact": "each token of the answer is the model's likeliest one",
    "contains": "the first line of at most 100 generated tokens contains an accepted answer",
}
"""When an answer is right."""

LOOK = (
    "Heads that fetch, as 17.3+17.4+18.6, which model.fetching_heads() of Python names: say where they look at another "
    "document than the answer is from, which is a sign of a wrong answer."
)
"""What heads are given for."""
LAYOUT, SCHEMA = "posbias_retrieval", 2
"""Name of the attribute that tells the file of a lookup, and the number of its layout."""


@dataclass(frozen=True)
class Task:
    """Say what is asked.

    ``documents``: some documents and a question, which one of them answers. ``kv``: keys and values as a JSON object,
    and one of the keys.

    >>> Task("kv", places=1)
    Traceback (most recent call last):
    ValueError: places: expected an integer of at least 2, received 1
    """

    name: str
    places: int | None = setting(
        None,
        "Documents or pairs in a prompt that is made up; 8, of kv 16. Rows have their own number, and 1 with them asks "
        "each once, its documents as they are.",
    )
    arms: str | None = setting(
        None,
        "Some of competing, not_competing (the others are documents of other questions), closed_book (no documents) "
        "and oracle (the one that answers), with commas between; competing always; all unless given, oracle where the "
        "score is contains.",
    )
    form: str | None = setting(
        None, "template (the tokenizer's chat template) or plain (text); template where there is one unless given."
    )

    score: str | None = setting(
        None,
        "When an answer is right: exact (each of its tokens is the likeliest), contains (the first line of at most 100 "
        "generated tokens has an accepted answer in it); contains for rows without begin unless given, else exact.",
    )
    heads: str | None = setting(None, LOOK)

    def __post_init__(self) -> None:
        """Check the numbers and names."""
        if self.name not in TASKS:
            raise errors.invalid("task", f"one of {', '.join(TASKS)}", self.name or "an empty name")
        if self.places is not None:
            errors.positive_integer("places", self.places, minimum=1 if self.name == "documents" else 2)
        if self.score not in (None, *WAYS):
            raise errors.invalid("score", f"one of {', '.join(WAYS)}", self.score)
        if self.form not in (None, "template", "plain"):
            raise errors.invalid("form", "template or plain", self.form)
        if unknown := [name for name in (self.arms or "").split(",") if name and name not in self.known]:
            raise errors.invalid("arms", f"some of {', '.join(self.known)}", ", ".join(unknown))

    @property
    def known(self) -> tuple[str, ...]:
        """Arms that the task has: only documents have some of other questions."""
        return tuple(arm for arm in ARMS if arm != "not_competing" or self.name == "documents")

    @property
    def wanted(self) -> tuple[str, ...]:
        """Arms that are asked, in their order."""
        if self.arms is not None:
            chosen = ["competing", *self.arms.split(",")]
        else:  # an oracle costs little, and invented facts need none
            chosen = [arm for arm in self.known if arm != "oracle" or self.score == "contains"]
        return tuple(arm for arm in ARMS if arm in chosen)

    def check_given(self, rows: Any, prompts: int | None) -> None:
        """Raise ValueError for what belongs to another task, and for made-up contexts beside a user's own."""
        if rows is not None and self.name != "documents":
            raise errors.invalid("rows", f"none with the task {self.name}", repr(rows)[:60])
        if rows is not None and self.places not in (None, 1):
            raise errors.invalid("places", "1, or none, beside rows, which have as many as documents", self.places)
        if rows is None and self.places == 1:
            raise errors.invalid("places", "an integer of at least 2 without rows", 1)
        if self.places == 1 and self.heads:
            raise errors.invalid("heads", "none beside places 1, where the right document is at any place", self.heads)
        if prompts is not None:
            errors.positive_integer("prompts", prompts)

    def scored(self, rows: Sequence[Any] | None) -> "Task":
        """Return the task with the score that its rows have, or raise ValueError for one that they cannot have."""
        given = rows or ()
        bare = any(not row.begin for row in given)
        score = self.score or ("contains" if bare else "exact")
        for k, row in enumerate(given, 1):
            if score == "exact" and len(row.accepted) > 1:
                expected = "contains for rows with several accepted answers"
                raise errors.invalid(f"score: row {k}", expected, f"exact for {len(row.accepted)}")
        return replace(self, score=score)


def scores_of(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the scores that a lookup has: of an answer of the model's own no log-probability is told."""
    return ("correct",) if attrs.get("score") == "contains" else tuple(SCORES)
