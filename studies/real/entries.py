"""The entries of ``results/real.nc`` that are measured prompt by prompt; what was stopped goes on where it was."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Int
from torch import Tensor

from posbias.files import data_folder
from posbias.measure.quantities.use import draw_replacements
from posbias.measure.results import read_results, write_results
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.prompts import apply_template
from posbias.settings import Settings
from studies.changes import measure_changes, measure_gradient, measure_steps
from studies.making import go_on
from studies.real.measure import ABOVE, measure_heads, measure_integrated, measure_sink
from studies.summaries import shave, summarise

CHANGES = ("replaced", "deleted", "hidden")
MARK = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Stands for the prompt where a template is cut in two."""
FRONTS = {"none": "", "end-of-text": "<|endoftext|>", "line-break": "\n"}
"""What may stand before a prompt, uncounted, by the names that entries have."""
ASKS = "What is this text about? Answer in one sentence."
BEGINS = "This text is about"
"""A question about the prompt, and how its answer begins: of fronts that end with ``about``."""
HEADS = 64
"""Tokens of the prompts on which sinks are counted, as in 2410.10781."""

EVERYTHING = ("mixing", "influence", "kernels", "content", "branches", "contributions", "ladder")
LADDER = 64
"""Prompts of which the ladder is measured, which takes as long as all the rest."""

Row = Mapping[str, np.ndarray]


def measure_all(settings: Settings) -> xr.Dataset:
    """Measure everything and keep the summary; the whole one stays with what is unfinished."""
    settings = replace(settings, quantities=EVERYTHING, ladder_prompts=min(LADDER, settings.prompts))
    path = place(Session(settings), "all", *EVERYTHING, str(settings.prompts)).with_suffix(".nc")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        write_results(path, measure(settings, partial=path.with_suffix(".partial"), progress=True))
        path.with_suffix(".partial").unlink()
    results = read_results(path)
    return summarise(results).merge(cross_rollouts(results))


def measure_long(settings: Settings) -> xr.Dataset:
    """Measure everything and keep the summary, but for what takes the cube of the number of tokens."""
    settings = replace(settings, quantities=EVERYTHING, ladder_prompts=min(LADDER, settings.prompts))
    return summarise(measure(settings, progress=True), order=False)


