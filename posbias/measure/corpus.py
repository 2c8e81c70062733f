"""Documents by name or path, the token ids of the prompts that are cut from them, and which prompts belong together."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass as plain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int
from pydantic.dataclasses import dataclass

from posbias import errors
from posbias.models.opening import Vocabulary
from posbias.settings import Text, checked, setting
from posbias.shipped import builtin_documents, builtin_units

if TYPE_CHECKING:
    import xarray as xr

RULES = ("first", "cut", "last", "random")
Document = str | list[dict[str, Any]]
"""A text, or a conversation: messages with a role and a content each, for the tokenizer's chat template."""

BUILTIN = "builtin"
"""Goes by this name: documents that ship with the package and that no reference model was trained on."""
BUILDERS = {".csv": "csv", ".parquet": "parquet", ".jsonl": "json", ".json": "json"}
"""How ``datasets`` calls what it reads, by the suffix before that of a packing; anything else is text."""
OPTIONS: dict[str, dict[str, Any]] = {
    "csv": {"na_filter": False, "encoding": "utf-8-sig"}, "text": {"sample_by": "document"},
}  # fmt: skip
"""How its readers are asked: a cell without text is no number, and a text file is one document."""


@checked
@dataclass(frozen=True)
class Corpus:
    """Say where documents come from: :data:`BUILTIN`, a path, or memory."""

    dataset: Text = setting(
        BUILTIN,
        "builtin (documentation and code that come with the package), or a path: text, a folder of .txt files, .jsonl, "
        ".csv or .parquet; builtin unless given.",
        "-d",
        kept=True,
        doors="report",
    )
    field: Text = setting("text", "Column of the text, or of the messages, in .jsonl, .csv and .parquet.")
    given: Any = None
    """Documents that are in memory; ``dataset`` is what files call them."""

    def __post_init__(self) -> None:
        """Check that there is a source."""
        if not self.dataset.strip():
            raise errors.invalid("dataset", f"{BUILTIN}, or a path", "an empty text")

    @property
    def reader(self) -> str:
        """What reads it: memory, the package, a folder, or what ``datasets`` calls the reader of such files."""
        path = Path(self.dataset)
        if self.given is not None:
            return "memory"
        if self.dataset == BUILTIN and not path.exists():
            return BUILTIN
        if os.path.isdir(path):  # which says no of a name that is too long
            return "folder"
        packed = path.suffix.lower() in (".gz", ".zst", ".bz2", ".xz", ".lz4")
        return BUILDERS.get((path.with_suffix("") if packed else path).suffix.lower(), "text")

    def check(self) -> None:
        """Raise ValueError unless it is a name or a path that is there; nothing is read."""
        if self.reader in ("text", *BUILDERS.values()) and not os.path.isfile(self.dataset):
            raise errors.invalid("dataset", f"{BUILTIN}, or a path that is there", self.dataset)
        if self.reader == "folder" and not any(Path(self.dataset).glob("*.txt")):
            raise errors.invalid(f"dataset {self.dataset}", "a folder of .txt files", "none in it")

    def documents(self) -> Iterator[Document]:
        """Yield the documents in their order; raise ValueError or OSError for what cannot be read."""
        self.check()
        if self.given is not None:
            return iter(self.given)
        return builtin_documents() if self.reader == BUILTIN else self._read()

    def _read(self) -> Iterator[Document]:
        """Yield texts or conversations of the rows."""
        column = self.field if self.reader in BUILDERS.values() else "text"
        for number, row in enumerate(self._rows(), 1):
            yield _document(f"{self.dataset}: row {number}", row, column)

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows that ``datasets`` reads."""
        import datasets

        datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # what it logs is raised too
        path, builder = Path(self.dataset), self.reader.replace("folder", "text")
        files = sorted(path.glob("*.txt")) if self.reader == "folder" else [path]
        named = [glob.escape(str(file)) for file in files]
        try:
            options = OPTIONS.get(builder, {})
            yield from datasets.load_dataset(builder, data_files=named, split="train", streaming=True, **options)
        except Exception as error:  # pandas, pyarrow and the packings have errors of their own
            raise errors.invalid(self.dataset, f"an intact {builder} file", errors.short(error)) from None


def is_conversation(value: Any) -> bool:
    """Tell whether a value is a list of messages: mappings with a role and a content, which calls of tools stand for.

    >>> is_conversation([{"role": "user", "content": "Hello"}]), is_conversation(["Hello"]), is_conversation([])
    (True, False, False)
    """
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, Mapping) and {"role", "content"} <= one.keys() for one in value)
        and all(one["content"] is not None or one.get("tool_calls") for one in value)
    )


def make_corpus(rows: Any) -> Corpus:
    """Return documents that are in memory; a single conversation is one document."""
    if isinstance(rows, str | Mapping) or hasattr(rows, "columns") or not isinstance(rows, Iterable):
        raise errors.invalid("texts", "a list or a column of texts or of conversations", type(rows).__name__)
    documents = ([*rows],) if is_conversation(rows) else tuple(rows)
    if not documents:
        raise errors.invalid("texts", "one or more", "none")
    for k, one in enumerate(documents):
        if not (isinstance(one, str) and one.strip()) and not is_conversation(one):
            raise errors.invalid(f"texts: row {k}", "a text, or messages with a role and a content", repr(one)[:60])
    return Corpus("texts in memory", given=documents)


def _document(where: str, row: Mapping[str, Any], column: str) -> Document:
    """Return the text of a row, or its conversation, without the fields that only other messages have."""
    found: Any = row.get(column)
    if is_conversation(found):
        found = list(map(_own_fields, found))
    if not isinstance(found, str) and not is_conversation(found):
        received = " ".join(str(row).split())[:60]
        raise errors.invalid(where, f"a record with a text in {column!r} (--field)", received)
    return found  # type: ignore[no-any-return]


def _own_fields(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without the fields that are empty in it; an empty content stays."""
    return {name: x for name, x in message.items() if x is not None or name == "content"}


