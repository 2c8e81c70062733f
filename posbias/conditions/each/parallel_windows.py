"""Documents do not see one another, and each stands at the same positions, so that none has a place.

Tokens behind the documents see all of them, from the position that the longest one leaves.

Source: Ratner et al. 2022, arXiv:2212.10947 (parallel context windows).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from posbias import errors
from posbias.conditions import FIELD, ChangedRun
from posbias.models.families import family_of, text_config
from posbias.models.hooks import hooked
from posbias.prompts import Ask, Prompt, Span

LABEL = "Document: "
"""What stands in front of each document, without a number."""


@contextmanager
def parallel_windows(model: nn.Module, spans: Sequence[Span] | Sequence[tuple[int, int]]) -> Iterator[None]:
    """Have documents not see one another, each at the same positions, until the block ends.

    Prompts are read one at a time; ``spans`` are the documents' tokens, each from its first up to its end.
    """
    ends = [(one.start, one.stop) if isinstance(one, Span) else one for one in spans]
    check_positions(model.config)
    if len(ends) < 2:
        raise errors.invalid(FIELD, "two documents or more, whose tokens are known", len(ends))

    def enter(module: nn.Module, args: Any, kwargs: Any) -> Any:
        embedded = kwargs.get("inputs_embeds")
        ids: Tensor = args[0] if args else kwargs["input_ids"] if embedded is None else embedded
        cache = kwargs.get("past_key_values")
        past = 0 if cache is None else int(cache.get_seq_length())
        n = past + ids.shape[1]
        seen, positions = windows(ends, n)
        dtype = next(module.parameters()).dtype
        mask = torch.zeros(n, n, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)[past:]
        changed = {
            "attention_mask": mask[None, None].to(ids.device),
            "position_ids": positions[None, past:].to(ids.device),
        }
        return args, {**kwargs, **changed}

    with hooked(before=[(model, enter)]):
        yield


def windows(spans: Sequence[tuple[int, int]], n: int) -> tuple[Bool[Tensor, "n n"], Int[Tensor, "n"]]:
    """Return which keys each of n queries sees, and at what position each token stands.

    >>> seen, positions = windows([(1, 3), (3, 4)], 5)
    >>> positions.tolist(), seen[3].int().tolist()
    ([0, 1, 2, 1, 3], [1, 0, 0, 1, 0])
    """
    last = spans[-1][1]
    size = max(n, last)  # a prompt may be read in pieces
    document, positions = torch.full((size,), -1), torch.arange(size)
    first, longest = spans[0][0], max(stop - start for start, stop in spans)
    for k, (start, stop) in enumerate(spans):
        document[start:stop] = k
        positions[start:stop] = first + torch.arange(stop - start)
    positions[last:] = first + longest + torch.arange(size - last)
    document = document[:n]
    apart = (document[:, None] >= 0) & (document[None] >= 0) & (document[:, None] != document[None])
    return torch.ones(n, n, dtype=torch.bool).tril() & ~apart, positions[:n]


def check_positions(config: Any) -> None:
    """Raise ValueError for a model whose positions are not given from outside, or that has windows of its own."""
    position = family_of(config).position_of(config)
    if position == "alibi":
        raise errors.invalid(FIELD, "a model with rotary or learned positions", f"{config.model_type} with ALiBi")
    own = text_config(config)
    kinds = {*(getattr(own, "layer_types", None) or ())} - {"full_attention"}
    if kinds or (getattr(own, "sliding_window", None) and getattr(own, "use_sliding_window", True)):
        raise errors.invalid(FIELD, "a model without windows of its own", config.model_type)


class Condition(ChangedRun):
    changes = "reading"
    needs = "a model in this process, without ALiBi and windows; documents, and a tokenizer that tells where they are"
    cost = "nothing"

    def check(self, config: Any) -> None:
        check_positions(config)

    def rewrite(self, ask: Ask) -> Ask:
        """Return the same without documents' numbers, which are places too."""
        return replace(ask, label=LABEL)

    @contextmanager
    def changed(self, model: Any, prompt: Prompt | None) -> Iterator[None]:
        """Read the prompt's documents side by side; a prompt without documents is read as it is."""
        spans = () if prompt is None else prompt.of("document")
        if prompt is not None and not spans and "Document: " in prompt.text:
            raise errors.invalid(FIELD, "documents whose tokens are known", "a tokenizer or template that hides them")
        if len(spans) < 2:
            yield
            return
        with parallel_windows(model, spans):
            yield
