"""Questions about documents: answers by place and remedy, and what each document does for the answer that is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from posbias import errors
from posbias.engines.local import Reader
from posbias.explain.prompt import by_segment
from posbias.files import data_folder
from posbias.lookup.answers import FACT_END, FACT_MOST
from posbias.lookup.contexts import make_contexts
from posbias.lookup.run import look_up
from posbias.lookup.tasks import Task
from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.measure.quantities.contributions import LayerContributions
from posbias.measure.session import Session
from posbias.models.attention import Reading
from posbias.prompts import LAYOUT, Ask, Prompt, write_prompt, write_prompts
from posbias.settings import Settings
from studies.making import go_on
from studies.summaries import stacked

INPUT = ("influence", "gradient × input", "contributions", "attention")
"""What a gradient and a forward pass say of each document, as a share of the prompt."""
OTHERS = ("integrated gradients", "integrated gradients, signed", "attention, inseq")
"""What captum and inseq give each document."""
STEPS = 8
"""Steps of integrated gradients."""
REMEDIES = {
    "as it is": LAYOUT,
    "question first and last": ("question", *LAYOUT),
    "twice": LAYOUT + LAYOUT,
}
"""In which order instruction, documents and question are written."""

KNOWN = (
    "The capital of France is", "The opposite of hot is", "The first month of the year is",
    "The largest ocean is called", "The chemical symbol of water is", "The planet on which we live is called",
)  # fmt: skip
"""Beginnings of facts that a model knows without documents."""

Row = Mapping[str, np.ndarray]


def open_session(source: Any) -> Session:
    """Return a session of a model on one short prompt, which is there because a session has some."""
    return Session(Settings(source, Corpus("builtin"), 1, 2, 1, dtype="float32"))


def measure_lookup(settings: Settings, task: Task, condition: str = "") -> xr.Dataset:
    """Return the scores of a lookup by arm, context and place, without its texts, under a condition if there is one."""
    session = open_session(settings.source)
    asked = replace(settings, dtype="float32", attention=session.settings.attention)  # or weights are read anew
    found = look_up(asked, task, conditions=[condition] if condition else [], progress=True)
    if condition:
        found = found.sel(condition=condition, drop=True).assign_attrs(condition=condition)
    return found[["log_probability", "correct"]].astype(np.float32)


def measure_remedies(settings: Settings, places: int = 8, asked: int = 1) -> xr.Dataset:
    """Return scores (remedy, context, question) of ``asked`` questions of each context, at places that go round."""
    session = open_session(settings.source)
    reader = open_model(session)[1]
    contexts = make_contexts(Task("documents", places), settings.prompts, settings.seed)

    def read(k: int) -> Row:
        where = [(k + step * places // asked) % places for step in range(asked)]
        found = []
        for layout in REMEDIES.values():
            asks = [replace(contexts[k].asks["competing"][place], layout=layout) for place in where]
            prompts = write_prompts(session.tokenizer, "documents", asks, True, False)
            found.append([reader.answer(prompt.ids, prompt.answer_ids) for prompt in prompts])
        scores = np.array(found)
        return {"log_probability": scores[..., 0], "correct": scores[..., 1], "asked": np.array(where)}

    rows = go_on(settings.prompts, read, _place(settings, f"documents-remedies-{places}-{asked}"), "contexts")
    arrays: dict[str, Any] = {
        name: (("context", "remedy", "question"), rows[name].astype(np.float32)) for name in rows if name != "asked"
    }
    arrays["asked"] = (("context", "question"), rows["asked"].astype(np.int8))
    return xr.Dataset(arrays, {"remedy": list(REMEDIES)}, session.provenance())


def measure_used(settings: Settings, places: int = 8) -> xr.Dataset:
    """Return what each document does for the answer that a model gives, by context, document that answers, document.

    ``removed`` is the change of that answer's log-probability, in nats, without the document; shares of :data:`INPUT`
    are sums over its tokens, ``gradient × input`` of sizes. ``source`` is the document that holds the answer given, -1
    where none does.
    """
    session = open_session(settings.source)
    instrument, reader = open_model(session)
    contexts = make_contexts(Task("documents", places), settings.prompts, settings.seed)

    def read(k: int) -> Row:
        asks = contexts[k].asks["competing"]
        answers = [ask.answer for ask in asks]
        prompts = write_prompts(session.tokenizer, "documents", asks, True, False)
        given = [give_answer(session.tokenizer, reader, prompt.ids) for prompt in prompts]
        cut = [prompt.segment for prompt in prompts]
        tokens = [tuple(answer) for _, answer in given]
        source = np.array([answers.index(text) if text in answers else -1 for text, _ in given])
        told = [reader.answer(p.ids, p.answer_ids) for p in prompts]
        row = {"log_probability": np.array(told)[:, 0], "correct": np.array(told)[:, 1], "source": source}
        shares = [read_shares(instrument, p.ids, t) for p, t in zip(prompts, tokens, strict=True)]
        for way in INPUT:
            row[way] = np.stack([by_segment(x[way], s) for x, s in zip(shares, cut, strict=True)])[:, 1 : places + 1]
        return row | {"removed": remove_documents(reader, prompts, tokens, cut, places)}

    rows = go_on(settings.prompts, read, _place(settings, f"documents-used-{places}"), "contexts")
    dims = ("context", "asked", "document")
    arrays = {name: (dims[: x.ndim], x.astype(np.float32)) for name, x in rows.items()}
    return xr.Dataset(arrays, attrs=session.provenance())


def measure_exceptions(settings: Settings, places: int = 8) -> xr.Dataset:
    """Return what deletion says where one document holds the answer, two do, or none does, a prompt of each a context.

    ``twice`` is the change of the given answer's log-probability without each document, by distance from the one asked
    for: half of the documents further, another states the same fact. ``given`` says whether the answer is theirs.
    ``none`` is the change, by document, where one of :data:`KNOWN` is asked among the same documents, and ``stated``
    whether a document states the answer given. ``one`` is the change, by document, where one of them is asked for,
    ``source`` the one that holds the answer given, -1 where none does. With ``again`` behind a name: the further
    change without each document, that with the largest fall gone.
    """
    session = open_session(settings.source)
    reader = open_model(session)[1]
    contexts = make_contexts(Task("documents", places), settings.prompts, settings.seed)

    def removed(ask: Ask, what: str) -> tuple[str, dict[str, np.ndarray]]:
        """Return the answer given, and its changes without one document, and without another one after the first."""
        prompt = write_prompt(session.tokenizer, "documents", ask, True, False)
        text, tokens = give_answer(session.tokenizer, reader, prompt.ids)
        cut, found = prompt.segment, {}
        for name in (what, f"{what}_again"):
            found[name] = remove_documents(reader, [prompt], [tuple(tokens)], [cut], places)[0]
            left = cut != found[name].argmin() + 1
            prompt, cut = replace(prompt, ids=tuple(np.array(prompt.ids)[left].tolist())), cut[left]
        return text, found

    def read(k: int) -> Row:
        asks, asked = contexts[k].asks["competing"], k % places
        ask, other = asks[asked], asks[again := (asked + places // 2) % places]
        documents, begin = list(ask.documents), KNOWN[k % len(KNOWN)]
        documents[again] = documents[again].replace(f"{other.begin} {other.answer}", f"{ask.begin} {ask.answer}")
        text, twice = removed(replace(ask, documents=tuple(documents)), "twice")
        told, none = removed(replace(ask, question=f"How does this sentence go on? {begin} …", begin=begin), "none")
        answer, one = removed(ask, "one")
        stating, stated = [x.answer for x in asks], any(told in x for x in ask.documents)
        source = stating.index(answer) if answer in stating else -1
        row = {"given": text == ask.answer, "stated": stated, "source": source}
        moved = {name: np.roll(x, -asked) for name, x in twice.items()}
        return {name: np.array(x) for name, x in row.items()} | moved | none | one

    rows = go_on(settings.prompts, read, _place(settings, f"documents-exceptions-{places}"), "contexts")
    dims = ("context", "document")
    arrays = {name: (dims[: x.ndim], x.astype(np.float32)) for name, x in rows.items()}
    return xr.Dataset(arrays, attrs=session.provenance())


@dataclass(frozen=True)
class _OtherTools:
    """Hold the model that other tools are to explain, its tokenizer and reader, and what captum and inseq have for it.

    ``integrate`` is captum's class of integrated gradients; ``attending`` is inseq's model.
    """

    model: Any
    tokenizer: Any
    reader: Reader
    integrate: Any
    attending: Any

    def read(self, prompt: Prompt, places: int) -> dict[str, Any]:
        """Return what the tools give each of a prompt's documents, what gradients miss, and the change they explain."""
        _, answer = give_answer(self.tokenizer, self.reader, prompt.ids)
        n, cut, value = len(prompt.ids), prompt.segment, answer_value(answer)
        ids = torch.tensor([[*prompt.ids, *answer[:-1]]], device=self.model.device)
        nothing = ids.clone()
        nothing[:, np.flatnonzero((cut > 0) & (cut <= places))] = self.tokenizer.pad_token_id or 0

        def told(ids: Tensor) -> Tensor:
            return value(self.model(input_ids=ids, use_cache=False, logits_to_keep=len(answer)).logits)

        integrated = self.integrate(told, self.model.get_input_embeddings())
        how = {"n_steps": STEPS, "internal_batch_size": 1, "return_convergence_delta": True}
        parts, delta = integrated.attribute(ids, nothing, **how)
        signed = parts[0, :n].sum(-1).double().cpu().numpy()
        each = (np.abs(signed), signed, self.attention(prompt, answer)[:n])
        with torch.no_grad():
            change = float(told(ids)[0] - told(nothing)[0])
        given = {way: by_segment(x, cut)[1 : places + 1] for way, x in zip(OTHERS, each, strict=True)}
        return given | {"missing": float(delta[0]), "change": change}

    def attention(self, prompt: Prompt, answer: Sequence[int]) -> Float[np.ndarray, "m"]:
        """Return inseq's attention from the tokens of an answer to all tokens of a prompt and more."""
        whole = prompt.text + self.tokenizer.decode(answer)
        out = self.attending.attribute(prompt.text, whole, show_progress=False)
        attended: np.ndarray = out[0].aggregate().target_attributions.nansum(1).double().cpu().numpy()
        return attended


