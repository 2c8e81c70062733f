"""Documents by name or path, the token ids of the prompts that are cut from them, and which prompts belong together."""

from __future__ import annotations

import glob
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from jaxtyping import Int

from posbias import errors
from posbias.measure.settings import check_prompts_fit, setting
from posbias.shipped import builtin_documents, builtin_units

if TYPE_CHECKING:
    import xarray as xr

RULES = ("first", "cut", "last", "whole", "random")
Document = str | list[dict[str, Any]]
"""A text, or a conversation: messages with a role and a content each, for the tokenizer's chat template."""

NAMED: dict[str, dict[str, Any]] = {
    "fineweb-edu": {"path": "HuggingFaceFW/fineweb-edu", "name": "sample-10BT"},
    "dclm": {"path": "mlfoundations/dclm-baseline-1.0"},
    "wikipedia": {"path": "wikimedia/wikipedia", "name": "20231101.en"},
}
"""Data sets that go by a name: what ``datasets.load_dataset`` is given; each has its text in ``text``."""
BUILTIN = "builtin"
"""Goes by this name: documents that ship with the package and that no reference model was trained on."""
BUILDERS = {".csv": "csv", ".parquet": "parquet", ".jsonl": "json", ".json": "json"}
"""How ``datasets`` calls what it reads: tables, and what is packed as .zst. It knows no line to complain about.
Text and JSON lines, packed as .gz or not, are read here."""
UNREAD: dict[str, str] = {
    **dict.fromkeys((".zip", ".tar", ".tgz", ".7z", ".rar"), "unpack the archive, and give its folder or a file of it"),
    **dict.fromkeys((".bz2", ".xz", ".lz4", ".br"), "unpack it, or pack it as .gz"),
    **dict.fromkeys((".tsv", ".xls", ".xlsx", ".ods"), "save it as .csv"),
    **dict.fromkeys((".pdf", ".doc", ".docx", ".odt", ".epub", ".html", ".htm"), "save its text as .txt"),
    **dict.fromkeys(
        (".arrow", ".feather", ".orc", ".avro", ".h5", ".nc", ".npy", ".npz", ".pkl", ".db", ".sqlite"),
        "save its texts as .jsonl or .parquet",
    ),
}
"""Suffixes of files that are not read, and what to do with them."""


