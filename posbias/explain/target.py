"""What a prompt is explained for: the number of a token, of two, or of a whole answer that follows the prompt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from posbias import errors
from posbias.measure.target import choose_target

WHOLE = "log-probability"
"""The one number that the tokens of an answer have together: it is added up over them."""


@dataclass(frozen=True)
class Target:
    """Name the tokens that follow the prompt, the one whose number is subtracted, and which number it is."""

    tokens: tuple[int, ...]
    """None, for the likeliest token, until the model was asked."""
    against: int | None
    of: str
    words: str

    def value(self, logits: Float[Tensor, "..."]) -> Float[Tensor, "B"]:
        """Return the number for each prompt, from the logits (B, v) of one token or (B, m, v) of an answer's m."""
        z = logits if logits.ndim == 3 else logits[:, None]
        if self.of != "logit":
            z = z.softmax(-1) if self.of == "probability" else z.log_softmax(-1)
        ids = torch.tensor(self.tokens, device=z.device).expand(len(z), -1)
        chosen = z.gather(-1, ids[..., None])[..., 0].sum(-1)
        return chosen if self.against is None else chosen - z[:, -1, self.against]

    def log_value(self, logits: Float[Tensor, "..."]) -> float:
        """Return the log-probability of the tokens, less that of the other token, for one prompt."""
        return float(replace(self, of=WHOLE).value(logits)[0])


def target_of(
    target: str, against: str | None, of: str | None, answer: str | None, ids: tuple[int, ...], model: tuple[Any, int]
) -> Target:
    """Return what is asked for; ``ids`` are the tokens of the answer, ``model`` is its tokenizer and vocabulary's size.

    Of an answer all tokens are the target; with the target ``next``, the first.
    """
    if answer is None:
        one = choose_target(target, against, of or "probability", *model)
        name = "the likeliest next token" if target == "top" else repr(target)
        less = "" if against is None else f" less that of {against!r}"
        tokens = () if target == "top" else (int(one.token),)
        return Target(tokens, one.against, one.of, f"the {one.of} of {name}{less}")
    if target not in ("top", "next") or against is not None:
        raise errors.invalid("answer", "none beside another target", repr(answer)[:60])
    if bad := [token for token in ids if token >= model[1] or token == model[0].unk_token_id]:
        raise errors.invalid("answer", "tokens that the model has", f"{bad[0]} in {answer[:40]!r}")
    if target == "next":
        of = choose_target("top", None, of or "probability", *model).of
        return Target(ids[:1], None, of, f"the {of} of the first token of {answer!r}")
    if of not in (None, WHOLE):
        raise errors.invalid("of", f"{WHOLE}, which is added up over an answer", repr(of))
    return Target(ids, None, WHOLE, f"the {WHOLE} of the answer {answer!r}")
