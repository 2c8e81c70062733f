"""Corpora and prompts: documents by name or path, and the token ids of the prompts that are cut from them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from posbias import checks
from posbias.shipped import held_out_documents

RULES = ("first", "cut", "random")

NAMED: dict[str, dict[str, Any]] = {
    "fineweb-edu": {"path": "HuggingFaceFW/fineweb-edu", "name": "sample-10BT"},
    "dclm": {"path": "mlfoundations/dclm-baseline-1.0"},
    "wikipedia": {"path": "wikimedia/wikipedia", "name": "20231101.en"},
}
"""Data sets that go by a name: what ``datasets.load_dataset`` is given; each has its text in ``text``."""


BUILTIN = "builtin"
"""Goes by this name: documents that ship with the package and that no reference model was trained on."""


@dataclass(frozen=True)
class Corpus:
    """Say where documents come from.

    Parameters
    ----------
    source
        ``builtin``, a name of :data:`NAMED`, or a path: a text file, a folder of .txt files (a document each), .jsonl
        or .parquet.
    separator
        Regular expression; in a text file a new document begins with each line that matches. Without it a file is
        one document.
    field
        Column of the text in .jsonl and .parquet.
    """

    source: str
    separator: str | None = None
    field: str = "text"

    def __post_init__(self) -> None:
        """Check that there is a source."""
        if not self.source.strip():
            raise checks.refuse("corpus", f"{BUILTIN}, the name of a data set, or a path", "an empty text")

    def documents(self) -> Iterator[str]:
        """Yield the documents in their order.

        Raises
        ------
        ValueError
            For a source that is neither a name nor a readable path of a known kind, and for a broken record.
        OSError
            If the file or the hub cannot be read.
        """
        path = Path(self.source)
        if self.source == BUILTIN and not path.exists():
            return iter(held_out_documents())
        if self.source in NAMED and not path.exists():
            return _streamed(self.source)
        if not path.exists():
            raise checks.refuse("dataset", f"a path or one of {', '.join((BUILTIN, *NAMED))}", self.source)
        if path.is_dir():
            return (file.read_text(encoding="utf-8") for file in sorted(path.glob("*.txt")))
        reader = READERS.get(path.suffix, _text)
        return reader(path, self)


def _text(path: Path, corpus: Corpus) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise checks.refuse(str(path), "text in UTF-8", "other bytes") from None
    if corpus.separator is None:
        yield text
        return
    try:
        starts = [match.start() for match in re.finditer(corpus.separator, text, re.MULTILINE)]
    except re.error as error:
        raise checks.refuse("separator", "a regular expression", f"{corpus.separator} ({error})") from None
    for start, stop in zip([0, *starts], [*starts, len(text)], strict=True):
        if text[start:stop].strip():
            yield text[start:stop]


def _jsonl(path: Path, corpus: Corpus) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError:
                raise checks.refuse(f"{path}: line {number}", "a JSON object", line.strip()[:60]) from None
            yield _field(f"{path}: line {number}", record, corpus.field)


def _parquet(path: Path, corpus: Corpus) -> Iterator[str]:
    from pyarrow import ArrowInvalid, parquet

    try:
        file = parquet.ParquetFile(path)
    except ArrowInvalid as error:
        raise checks.refuse(str(path), "a parquet file", str(error)) from None
    if corpus.field not in file.schema_arrow.names:
        raise checks.refuse(f"{path}: columns", corpus.field, ", ".join(file.schema_arrow.names))
    for batch in file.iter_batches(batch_size=256, columns=[corpus.field]):
        for record in batch.to_pylist():
            yield _field(str(path), record, corpus.field)


READERS: dict[str, Callable[[Path, Corpus], Iterator[str]]] = {
    ".jsonl": _jsonl,
    ".json": _jsonl,
    ".parquet": _parquet,
}
"""Readers of files by suffix. Those of ``datasets`` take brackets in a name for a pattern and lists for records, and
know no line to complain about: they read what is on the hub alone."""


def _field(where: str, record: Any, field: str) -> str:
    if not isinstance(record, dict) or not isinstance(record.get(field), str):
        raise checks.refuse(where, f"a record with a text in {field!r}", str(record)[:60])
    return record[field]


def _streamed(name: str) -> Iterator[str]:
    """Stream a named data set: nothing is downloaded beyond what is read."""
    from datasets import load_dataset

    try:
        rows = iter(load_dataset(**NAMED[name], split="train", streaming=True))
        for row in rows:
            yield row["text"]
    except (OSError, RuntimeError, ValueError) as error:  # the hub's errors are of all three kinds
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise ConnectionError(f"dataset {name}: expected the hub to answer, received {reason}") from None


@dataclass(frozen=True)
class Prompts:
    """Hold prompts of equal length.

    Parameters
    ----------
    ids
        Token ids.
    documents
        How many documents were read for them.
    origins
        Number of the document, from 0, that each prompt was cut from; random prompts count as documents themselves.
    """

    ids: Int[np.ndarray, "N n"]
    documents: int
    origins: Int[np.ndarray, "N"]

    @property
    def sha256(self) -> str:
        """Digest of the ids: equal for equal prompts."""
        return hashlib.sha256(np.ascontiguousarray(self.ids, dtype="<i8").tobytes()).hexdigest()


@dataclass(frozen=True)
class Vocabulary:
    """Stand in for a tokenizer where prompts are random tokens: no text is needed, only how many tokens there are.

    Parameters
    ----------
    size
        Number of tokens; ids are below it.

    >>> len(Vocabulary(97))
    97
    """

    size: int

    def __len__(self) -> int:
        return self.size


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
    """Return N prompts of n tokens.

    Parameters
    ----------
    corpus
        Documents; not read by the rule ``random``.
    tokenizer
        Of transformers; for the rule ``random`` a :class:`Vocabulary` will do.
    N, n
        Prompts, at least 1, and tokens in each, at least 2.
    rule
        ``first``: the first n tokens of each document that has as many (the paper's rule). ``cut``: n tokens from
        inside: the document's blocks of n tokens, counted from a random offset below n, of which the first
        ``per_document`` that fit are taken. ``random``: tokens drawn uniformly, without those that the tokenizer marks
        as special and those in ``excluded``.
    seed
        For ``cut`` and ``random``.
    per_document
        Most prompts that one document gives under ``cut``.
    special_tokens
        Whether to put the tokens in front that the tokenizer puts there, such as a start token; under ``cut`` and
        ``random`` too.
    excluded
        Token ids that ``random`` never draws, such as a padding token whose embedding is zero.

    Raises
    ------
    ValueError
        If there are fewer than N prompts in the corpus, a number is out of range, or text is to be cut without a
        tokenizer.

    Source: residual-aware paper, section 6 ("prompts of n tokens"), for ``first``; the others are controls.
    """
    checks.positive_integer("prompts", N)
    checks.positive_integer("length", n, minimum=2)
    checks.positive_integer("per_document", per_document)
    checks.positive_integer("seed", seed, minimum=0)
    if rule not in RULES:
        raise checks.refuse("rule", "first, cut or random", rule)
    if isinstance(tokenizer, Vocabulary) and rule != "random":
        wanted = "a directory, an id or reference/NAME (--tokenizer), for prompts that are cut from text"
        raise checks.refuse("tokenizer", wanted, "none")
    front = _front(tokenizer) if special_tokens else []
    if len(front) >= n:
        raise checks.refuse("length", f"more than the {len(front)} special tokens in front", n)
    body = n - len(front)
    rng = np.random.default_rng(seed)
    if rule == "random":
        ordinary = np.setdiff1d(np.arange(len(tokenizer)), [*_special(tokenizer), *excluded])
        if ordinary.size == 0:
            raise checks.refuse("tokenizer", "tokens that are not special", f"none of {len(tokenizer)}")
        ids = rng.choice(ordinary, size=(N, body))
        ids = np.hstack([np.tile(np.array(front, dtype=np.int64), (N, 1)), ids]).astype(np.int64)
        return Prompts(ids, 0, np.arange(N))
    rows: list[list[int]] = []
    origins: list[int] = []
    read = 0
    for read, text in enumerate(corpus.documents(), 1):
        offset = int(rng.integers(body)) if rule == "cut" else 0
        most = min(N - len(rows), per_document if rule == "cut" else 1)
        rows += [front + block for block in _blocks(_tokens(tokenizer, text, offset + most * body), offset, body, most)]
        origins += [read - 1] * (len(rows) - len(origins))
        if len(rows) == N:
            return Prompts(np.array(rows, dtype=np.int64), read, np.array(origins))
    raise checks.refuse(f"dataset {corpus.source}", f"{N} prompts of {n} tokens", f"{len(rows)} from {read} documents")


def _special(tokenizer: Any) -> list[int]:
    """Return all special tokens: those with a role, and those that are marked and have none, such as reserved ones."""
    if isinstance(tokenizer, Vocabulary):
        return []
    marked = [index for index, token in tokenizer.added_tokens_decoder.items() if token.special]
    return [*tokenizer.all_special_ids, *marked]


def _front(tokenizer: Any) -> list[int]:
    """Return the special tokens that the tokenizer puts before a text."""
    if isinstance(tokenizer, Vocabulary):
        return []
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    full = tokenizer("a", add_special_tokens=True)["input_ids"]
    start = next((k for k in range(len(full) - len(bare) + 1) if full[k : k + len(bare)] == bare), 0)
    return list(full[:start])


def _tokens(tokenizer: Any, text: str, wanted: int) -> list[int]:
    """Return at least the first ``wanted`` tokens, or all of them; a long text is not tokenized to its end.

    A prefix of 16 characters a token nearly always suffices; it is cut at white space and its last tokens are
    not used, so that where a text is cut makes no difference. The whole text is taken if it does not suffice.
    """
    margin = 16
    prefix = text[: 16 * (wanted + margin)]
    if len(prefix) < len(text):
        prefix = prefix[: max(prefix.rfind(" "), prefix.rfind("\n")) + 1]
        ids = tokenizer(prefix, add_special_tokens=False, verbose=False)["input_ids"]
        if len(ids) >= wanted + margin:
            return list(ids[:wanted])
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def _blocks(ids: list[int], offset: int, size: int, most: int) -> list[list[int]]:
    """Return up to ``most`` blocks of ``size`` ids from ``offset`` on."""
    starts = range(offset, len(ids) - size + 1, size)
    return [ids[start : start + size] for start in starts[:most]]
