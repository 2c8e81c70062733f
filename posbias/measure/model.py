"""The front door: a model that was opened, and what measuring it gives."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from posbias import errors
from posbias.measure.corpus import Corpus, choose_corpus, shortest
from posbias.measure.measurement import Measurement
from posbias.models.opening import check_model
from posbias.settings import ALONE, ALWAYS, Settings, settings_of
from posbias.shipped import PREFIX

if TYPE_CHECKING:
    import pandas as pd

    from posbias.explain.explanation import Explanation
    from posbias.lookup.file import Found
    from posbias.models.loaded import Loaded


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """Name a model that can be measured; :func:`open` makes one.

    Its weights are read when they are first needed, and stay: :meth:`measure`, :meth:`explain` and :meth:`lookup` share
    them. Asked for in another number format, on another device or with another attention, they are read anew. All three
    take ``progress``, whether to show how far it is; on a terminal unless given, so that a notebook asks for it.
    """

    source: Loaded
    config: Any

    def measure(
        self,
        prompts: int | None = None,
        length: int | None = None,
        dataset: str | PathLike[str] | None = None,
        *,
        texts: Any = None,
        progress: bool | None = None,
        **settings: Any,
    ) -> Measurement:
        """Measure mixing, attention, content and input-token influence on prompts, and return the measurement.

        Parameters
        ----------
        prompts, length
            How many prompts, at least 1, of how many tokens, at least 2: 200 of 256 unless given; of ``texts`` all, of
            as many tokens as the shortest has.
        dataset
            ``builtin`` (documentation and code that come with the package) unless given, or a path: a text file, a
            folder of .txt files, .jsonl, .csv or .parquet.
        texts
            Prompts that are in memory, in place of a data set: a list or a column of texts, or of conversations, which
            are lists of messages with a role and a content, for the tokenizer's chat template. Of each its last tokens
            are the prompt, with ``rule="first"`` its first.
        settings
            Any other option of ``posbias measure``, whose help says what it is: ``batch_size``, ``dtype``,
            ``device``, ``device_map``, ``rule``, ``seed`` (of the prompts alone), ``per_document``, ``special_tokens``,
            ``field``, ``quantities``, ``kernel_size``, ``ladder_prompts``, ``attention``, ``condition``, ``tokens``.
        """
        from posbias.measure.run import measure

        asked = {"prompts": prompts, "length": length, "dataset": dataset, "texts": texts}
        with self._running(asked | settings, progress) as (chosen, shown):
            return Measurement(measure(chosen, progress=shown))

    def explain(
        self,
        text: Any,
        *,
        answer: str | None = None,
        heads: str | None = None,
        progress: bool | None = None,
        **settings: Any,
    ) -> Explanation:
        """Say what one prompt's target depends on: each segment is deleted, beside its influence and contributions.

        Parameters
        ----------
        text
            The prompt, whose segments are between blank lines; or messages with a role and a content, for the chat
            template; or a mapping with ``documents``, ``question``, and ``answer`` and ``begin`` if you like, written
            as :meth:`lookup` writes them.
        answer
            A text that follows the prompt: influence is on the log-probability of all of its tokens; without one, on
            the probability of the likeliest next token.
        heads
            Of documents with a question: heads that fetch, as :meth:`lookup` takes them; the last line then says which
            document they look at, and which one the model's own answer is from.
        settings
            ``dtype``, ``device``, ``device_map``, ``attention``, ``special_tokens`` and ``condition`` as in
            :meth:`measure`; a condition may also be one of what is asked, for documents with a question.
        """
        from posbias.explain.measure import explain
        from posbias.models.families import row_of

        check_names("explain", settings)
        asked = {"quantities": ALWAYS if row_of(self.config) else ALONE, **settings}
        with self._running(asked, progress) as (chosen, shown):
            return explain(chosen, text, answer=answer, heads=heads, progress=shown)

    def lookup(
        self,
        task: str = "documents",
        rows: Any = None,
        *,
        prompts: int | None = None,
        places: int | None = None,
        arms: str | None = None,
        form: str | None = None,
        heads: str | None = None,
        conditions: Sequence[str] = (),
        progress: bool | None = None,
        **settings: Any,
    ) -> Found:
        """Ask the model for what stands at each place of its prompt: scores by place, and whether the middle is lost.

        Parameters
        ----------
        task
            ``documents`` and a question that one of them answers, or ``kv``: a JSON object, and one of its keys.
        rows
            Of ``documents``: your own, a .jsonl, .csv or .parquet file, a list or a table: ``documents`` (a list),
            ``question``, ``answer``; ``gold``, the index of the document that answers, unless the answer stands in one
            alone; ``begin``, the answer's first words, which are given, if you like. The document that answers is put
            at each place, the others stay in their order. Invented facts unless given.
        prompts
            How many sets are made up, or the first rows; 40, or all rows. In each the answer is at every place.
        places
            Documents or pairs in a prompt that is made up, 8 or, of ``kv``, 16. Of rows 1: each once, as it is.
        arms
            Some of ``competing``, ``not_competing`` (the others are documents of other questions) and ``closed_book``
            (no documents), with commas between; all unless given.
        form
            ``template``, the tokenizer's chat template, or ``plain``; the first where there is one unless given.
        heads
            Heads that fetch, as ``17.3+17.4+18.6``, which :meth:`fetching_heads` names: say for how many wrong answers
            and right ones they look at another document than the answer is from.
        conditions
            Under each the same is asked again and compared: ``["parallel-windows", "order:reversed"]``;
            ``posbias.conditions.describe()`` says what there is.
        settings
            ``dtype``, ``device``, ``device_map``, ``special_tokens`` and ``seed`` as in :meth:`measure`.
        """
        from posbias.lookup.file import Found
        from posbias.lookup.run import look_up

        own: dict[str, Any] = {"prompts": prompts, "places": places, "arms": arms, "form": form, "heads": heads}
        with self._looking_up(task, rows, progress, **own, **settings) as (asked, shown):
            return Found(look_up(*asked, conditions=conditions, progress=shown))

    def fetching_heads(
        self, rows: Any = None, *, prompts: int | None = None, progress: bool | None = None, **settings: Any
    ) -> pd.DataFrame:
        """Return a table of heads by how often each points at the document that answers, best first.

        The names of the first three are what the condition ``fetched`` takes: ``fetched:alone,heads=17.4+18.6``.

        Parameters
        ----------
        rows
            As in :meth:`lookup`; invented facts that compete unless given.
        prompts
            How many sets of facts are made up, or the first rows; 8, or all rows. Each is asked at every place.
        settings
            As in :meth:`lookup`, also ``places`` and ``form``.

        Returns
        -------
        pandas.DataFrame
            By ``head``, such as ``17.4``, which is head 4 of layer 17, both from 0: ``right``, the share of prompts in
            which the right document has most of its attention; ``worst``, that at its worst place; ``lean``, by how
            many places it points too far back, on average; and the share at each place.
        """
        from posbias.lookup.run import fetching_heads

        made_up = 8 if rows is None and prompts is None else prompts
        own: dict[str, Any] = {"prompts": made_up, "arms": "competing", **settings}
        with self._looking_up("documents", rows, progress, **own) as (asked, shown):
            chosen, wanted, given = asked
            return fetching_heads(chosen, wanted, given, progress=shown)

    def preview_lookup(self, task: str = "documents", rows: Any = None, *, conditions: Any = (), **asked: Any) -> str:
        """Return the first prompt of a lookup and how many there are, for the same arguments; no weights are read."""
        from posbias.lookup.run import preview

        with self._looking_up(task, rows, False, **asked) as (chosen, _):
            return preview(*chosen, conditions=conditions)

    @contextmanager
    def _looking_up(self, task: str, rows: Any, progress: bool | None, **asked: Any) -> Iterator[tuple[Any, bool]]:
        """Choose settings, task and rows of a lookup, all checked, and whether progress is shown."""
        from posbias.lookup.contexts import read_rows
        from posbias.lookup.tasks import PROMPTS, Task

        wanted = Task(task, **{name: asked.pop(name) for name in settings_of(Task) if name in asked})
        prompts = asked.pop("prompts", None)
        check_names("lookup", asked, "prompts")
        wanted.check_given(rows, prompts)
        given = None if rows is None else read_rows(rows)[:prompts]
        asked |= {"prompts": prompts or PROMPTS, "quantities": ALONE}
        with self._running(asked, progress) as (chosen, shown):
            yield (chosen, wanted, given), shown

    @contextmanager
    def _running(self, asked: dict[str, Any], progress: bool | None) -> Iterator[tuple[Settings, bool]]:
        """Choose settings, and whether progress is shown; a model in memory is given back when the block ends."""
        if isinstance(asked.get("dataset"), PathLike):
            asked = {**asked, "dataset": fspath(asked["dataset"])}
        chosen = choose_settings(self.source, self.source.settings(asked))
        with self.source.lent():
            yield chosen, sys.stderr.isatty() if progress is None else bool(progress)

    def __repr__(self) -> str:
        from posbias.models.families import longest_of, row_of

        family = row_of(self.config)
        most = longest_of(self.config)
        longest = f"at most {most} tokens" if most else "prompts of any length"
        if family is None:
            shape = f"no row for this family, so that influence alone can be measured, {longest}"
        else:
            how = family.position_of(self.config).replace("alibi", "ALiBi")
            T, H = self.config.num_hidden_layers, self.config.num_attention_heads
            shape = f"{T} layers × {H} heads, {how} positions, {longest}"
        return f"{self.source.model.removeprefix(PREFIX)}: {self.config.model_type}, {shape}; {self.source.when}"


def check_names(door: str, asked: Iterable[str], *more: str) -> None:
    """Raise ValueError for a setting that a door does not take."""
    known = (*settings_of(Corpus, Settings, door="" if door == "measure" else door), *more)
    if unknown := sorted(set(asked) - set(known)):
        raise errors.invalid(door, f"settings among {', '.join(known)}", ", ".join(unknown))


def choose_settings(source: Loaded | None, asked: dict[str, Any]) -> Settings:
    """Return the settings that a user chose by name, the others as they are unless given.

    Nothing heavy is loaded, but for texts in memory without a length: they are made tokens to find the shortest.
    """
    check_names("measure", asked, "texts")
    asked = {name: value for name, value in asked.items() if value is not None}
    corpus, rule = choose_corpus(asked)
    of_run = {name: asked[name] for name in settings_of(Settings) if name in asked}
    if corpus.given is not None and source is not None:
        of_run.setdefault("prompts", len(corpus.given))
        if "length" not in asked:
            special = asked.get("special_tokens", True)
            of_run["length"] = shortest(corpus, source.load_tokenizer(), special_tokens=special)
    return Settings(source, corpus, **{"attention": None, **of_run, "rule": rule})  # type: ignore[arg-type]


def open(
    model: Any,
    *,
    revision: str | None = None,
    tokenizer: Any = None,
    trust_remote_code: bool = False,
    cache: bool = True,
) -> Model:
    """Open a model to measure it: its configuration is read and checked, its weights are not.

    Parameters
    ----------
    model
        A directory, a GGUF file, an id on the hub, or ``reference/NAME`` for one of the ten reference models. Or a
        model in memory: a causal language model of transformers, which peft, torch.compile or data-parallel training
        may have wrapped. It is measured where it is and in its number format, and given back as it was.
    revision
        Branch, tag or commit on the hub; the default branch unless given.
    tokenizer
        Directory or id of the tokenizer; the model's own unless given. For a model in memory, a tokenizer in memory as
        well; without one it can be given random tokens (``rule="random"``).
    trust_remote_code
        Whether code that comes with the model may run.
    cache
        Whether what a GGUF file is made into is kept in the user's cache folder, or in that of ``POSBIAS_DATA``.
    """
    opening: dict[str, Any] = {"trust_remote_code": trust_remote_code, "revision": revision}
    tokenizer = fspath(tokenizer) if isinstance(tokenizer, PathLike) else tokenizer
    if hasattr(model, "state_dict"):
        return _in_memory(model, tokenizer, opening)
    if not isinstance(model, str | PathLike):
        raise errors.invalid("model", "a path, a name, or a model in memory", repr(model))
    if not isinstance(tokenizer, str | None):
        raise errors.invalid(
            "tokenizer", "a path or a name", f"{type(tokenizer).__name__}, which is for a model in memory"
        )
    check_model(fspath(model))
    from posbias.models.loading import Source

    source = Source(model=fspath(model), tokenizer=tokenizer, cache=cache, **opening)
    return Model(source, source.config())


def _in_memory(network: Any, tokenizer: Any, opening: dict[str, Any]) -> Model:
    """Return a model in memory as one that was opened; what is for files is refused."""
    for field, value in opening.items():
        if value:
            raise errors.invalid(field, "none with a model in memory", value)
    if not (tokenizer is None or isinstance(tokenizer, str) or (callable(tokenizer) and hasattr(tokenizer, "__len__"))):
        raise errors.invalid("tokenizer", "one of transformers, a directory or an id", type(tokenizer).__name__)
    from posbias.models.in_memory import InMemory

    source = InMemory(network, tokenizer)
    return Model(source, source.config())