@dataclass(frozen=True)
class Corpus:
    """Say where documents come from: :data:`BUILTIN`, a name of :data:`NAMED`, or a path."""

    dataset: str = setting(
        BUILTIN,
        "builtin (documentation and code that come with the package), fineweb-edu, dclm or wikipedia (streamed from "
        "the hub), or a path: text, a folder of .txt files, .jsonl, .csv or .parquet; builtin unless given.",
        "-d",
        kept=True,
    )
    separator: str | None = setting(None, "Regular expression: lines that begin a new document in a text file.")
    field: str = setting("text", "Column of the text, or of the messages, in .jsonl, .csv and .parquet.")

    def __post_init__(self) -> None:
        """Check that there is a source, and the separator."""
        if not self.dataset.strip():
            raise errors.invalid("dataset", f"{BUILTIN}, the name of a data set, or a path", "an empty text")
        if self.separator is not None:
            try:
                re.compile(self.separator, re.MULTILINE)
            except (re.error, RecursionError, OverflowError) as error:
                raise errors.invalid("separator", "a regular expression", f"{self.separator} ({error})") from None

    @property
    def named(self) -> bool:
        """Whether the data set goes by a name: no path of that name is there."""
        return self.dataset in (BUILTIN, *NAMED) and not Path(self.dataset).exists()

    def check(self) -> None:
        """Raise ValueError unless it is a name, a folder of texts, or a file of a known kind; nothing is read."""
        if self.separator is not None and (
            self.named or Path(self.dataset).suffix and _kind(Path(self.dataset)) in BUILDERS
        ):
            raise errors.invalid(
                "separator", f"none with {self.dataset}, whose documents are told apart", self.separator
            )
        if self.named:
            return
        path = Path(self.dataset)
        try:
            there, folder, file = path.exists(), path.is_dir(), path.is_file()
            inside = sorted(entry.name for entry in path.iterdir()) if folder else []
        except OSError as error:
            raise errors.invalid("dataset", "a path", f"{self.dataset[:60]} ({error.strerror})") from None
        if not there:
            raise errors.invalid("dataset", f"a path or one of {', '.join((BUILTIN, *NAMED))}", self.dataset)
        if folder and not any(name.endswith(".txt") for name in inside):
            received = f"one of {', '.join(inside[:3])}" if inside else "an empty folder"
            raise errors.invalid(f"dataset {path}", "a folder of .txt files", received)
        if not folder and not file:
            raise errors.invalid(f"dataset {path}", "a file or a folder", "a device or a pipe")
        kind = _kind(path)
        if file and kind in UNREAD:
            wanted = "text, a folder of .txt files, .jsonl, .csv or .parquet"
            raise errors.invalid(f"dataset {path}", f"{wanted}; {UNREAD[kind]}", kind)
        if path.suffix.lower() == ".zst" and find_spec("zstandard") is None:
            advice = "unpack the file, or pip install zstandard"
            raise errors.invalid(f"dataset {path}", f"a packing that can be read here; {advice}", ".zst")

    def documents(self) -> Iterator[Document]:
        """Yield the documents in their order; raise ValueError or OSError for what cannot be read."""
        self.check()
        path = Path(self.dataset)
        if self.named:
            return builtin_documents() if self.dataset == BUILTIN else self._streamed()
        if path.is_dir():
            return (_whole(file) for file in sorted(path.glob("*.txt")))
        builder = BUILDERS.get(_kind(path))
        if builder in ("csv", "parquet") or (builder is not None and _is_zst(path)):
            return self._table(path, builder)
        return self._text(path) if builder is None else self._lines(path)

    @property
    def one_text(self) -> bool:
        """Whether all of it is one document: a text file without a separator."""
        path = Path(self.dataset)
        return self.separator is None and path.is_file() and _kind(path) not in BUILDERS

    def _text(self, path: Path) -> Iterator[str]:
        """Yield a text, or its parts from each line on that the separator matches."""
        text = _whole(path)
        starts = [] if self.separator is None else [x.start() for x in re.finditer(self.separator, text, re.MULTILINE)]
        for start, stop in zip([0, *starts], [*starts, len(text)], strict=True):
            if text[start:stop].strip() or self.separator is None:
                yield text[start:stop]

    def _lines(self, path: Path) -> Iterator[Document]:
        """Yield the texts or conversations of JSON lines."""
        with _opened(path) as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    shown = "".join(x if x.isprintable() else "\N{REPLACEMENT CHARACTER}" for x in line.strip()[:60])
                    raise errors.invalid(f"{path}: line {number}", "a JSON object", shown) from None
                yield self._found(f"{path}: line {number}", record)

    def _table(self, path: Path, builder: str) -> Iterator[Document]:
        """Yield the texts or conversations of a table."""
        for number, row in enumerate(_rows(path, builder), 1):
            yield self._found(f"{path}: row {number}", row)

    def _streamed(self) -> Iterator[str]:
        """Stream a named data set: nothing is downloaded beyond what is read."""
        from datasets import load_dataset

        try:
            for row in load_dataset(**NAMED[self.dataset], split="train", streaming=True):
                yield row["text"]
        except (OSError, RuntimeError, ValueError) as error:  # the hub's errors are of all three kinds
            reason = " ".join(str(error).split())[:160] or type(error).__name__
            raise ConnectionError(f"dataset {self.dataset}: expected the hub to answer, received {reason}") from None

    def _found(self, where: str, record: Any) -> Document:
        """Return the text of a record, or its conversation."""
        text = record.get(self.field) if isinstance(record, dict) else None
        if not isinstance(text, str) and not is_conversation(text):
            shown = " ".join(str(record).split())[:60]
            raise errors.invalid(where, f"a record with a text in {self.field!r} (--field)", shown)
        return text  # type: ignore[return-value]