def cross_rollouts(results: xr.Dataset) -> xr.Dataset:
    """Return rollouts by each account of how much a token takes, and from whom.

    ``crossed`` (whom, amount, position), and ``first_share`` (whom, layer): what the first token gives of that, a mean
    over all later tokens; ``first_share_late`` over those of the second half.
    ``contributions_taken`` (layer) is the amount by contributions.
    ``whom``: all earlier tokens alike, by mean attention, or by mean contributions of other tokens. ``amount``: λ by
    Frobenius norms, by tokens, a half (Abnar and Zuidema), or what contributions leave to others, a mean over queries
    beyond the first quarter.
    """
    A, C = (results[name].values.astype(np.float64) for name in ("attention", "contributions"))
    n = A.shape[-1]
    others = C * ~np.eye(n, dtype=bool)
    nothing = others.sum(-1) == 0  # of the first token always
    others += nothing[..., None] * np.eye(n)
    whom = {
        "uniform": np.broadcast_to(np.tri(n) / np.arange(1, n + 1)[:, None], A.shape),
        "attention": A / A.sum(-1, keepdims=True),
        "contributions": others / others.sum(-1, keepdims=True),
    }
    amount = {
        "frobenius": results["lambda_frobenius"].values,
        "token": results["lambda_token"].values,
        "half": np.full(len(A), 0.5),
        "contributions": 1 - np.einsum("tii->ti", C)[:, n // 4 :].mean(1),
    }
    rows = np.zeros((len(whom), len(amount), n))
    rows[..., -1] = 1.0
    for row, kernels in zip(rows, whom.values(), strict=True):
        for v, mixing in zip(row, amount.values(), strict=True):
            for share, kernel in zip(mixing[::-1], kernels[::-1], strict=True):
                v[:] = (1 - share) * v + share * (v @ kernel)
    first, late = (np.stack([x[:, start:, 0].mean(1) for x in whom.values()]) for start in (1, n // 2))
    arrays: dict[str, Any] = {
        "crossed": (("whom", "amount", "position"), rows),
        "first_share": (("whom", "layer"), first),
        "first_share_late": (("whom", "layer"), late),
    }
    arrays["contributions_taken"] = (("layer",), amount["contributions"])
    return xr.Dataset(arrays, {"whom": list(whom), "amount": list(amount)})


def measure_use(
    settings: Settings, ways: Sequence[str] = ("replaced",), front: str = "none", each: int = 1
) -> xr.Dataset:
    """Measure the use of each prompt's tokens by every way that is named, and the gradient on the same prompts.

    A token is replaced by one of the prompt before, whose tokens are shuffled by the seed and the prompt's number, so
    that a prompt's numbers do not depend on how many there are. Of long prompts the first token, the last and every
    ``each``-th between are changed, from one on that moves with the prompt's number; the others are nan.
    """
    session, texts = _session(settings)
    before, after = frame_of(session.tokenizer, front)
    n = settings.length

    def read(k: int) -> Row:
        model, ids = session.instrument.model, torch.cat([texts[k], after])
        others = torch.cat([draw_replacements(texts, k, settings.seed), after])
        places = sorted({0, n - 1, *range(k % each, n, each)})
        row = {way: measure_changes(model, ids, others, way, before, places)[:n] for way in ways if way in CHANGES}
        if "likeliest" in ways:
            row["likeliest"] = measure_changes(model, ids, others, "replaced", before, places, likeliest=True)[:n]
        if "step" in ways:
            row |= {name: x[:n] for name, x in measure_steps(model, ids, others, before).items()}
        row["gradient"] = measure_gradient(model, ids, before)[:n]
        if "integrated" in ways:
            found, missed = measure_integrated(model, ids, before)
            row |= {"integrated": found[:n], "missed": np.array(missed)}
        return row

    rows = go_on(settings.prompts, read, place(session, "use", *ways, front, *([str(each)] if each > 1 else [])))
    arrays = {name: (("prompt", "position")[: x.ndim], shave(x.astype(np.float32))) for name, x in rows.items()}
    return xr.Dataset(arrays, attrs=session.provenance() | {"front": front, "each": each})


def frame_of(tokenizer: Any, front: str) -> tuple[list[int], Int[Tensor, "m"]]:
    """Return the tokens before a prompt and behind it, which are not counted.

    ``front`` is one of :data:`FRONTS`; or ``about``, a text of which an answer says what it is about; ``chat``, a
    user's message in the tokenizer's template; ``chat-about``, one that asks for that answer.
    """
    chat, about = front.startswith("chat"), front.endswith("about")
    whole = FRONTS.get(front, "") + MARK
    if chat:
        whole = apply_template(tokenizer, f"{MARK}\n\n{ASKS}" if about else MARK)
    if about:
        whole += BEGINS if chat else f"\n\n{BEGINS}"
    before, after = (tokenizer(part, add_special_tokens=False).input_ids for part in whole.split(MARK))
    return before, torch.tensor(after, dtype=torch.int64)


def measure_sinks(settings: Settings) -> xr.Dataset:
    """Measure what tells the first token from the others by layer, and in how many heads it is a sink.

    The heads' attention is that of natural text, of random tokens and of one token repeated, with and without a start
    token that counts as the first.
    """
    session, texts = _session(replace(settings, attention="eager"))
    tokenizer = session.tokenizer
    kinds, n = ("natural", "random", "repeated"), min(HEADS, settings.length)

    def read(k: int) -> Row:
        model = session.instrument.model
        random = np.random.default_rng([settings.seed, k]).integers(len(tokenizer), size=n)
        prompts = torch.stack([texts[k, :n], torch.from_numpy(random), torch.from_numpy(random[:1].repeat(n))])
        found = []
        for front in FRONTS.values():
            before = tokenizer(front, add_special_tokens=False).input_ids
            start = torch.tensor(before, dtype=torch.int64).expand(len(kinds), -1)
            found.append(measure_heads(model, torch.cat([start, prompts], 1)[:, :n]))
        heads = np.stack(found, 1)
        row = dict(measure_sink(model, texts[k])) if hasattr(model, "model") else {}
        return row | {"heads": (heads > ABOVE).mean(-1), "first_attention": heads.mean(-1)}

    rows = go_on(settings.prompts, read, place(session, "sinks"))
    dims = ("prompt", "text", "front", "layer")
    arrays = {name: (dims if x.ndim == 4 else dims[::3], x.astype(np.float32)) for name, x in rows.items()}
    return xr.Dataset(arrays, {"text": list(kinds), "front": list(FRONTS)}, session.provenance())


def _session(settings: Settings) -> tuple[Session, Any]:
    session = Session(replace(settings, quantities=("mixing", "influence")))
    return session, session.ids


def place(session: Session, *words: str) -> Path:
    """Return the file of an unfinished entry: of the same model, text and words, whatever the number of prompts."""
    settings = session.settings
    said = [*words, session.settings.source.version(), settings.corpus, settings.rule, settings.length, settings.seed]
    return data_folder() / "unfinished" / f"{hashlib.sha256(repr(said).encode()).hexdigest()[:16]}.npz"
