"""What prompts were drawn independently of each other: the module or document that each prompt of a file is from."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Int

from posbias import errors
from posbias.measure.corpus import BUILTIN, Corpus, Prompts, document_units, make_prompts
from posbias.measure.loading import Source
from posbias.shipped import PREFIX

CUT = {"dataset", "rule", "prompts", "length", "seed"}
"""Attributes that say how prompts were cut."""

TOKENIZERS = (f"{PREFIX}bloom-8", f"{PREFIX}llama-12")
"""The two that reference models have, from whichever seed: without a start token, and with one."""


def prompt_units(
    measurement: xr.Dataset, *, tokenizer: Any = None, corpus: Corpus | None = None
) -> Int[np.ndarray, "N"]:
    """Return the unit that each prompt of a measurement belongs to, for :func:`~posbias.comparison.resampling`.

    Of the built-in documents it is the Python module (or help topic) that a prompt's text is from: a module gives
    several documents, its docstrings and pieces of its source, which repeat one another. Of other corpora it is the
    document. Random prompts are units of their own. Prompts are cut again, and must be those of the file.

    Parameters
    ----------
    measurement
        A measurement, a summary, or any study's file: its attributes say how its prompts were cut.
    tokenizer
        The one that cut them; those of reference models are tried unless given.
    corpus
        Where they were cut from, if neither built in nor a document for each prompt.

    Returns
    -------
    units : array
        Equal numbers for prompts of one unit, counted from 0 in the order in which units come.

    Raises
    ------
    ValueError
        If the corpus is needed and not given, or the prompts are not those of the file.
    """
    attrs = measurement.attrs
    N, rule = int(attrs["prompts"]), str(attrs["rule"])
    dataset, cut = str(attrs["dataset"]), re.fullmatch(r"cut, (\d+) a document", rule)
    if rule == "random" or (rule == "first" and dataset != BUILTIN):
        return np.arange(N)
    if corpus is None and dataset != BUILTIN:
        raise errors.invalid("corpus", f"the documents of {dataset}, several prompts from each", "none")
    special = str(attrs.get("special_tokens", True)) == "True"
    how = (N, int(attrs["length"]), rule.split(",")[0], int(attrs["seed"]), int(cut[1]) if cut else 1, special)
    wanted, found = attrs.get("prompts_sha256"), ""
    if tokenizer is None and wanted is None:
        raise errors.invalid("tokenizer", "the one that cut the prompts, as the file has no digest of them", "none")
    for known in (tokenizer,) if tokenizer is not None else map(_tokenizer, TOKENIZERS):
        prompts = _prompts(corpus or Corpus(BUILTIN), known, *how)
        found = prompts.sha256
        if wanted in (None, found):
            break
    else:
        raise errors.invalid("prompts", f"those of the file, {str(wanted)[:12]}", f"{found[:12]}; give the tokenizer")
    return document_units(prompts.origins, dataset)


def known_units(measurement: xr.Dataset) -> Int[np.ndarray, "N"] | None:
    """Return :func:`prompt_units`, or None where the file does not tell them: each prompt is a unit of its own then.

    A file with the variable ``document`` tells them itself.

    Parameters
    ----------
    measurement
        As for :func:`prompt_units`; neither its corpus nor its tokenizer is asked for.
    """
    if not CUT <= measurement.attrs.keys():
        return None
    try:
        if "document" in measurement and str(measurement.attrs["rule"]) != "random":
            return document_units(measurement["document"].values.astype(int), str(measurement.attrs["dataset"]))
        return prompt_units(measurement)
    except (ValueError, IndexError, OSError):  # the last where a tokenizer of the reference models is not at hand
        return None


def unit_groups(units: Int[np.ndarray, "N"], groups: int) -> Int[np.ndarray, "N"]:
    """Return a group for each prompt, such that no unit is in two groups and groups are about equally large.

    Parameters
    ----------
    units
        From :func:`prompt_units`.
    groups
        How many; at most as many as there are units.

    Raises
    ------
    ValueError
        If there are fewer units than groups.

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


@cache
def _tokenizer(model: str) -> Any:
    return Source(model).load_tokenizer()


@cache
def _prompts(
    corpus: Corpus, tokenizer: Any, N: int, n: int, rule: str, seed: int, per_document: int, special_tokens: bool
) -> Prompts:
    options = {"rule": rule, "seed": seed, "per_document": per_document, "special_tokens": special_tokens}
    return make_prompts(corpus, tokenizer, N, n, **options)  # type: ignore[arg-type]
