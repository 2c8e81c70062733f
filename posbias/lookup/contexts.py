"""What is asked: documents with the one that answers at each place, from a user's rows or made up."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from posbias import errors
from posbias.lookup.answers import contains, normalise
from posbias.lookup.tasks import PLACES, Task
from posbias.measure.corpus import BUILDERS, Corpus
from posbias.prompts import Ask

ROW = "a row of documents, question and answer"
SYLLABLES = ("qua mor tel bri van hol sed gar lin ost pel rud fen wex jar kol", "da ve ri no lu ma te so",
             "ck dde lth mson ntry rvik ster ttle nge bury den gard worth nell by stow")  # fmt: skip
NAMES = ["".join(parts) for parts in product(*map(str.split, SYLLABLES))]
"""Invented ones, 2,048 of three syllables each."""
WORDS = (
    "apple river stone cloud garden window paper silver market forest bridge candle hammer island jacket kettle ladder "
    "mirror needle orange pencil rabbit saddle temple valley wagon yellow basket camera dragon engine flower guitar "
    "harbor insect jungle kitchen lemon magnet napkin ocean planet quarter rocket spider ticket umbrella violin winter"
).split()
KINDS = (
    ("The access code of the {} office is", "number"), ("The director of the {} museum is called", "name"),
    ("The {} bridge was opened in", "year"), ("The weight of the {} bell in pounds is", "number"),
    ("The architect of the {} station is called", "name"), ("The {} library closed its doors in", "year"),
    ("The telephone number of the {} bakery is", "number"), ("The river beside the {} mill is called", "name"),
    ("The {} tower was restored in", "year"), ("The number of seats of the {} theatre is", "number"),
)  # fmt: skip
"""Beginnings of facts of different kinds, and what each ends with."""
NEUTRAL = (
    "Visitors are asked to leave their coats at the entrance.", "The building stands on a quiet street with old trees.",
    "A small café next door serves soup at noon.", "In winter the days there are short and often foggy.",
    "The walls were painted again some time ago.", "Guided tours are given on most weekends.",
    "A bus stops close by every half hour.", "The garden behind it is open to everybody.",
    "Many photographs of it hang in the town hall.", "Children like to play on the stairs in front.",
)  # fmt: skip
"""Sentences that say nothing of any fact."""


@dataclass(frozen=True)
class Context:
    """Hold by arm what is asked with the answer at each place; ``twice`` if two documents hold the answer."""

    asks: dict[str, tuple[Ask, ...]]
    twice: bool = False


def holds(document: str, answer: str) -> bool:
    """Tell whether a document has the answer in it, whatever the case of letters.

    >>> holds("The code is AB 12.", "ab 12"), holds("The code is 3.", "4")
    (True, False)
    """
    return " ".join(answer.casefold().split()) in " ".join(document.casefold().split())


def answers(document: str, row: Ask) -> bool:
    """Tell whether a document has an answer of a row in it."""
    return contains(document, row.answers) if row.answers else holds(document, row.answer)


def move_first(ask: Ask, others: Sequence[str]) -> tuple[Ask, ...]:
    """Return what is asked with the first document at each place among others; scores stay with their documents."""
    found = []
    for k in range(len(others) + 1):
        scores = (*ask.scores[1 : k + 1], *ask.scores[:1], *ask.scores[k + 1 :])
        found.append(replace(ask, documents=(*others[:k], ask.documents[0], *others[k:]), scores=scores))
    return tuple(found)


def read_rows(rows: Any) -> list[Ask]:
    """Return the rows of a file (.jsonl, .csv, .parquet) or in memory, the document that answers first in each.

    ValueError is raised for the first bad one.
    """
    name = "rows"
    if isinstance(rows, str | PathLike):
        if not Path(rows).is_file() or not Path(rows).stat().st_size:
            raise errors.invalid(name, "a file with rows", f"{fspath(rows)}, which is not there, or empty")
        corpus = Corpus(fspath(rows))
        if corpus.reader not in BUILDERS.values():
            raise errors.invalid(name, "a .jsonl, .csv or .parquet file", fspath(rows))
        corpus.check()
        name, rows = str(fspath(rows)), corpus._rows()
    elif hasattr(rows, "to_dict") and hasattr(rows, "columns"):
        rows = rows.to_dict("records")
    if isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        raise errors.invalid(name, "a file, or a list or table of rows", type(rows).__name__)
    found: list[Ask] = []
    for k, row in enumerate(rows, 1):
        found.append(row if isinstance(row, Ask) else read_row(f"{name}: row {k}", row))
        if (count := len(found[-1].documents)) != len(found[0].documents):
            expected = f"{len(found[0].documents)} documents, as many as in the first row"
            raise errors.invalid(f"{name}: row {k}", expected, count)
    if not found:
        raise errors.invalid(name, f"{ROW} or more", "none")
    return found


def read_row(where: str, row: Any) -> Ask:
    """Return a row, the document that answers first, or raise ValueError for what is missing, empty or told twice."""
    if not isinstance(row, Mapping):
        raise errors.invalid(where, ROW, repr(row)[:60])
    if row.get("ctxs") is not None:
        row = {**row, **retrieved(f"{where}: ctxs", row["ctxs"])}
    documents = _list(f"{where}: documents", row.get("documents"), "two or more", 2)
    accepted: tuple[str, ...] = ()
    if row.get("answers") is not None:
        accepted = _accepted(f"{where}: answers", row["answers"], documents)
        row = {**row, "answer": row.get("answer") or accepted[0]}
    texts = {"question": row.get("question"), "answer": row.get("answer")}
    texts |= {f"documents: {k}": text for k, text in enumerate(documents)}
    for field, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise errors.invalid(f"{where}: {field}", "a text", repr(text)[:60])
        errors.text(f"{where}: {field}", text)
    seen: dict[str, int] = {}
    for k, text in enumerate(documents):
        if (other := seen.setdefault(" ".join(text.split()), k)) != k:
            raise errors.invalid(f"{where}: documents: {k}", "another text than the others", f"that of {other}")
    gold, answer = row.get("gold"), str(row["answer"])
    if gold is None or gold == "" or gold != gold:  # NaN, of a table's empty cell
        having = [k for k, text in enumerate(documents) if answers(text, Ask((), "", answer, answers=accepted))]
        if len(having) != 1:
            received = "it in none" if not having else f"it in {', '.join(map(str, having))}"
            expected = f"the answer {answer[:40]!r} in one document, or the index of that which answers"
            raise errors.invalid(f"{where}: gold", expected, received)
        gold = having[0]
    index = _index(gold)
    if index is None or not 0 <= index < len(documents):
        expected = f"the index of one document, 0 to {len(documents) - 1}"
        raise errors.invalid(f"{where}: gold", expected, repr(gold)[:60])
    begin = row["begin"].strip() if isinstance(row.get("begin"), str) else ""
    order = [index, *(k for k in range(len(documents)) if k != index)]
    stripped, ranks = tuple(documents[k].strip() for k in order), tuple(-k for k in order)
    return Ask(stripped, str(row["question"]).strip(), answer.strip(), begin, ranks, answers=accepted)


def _list(where: str, values: Any, many: str, least: int) -> list[Any]:
    """Return a list of a row, in a .csv file as JSON."""
    if isinstance(values, str):
        try:
            values = json.loads(values)
        except ValueError:
            raise errors.invalid(where, "a list, in a .csv file as JSON", values[:60]) from None
    if not isinstance(values, list | tuple | np.ndarray) or len(values) < least:
        raise errors.invalid(where, f"a list of {many}", repr(values)[:60])
    return list(values)


def retrieved(where: str, given: Any) -> dict[str, Any]:
    """Return documents, and the one that answers where it is told, of passages as Liu et al.'s files have them."""
    passages = _list(where, given, "passages", 1)
    for k, one in enumerate(passages):
        if not isinstance(one, Mapping) or not isinstance(one.get("text"), str):
            raise errors.invalid(f"{where}: {k}", "a passage with title and text", repr(one)[:60])
    documents = [f"(Title: {one['title']}) {one['text']}" if one.get("title") else one["text"] for one in passages]
    found: dict[str, Any] = {"documents": documents}
    for name in ("isgold", "hasanswer"):
        told = [k for k, one in enumerate(passages) if one.get(name) is True]
        if len(told) == 1:
            return {**found, "gold": told[0]}
    return found