@dataclass(frozen=True)
class Given(Corpus):
    """Hold documents that are in memory; ``dataset`` is what files call them."""

    given: tuple[Document, ...] = ()

    @property
    def named(self) -> bool:
        """It has no name that :data:`NAMED` knows."""
        return False

    @property
    def one_text(self) -> bool:
        """Its documents are told apart."""
        return False

    def check(self) -> None:
        """Nothing is left to check: see :func:`given_corpus`."""

    def documents(self) -> Iterator[Document]:
        """Yield the documents in their order."""
        return iter(self.given)


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


def given_corpus(name: str, rows: Any, column: str = "text") -> Given:
    """Return texts or conversations that are in memory, called ``name``, or raise ValueError with the number of a row.

    ``rows`` is a list, a column of a table (pandas), or a table with ``column`` (pandas, datasets); a single
    conversation is one document.
    """
    expected = "a list of texts or of conversations, a pandas Series or DataFrame, or a datasets.Dataset"
    if is_conversation(rows):
        rows = [rows]
    elif (columns := getattr(rows, "columns", getattr(rows, "column_names", None))) is not None:
        if isinstance(columns, Mapping) or column not in columns:
            raise errors.invalid(name, f"a table with a column {column!r} (field)", ", ".join(map(str, columns)))
        rows = rows[column]
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise errors.invalid(name, expected, f"{type(rows).__name__}")
    rows = (one[column] if isinstance(one, Mapping) and column in one else one for one in rows)
    documents = tuple(one.tolist() if isinstance(one, np.ndarray) else one for one in rows)
    if not documents:
        raise errors.invalid(name, "one or more", "none")
    for k, one in enumerate(documents):
        if isinstance(one, str) and not one.strip():
            raise errors.invalid(f"{name}: row {k}", "a text", "an empty one")
        if not isinstance(one, str) and not is_conversation(one):
            raise errors.invalid(f"{name}: row {k}", "a text, or messages with a role and a content", repr(one)[:60])
    return Given(f"{name} in memory", given=documents)


def _kind(path: Path) -> str:
    """Return the suffix that says how a file is read, in small letters, that of the packing left out."""
    return (path.with_suffix("") if path.suffix.lower() in (".gz", ".zst") else path).suffix.lower()


def _is_zst(path: Path) -> bool:
    return path.suffix.lower() == ".zst"


def _rows(path: Path, builder: str, **options: Any) -> Iterator[Any]:
    """Yield the records of a file through ``datasets``."""
    import datasets

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # what it logs is raised too
    if builder == "csv":
        options |= {"na_filter": False, "encoding": "utf-8-sig"}
    try:
        file = glob.escape(str(path))
        yield from datasets.load_dataset(builder, data_files=file, split="train", streaming=True, **options)
    except Exception as error:  # pandas, pyarrow and the packings have errors of their own
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise errors.invalid(str(path), f"an intact {builder} file", reason) from None