def measure_others(settings: Settings, places: int = 8) -> xr.Dataset:
    """Return what captum's integrated gradients and inseq's attention give each document.

    The prompts are those of :func:`measure_used`, and both are sums over a document's tokens: of the sizes of
    integrated gradients, and with their signs; of attention from each token of the answer, a mean over layers and
    heads. Gradients are followed from documents of padding; ``missing`` is by how much their sum misses ``change``,
    that of the answer's log-probability, in nats.
    """
    try:
        import captum
        import inseq
        from captum.attr import LayerIntegratedGradients
    except ImportError as error:
        raise errors.invalid("others", "captum and inseq, installed", error) from None
    session = open_session(settings.source)
    (instrument, reader), tokenizer = open_model(session), session.tokenizer
    contexts = make_contexts(Task("documents", places), settings.prompts, settings.seed)
    attending = inseq.load_model(instrument.model, "attention", tokenizer=tokenizer)
    tools = _OtherTools(instrument.model, tokenizer, reader, LayerIntegratedGradients, attending)

    def read(k: int) -> Row:
        prompts = write_prompts(tokenizer, "documents", contexts[k].asks["competing"], True, False)
        return stacked([tools.read(prompt, places) for prompt in prompts])

    rows = go_on(settings.prompts, read, _place(settings, f"documents-others-{places}"), "contexts")
    dims = ("context", "asked", "document")
    arrays = {name: (dims[: x.ndim], x.astype(np.float32)) for name, x in rows.items()}
    about = {"captum": captum.__version__, "inseq": version("inseq"), "steps": STEPS}
    return xr.Dataset(arrays, attrs=session.provenance() | about)


