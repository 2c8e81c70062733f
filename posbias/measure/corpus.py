"""Corpora and prompts: documents by name or path, and the token ids of the prompts that are cut from them."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
import sys
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from jaxtyping import Int

from posbias import errors
from posbias.shipped import held_out_documents, held_out_modules

RULES = ("first", "cut", "random")

BYTES_PER_TOKEN = 24
"""What is kept in memory of each token of each prompt: its id, and its influence with and without sign."""

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
        ``builtin``, a name of :data:`NAMED`, or a path: a text file, a folder of .txt files (a document each), .jsonl,
        .csv or .parquet; texts, .jsonl and .csv may be packed (.gz, and .zst with the package zstandard).
    separator
        Regular expression; in a text file a new document begins with each line that matches. Without it a file is
        one document.
    field
        Column of the text in .jsonl, .csv and .parquet.

    Raises
    ------
    ValueError
        If there is no source, or the separator is no regular expression.
    """

    source: str
    separator: str | None = None
    field: str = "text"

    def __post_init__(self) -> None:
        """Check that there is a source, and the separator."""
        if not self.source.strip():
            raise errors.invalid("corpus", f"{BUILTIN}, the name of a data set, or a path", "an empty text")
        if self.separator is not None:
            try:
                re.compile(self.separator, re.MULTILINE)
            except (re.error, RecursionError, OverflowError) as error:
                raise errors.invalid("separator", "a regular expression", f"{self.separator} ({error})") from None

    @property
    def named(self) -> bool:
        """Whether the source goes by a name: no path of that name is there."""
        return self.source in (BUILTIN, *NAMED) and not Path(self.source).exists()

    def check(self) -> None:
        """Raise unless the source is a name, a folder of texts, or a file of a known kind; no document is read.

        Raises
        ------
        ValueError
            With what was expected.
        """
        if self.named:
            return
        path = Path(self.source)
        try:
            there, folder, file = path.exists(), path.is_dir(), path.is_file()
        except OSError as error:
            raise errors.invalid("dataset", "a path", f"{self.source[:60]} ({error.strerror})") from None
        if not there:
            raise errors.invalid("dataset", f"a path or one of {', '.join((BUILTIN, *NAMED))}", self.source)
        if folder:
            _check_folder(path)
            return
        if not file:
            raise errors.invalid(f"dataset {path}", "a file or a folder", "a device or a pipe")
        kind, packing = _kind(path)
        if kind in UNREAD:
            raise errors.invalid(f"dataset {path}", f"{WANTED}; {UNREAD[kind]}", kind)
        if packing and kind == ".parquet":
            raise errors.invalid(f"dataset {path}", ".parquet, which is packed inside; unpack it", f".parquet{packing}")
        if packing == ".zst":
            _zstandard(path)

    def documents(self) -> Iterator[str]:
        """Yield the documents in their order.

        Raises
        ------
        ValueError
            For a source that is neither a name nor a readable path of a known kind, and for a broken record.
        OSError
            If the file or the hub cannot be read.
        """
        self.check()
        if self.named:
            return iter(held_out_documents()) if self.source == BUILTIN else _streamed(self.source)
        path = Path(self.source)
        if path.is_dir():
            return (_whole(file) for file in sorted(path.glob("*.txt")))
        return READERS.get(_kind(path)[0], _text)(path, self)

    @property
    def one_text(self) -> bool:
        """Whether all of it is one document: a text file without a separator."""
        path = Path(self.source)
        return self.separator is None and path.is_file() and _kind(path)[0] not in READERS


WANTED = "text, a folder of .txt files, .jsonl, .csv or .parquet"
PACKED = (".gz", ".zst")
"""How a file of texts, .jsonl or .csv may be packed."""
UNREAD: dict[str, str] = {
    **dict.fromkeys(
        (".zip", ".tar", ".tgz", ".7z", ".rar"), "unpack the archive, and give its folder or one of its files"
    ),
    **dict.fromkeys((".bz2", ".xz", ".lz4", ".br"), "unpack it, or pack it as .gz"),
    **dict.fromkeys((".tsv", ".xls", ".xlsx", ".ods"), "save it as .csv"),
    **dict.fromkeys((".pdf", ".doc", ".docx", ".odt", ".epub", ".html", ".htm"), "save its text as .txt"),
    **dict.fromkeys(
        (".arrow", ".feather", ".orc", ".avro", ".h5", ".nc", ".npy", ".npz", ".pkl", ".db", ".sqlite"),
        "save its texts as .jsonl or .parquet",
    ),
}
"""Suffixes of files that are not read, and what to do with them."""


def _kind(path: Path) -> tuple[str, str]:
    """Return the suffix that says how a file is read, and that of its packing, in small letters."""
    last = path.suffix.lower()
    return (path.with_suffix("").suffix.lower(), last) if last in PACKED else (last, "")