def _accepted(where: str, given: Any, documents: Sequence[Any]) -> tuple[str, ...]:
    """Return accepted answers, first one that stands in a document."""
    texts = _list(where, given, "one or more", 1)
    for k, text in enumerate(texts):
        if not isinstance(text, str):
            raise errors.invalid(f"{where}: {k}", "a text", repr(text)[:60])
        errors.text(f"{where}: {k}", text)
    known = [text for text in texts if normalise(text)]
    every = "\n".join(map(str, documents))
    standing = [text for text in known if contains(every, [text])]
    if not standing:
        raise errors.invalid(where, "one or more that stand in a document", repr(texts)[:60])
    return (standing[0], *(text for text in known if text != standing[0]))


def _index(gold: Any) -> int | None:
    """Return a whole number that is given as a number or in a text, None for anything else."""
    if isinstance(gold, bool):
        return None
    try:
        index = int(gold)
        return index if index == float(gold) else None
    except (TypeError, ValueError, OverflowError):
        return None


def row_contexts(rows: Sequence[Ask], once: bool = False) -> list[Context]:
    """Return what is asked of each row: the document that answers moves through all places, the others stay.

    With ``once`` the documents are as the row has them, and there is one place.

    Documents of another question are those of the next row in which the answer does not stand; without such a row for
    each, that arm is left out.
    """
    strange = [_of_another_question(rows, k) for k in range(len(rows))]
    found = []
    for row, others in zip(rows, strange, strict=True):
        own = row.documents[1:]
        as_given = np.argsort(-np.array(row.scores), kind="stable").tolist()
        asks = {"competing": (row.with_documents(as_given),) if once else move_first(row, own)}
        if others is not None and None not in strange and not once:
            asks["not_competing"] = move_first(row, others)
        asks["closed_book"] = (replace(row, documents=(), scores=()),) * len(asks["competing"])
        asks["oracle"] = (row.with_documents([0]),) * len(asks["competing"])
        found.append(Context(asks, any(answers(text, row) for text in own)))
    return found


