"""Where each head points in the prompts of ``used``: from the question, and from the answer that the model gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray as xr

from posbias.engines.local import Reader
from posbias.files import data_folder
from posbias.heads import attended
from posbias.lookup.contexts import make_contexts
from posbias.lookup.tasks import Task
from posbias.prompts import Prompt, Span, write_prompts
from posbias.settings import Settings
from studies.making import go_on
from studies.results import load

MEANINGS = {
    "question": "the document, from 0, that has most of a head's attention, a mean over the question's tokens",
    "answer": "the same, over the tokens from which the answer given is read; -1 where no document states it",
}


def measure_pointing(settings: Settings, places: int = 8) -> xr.Dataset:
    """Return the document that each head points at, by context and document asked for; the model is in 16 bits."""
    source: Any = settings.source
    tokenizer = source.load_tokenizer()
    reader = Reader(source.load_model(torch.bfloat16, "cpu", None, "sdpa"))
    contexts = make_contexts(Task("documents", places), settings.prompts, settings.seed)
    stated = load("documents")["smollm2.used"]["source"].values.astype(int)

    def read(k: int) -> Mapping[str, np.ndarray]:
        asks = contexts[k].asks["competing"]
        prompts = write_prompts(tokenizer, "documents", asks, True, False)
        found: dict[str, list[np.ndarray]] = {"question": [], "answer": []}
        for prompt, j in zip(prompts, stated[k], strict=True):
            pointed = attended(reader, prompt).argmax(-1)
            found["question"].append(pointed)
            given = prompts[j].answer_ids if j >= 0 else ()
            behind = attended(reader, with_answer(prompt, given)).argmax(-1) if given else None
            found["answer"].append(np.full_like(pointed, -1) if behind is None else behind)
        return {name: np.array(x, dtype=np.int8) for name, x in found.items()}

    path = data_folder() / "unfinished" / f"documents-pointing-{source.version()[-16:]}.npz"
    rows = go_on(settings.prompts, read, path, "contexts")
    dims = ("context", "asked", "layer", "head")
    arrays = {name: (dims, x, {"long_name": MEANINGS[name]}) for name, x in rows.items()}
    about = {
        "model": source.name(),
        "revision": source.version(),
        "dataset": "invented facts",
        "prompts": settings.prompts,
        "length": settings.length,
        "seed": settings.seed,
        "dtype": "bfloat16",
    }
    return xr.Dataset(arrays, attrs=about)


def with_answer(prompt: Prompt, answer: tuple[int, ...]) -> Prompt:
    """Return a prompt with its answer read behind it; what is watched are the tokens that the answer comes from."""
    ids = (*prompt.ids, *answer[:-1])
    asked = Span("question", len(prompt.ids) - 1, len(ids))
    return replace(prompt, ids=ids, spans=(*prompt.of("document"), asked))