def open_model(session: Session) -> tuple[Instrument, Reader]:
    """Return the instrument of a session, and a reader of its model."""
    return session.instrument, Reader(session.instrument.model)


def give_answer(tokenizer: Any, reader: Reader, ids: Sequence[int]) -> tuple[str, list[int]]:
    """Return what a model answers, its likeliest token each time, up to a full stop; and the tokens of that."""

    def ends(some: Sequence[int], k: int) -> bool:
        return bool(some) and not {*FACT_END}.isdisjoint(tokenizer.decode([k]))

    tokens = reader.greedy(ids, FACT_MOST, ends)
    return tokenizer.decode(tokens).strip(), tokens


def remove_documents(
    reader: Reader,
    prompts: Sequence[Prompt],
    answers: Sequence[tuple[int, ...]],
    cut: Sequence[Int[np.ndarray, "n"]],
    places: int,
) -> Float[np.ndarray, "P P"]:
    """Return by how much each answer's log-probability changes without each document, all of the same ones."""
    whole = [reader.answer(p.ids, a)[0] for p, a in zip(prompts, answers, strict=True)]
    found = np.zeros((len(prompts), places))
    for document in reversed(range(places)):
        for k, (p, a) in enumerate(zip(prompts, answers, strict=True)):
            left = np.array(p.ids)[cut[k] != document + 1]
            found[k, document] = reader.answer(left.tolist(), a)[0] - whole[k]
    return found


