"""What can be asked of a model by place, and what can be refused of it before anything heavy is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from posbias import errors

TASKS = {
    "kv": "key-value retrieval",
    "copy": "copying",
}
"""Name of a task, and what it is called in words."""
PAIRS, LENGTH, SEGMENT, CUE = 64, 256, 16, 4
PROFILE_PROMPTS = 32
"""Unless given: pairs of a key-value prompt; tokens of a copying prompt, and of these the segment's and its cue's;
how many prompts give a profile."""


@dataclass(frozen=True)
class Task:
    """Say what is asked.

    Parameters
    ----------
    name
        ``kv``: n pairs of a key and a value, then one of the keys; the answer is its value. ``copy``: a text, then a
        cue from somewhere in it; the answer is the segment that follows the cue there.
    pairs
        Pairs of a key-value prompt; 64 unless given.
    length
        Tokens of a copying prompt with cue and segment; 256 unless given.
    segment, cue
        Tokens of the segment that is scored, and of the cue before it; 16 and 4 unless given.

    Raises
    ------
    ValueError
        For an unknown task, a number out of range, and for what belongs to the other task.

    >>> Task("kv", pairs=0)
    Traceback (most recent call last):
    ValueError: pairs: expected an integer of at least 1, received 0
    """

    name: str
    pairs: int | None = None
    length: int | None = None
    segment: int | None = None
    cue: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers, and fill in what is not given."""
        if self.name not in TASKS:
            raise errors.invalid("task", f"one of {', '.join(TASKS)}", self.name or "an empty name")
        own = {"pairs": PAIRS} if self.name == "kv" else {"length": LENGTH, "segment": SEGMENT, "cue": CUE}
        for field in ("pairs", "length", "segment", "cue"):
            value = getattr(self, field)
            if field in own:
                object.__setattr__(self, field, errors.positive_integer(field, own[field] if value is None else value))
            elif value is not None:
                raise errors.invalid(field, f"none with the task {self.name}", value)
        if self.name == "copy" and self.text_tokens < self.stretch:
            wanted = f"at least {2 * self.stretch}, for a text that has cue and segment, and these again"
            raise errors.invalid("length", wanted, self.length)

    @property
    def stretch(self) -> int:
        """Tokens that are repeated in a copying prompt: cue and segment."""
        return (self.segment or 0) + (self.cue or 0)

    @property
    def text_tokens(self) -> int:
        """Tokens of a copying prompt before the cue."""
        return (self.length or 0) - self.stretch

    @property
    def words(self) -> str:
        """What the task is called.

        >>> Task("kv").words, Task("copy", length=64).words
        ('key-value retrieval', 'copying')
        """
        return TASKS[self.name]


def check_counts(prompts: int, batch_size: int, profile_prompts: int, seed: int, task: Task) -> None:
    """Raise ValueError for numbers of prompts and a seed that are out of range.

    Parameters
    ----------
    prompts, batch_size
        How many prompts, and how many at a time.
    profile_prompts
        How many of them also give a profile; 0 for none.
    seed
        Of what is drawn.
    task
        What is asked: copying wants a second document for the control.

    >>> check_counts(1, 8, 0, 0, Task("copy"))
    Traceback (most recent call last):
    ValueError: prompts: expected an integer of at least 2, received 1
    """
    errors.positive_integer("prompts", prompts, minimum=2 if task.name == "copy" else 1)
    errors.positive_integer("batch_size", batch_size)
    errors.positive_integer("profile_prompts", profile_prompts, minimum=0)
    errors.positive_integer("seed", seed, minimum=0)
    if profile_prompts > prompts:
        raise errors.invalid("profile_prompts", f"at most the {prompts} prompts", profile_prompts)