def _of_another_question(rows: Sequence[Ask], k: int) -> tuple[str, ...] | None:
    """Return the documents beside the one that answers of the next row in which row k's answer does not stand."""
    for step in range(1, len(rows)):
        documents = rows[(k + step) % len(rows)].documents[1:]
        if not any(answers(text, rows[k]) for text in documents):
            return documents
    return None


def choose_contexts(task: Task, rows: Sequence[Ask] | None, count: int, seed: int) -> list[Context]:
    """Return what is asked, of rows or made up; an answer of the model's own is not begun for it."""
    contexts = make_contexts(task, count, seed) if rows is None else row_contexts(rows, task.places == 1)
    if task.score != "contains":
        return contexts
    found = []
    for context in contexts:
        asks = {}
        for arm, every in context.asks.items():
            asks[arm] = tuple(replace(ask, begin="") for ask in every)
        found.append(Context(asks, context.twice))
    return found


def make_contexts(task: Task, count: int, seed: int) -> list[Context]:
    """Return contexts that are made up, in each of which every document or pair is asked for in turn."""
    rng, places = np.random.default_rng(seed), task.places or PLACES[task.name]
    pool = WORDS if task.name == "kv" else NAMES
    if 2 * places > len(pool):
        raise errors.invalid("places", f"at most {len(pool) // 2}, for which there are words", places)
    found = []
    for _ in range(count):
        names = [str(name) for name in rng.permutation(pool)]
        if task.name == "kv":
            pairs = zip(names[:places], names[places : 2 * places], strict=True)
            found.append(_in_turn({"competing": [_pair(key, value) for key, value in pairs]}))
            continue
        kinds = rng.permutation(len(KINDS))
        drawn = {"competing": [kinds[0]] * places}
        if places <= len(KINDS):
            drawn["not_competing"] = list(kinds[:places])
        values = {
            "number": [str(x) for x in rng.choice(np.arange(1000, 10000), places, replace=False)],
            "year": [str(x) for x in rng.choice(np.arange(1400, 2000), places, replace=False)],
            "name": [name.title() for name in names[places : 2 * places]],
        }
        made = {}
        for arm, chosen in drawn.items():
            made[arm] = [_fact(rng, KINDS[kind], names[k].title(), values, k) for k, kind in enumerate(chosen)]
        found.append(_in_turn(made))
    return found


def _in_turn(made: Mapping[str, Sequence[Ask]]) -> Context:
    """Return what is asked if each part, given as the question that it alone answers, is asked for among all."""
    asks = {}
    for arm, parts in made.items():
        texts = tuple(part.documents[0] for part in parts)
        asks[arm] = tuple(replace(part, documents=texts) for part in parts)
    asks["closed_book"] = tuple(replace(part, documents=()) for part in made["competing"])
    asks["oracle"] = tuple(made["competing"])
    return Context(asks)


def _pair(key: str, value: str) -> Ask:
    question = f'What is the value of the key "{key}"?'
    return Ask((f'"{key}": "{value}"',), question, f'"{value}', f'The value of the key "{key}" is')


def _fact(rng: np.random.Generator, kind: tuple[str, str], name: str, values: Mapping[str, list[str]], k: int) -> Ask:
    begin, answer = kind[0].format(name), values[kind[1]][k]
    before, after = rng.choice(NEUTRAL, 2, replace=False)
    question = f"How does this sentence go on? {begin} …"
    return Ask((f"{before} {begin} {answer}. {after}",), question, answer, begin)