def choose_corpus(asked: Mapping[str, Any]) -> tuple[Corpus, str]:
    """Return the documents that a user's settings name, and the rule, or raise ValueError if there can be none.

    Without a data set these are the built-in documents. Of texts in memory, which may end with a question, the last
    tokens are taken.

    >>> choose_corpus({})[1], choose_corpus({"texts": ["a b"]})[1]
    ('first', 'last')
    """
    dataset, texts = asked.get("dataset"), asked.get("texts")
    if dataset is not None and texts is not None:
        raise errors.invalid("texts", "none beside dataset", "both")
    rule = asked.get("rule") or ("first" if texts is None else "last")
    if rule not in RULES:
        raise errors.invalid("rule", f"{', '.join(RULES[:-1])} or {RULES[-1]}", repr(rule))
    if rule == "random" and (dataset is not None or texts is not None):
        field, received = ("texts", "some") if dataset is None else ("dataset", dataset)
        raise errors.invalid(field, "none with the rule random, which draws tokens and reads no text", received)
    if texts is not None:
        return make_corpus(texts), rule
    named = Corpus(dataset=BUILTIN if dataset is None else dataset, field=asked.get("field", "text"))
    named.check()
    return named, rule


@plain(frozen=True)
class Prompts:
    """Hold prompts of equal length."""

    ids: Int[np.ndarray, "N n"]
    """Tokens."""
    origins: Int[np.ndarray, "N"]
    """Number of the document, from 0, that each was cut from; random prompts count as documents."""

    @property
    def sha256(self) -> str:
        """Digest of the ids: equal for equal prompts."""
        return hashlib.sha256(np.ascontiguousarray(self.ids, dtype="<i8").tobytes()).hexdigest()


def make_prompts(
    corpus: Corpus,
    tokenizer: Any,
    N: int,
    n: int,
    *,
    rule: str = "first",
    seed: int = 0,
    per_document: int = 1,
    special_tokens: bool = True,
    excluded: Collection[int] = (),
) -> Prompts:
    """Return N prompts of n tokens; for the rule ``random`` a :class:`Vocabulary` will do as tokenizer.

    The rule ``first`` takes the first n tokens of each document that has as many (the paper's rule). ``cut`` takes n
    tokens from inside: the document's blocks of n tokens, counted from a random offset below n, of which the first
    ``per_document`` that fit are taken. ``last`` takes the last n tokens of each document that has as many. ``random``
    draws tokens uniformly, without those that the tokenizer marks as special and those in ``excluded``. Start tokens
    stand in front under each rule, once: documents that begin with them are given no others. A conversation is written
    out by the tokenizer's chat template, with the beginning of an answer where its last message is not one.

    Source: residual-aware paper, section 6 ("prompts of n tokens"), for ``first``; the others are controls.
    """
    if rule != "random":
        check_reads(tokenizer)
    front = start_tokens(tokenizer) if special_tokens else []
    if len(front) >= n:
        raise errors.invalid("length", f"more than the {len(front)} special tokens in front", n)
    body = n - len(front)
    rng = np.random.default_rng(seed)
    if rule == "random":
        ids = rng.choice(_ordinary_tokens(tokenizer, excluded), size=(N, body))
        ids = np.hstack([np.tile(np.array(front, dtype=np.int64), (N, 1)), ids]).astype(np.int64)
        return Prompts(ids, np.arange(N))
    found: list[tuple[list[int], int]] = []  # ids and document
    read = 0
    for read, document in enumerate(corpus.documents(), 1):
        offset = int(rng.integers(body)) if rule == "cut" else 0
        most = min(N - len(found), per_document if rule == "cut" else 1)
        tokens = _tokens(tokenizer, text_of(tokenizer, document, f"{corpus.dataset}: document {read - 1}"), front)
        offset = max(len(tokens) - body, 0) if rule == "last" else offset
        starts = range(offset, len(tokens) - body + 1, body)[:most]
        found += [(front + tokens[start : start + body], read - 1) for start in starts]
        if len(found) == N:
            ids, origins = (np.array(x, dtype=np.int64) for x in zip(*found, strict=True))
            return Prompts(ids, origins)
    received = f"{len(found)} from {read} document{'' if read == 1 else 's'}"
    if corpus.reader == "text":
        received += "; a folder has a document in each .txt file"
        received += "" if rule == "cut" else ", --rule cut with --per-document takes prompts from inside"
    raise errors.invalid(f"dataset {corpus.dataset}", f"{N} prompts of {n} tokens", received)


