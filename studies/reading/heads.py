"""Where in the network a document is found and where it is read: attention by head, and answers with heads changed.

All prompts are eight documents that state the same kind of fact. Heads are chosen on sets of one seed and judged on
sets of another. An answer is the likeliest of the eight that the documents state, with all their tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from posbias.files import data_folder
from posbias.lookup.contexts import make_contexts
from posbias.lookup.tasks import Task
from posbias.measure.corpus import Corpus, Prompts
from posbias.measure.session import Session
from posbias.prompts import Ask
from posbias.settings import Settings
from studies import results
from studies.making import go_on
from studies.reading.passes import AS_IT_IS, Change, DocumentSet, Head, Passes, Question, Seen, lay_out

CHOOSE, JUDGE = 2, 3
"""Seeds of the sets on which heads are chosen, and of those on which they are judged."""
PLACES = 8
LONG = 16
"""Documents in the lists whose scores are multiplied as the logarithm of their length."""
WHERE = ("question", "last")
"""The rows whose attention is read: a mean over the question's tokens, and its last one, which the answer follows."""
FETCHING, SPARED = 10, 40
"""Heads that are changed together, the best; and how many of the best are spared when others are drawn."""
STEPS_BACK = 40
"""Tokens before the end of a question for each of which a head has a mean output of its own."""
MEAN_OF = 8
"""Sets over which those means are taken."""
MIDDLE = (2, 3, 4, 5)
"""Documents, from 0, that are asked for where something is carried over from another order."""
DEPTHS = (8, 12, 16, 18, 20, 22, 24, 28)
"""Layers at which the stream is carried over."""


def open_passes(settings: Settings) -> tuple[Session, Passes]:
    """Return a session of a model, and what reads sets of documents with it."""
    session = Session(Settings(settings.source, Corpus("builtin"), 1, 2, 1, dtype="float32"))
    session.prompts = Prompts(np.zeros((1, 2), dtype=np.int64), np.zeros(1, dtype=np.int64))
    return session, Passes(session.instrument)


def competing(count: int, seed: int, places: int = PLACES) -> list[tuple[Ask, ...]]:
    """Return what is asked of each of some sets of competing documents."""
    return [context.asks["competing"] for context in make_contexts(Task("documents", places), count, seed)]


def unfinished(settings: Settings, name: str) -> Any:
    """Return the file of what is unfinished, of the same model."""
    return data_folder() / "unfinished" / f"reading-{name}-{settings.source.version()[-16:]}.npz"


def measure_heads(settings: Settings) -> xr.Dataset:
    """Return which document each head attends to most, and what each layer knows of the document asked for.

    The first half of the contexts is :data:`CHOOSE`'s, the second :data:`JUDGE`'s. ``told`` is each answer's
    log-probability, ``pointed`` the document with most of a head's attention, ``lens`` the answer whose first own token
    a layer's stream makes likeliest at the question's last token (``first`` are these tokens). ``streams`` of the first
    half train what reads the document asked for, or the one that answers, from those of the second: ``probed``.
    """
    session, passes = open_passes(settings)
    half = settings.prompts // 2
    sets = competing(half, CHOOSE) + competing(half, JUDGE)

    def read(k: int) -> dict[str, np.ndarray]:
        documents = lay_out(session.tokenizer, sets[k])
        passes.read_documents(documents.ids)
        each = [read_question(passes, documents, question) for question in documents.questions]
        return {name: np.stack(list(map(itemgetter(name), each))) for name in each[0]}

    rows = go_on(2 * half, read, unfinished(settings, f"heads-{2 * half}"), "sets")
    streams, source = rows.pop("streams").astype(np.float64), rows["told"].argmax(-1)
    asked = np.broadcast_to(np.arange(PLACES), source.shape)
    probed = np.stack([probe(streams[:half], goal[:half], streams[half:]) for goal in (asked, source)])
    dims = ("context", "asked")
    arrays = {
        "told": ((*dims, "document"), rows["told"].astype(np.float32)),
        "pointed": ((*dims, "where", "layer", "head"), rows["attention"].argmax(-1).astype(np.int8)),
        "attention": (
            ("where", "asked", "layer", "head", "document"),
            rows["attention"][half:].astype(np.float32).mean(0).swapaxes(0, 1),
        ),
        "lens": ((*dims, "depth"), rows["lens"].argmax(-1).astype(np.int8)),
        "first": ((*dims, "document"), rows["first"].astype(np.int32)),
        "probed": (("goal", "judged", "asked", "depth"), probed.astype(np.int8)),
    }
    coords = {"where": list(WHERE), "goal": ["asked for", "answers"]}
    return xr.Dataset(arrays, coords, session.provenance() | {"choose": CHOOSE, "judge": JUDGE})


