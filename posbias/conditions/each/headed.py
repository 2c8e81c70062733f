"""Puts a heading over each document: the first name in it, words with a capital that begin no sentence."""

import re
from dataclasses import replace

from posbias.conditions import ChangedRun
from posbias.prompts import Ask

NAME = re.compile(r"(?<=[^.!?:\s] )[A-Z][\w'-]*(?: [A-Z][\w'-]*)*")
"""A name behind a word of the same sentence."""


def with_heading(text: str) -> str:
    r"""Return a document under its first name.

    >>> with_heading("It is old. The code of the Van Sode office is 1.")
    'Van Sode\nIt is old. The code of the Van Sode office is 1.'
    """
    name = NAME.search(text)
    return f"{name.group()}\n{text}" if name else text


class Condition(ChangedRun):
    needs = "documents with names in them"
    cost = "the tokens of a name for each document"

    def rewrite(self, ask: Ask) -> Ask:
        return replace(ask, documents=tuple(map(with_heading, ask.documents)))