def _check_folder(path: Path) -> None:
    """Raise unless a folder has a .txt file."""
    try:
        if any(path.glob("*.txt")):
            return
        inside = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise errors.invalid(f"dataset {path}", "a folder that can be read", error.strerror) from None
    more = ", …" if len(inside) > 3 else ""
    received = f"one of {', '.join(inside[:3])}{more}" if inside else "an empty folder"
    raise errors.invalid(f"dataset {path}", "a folder of .txt files", received)


def _zstandard(path: Path) -> Any:
    """Return the package that unpacks .zst, or say that it is missing."""
    try:
        import zstandard  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError:
        advice = "unpack the file, or pip install zstandard"
        raise errors.invalid(f"dataset {path}", f"a packing that can be read here; {advice}", ".zst") from None
    return zstandard


@contextmanager
def _opened(path: Path, newline: str | None = None) -> Iterator[TextIO]:
    """Open a file of text, unpacked; what is wrong with its bytes is said with its name."""
    packing = _kind(path)[1]
    broken: tuple[type[Exception], ...] = (EOFError, zlib.error, gzip.BadGzipFile)
    with path.open("rb") as raw:
        content: Any = raw
        if packing == ".gz":
            content = gzip.GzipFile(fileobj=raw)
        elif packing == ".zst":
            zstandard = _zstandard(path)
            content = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
            broken = (*broken, zstandard.ZstdError)
        try:
            yield io.TextIOWrapper(content, encoding="utf-8", newline=newline)
        except UnicodeDecodeError as error:
            received = f"the byte 0x{error.object[error.start]:02x}"
            raise errors.invalid(str(path), "text in UTF-8", received) from None
        except broken as error:
            raise errors.invalid(str(path), f"a whole {packing} file", " ".join(str(error).split())[:120]) from None


def _whole(path: Path) -> str:
    """Return all of a text."""
    with _opened(path) as file:
        return file.read()


def _text(path: Path, corpus: Corpus) -> Iterator[str]:
    text = _whole(path)
    if corpus.separator is None:
        yield text
        return
    starts = [match.start() for match in re.finditer(corpus.separator, text, re.MULTILINE)]
    for start, stop in zip([0, *starts], [*starts, len(text)], strict=True):
        if text[start:stop].strip():
            yield text[start:stop]


def _jsonl(path: Path, corpus: Corpus) -> Iterator[str]:
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                shown = "".join(x if x.isprintable() else "\N{REPLACEMENT CHARACTER}" for x in line.strip()[:60])
                raise errors.invalid(f"{path}: line {number}", "a JSON object", shown) from None
            yield _field(f"{path}: line {number}", record, corpus.field)