def read_question(passes: Passes, documents: DocumentSet, question: Question) -> dict[str, np.ndarray]:
    """Return what :func:`measure_heads` keeps of a question."""
    seen = Seen()
    told = passes.ask(question, seen=seen)
    first, streams = [rest[0] for rest in question.rests], torch.stack(seen.streams)
    return {
        "told": told,
        "attention": attended(seen, documents.segment, len(question.tail)).astype(np.float16),
        "lens": passes.lens(streams, first).numpy(),
        "first": np.array(first),
        "streams": streams.half().numpy(),
    }


def attended(seen: Seen, segment: Int[np.ndarray, "n"], tail: int) -> Float[np.ndarray, "2 T H P"]:
    """Return what each document has of each head's attention: a mean over the question's tokens, and its last one's."""
    weights = torch.stack([w[:, :tail, : len(segment)] for w in seen.weights])
    member = torch.from_numpy(np.eye(segment.max() + 1, dtype=np.float32)[segment][:, 1:])
    by_document = weights @ member
    return torch.stack([by_document.mean(2), by_document[:, :, -1]]).numpy()


def probe(
    x: Float[np.ndarray, "C P L d"], goal: Int[np.ndarray, "C P"], new: Float[np.ndarray, "K P L d"], ridge: float = 0.1
) -> Int[np.ndarray, "K P L"]:
    """Return the class that a linear regression on one-hot classes gives new streams, of each layer by itself.

    Features are standardised; ``ridge`` is in units of the mean square of all of them together.
    """
    found = []
    classes = np.eye(int(goal.max()) + 1)[goal.reshape(-1)]
    for layer in range(x.shape[2]):
        mean, std = x[:, :, layer].mean((0, 1)), x[:, :, layer].std((0, 1)) + 1e-6
        a = ((x[:, :, layer] - mean) / std).reshape(classes.shape[0], -1)
        b = (new[:, :, layer] - mean) / std
        kernel = a @ a.T
        weights = np.linalg.solve(kernel + ridge * a.shape[1] * np.eye(len(a)), classes - classes.mean(0))
        found.append((b @ (a.T @ weights) + classes.mean(0)).argmax(-1))
    return np.stack(found, axis=-1)


