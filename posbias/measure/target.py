"""What influence is a derivative of: the likeliest next token or another one, as a probability, its logarithm or logit.

A gradient says how this one number would change with each input token. Another number can have another influence:
probabilities hardly move where the model is sure, their logarithms and logits do; a contrast asks what makes the model
prefer one token to another, and leaves out what raises or lowers both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from posbias import errors
from posbias.models.opening import Vocabulary
from posbias.settings import OF

MOST_PIECES = 6
"""Tokens of a text that is no single one, of which a message names so many."""


@dataclass(frozen=True)
class Target:
    """Say which number of the next token's distribution influence belongs to."""

    token: str | int = "top"  # ``top``, the likeliest; ``next``, the one that follows in the text; or the id of one
    against: int | None = None  # The id of another token, whose number is subtracted
    of: str = "probability"  # or ``logit`` or ``log-probability``

    def value(self, logits: Float[Tensor, "B v"], following: Int[Tensor, "B"] | None = None) -> Float[Tensor, "B"]:
        """Return the number for each prompt of a batch; ``following`` are the tokens after them, for ``next``."""
        z = logits
        if self.of != "logit":
            z = logits.softmax(-1) if self.of == "probability" else logits.log_softmax(-1)
        if self.token == "top":
            return z.amax(-1)
        if self.token == "next":
            assert following is not None
            return z.gather(-1, following[:, None].to(z.device))[:, 0]
        chosen = z[:, int(self.token)]
        return chosen if self.against is None else chosen - z[:, self.against]


def choose_target(target: str, against: str | None, of: str, tokenizer: Any, vocabulary: int) -> Target:
    """Return the target that settings name, or raise ValueError for a text that is not one of the model's tokens."""
    if of not in OF:
        raise errors.invalid("of", f"{', '.join(OF[:-1])} or {OF[-1]}", repr(of))
    if target in ("top", "next"):
        if against is not None:
            raise errors.invalid(
                "against", f"none with the target {target}: a contrast is of two tokens", repr(against)
            )
        return Target(target, None, of)
    token = token_of("target", target, tokenizer, vocabulary)
    if against is None:
        return Target(token, None, of)
    other = token_of("against", against, tokenizer, vocabulary)
    if other == token:
        raise errors.invalid("against", "another token than the target", f"{against!r}, the same")
    return Target(token, other, of)


def token_of(field: str, text: str, tokenizer: Any, vocabulary: int) -> int:
    """Return the id of a text that is one token, or raise ValueError with its pieces."""
    if isinstance(tokenizer, Vocabulary):
        raise errors.invalid(field, "top or next, for prompts of random tokens without a tokenizer", repr(text))
    ids = tokenizer(errors.text(field, text), add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        pieces = [repr(tokenizer.decode([token])) for token in ids[:MOST_PIECES]]
        more = ", …" if len(ids) > MOST_PIECES else ""
        raise errors.invalid(field, "a text of one token", f"{text!r}, of {len(ids)}: {', '.join(pieces)}{more}")
    if ids[0] >= vocabulary or ids[0] == tokenizer.unk_token_id:
        raise errors.invalid(field, "a token that the model has", repr(text))
    return int(ids[0])
