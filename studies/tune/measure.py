"""What a model answers by place, and what it does with text, before fine-tuning and after it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int

from posbias.engines.local import Reader
from posbias.files import data_folder
from posbias.lookup.contexts import make_contexts
from posbias.lookup.tasks import Task
from posbias.measure.corpus import Corpus, make_prompts
from posbias.measure.model import open as open_model
from posbias.measure.quantities.use import draw_replacements
from posbias.prompts import Ask, Prompt, write_prompts
from posbias.provenance import versions
from studies.changes import measure_changes
from studies.making import go_on
from studies.summaries import shave
from studies.tune.facts import PLACES
from studies.tune.training import load_tuned

MOST, END = 12, {*".\n,<"}
"""Tokens of an answer that a model gives, and the characters before which it ends."""
QUERIES = 64
"""Tokens from which on attention to the first token is averaged."""

Row = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Sizes:
    """Say how many sets and prompts are read."""

    sets: int = 40
    heads: int = 16
    """Sets in which heads and influence are read."""
    prompts: int = 24
    used: int = 10
    """Prompts of which tokens are replaced."""
    each: int = 11
    """Of how many neighbouring tokens one is replaced."""
    length: int = 256


TRIAL = Sizes(sets=1, heads=1, prompts=4, used=2, each=64, length=64)


@dataclass(frozen=True)
class World:
    """Hold a model in memory, what it is measured on, and how it was trained."""

    model: Any
    tokenizer: Any
    texts: tuple[str, ...]
    name: str
    version: str
    """Of the model and of its adapter: what tells unfinished files apart."""
    sizes: Sizes = Sizes()
    training: Mapping[str, Any] = field(default_factory=dict)

    def place(self, part: str) -> Path:
        """Return the file of what is unfinished."""
        said = repr((self.version, self.sizes, len(self.texts)))
        digest = hashlib.sha256(said.encode()).hexdigest()[:12]
        return data_folder() / "unfinished" / f"tune-{self.name}-{part}-{digest}.npz"

    def attrs(self) -> dict[str, Any]:
        """Return where numbers come from."""
        kept = self.training.get("settings", {})
        names = ("arm", "seed", "steps", "sets", "rank", "alpha", "rate", "autocast", "model")
        about = {f"training_{name}": str(kept[name]) for name in names if name in kept}
        return about | {"version": self.version} | versions("torch", "transformers", "peft")


def open_world(source: Any, arm: str | None, seed: int, texts: Sequence[str], sizes: Sizes) -> World:
    """Return what is measured of an arm's model, or of the model as it is."""
    tokenizer = source.load_tokenizer()
    if arm is None:
        model = source.read_model(torch.float32, "cpu", None, "sdpa")
        return World(model, tokenizer, tuple(texts), "before", source.version(), sizes)
    model, about = load_tuned(source, arm, seed)
    said = hashlib.sha256(repr(sorted(about["settings"].items())).encode()).hexdigest()[:12]
    version = f"{source.version()}, adapter {said}"
    return World(model, tokenizer, tuple(texts), f"{arm}-{seed}", version, sizes, about)


def measure_answers(world: World) -> xr.Dataset:
    """Return what is answered where documents compete, by set and place of the document asked for.

    ``source`` is the document, from 0, that holds the answer that the model gives, -1 where none does; ``correct`` is 1
    where each token of the right answer is the likeliest, ``log_probability`` is that answer's. With ``apart`` in front
    they are those among documents of other kinds.
    """
    model, tokenizer = world.model, world.tokenizer
    model.set_attn_implementation("sdpa")
    reader = Reader(model)
    contexts = make_contexts(Task("documents", PLACES), world.sizes.sets, 0)

    def read(k: int) -> Row:
        asks = contexts[k].asks["competing"]
        answers = [ask.answer for ask in asks]
        prompts = write_prompts(tokenizer, "documents", asks, True, False)
        given = [give_answer(tokenizer, reader, prompt.ids) for prompt in prompts]
        apart = write_prompts(tokenizer, "documents", contexts[k].asks["not_competing"], True, False)
        told = np.array([reader.answer(p.ids, p.answer_ids) for p in (*prompts, *apart)], dtype=np.float32)
        source = np.array([answers.index(text) if text in answers else -1 for text in given])
        both = {"": told[: len(prompts)], "apart_": told[len(prompts) :]}
        scores = ("log_probability", "correct")
        row = {f"{which}{name}": x[:, s] for which, x in both.items() for s, name in enumerate(scores)}
        return row | {"source": source.astype(np.int8)}

    rows = go_on(len(contexts), read, world.place("answers"), "sets")
    return xr.Dataset({name: (("context", "place"), x) for name, x in rows.items()}, attrs=world.attrs())


def give_answer(tokenizer: Any, reader: Reader, ids: Sequence[int]) -> str:
    """Return what a model answers, its likeliest token each time, up to the end of the sentence."""
    tokens = reader.greedy(ids, MOST, lambda some, k: bool(some) and not END.isdisjoint(tokenizer.decode([k])))
    return str(tokenizer.decode(tokens)).strip()


