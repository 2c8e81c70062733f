"""What a prompt is explained for: the likeliest next token, or a whole answer that follows the prompt."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Target:
    """Name the tokens that follow the prompt, and which number of theirs influence is a derivative of."""

    tokens: tuple[int, ...]
    """None, for the likeliest token, until the model was asked."""
    of: str
    words: str

    def value(self, logits: Float[Tensor, "..."]) -> Float[Tensor, "B"]:
        """Return that number for each prompt, from the logits (B, v) of one token or (B, m, v) of an answer's m."""
        log = self._log_probability(logits)
        return log if self.of == "log-probability" else log.exp()

    def log_value(self, logits: Float[Tensor, "..."]) -> float:
        """Return the log-probability of the tokens, for one prompt."""
        return float(self._log_probability(logits)[0])

    def _log_probability(self, logits: Float[Tensor, "..."]) -> Float[Tensor, "B"]:
        """Return the sum over the tokens."""
        z = logits if logits.ndim == 3 else logits[:, None]
        ids = torch.tensor(self.tokens, device=z.device).expand(len(z), -1)
        return z.log_softmax(-1).gather(-1, ids[..., None])[..., 0].sum(-1)


def target_of(answer: str | None, ids: tuple[int, ...]) -> Target:
    """Return the target of an answer, of which ``ids`` are the tokens, or of the likeliest token without one."""
    if answer is None:
        return Target((), "probability", "the probability of the likeliest next token")
    return Target(ids, "log-probability", f"the log-probability of the answer {answer!r}")