def _csv(path: Path, corpus: Corpus) -> Iterator[str]:
    """Read a column of a table with a header; a text may go over several lines within quotes."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        with _opened(path, newline="") as file:
            rows = csv.DictReader(file, strict=True)
            names = [name.removeprefix("\ufeff") for name in rows.fieldnames or []]
            rows.fieldnames = names
            if corpus.field not in names:
                received = ", ".join(names)[:120] or "an empty file"
                raise errors.invalid(f"{path}: columns", f"{corpus.field} (--field)", received)
            for row in rows:
                yield _field(f"{path}: line {rows.line_num}", row, corpus.field)
    except csv.Error as error:
        raise errors.invalid(str(path), "a table of commas and quotes (.csv)", str(error)) from None
    finally:
        csv.field_size_limit(before)


def _parquet(path: Path, corpus: Corpus) -> Iterator[str]:
    from pyarrow import ArrowException, parquet

    try:
        file = parquet.ParquetFile(path)
        names = file.schema_arrow.names
    except (ArrowException, OSError) as error:
        raise errors.invalid(str(path), "a parquet file", " ".join(str(error).split())[:120]) from None
    if corpus.field not in names:
        raise errors.invalid(f"{path}: columns", corpus.field, ", ".join(names))
    kind = str(file.schema_arrow.field(corpus.field).type)
    if kind not in ("string", "large_string", "string_view") and not kind.startswith("dictionary<values=string"):
        raise errors.invalid(f"{path}: {corpus.field}", "a column of texts", f"one of {kind[:60]}")
    number = 0
    try:
        for batch in file.iter_batches(batch_size=256, columns=[corpus.field]):
            for record in batch.to_pylist():
                number += 1
                yield _field(f"{path}: row {number}", record, corpus.field)
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        wanted, received = "an intact column", " ".join(str(error).split())[:120]
        raise errors.invalid(f"{path}: {corpus.field}", wanted, received) from None


READERS: dict[str, Callable[[Path, Corpus], Iterator[str]]] = {
    ".jsonl": _jsonl,
    ".json": _jsonl,
    ".csv": _csv,
    ".parquet": _parquet,
}
"""Readers of files by suffix. Those of ``datasets`` take brackets in a name for a pattern and lists for records, and
know no line to complain about: they read what is on the hub alone."""


def _field(where: str, record: Any, field: str) -> str:
    if not isinstance(record, dict) or not isinstance(record.get(field), str):
        shown = " ".join(str(record).split())[:60]
        raise errors.invalid(where, f"a record with a text in {field!r} (--field)", shown)
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
    offsets
        Token of its document, from 0, at which each prompt was cut, special tokens in front not counted; 0 for
        ``first`` and for random prompts, and unless given.
    """

    ids: Int[np.ndarray, "N n"]
    documents: int
    origins: Int[np.ndarray, "N"]
    offsets: Int[np.ndarray, "N"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        """Fill in offsets of 0."""
        if not self.offsets.size:
            object.__setattr__(self, "offsets", np.zeros(len(self.ids), dtype=np.int64))

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


def check_prompts_fit(prompts: int, length: int) -> None:
    """Raise ValueError if what is kept of each token of each prompt takes more than the machine's memory."""
    errors.fits("length", length, length * BYTES_PER_TOKEN)
    errors.fits("prompts", f"{prompts} of {length} tokens", prompts * length * BYTES_PER_TOKEN)


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
    errors.positive_integer("prompts", N)
    errors.positive_integer("length", n, minimum=2)
    errors.positive_integer("per_document", per_document)
    errors.positive_integer("seed", seed, minimum=0)
    check_prompts_fit(N, n)
    if rule not in RULES:
        raise errors.invalid("rule", "first, cut or random", rule)
    if isinstance(tokenizer, Vocabulary) and rule != "random":
        wanted = "a directory, an id or reference/NAME (--tokenizer), for prompts that are cut from text"
        raise errors.invalid("tokenizer", wanted, "none")
    front = start_tokens(tokenizer) if special_tokens else []
    if len(front) >= n:
        raise errors.invalid("length", f"more than the {len(front)} special tokens in front", n)
    body = n - len(front)
    rng = np.random.default_rng(seed)
    if rule == "random":
        ordinary = np.setdiff1d(np.arange(len(tokenizer)), [*special_ids(tokenizer), *excluded])
        if ordinary.size == 0:
            raise errors.invalid("tokenizer", "tokens that are not special", f"none of {len(tokenizer)}")
        ids = rng.choice(ordinary, size=(N, body))
        ids = np.hstack([np.tile(np.array(front, dtype=np.int64), (N, 1)), ids]).astype(np.int64)
        return Prompts(ids, 0, np.arange(N))
    rows: list[list[int]] = []
    origins: list[int] = []
    offsets: list[int] = []
    read = 0
    for read, text in enumerate(corpus.documents(), 1):
        offset = int(rng.integers(body)) if rule == "cut" else 0
        most = min(N - len(rows), per_document if rule == "cut" else 1)
        blocks = _blocks(_tokens(tokenizer, text, offset + most * body), offset, body, most)
        rows += [front + block for block in blocks]
        origins += [read - 1] * len(blocks)
        offsets += [offset + k * body for k in range(len(blocks))]
        if len(rows) == N:
            return Prompts(np.array(rows, dtype=np.int64), read, np.array(origins), np.array(offsets))
    received = f"{len(rows)} from {read} document{'' if read == 1 else 's'}"
    if corpus.one_text:
        received += "; --separator says which lines begin a new document"
        received += "" if rule == "cut" else ", --rule cut with --per-document takes prompts from inside"
    raise errors.invalid(f"dataset {corpus.source}", f"{N} prompts of {n} tokens", received)


def document_units(origins: Int[np.ndarray, "N"], dataset: str) -> Int[np.ndarray, "N"]:
    """Return the unit of each prompt from the number of its document: its module, if documents are the built-in ones.

    Parameters
    ----------
    origins
        Of :class:`Prompts`.
    dataset
        Name of the corpus.

    >>> document_units(np.array([0, 2, 3]), "builtin").tolist(), document_units(np.array([7, 7]), "mine").tolist()
    ([0, 1, 2], [0, 0])
    """
    labels = np.array(held_out_modules())[origins] if dataset == BUILTIN else origins
    return in_order(labels)


def in_order(labels: np.ndarray) -> Int[np.ndarray, "N"]:
    """Return labels as numbers from 0 on, in the order in which they first come.

    >>> in_order(np.array(["b", "a", "b"])).tolist()
    [0, 1, 0]
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def special_ids(tokenizer: Any) -> list[int]:
    """Return all special tokens: those with a role, and those that are marked and have none, such as reserved ones."""
    if isinstance(tokenizer, Vocabulary):
        return []
    marked = [index for index, token in tokenizer.added_tokens_decoder.items() if token.special]
    return [*tokenizer.all_special_ids, *marked]


def start_tokens(tokenizer: Any, text: str = "a") -> list[int]:
    """Return the special tokens that the tokenizer puts before a text.

    Parameters
    ----------
    tokenizer
        Of transformers, or a :class:`Vocabulary`, which puts none.
    text
        One that the tokenizer knows.
    """
    if isinstance(tokenizer, Vocabulary):
        return []
    bare = tokenizer(text, add_special_tokens=False)["input_ids"]
    full = tokenizer(text, add_special_tokens=True)["input_ids"]
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