def measure_heads(world: World) -> xr.Dataset:
    """Return whom each head attends to where the answer is read, by the document asked for, and influence beside it.

    ``attended`` (layer, head, asked, document) is the mean weight of the prompt's last token on a document's tokens,
    ``fetched`` the share of sets in which the document asked for has most of it, and ``first`` the weight on the first
    token. ``influence`` (context, asked, document) is a document's share of the gradient of the likeliest next token.
    """
    model, tokenizer = world.model, world.tokenizer
    model.set_attn_implementation("eager")
    contexts = make_contexts(Task("documents", PLACES), world.sizes.heads, 0)

    def read(k: int) -> Row:
        asks = contexts[k].asks["competing"]
        prompts = write_prompts(tokenizer, "documents", asks, True, False)
        pairs = [read_heads(model, p, document_of(tokenizer, p, a)) for p, a in zip(prompts, asks, strict=True)]
        attention = np.stack([weights for weights, _ in pairs], 2)  # (layer, head, asked, document and first)
        return {"attention": attention.astype(np.float32), "influence": np.stack([x for _, x in pairs])}

    rows = go_on(len(contexts), read, world.place("heads"), "sets")
    model.set_attn_implementation("sdpa")
    documents = rows["attention"][..., 1:]
    right = documents.argmax(-1) == np.arange(PLACES)
    arrays: dict[str, Any] = {
        "attended": (("layer", "head", "asked", "document"), documents.mean(0)),
        "fetched": (("layer", "head", "asked"), right.mean(0).astype(np.float32)),
        "first": (("layer", "head"), rows["attention"][..., 0].mean((0, -1))),
        "influence": (("context", "asked", "document"), rows["influence"].astype(np.float32)),
    }
    return xr.Dataset(arrays, attrs=world.attrs())


def document_of(tokenizer: Any, prompt: Prompt, ask: Ask) -> Int[np.ndarray, "n"]:
    """Return the document, from 0, that each token of a prompt begins in: -1 before them, their number behind them."""
    starts = [prompt.text.index(f"Document {k}: {text}") for k, text in enumerate(ask.documents, 1)]
    starts.append(prompt.text.index("\n\nQuestion:", starts[-1]))
    found = tokenizer(prompt.text, add_special_tokens=False, return_offsets_mapping=True)
    assert tuple(found["input_ids"]) == prompt.ids
    first = [start for start, _ in found["offset_mapping"]]
    return np.searchsorted(starts, first, side="right") - 1


def read_heads(
    model: Any, prompt: Prompt, document: Int[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "T H D+1"], Float[np.ndarray, "D"]]:
    """Return the last token's attention to the first token and to each document, and each document's influence."""
    x = model.get_input_embeddings()(torch.tensor([prompt.ids])).detach().requires_grad_()
    with torch.enable_grad():
        out = model(inputs_embeds=x, output_attentions=True, use_cache=False, logits_to_keep=1)
        (gradient,) = torch.autograd.grad(out.logits[0, -1].log_softmax(-1).max(), x)
    member = torch.from_numpy(np.arange(PLACES)[:, None] == document).float()
    weights = torch.stack([a[0, :, -1].detach() for a in out.attentions])
    size = gradient[0].norm(dim=-1)
    influence = (member @ size) / size.sum()
    return torch.cat([weights[..., :1], weights @ member.T], -1).numpy(), influence.numpy()


def measure_text(world: World) -> xr.Dataset:
    """Return loss, influence, contributions, attention to the first token, and use, on prompts cut from texts.

    ``loss`` (prompt) is the mean of the tokens' losses, nats. Of the first prompts every so-many-th token is replaced,
    from one on that moves with the prompt's number; ``use`` (prompt, position) is nan where none is.
    """
    sizes, model, tokenizer = world.sizes, world.model, world.tokenizer
    corpus = Corpus("texts", given=world.texts)
    how: dict[str, Any] = {"rule": "cut", "special_tokens": False}
    ids = torch.from_numpy(make_prompts(corpus, tokenizer, sizes.prompts, sizes.length, **how).ids)
    model.set_attn_implementation("sdpa")

    def read(k: int) -> Row:
        with torch.no_grad():
            logits = model(ids[k : k + 1], use_cache=False).logits[0, :-1]
        found = np.full(sizes.length, np.nan, dtype=np.float32)
        if k < sizes.used:
            places = sorted({0, sizes.length - 1, *range(k % sizes.each, sizes.length, sizes.each)})
            others = draw_replacements(ids, k, 0)
            found = measure_changes(model, ids[k], others, "replaced", (), places).astype(np.float32)
        return {"loss": np.array(float(torch.nn.functional.cross_entropy(logits, ids[k, 1:]))), "use": found}

    rows = go_on(sizes.prompts, read, world.place("text"))
    quantities = ["mixing", "influence", "kernels", "contributions"]
    opened = open_model(model, tokenizer=tokenizer)
    measured = opened.measure(
        sizes.prompts, sizes.length, texts=list(world.texts), quantities=quantities, batch_size=4, attention="eager",
        progress=True, **how,
    ).results  # fmt: skip
    assert np.array_equal(measured["tokens"].values, ids.numpy())
    A = measured["attention"].values.astype(np.float64)
    arrays: dict[str, Any] = {
        "loss": (("prompt",), rows["loss"].astype(np.float32)),
        "use": (("used", "position"), shave(rows["use"][: sizes.used])),
        "influence": (("prompt", "position"), shave(measured["influence_prompts"].values)),
        "contributions": (("prompt", "position"), shave(measured["contributions_own"].values)),
        "first": (("layer",), A[:, min(QUERIES, sizes.length // 2) :, 0].mean(1).astype(np.float32)),
        "mixing": (("layer",), measured["lambda_frobenius"].values.astype(np.float32)),
    }
    return xr.Dataset(arrays, attrs=world.attrs())


def measure_training(world: World) -> xr.Dataset:
    """Return the loss of each step, and right answers by place in other sets on the way."""
    about = world.training
    scores = ("log_probability", "correct")
    arrays: dict[str, Any] = {"loss": (("step",), about["losses"])}
    for k, name in enumerate(scores):
        arrays[name] = (("test", "place"), about["tests"][:, k])
    return xr.Dataset(arrays, attrs=world.attrs() | {"training_seconds": about["seconds"]})


MEASURED = {"training": measure_training, "answers": measure_answers, "heads": measure_heads, "text": measure_text}
"""What measures each part."""