def chosen_corpus(asked: Mapping[str, Any], *, untrained: bool = False) -> tuple[Corpus, str]:
    """Return the documents that a user's settings name, and the rule, or raise ValueError if there can be none.

    Without a data set an untrained network is given random tokens, any other the built-in documents. Texts and messages
    in memory are prompts as they are, unless a number of tokens is given.

    >>> chosen_corpus({}, untrained=True)[1], chosen_corpus({})[1], chosen_corpus({"texts": ["a b"]})[1]
    ('random', 'first', 'whole')
    """
    given = [name for name in ("dataset", "texts", "messages") if asked.get(name) is not None]
    if len(given) > 1:
        raise errors.invalid(given[1], f"none beside {given[0]}", "both")
    in_memory = bool(given) and given[0] != "dataset"
    without = "random" if untrained and not given else "whole" if in_memory and not asked.get("length") else "first"
    rule = asked.get("rule") or without
    if rule not in RULES:
        raise errors.invalid("rule", f"{', '.join(RULES[:-1])} or {RULES[-1]}", repr(rule))
    if rule == "random" and given:
        received = asked["dataset"] if given == ["dataset"] else "some"
        raise errors.invalid(given[0], "none with the rule random, which draws tokens and reads no text", received)
    for name in ("separator", "field"):
        if not isinstance(asked.get(name) or "", str):
            raise errors.invalid(name, "a text", repr(asked[name]))
    column = asked.get("field", "text")
    if in_memory:
        if asked.get("separator") is not None:
            raise errors.invalid("separator", f"none with {given[0]}, which are told apart", asked["separator"])
        return given_corpus(given[0], asked[given[0]], column), rule
    corpus = Corpus(asked["dataset"] if given else BUILTIN, asked.get("separator"), column)
    corpus.check()
    return corpus, rule


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """Open a file of text, unpacked; what is wrong with its bytes is said with its name."""
    packed = path.suffix.lower() == ".gz"
    try:
        with gzip.open(path, "rt", encoding="utf-8") if packed else path.open(encoding="utf-8") as file:
            yield file
    except UnicodeDecodeError as error:
        received = f"the byte 0x{error.object[error.start]:02x}"
        raise errors.invalid(str(path), "text in UTF-8", received) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise errors.invalid(str(path), "a whole .gz file", " ".join(str(error).split())[:120]) from None


def _whole(path: Path) -> str:
    """Return all of a text."""
    if _is_zst(path):
        return "".join(row["text"] for row in _rows(path, "text", sample_by="document"))
    with _opened(path) as file:
        return file.read()


