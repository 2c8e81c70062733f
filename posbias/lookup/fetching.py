"""Heads that fetch, found on a lookup's own prompts: the right document is known, and is at every place."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from posbias.engines.local import Reader
from posbias.heads import find_heads
from posbias.lookup.run import place_prompts
from posbias.lookup.tasks import Task
from posbias.measure.corpus import Prompts
from posbias.measure.progress import progress as told
from posbias.measure.session import Session
from posbias.models.families import family_of
from posbias.prompts import Ask, Prompt
from posbias.settings import Settings


def fetching_heads(settings: Settings, task: Task, rows: Sequence[Ask] | None, progress: bool = False) -> pd.DataFrame:
    """Return the table of :func:`posbias.heads.find_heads` on prompts whose documents compete."""
    family_of(settings.source.config())  # raises
    placed = place_prompts(settings, task, rows)[2]["competing"]
    prompts = [prompt for context in placed for prompt in context]
    places = [k for context in placed for k in range(len(context))]
    ids = np.array([prompts[0].ids])
    one = Prompts(ids, np.zeros(1, dtype=np.int64))
    session = Session(replace(settings, length=ids.shape[1]), one)
    with told(len(prompts), "prompts", "reading", shown=progress) as bar:

        def reading() -> Iterator[Prompt]:
            for prompt in prompts:
                yield prompt
                bar.update()

        return find_heads(Reader(session.instrument.model), reading(), places)
