"""Answers scored: from next-token logits to accuracy, log-probability and loss, all teacher-forced."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from posbias.lookup.key_values import chance
from posbias.lookup.prompts import PlacedPrompts
from posbias.measure.instrument import Instrument

SCORES: dict[str, tuple[str, str]] = {
    "accuracy": ("accuracy", "1 where each token of the answer is the model's most likely one, else 0"),
    "accuracy_among": (
        "accuracy among the prompt's values",
        "1 where each token of the answer is the most likely one of those with which a value of the prompt goes on",
    ),
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


def read_scores(instrument: Instrument, prompts: PlacedPrompts, rows: slice) -> dict[str, Float[Tensor, "B"]]:
    """Return the scores of some of the prompts, by name.

    Parameters
    ----------
    instrument
        With the model.
    prompts
        Key-value prompts have values, copying prompts have controls.
    rows
        Which of them: a batch.
    """
    answers = torch.from_numpy(prompts.answers[rows])
    logits = instrument.tail(torch.from_numpy(prompts.ids[rows]), answers.shape[1]).cpu()
    if prompts.controls is not None:
        without = instrument.tail(torch.from_numpy(prompts.controls[rows]), answers.shape[1]).cpu()
        losses = [-answer_log_probabilities(x, answers).mean(-1) for x in (logits, without)]
        return {"loss": losses[0], "loss_without": losses[1], "gain": losses[1] - losses[0]}
    assert prompts.values is not None
    return {
        "accuracy": (logits.argmax(-1) == answers).all(-1).double(),
        "accuracy_among": found_among(logits, answers, torch.from_numpy(prompts.values[rows])).double(),
        "log_probability": answer_log_probabilities(logits, answers).sum(-1),
    }


def answer_log_probabilities(logits: Float[Tensor, "B L v"], answers: Int[Tensor, "B L"]) -> Float[Tensor, "B L"]:
    """Return the log-probability of each token of the answers, nats, in 64 bits.

    >>> answer_log_probabilities(torch.zeros(1, 1, 4), torch.tensor([[2]])).exp().tolist()
    [[0.25]]
    """
    return logits.double().log_softmax(-1).gather(-1, answers[..., None])[..., 0]


def found_among(
    logits: Float[Tensor, "B L v"], answers: Int[Tensor, "B L"], values: Int[Tensor, "B P L"]
) -> Bool[Tensor, "B"]:
    """Return whether each token of an answer is the most likely of those with which a value of the prompt goes on.

    Values go on from the tokens of the answer before (teacher-forced): of the first token all values are asked, of a
    later one those that begin as the answer does.

    >>> logits, values = torch.tensor([[[0.0, 3.0, 2.0, 1.0]]]), torch.tensor([[[2], [3]]])
    >>> found_among(logits, torch.tensor([[2]]), values).tolist()
    [True]
    """
    rows = torch.arange(len(answers))[:, None]
    begins = torch.ones(values.shape[:2], dtype=torch.bool)
    found = torch.ones(len(answers), dtype=torch.bool)
    for step in range(answers.shape[1]):
        token = values[:, :, step]
        best = logits[rows, step, token].masked_fill(~begins, -torch.inf).argmax(-1, keepdim=True)
        found &= token.gather(1, best)[:, 0] == answers[:, step]
        begins &= token == answers[:, step, None]
    return found


def chances(prompts: PlacedPrompts) -> dict[str, float]:
    """Return the accuracy of a guess, by the score that has one: the mean over the prompts."""
    return {} if prompts.values is None else {"accuracy_among": float(np.mean(chance(prompts)))}
