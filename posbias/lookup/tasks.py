"""What can be asked of a model by place, and what its answers are scored by; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from posbias import errors
from posbias.measure.biases import FIELD, Described, read_bias
from posbias.settings import setting

TASKS = {"kv": "key-value lookup", "copy": "copying"}
"""Name of a task, and what it is called in words."""
DEFAULTS = {"kv": {"pairs": 64}, "copy": {"length": 256, "segment": 16, "cue": 4}}
"""What belongs to each task, and what it is unless given."""
LEAST = {"pairs": 2}
"""The least of a number, 1 for others: of one pair there is one place, and nothing to choose from."""
PROFILE_PROMPTS = 32
"""How many prompts give a profile unless given."""

SCORES: dict[str, tuple[str, str]] = {
    "accuracy": ("accuracy", "1 where each token of the answer is the model's most likely one, else 0"),
    "accuracy_among": ("accuracy among the prompt's values", "1 where the answer is the most likely of them, else 0"),
    "log_probability": ("log-probability", "of the answer, nats: the sum over its tokens"),
    "loss": ("loss", "of the repeated segment, nats a token"),
    "loss_without": ("loss without", "of the same segment where other text stands in its first place, nats a token"),
    "gain": ("gain", "loss_without less loss: what the first occurrence is worth, nats a token"),
}
"""Name of a score → what it is called, and what it is."""
OF_TASK = {"kv": ("accuracy", "accuracy_among", "log_probability"), "copy": ("gain", "loss", "loss_without")}
"""Scores of each task."""
SHARES = ("accuracy", "accuracy_among")
"""Scores that are 0 or 1 for each prompt."""
MAIN = {"kv": "log_probability", "copy": "gain"}
"""The score of each task that places are compared by: it knows more than right and wrong."""


@dataclass(frozen=True)
class Task:
    """Say what is asked.

    ``kv``: pairs of a key and a value, then one of the keys; the answer is its value. ``copy``: a text, then a cue from
    somewhere in it; the answer is the segment that follows the cue there.

    >>> Task("kv", pairs=1)
    Traceback (most recent call last):
    ValueError: pairs: expected an integer of at least 2, received 1
    """

    name: str
    pairs: int | None = setting(None, "Of kv: pairs of a key and a value in a prompt; 64.")
    length: int | None = setting(None, "Of copy: tokens of a prompt, with cue and segment; 256.", "-n")
    segment: int | None = setting(None, "Of copy: tokens of the segment that is scored; 16.")
    cue: int | None = setting(None, "Of copy: tokens before it that are given; 4.")

    def __post_init__(self) -> None:
        """Check the numbers, and fill in what is not given."""
        if self.name not in TASKS:
            raise errors.invalid("task", f"one of {', '.join(TASKS)}", self.name or "an empty name")
        own = DEFAULTS[self.name]
        for field in ("pairs", "length", "segment", "cue"):
            value = getattr(self, field)
            if field in own:
                value = errors.positive_integer(
                    field, own[field] if value is None else value, minimum=LEAST.get(field, 1)
                )
                object.__setattr__(self, field, value)
            elif value is not None:
                raise errors.invalid(field, f"none with the task {self.name}", value)
        if self.name == "copy" and self.text_tokens < self.stretch:
            expected = f"at least {2 * self.stretch}, for a text that has cue and segment, and these again"
            raise errors.invalid("length", expected, self.length)

    @property
    def stretch(self) -> int:
        """Tokens that are repeated in a copying prompt: cue and segment."""
        return (self.segment or 0) + (self.cue or 0)

    @property
    def text_tokens(self) -> int:
        """Tokens of a copying prompt before the cue."""
        return (self.length or 0) - self.stretch


def checked_counts(task: Task, prompts: int, profile_prompts: int | None, dataset: str | None) -> int:
    """Return how many prompts give a profile, or raise ValueError for numbers out of range and a text that none reads.

    Copying wants a second document for the control.

    >>> checked_counts(Task("copy"), 1, 0, None)
    Traceback (most recent call last):
    ValueError: prompts: expected an integer of at least 2, received 1
    """
    errors.positive_integer("prompts", prompts, minimum=2 if task.name == "copy" else 1)
    profiled = min(PROFILE_PROMPTS, prompts) if profile_prompts is None else profile_prompts
    errors.positive_integer("profile_prompts", profiled, minimum=0)
    if profiled > prompts:
        raise errors.invalid("profile_prompts", f"at most the {prompts} prompts", profiled)
    if dataset is not None and task.name != "copy":
        raise errors.invalid("dataset", f"none with the task {task.name}, which reads no text", dataset)
    return profiled


def one_change(bias: Any, temperature: float) -> Described | None:
    """Return the bias that is to be added, None for none, or raise ValueError for two changes or a bad one.

    ``bias`` is a description, or a text as ``--bias`` has it.

    >>> one_change({"kind": "log", "alpha": 1.4}, 0.5)
    Traceback (most recent call last):
    ValueError: temperature: expected 1 with a bias: one change at a time, received 0.5
    """
    described = read_bias(bias) if isinstance(bias, str) else None if bias is None else Described(bias, FIELD)
    errors.finite_array("temperature", temperature, ndim=(0,))
    if temperature <= 0 or (temperature != 1 and described is not None):
        expected = "a number above 0" if temperature <= 0 else "1 with a bias: one change at a time"
        raise errors.invalid("temperature", expected, temperature)
    return described