def choose_heads(entry: xr.Dataset, count: int = FETCHING, where: str = "question") -> list[Head]:
    """Return the heads that point at the document asked for most often on the first half of the sets, best first."""
    pointed = entry["pointed"].sel(where=where).values[: entry.sizes["context"] // 2]
    right = (pointed == np.arange(PLACES)[None, :, None, None]).mean((0, 1))
    order = np.argsort(-right.reshape(-1), kind="stable")[:count]
    return [(int(k) // right.shape[1], int(k) % right.shape[1]) for k in order]


def other_heads(entry: xr.Dataset, count: int = FETCHING, seed: int = 0) -> list[Head]:
    """Return as many heads of the same layers, drawn from those that are not among the best :data:`SPARED`."""
    chosen, spared = choose_heads(entry, count), set(choose_heads(entry, SPARED))
    rng, found, H = np.random.default_rng(seed), [], entry.sizes["head"]
    for layer in sorted({t for t, _ in chosen}):
        free = [h for h in range(H) if (layer, h) not in spared]
        wanted = sum(t == layer for t, _ in chosen)
        found += [(layer, int(h)) for h in rng.choice(free, wanted, replace=False)]
    return found


def chosen_on(settings: Settings) -> xr.Dataset:
    """Return the entry on which heads are chosen."""
    entry: xr.Dataset = results.load("reading")["smollm2.heads"]
    return entry


def measure_changed(settings: Settings) -> xr.Dataset:
    """Return each answer's log-probability, ``told``, with heads ablated or sharper, on sets of :data:`JUDGE`."""
    session, passes = open_passes(settings)
    entry = chosen_on(settings)
    best, others = choose_heads(entry), other_heads(entry)
    means = mean_outputs(passes, session, best + others)
    sets = competing(settings.prompts, JUDGE)
    changes: dict[str, Any] = {
        "as it is": AS_IT_IS,
        "best head off": best[:1],
        "ten best off": best,
        "ten others off": others,
        "ten best × 1.5": Change(1.5, best),
        "ten best × 2": Change(2.0, best),
        "ten best × 3": Change(3.0, best),
        "ten others × 2": Change(2.0, others),
        "all heads × 1.25": Change(1.25),
        "all heads × 1.5": Change(1.5),
    }

    def read(k: int) -> dict[str, np.ndarray]:
        documents = lay_out(session.tokenizer, sets[k])
        passes.read_documents(documents.ids)
        told = []
        for change in changes.values():
            each = [
                change if isinstance(change, Change) else ablation(question, change, means)
                for question in documents.questions
            ]
            told.append([passes.ask(q, c) for q, c in zip(documents.questions, each, strict=True)])
        return {"told": np.array(told)}

    rows = go_on(settings.prompts, read, unfinished(settings, "changed"), "sets")
    told = rows["told"].swapaxes(0, 1).astype(np.float32)
    about = {"best": _names(best), "others": _names(others), "judge": JUDGE}
    arrays = {"told": (("change", "context", "asked", "document"), told)}
    return xr.Dataset(arrays, {"change": list(changes)}, session.provenance() | about)


def measure_diluted(settings: Settings) -> xr.Dataset:
    """Return each answer's log-probability, ``told``, in lists of :data:`LONG`, with scores of all heads multiplied.

    The factor is log n / log m from the question on, where n is how many tokens the documents have and m how many the
    first eight of them have. It is 1 in the first row.
    """
    session, passes = open_passes(settings)
    sets = competing(settings.prompts, JUDGE, LONG)

    def read(k: int) -> dict[str, np.ndarray]:
        documents = lay_out(session.tokenizer, sets[k])
        passes.read_documents(documents.ids)
        short = int((documents.segment <= PLACES).sum())
        factor = float(np.log(len(documents.ids)) / np.log(short))
        told = []
        for change in (AS_IT_IS, Change(factor)):
            told.append([passes.ask(question, change) for question in documents.questions])
        return {"told": np.array(told), "factor": np.array(factor)}

    rows = go_on(settings.prompts, read, unfinished(settings, "diluted"), "sets")
    told = rows["told"].swapaxes(0, 1).astype(np.float32)
    arrays = {"told": (("change", "context", "asked", "document"), told), "factor": ("context", rows["factor"])}
    return xr.Dataset(arrays, {"change": ["as it is", "log n"]}, session.provenance() | {"judge": JUDGE})


def _names(heads: Sequence[Head]) -> str:
    return " ".join(f"{layer}.{head}" for layer, head in heads)


def mean_outputs(passes: Passes, session: Session, heads: Sequence[Head]) -> dict[Head, Float[Tensor, "back D"]]:
    """Return what heads give on average over prompts of :data:`CHOOSE`, by how many tokens before a question's end.

    Where a question is shorter, it counts for the tokens that it has.
    """
    total: dict[Head, Any] = dict.fromkeys(heads, 0.0)
    count = torch.zeros(STEPS_BACK, 1)
    for asks in competing(MEAN_OF, CHOOSE):
        documents = lay_out(session.tokenizer, asks)
        passes.read_documents(documents.ids)
        for question in documents.questions:
            seen, n = Seen(), min(len(question.tail), STEPS_BACK)
            passes.ask(question, seen=seen)
            count[:n] += 1
            for layer, head in total:
                padded = torch.zeros(STEPS_BACK, seen.outputs[layer].shape[-1])
                padded[:n] = seen.outputs[layer][head, : len(question.tail)].flip(0)[:n]
                total[layer, head] = total[layer, head] + padded
    return {head: x / count.clamp(min=1) for head, x in total.items()}


def ablation(question: Question, heads: Sequence[Head], means: dict[Head, Float[Tensor, "back D"]]) -> Change:
    """Return the change that puts a mean in place of what heads give, the last token's for tokens of answers."""
    n, answers = len(question.tail), sum(len(rest) - 1 for rest in question.rests)
    back = np.minimum(np.arange(n)[::-1], STEPS_BACK - 1)
    rows = torch.from_numpy(np.concatenate([back, np.zeros(answers, dtype=back.dtype)]))
    return Change(outputs={head: means[head][rows] for head in heads})


def measure_patched(settings: Settings) -> xr.Dataset:
    """Return answers to the same question after what heads or the stream hold is carried over from another order.

    In the other order the document asked for is first, the others follow as they do in turn. ``told`` (patch, context,
    asked, document) is by the document's place in the order that is read: of documents in the middle as it is, with
    outputs of the ten best heads carried over, with those of ten others, and with the stream that enters a layer of
    :data:`DEPTHS` at the question's last token. ``giver`` (context, asked, document) is told in the other order, by the
    place in the first.
    """
    session, passes = open_passes(settings)
    entry = chosen_on(settings)
    best, others = choose_heads(entry), other_heads(entry)
    sets = competing(settings.prompts, JUDGE)
    patches = ["as it is", "ten best heads", "ten other heads", *(f"stream {layer}" for layer in DEPTHS)]

    def read(k: int) -> dict[str, np.ndarray]:
        asks, givers, seen = sets[k], [], []
        for asked in MIDDLE:
            documents = lay_out(session.tokenizer, turned(asks, asked))
            passes.read_documents(documents.ids)
            seen.append(Seen())
            givers.append(np.roll(passes.ask(documents.questions[0], seen=seen[-1]), asked))
        documents = lay_out(session.tokenizer, asks)
        passes.read_documents(documents.ids)
        told = []
        for asked, other in zip(MIDDLE, seen, strict=True):
            question = documents.questions[asked]
            n = len(question.tail)
            changes = [AS_IT_IS]
            changes += [carried(other, heads, n) for heads in (best, others)]
            changes += [Change(stream=(layer, other.streams[layer])) for layer in DEPTHS]
            told.append([passes.ask(question, change) for change in changes])
        return {"told": np.array(told), "giver": np.array(givers)}

    rows = go_on(settings.prompts, read, unfinished(settings, "patched"), "sets")
    arrays = {
        "told": (("patch", "context", "asked", "document"), np.moveaxis(rows["told"], 2, 0).astype(np.float32)),
        "giver": (("context", "asked", "document"), rows["giver"].astype(np.float32)),
    }
    about = {"best": _names(best), "others": _names(others), "judge": JUDGE}
    return xr.Dataset(arrays, {"patch": patches, "asked": list(MIDDLE)}, session.provenance() | about)


def carried(seen: Seen, heads: Sequence[Head], rows: int) -> Change:
    """Return the change that gives heads what they gave in another pass, in the rows of a question."""
    return Change(outputs={(layer, head): seen.outputs[layer][head, :rows] for layer, head in heads})


def turned(asks: Sequence[Ask], first: int) -> tuple[Ask, ...]:
    """Return what is asked of documents in turn from another one on."""
    order = [(first + k) % len(asks) for k in range(len(asks))]
    texts = tuple(asks[0].documents[k] for k in order)
    return tuple(Ask(texts, asks[k].question, asks[k].answer, asks[k].begin) for k in order)
