"""Heads that fetch: whose attention, from the question on, points at the document that answers.

They are found on prompts whose right document is known, and then say of other prompts which one the model looks at.

Source: Wu et al. 2024, arXiv:2404.15574 (retrieval heads), here by document and without an answer.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from posbias import errors
from posbias.conditions import read_condition
from posbias.engines.local import Reader
from posbias.models.attention import Reading
from posbias.models.families import family_of
from posbias.models.watch import watched
from posbias.prompts import Prompt

Head = tuple[int, int]
"""Layer and head, from 0."""


def attended(reader: Reader, prompt: Prompt) -> Float[np.ndarray, "T H D"]:
    """Return what share of each head's attention each document has, a mean over the question's tokens.

    Rows are those of the question and of what stands behind it, up to where the answer begins; the
    prompt is read whole. A layer without attention has NaN.
    """
    documents, questions = prompt.of("document"), prompt.of("question")
    if not documents or not questions or questions[-1].start < documents[-1].stop:
        expected = "documents with a question behind them, whose tokens are known"
        raise errors.invalid("prompt", expected, f"{len(documents)} documents")
    n, start = len(prompt.ids), questions[-1].start
    member = torch.zeros(len(prompt.ids), len(documents))
    for k, span in enumerate(documents):
        member[span.start : span.stop, k] = 1
    family = family_of(reader.model.config)
    found: dict[int, Float[np.ndarray, "H D"]] = {}

    def attend(reading: Reading) -> Float[Tensor, "B H n V"]:
        weights = reading.block(slice(0, 1), slice(start, n), content=False)[1]
        assert weights is not None
        found[reading.layer] = (weights[0].float().cpu() @ member).mean(1).numpy()
        return reading.averages()

    with watched(reader.model, family, attend):
        Reader(reader.model, shared=False).logits(prompt.ids, 1)
    if not found:
        raise errors.invalid("model", "one with attention", family.name)
    nothing = np.full(next(iter(found.values())).shape, np.nan)
    return np.stack([found.get(t, nothing) for t in range(len(family.layers(reader.model)))])


def point(shares: Float[np.ndarray, "T H D"], heads: Sequence[Head]) -> Float[np.ndarray, "D"]:
    """Return the share of attention that each document has of some heads, a mean over them.

    >>> shares = np.array([[[0.2, 0.4], [0.1, 0.9]]])
    >>> point(shares, [(0, 0)]).tolist(), point(shares, [(0, 0), (0, 1)]).round(2).tolist()
    ([0.2, 0.4], [0.15, 0.65])
    """
    check_heads("heads", heads, *shares.shape[:2])
    return np.mean([shares[head] for head in heads], axis=0)


def check_heads(field: str, heads: Iterable[Head], T: int, H: int) -> None:
    """Raise ValueError for a head that is not among T layers of H heads."""
    for layer, head in heads:
        if not (0 <= layer < T and 0 <= head < H):
            expected = f"layers from 0 to {T - 1} and heads from 0 to {H - 1}"
            raise errors.invalid(field, expected, f"{layer}.{head}")


def choose_heads(text: str, config: Any) -> list[Head]:
    """Return heads such as 17.3+18.6, or raise ValueError for those that the model has not."""
    fetching = read_condition(f"fetched:heads={text}")[1]
    fetching.check(config)
    return list(fetching.heads)


def looked_at(reader: Reader, prompt: Prompt, heads: Sequence[Head]) -> int:
    """Return the document, from 0, that has most of some heads' attention."""
    return int(point(attended(reader, prompt), heads).argmax())


def find_heads(reader: Reader, prompts: Iterable[Prompt], places: Iterable[int]) -> pd.DataFrame:
    """Return the table of :meth:`~posbias.measure.model.Model.fetching_heads`, from the right document's places."""
    asked = np.array([*places])
    shares = [attended(reader, prompt) for prompt in prompts]
    if not shares or len(shares) != len(asked):
        raise errors.invalid("places", "one for each prompt", f"{len(asked)} for {len(shares)}")
    return heads_table(np.stack([x.argmax(-1) for x in shares]), asked, shares[0].shape[-1])


def heads_table(pointed: Int[np.ndarray, "N T H"], asked: Int[np.ndarray, "N"], documents: int) -> pd.DataFrame:
    """Return the table of heads from where each points in each prompt."""
    N, T, H = pointed.shape
    hit = (pointed == asked[:, None, None]).reshape(N, -1)
    columns: dict[str, Any] = {"right": hit.mean(0)}
    where = [k for k in range(documents) if (asked == k).any()]
    by_place = np.stack([hit[asked == k].mean(0) for k in where])
    columns["worst"] = by_place.min(0)
    columns["lean"] = (pointed - asked[:, None, None]).reshape(N, -1).mean(0)
    columns |= {f"place {k + 1}": row for k, row in zip(where, by_place, strict=True)}
    names = [f"{layer}.{head}" for layer in range(T) for head in range(H)]
    table = pd.DataFrame(columns, index=pd.Index(names, name="head"))
    return table.sort_values(["right", "worst"], ascending=False, kind="stable")