def _ordinary_tokens(tokenizer: Any, excluded: Collection[int]) -> Int[np.ndarray, "v"]:
    """Return the ids that are not special: those with a role are, and those that are marked and have none."""
    special = set(excluded)
    if not isinstance(tokenizer, Vocabulary):
        special |= {*tokenizer.all_special_ids}
        special |= {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    ordinary = np.setdiff1d(np.arange(len(tokenizer)), [*special])
    if ordinary.size == 0:
        raise errors.invalid("tokenizer", "tokens that are not special", f"none of {len(tokenizer)}")
    return ordinary


def shortest(corpus: Corpus, tokenizer: Any, *, special_tokens: bool) -> int:
    """Return the number of tokens of the shortest document, with the start tokens in front."""
    check_reads(tokenizer)
    front = start_tokens(tokenizer) if special_tokens else []
    texts = [text_of(tokenizer, one, f"{corpus.dataset}: document {k}") for k, one in enumerate(corpus.documents())]
    return min(len(front) + len(_tokens(tokenizer, text, front)) for text in texts)


def check_reads(tokenizer: Any) -> None:
    """Raise ValueError unless a tokenizer makes tokens of text."""
    if isinstance(tokenizer, Vocabulary):
        wanted = "a directory, an id or reference/NAME (--tokenizer), for prompts that are cut from text"
        raise errors.invalid("tokenizer", wanted, "none")


def document_units(origins: Int[np.ndarray, "N"], dataset: str) -> Int[np.ndarray, "N"]:
    """Return the unit of each prompt from the number of its document: its module, if documents are the built-in ones.

    >>> document_units(np.array([0, 2, 3]), "builtin").tolist(), document_units(np.array([7, 7]), "mine").tolist()
    ([0, 1, 2], [0, 0])
    """
    labels = np.array(builtin_units())[origins] if dataset == BUILTIN else origins
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def known_units(measurement: xr.Dataset) -> Int[np.ndarray, "N"] | None:
    """Return the unit that each prompt belongs to, for :func:`~posbias.comparison.resampling`, from 0 in their order.

    Of the built-in documents it is the Python module (or help topic): a module gives several, its docstrings and pieces
    of its source, which repeat one another. Of other corpora it is the document. Random prompts are units of their own.
    None where a file does not tell.
    """
    dataset, rule = (str(measurement.attrs.get(name, "")) for name in ("dataset", "rule"))
    if "document" in measurement:
        return document_units(measurement["document"].values.astype(int), dataset)
    if rule == "random" or (rule == "first" and dataset != BUILTIN):  # one from each document
        return np.arange(int(measurement.attrs["prompts"]))
    return None


def start_tokens(tokenizer: Any) -> list[int]:
    """Return the special tokens that the tokenizer puts before a text."""
    if isinstance(tokenizer, Vocabulary):
        return []
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    full = tokenizer("a", add_special_tokens=True)["input_ids"]
    start = next((k for k in range(len(full) - len(bare) + 1) if full[k : k + len(bare)] == bare), 0)
    return list(full[:start])


def text_of(tokenizer: Any, document: Document, where: str) -> str:
    """Return a document as a text: of a conversation what the chat template makes of it, an answer left open."""
    if isinstance(document, str):
        return errors.text(where, document)
    if not getattr(tokenizer, "chat_template", None):
        raise errors.invalid(where, "texts, or a tokenizer with a chat template", "messages, and a tokenizer without")
    answered = document[-1]["role"] == "assistant"
    how = {"add_generation_prompt": not answered, "continue_final_message": answered}
    try:
        text = str(tokenizer.apply_chat_template(document, tokenize=False, **how))
    except Exception as error:  # templates are programs of the models' authors
        raise errors.invalid(where, "messages that the chat template takes", errors.short(error)) from None
    return errors.text(where, text)


def _tokens(tokenizer: Any, text: str, front: list[int]) -> list[int]:
    """Return the tokens of a text without the start tokens in front."""
    return without_start(front, tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def without_start(front: list[int], ids: list[int]) -> list[int]:
    """Return ids without the start tokens that they begin with.

    >>> without_start([0], [0, 0, 5, 0]), without_start([], [0, 5])
    ([5, 0], [0, 5])
    """
    while front and ids[: len(front)] == front:
        ids = ids[len(front) :]
    return list(ids)