def answer_value(answer: Sequence[int]) -> Callable[[Float[Tensor, "B m v"]], Float[Tensor, "B"]]:
    """Return what takes the logits at an answer's tokens to its log-probability."""
    tokens = torch.tensor(answer)

    def value(logits: Tensor) -> Tensor:
        z = logits if logits.ndim == 3 else logits[:, None]
        return z.log_softmax(-1).gather(-1, tokens.to(z.device).expand(len(z), -1)[..., None])[..., 0].sum(-1)

    return value


def read_shares(instrument: Instrument, ids: Sequence[int], answer: Sequence[int]) -> dict[str, Float[np.ndarray, "n"]]:
    """Return shares of the prompt's tokens for an answer that follows: :data:`INPUT`.

    Influence is the norm of the gradient of the answer's log-probability. Contributions and attention are those to the
    prompt's last token, the first rolled out over layers, the second a mean over layers and heads.
    """
    n, last = len(ids), slice(len(ids) - 1, len(ids))
    whole, device = torch.tensor([[*ids, *answer[:-1]]]), instrument.devices()[-1]
    carried, attention = torch.zeros(1, whole.shape[1], device=device), torch.zeros(n, device=device)
    carried[0, last] = 1.0

    def see(reading: Reading) -> None:
        nonlocal carried
        carried = LayerContributions(instrument, reading.layer, whole.shape[1], whole=False).add(reading, carried)
        weights = reading.block(slice(0, 1), last, content=False)[1]
        assert weights is not None
        attention.add_(weights[0].mean((0, 1)))

    found = instrument.measure(whole, see, None, answer_value(answer), len(answer))
    rows = (found.influence[0], found.influence_signed[0].abs(), carried[0], attention)
    shares = (x[:n].double().cpu().numpy() for x in rows)
    return {way: x / x.sum() for way, x in zip(INPUT, shares, strict=True)}


def _place(settings: Settings, name: str) -> Path:
    """Return the file of what is unfinished, of the same model."""
    return data_folder() / "unfinished" / f"{name}-{settings.source.version()[-16:]}.npz"
