"""Read a model on the page: what leaks in its attention on a few prompts, and what stands at its first position."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from posbias.measure.corpus import Corpus, make_prompts
from posbias.measure.instrument import Instrument
from posbias.models.loading import Source
from studies.absolute import leakage as theory
from studies.absolute.interventions import bidirectional
from studies.absolute.measure import PER_STRATUM, first_trajectory, read_components
from studies.interventions import replaced_rope

LENGTH, PATHS = 256, 8
"""Tokens of a prompt, and prompts whose first token is followed."""


@dataclass(frozen=True, eq=False)
class Here:
    """Hold a model, prompts and what was read of them."""

    instrument: Instrument
    tokenizer: Any
    text: Int[np.ndarray, "N n"]
    natural: theory.Components

    def path(self, ids: Int[np.ndarray, "N n"], position: int = 0) -> Float[np.ndarray, "N L D"]:
        """Return the states at a position of each prompt, in every layer."""
        return first_trajectory(self.instrument, ids, position=position)


def read_here(model: str = "reference/llama-12", prompts: int = 16) -> Here:
    """Return what a model's attention leaks on prompts from as many documents of the built-in corpus."""
    source = Source(model)
    instrument = Instrument(source.load_model(torch.float32, "cpu", None))
    tokenizer = source.load_tokenizer()
    text = make_prompts(Corpus("builtin"), tokenizer, prompts, LENGTH, rule="cut").ids
    basis = theory.position_basis(theory.sample_pairs(LENGTH, PER_STRATUM, first_key=0))
    return Here(instrument, tokenizer, text, read_components(instrument, text, basis))


def closed(path: Float[np.ndarray, "N L D"]) -> bool:
    """Say whether every prompt's trajectory is the first one's, bit for bit."""
    return bool((path == path[0]).all())


def other_paths(here: Here) -> dict[str, list[bool]]:
    """Return whether trajectories agree if the first token, the position or the mask is another."""
    text = here.text[:PATHS]
    words = np.setdiff1d(np.arange(len(here.tokenizer)), here.tokenizer.all_special_ids)
    found: dict[str, list[bool]] = {"another first token": []}
    for k, prompt in enumerate(text):
        other = np.where(np.arange(LENGTH) == 0, words[k], prompt)
        found["another first token"].append(closed(here.path(np.stack([text[0], other]))))
    found["positions 1 to 4 for 0"] = [closed(here.path(text, k)) for k in range(1, 5)]
    with bidirectional(here.instrument):
        found["no causal mask"] = [closed(here.path(text))]
    return found


def rotation_losses(here: Here) -> dict[str, float]:
    """Return the loss in nats per token on the prompts, with the model's own rotations and with two others."""
    model, ids, found = here.instrument.model, torch.as_tensor(here.text), {}
    for by in ("own", "identity", "scrambled"):
        rotated = nullcontext() if by == "own" else replaced_rope(here.instrument, by)  # type: ignore[arg-type]
        with torch.no_grad(), rotated:
            found[f"absolute_loss_{by}"] = float(model(ids, labels=ids).loss)
    return found