@dataclass(frozen=True)
class Prompts:
    """Hold prompts, of equal length unless they are whole documents."""

    ids: Int[np.ndarray, "N n"]
    """Tokens; -1 after the end of a prompt that is shorter than others."""
    documents: int
    """How many were read."""
    origins: Int[np.ndarray, "N"]
    """Number of the document, from 0, that each was cut from; random prompts count as documents."""
    offsets: Int[np.ndarray, "N"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Token of its document at which each was cut, special tokens in front not counted; 0 unless given."""

    following: Int[np.ndarray, "N"] | None = None
    """The token after each in its document, where it is kept."""

    def shortened(self) -> Prompts:
        """Return the prompts without their last tokens, which then are those that follow."""
        lengths = self.lengths
        if lengths.min() < 3:
            raise errors.invalid(
                f"prompt {int(lengths.argmin())}", "3 tokens or more, the last of which is the target", 2
            )
        last = (np.arange(len(lengths)), lengths - 1)
        ids = self.ids.copy()
        ids[last] = -1
        return replace(self, ids=ids[:, : int(lengths.max()) - 1], following=self.ids[last])

    def __post_init__(self) -> None:
        """Fill in offsets of 0."""
        if not self.offsets.size:
            object.__setattr__(self, "offsets", np.zeros(len(self.ids), dtype=np.int64))

    @property
    def lengths(self) -> Int[np.ndarray, "N"]:
        """Number of tokens of each prompt."""
        return (self.ids >= 0).sum(1)

    @property
    def sha256(self) -> str:
        """Digest of the ids: equal for equal prompts."""
        return hashlib.sha256(np.ascontiguousarray(self.ids, dtype="<i8").tobytes()).hexdigest()


@dataclass(frozen=True)
class Vocabulary:
    """Stand in for a tokenizer where prompts are random tokens: only the number of tokens is needed.

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
    """Return N prompts of n tokens; for the rule ``random`` a :class:`Vocabulary` will do as tokenizer.

    The rule ``first`` takes the first n tokens of each document that has as many (the paper's rule). ``cut`` takes n
    tokens from inside: the document's blocks of n tokens, counted from a random offset below n, of which the first
    ``per_document`` that fit are taken. ``last`` takes the last n tokens of each document that has as many, ``whole``
    each document as it is, whatever n. ``random`` draws tokens uniformly, without those that the tokenizer marks as
    special and those in ``excluded``. Start tokens stand in front under each rule, once: documents that begin with them
    are given no others. A conversation is written out by the tokenizer's chat template, with the beginning of an answer
    where its last message is not one.

    Source: residual-aware paper, section 6 ("prompts of n tokens"), for ``first``; the others are controls.
    """
    errors.positive_integer("prompts", N)
    errors.positive_integer("length", n, minimum=2)
    errors.positive_integer("per_document", per_document)
    errors.positive_integer("seed", seed, minimum=0)
    check_prompts_fit(N, n)
    if rule not in RULES:
        raise errors.invalid("rule", f"{', '.join(RULES[:-1])} or {RULES[-1]}", rule)
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
    found: list[tuple[list[int], int, int]] = []  # ids, document and offset
    read = 0
    for read, document in enumerate(corpus.documents(), 1):
        offset = int(rng.integers(body)) if rule == "cut" else 0
        most = min(N - len(found), per_document if rule == "cut" else 1)
        needed = offset + most * body if rule in ("first", "cut") else None
        tokens = _tokens(tokenizer, _text(tokenizer, document, f"{corpus.dataset}: document {read - 1}"), front, needed)
        if rule == "whole":
            found.append((front + tokens, read - 1, 0))
            if len(found[-1][0]) < 2:
                raise errors.invalid(f"{corpus.dataset}: document {read - 1}", "2 tokens or more", len(found[-1][0]))
        else:
            offset = max(len(tokens) - body, 0) if rule == "last" else offset
            starts = range(offset, len(tokens) - body + 1, body)[:most]
            found += [(front + tokens[start : start + body], read - 1, start) for start in starts]
        if len(found) == N:
            rows, origins, offsets = zip(*found, strict=True)
            ids = np.full((N, max(map(len, rows))), -1, dtype=np.int64)
            for k, row in enumerate(rows):
                ids[k, : len(row)] = row
            return Prompts(ids, read, np.array(origins, dtype=np.int64), np.array(offsets, dtype=np.int64))
    received = f"{len(found)} from {read} document{'' if read == 1 else 's'}"
    if corpus.one_text:
        received += "; --separator says which lines begin a new document"
        received += "" if rule == "cut" else ", --rule cut with --per-document takes prompts from inside"
    wanted = f"{N} prompts" if rule == "whole" else f"{N} prompts of {n} tokens"
    raise errors.invalid(f"dataset {corpus.dataset}", wanted, received)


def document_units(origins: Int[np.ndarray, "N"], dataset: str) -> Int[np.ndarray, "N"]:
    """Return the unit of each prompt from the number of its document: its module, if documents are the built-in ones.

    >>> document_units(np.array([0, 2, 3]), "builtin").tolist(), document_units(np.array([7, 7]), "mine").tolist()
    ([0, 1, 2], [0, 0])
    """
    labels = np.array(builtin_units())[origins] if dataset == BUILTIN else origins
    return in_order(labels)


def in_order(labels: np.ndarray) -> Int[np.ndarray, "N"]:
    """Return labels as numbers from 0 on, in the order in which they first come.

    >>> in_order(np.array(["b", "a", "b"])).tolist()
    [0, 1, 0]
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def prompt_units(measurement: xr.Dataset) -> Int[np.ndarray, "N"]:
    """Return the unit that each prompt belongs to, for :func:`~posbias.comparison.resampling`, from 0 in their order.

    Of the built-in documents it is the Python module (or help topic): a module gives several, its docstrings and pieces
    of its source, which repeat one another. Of other corpora it is the document. Random prompts are units of their own.
    """
    units = known_units(measurement)
    if units is None:
        raise errors.invalid("document", "the number of the document that each prompt is from", "none in the file")
    return units


def known_units(measurement: xr.Dataset) -> Int[np.ndarray, "N"] | None:
    """Return :func:`prompt_units`, or None where a file does not tell them."""
    dataset, rule = (str(measurement.attrs.get(name, "")) for name in ("dataset", "rule"))
    if "document" in measurement:
        return document_units(measurement["document"].values.astype(int), dataset)
    if rule == "random" or (rule == "first" and dataset != BUILTIN):  # one from each document
        return np.arange(int(measurement.attrs["prompts"]))
    return None


def unit_groups(units: Int[np.ndarray, "N"], groups: int) -> Int[np.ndarray, "N"]:
    """Return a group for each prompt, such that no unit is in two groups and groups are about equally large.

    >>> unit_groups(np.array([0, 0, 1, 2, 0, 1]), 2).tolist()
    [0, 0, 1, 1, 0, 1]
    """
    names, sizes = np.unique(units, return_counts=True)
    if errors.positive_integer("groups", groups) > names.size:
        raise errors.invalid("groups", f"at most {names.size}, the units", groups)
    filled, group = np.zeros(groups, dtype=int), np.zeros(names.size, dtype=int)
    for k in np.argsort(-sizes, kind="stable"):
        group[k] = filled.argmin()
        filled[group[k]] += sizes[k]
    return group[np.searchsorted(names, units)]


def special_ids(tokenizer: Any) -> list[int]:
    """Return all special tokens: those with a role, and those that are marked and have none, such as reserved ones."""
    if isinstance(tokenizer, Vocabulary):
        return []
    marked = [index for index, token in tokenizer.added_tokens_decoder.items() if token.special]
    return [*tokenizer.all_special_ids, *marked]


def start_tokens(tokenizer: Any, text: str = "a") -> list[int]:
    """Return the special tokens that the tokenizer puts before a text."""
    if isinstance(tokenizer, Vocabulary):
        return []
    bare = tokenizer(text, add_special_tokens=False)["input_ids"]
    full = tokenizer(text, add_special_tokens=True)["input_ids"]
    start = next((k for k in range(len(full) - len(bare) + 1) if full[k : k + len(bare)] == bare), 0)
    return list(full[:start])


def _text(tokenizer: Any, document: Document, where: str) -> str:
    """Return a document as a text: of a conversation what the chat template makes of it, up to where an answer begins.

    A last message of the assistant is left open, so that the prompt ends where the message does.
    """
    if isinstance(document, str):
        return errors.text(where, document)
    if not getattr(tokenizer, "chat_template", None):
        raise errors.invalid(where, "texts, or a tokenizer with a chat template", "messages, and a tokenizer without")
    answered = document[-1]["role"] == "assistant"
    how = {"add_generation_prompt": not answered, "continue_final_message": answered}
    try:
        text = str(tokenizer.apply_chat_template(document, tokenize=False, **how))
    except Exception as error:  # templates are programs of the models' authors
        reason = " ".join(str(error).split())[:80] or type(error).__name__
        raise errors.invalid(where, "messages that the chat template takes", reason) from None
    return errors.text(where, text)


def _tokens(tokenizer: Any, text: str, front: list[int], wanted: int | None) -> list[int]:
    """Return at least the first ``wanted`` tokens, or all of them, without the start tokens in front.

    A long text is not tokenized to its end: a prefix of 16 characters a token nearly always suffices; it is cut at
    white space and its last tokens are not used, so that where a text is cut makes no difference. The whole text is
    taken if it does not suffice.
    """
    margin = 16
    prefix = text if wanted is None else text[: 16 * (wanted + margin)]
    if wanted is not None and len(prefix) < len(text):
        prefix = prefix[: max(prefix.rfind(" "), prefix.rfind("\n")) + 1]
        ids = _without(front, tokenizer(prefix, add_special_tokens=False, verbose=False)["input_ids"])
        if len(ids) >= wanted + margin:
            return ids[:wanted]
    return _without(front, tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def _without(front: list[int], ids: list[int]) -> list[int]:
    """Return ids without the start tokens that they begin with.

    >>> _without([0], [0, 0, 5, 0]), _without([], [0, 5])
    ([5, 0], [0, 5])
    """
    while front and ids[: len(front)] == front:
        ids = ids[len(front) :]
    return list(ids)
