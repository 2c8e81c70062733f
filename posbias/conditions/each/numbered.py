"""Calls documents by their number and how many there are: Document 5 of 8."""

from dataclasses import replace

from posbias import errors
from posbias.conditions import FIELD, ChangedRun
from posbias.prompts import Ask

LABEL = "Document {k} of {n}: "


def numbered(ask: Ask) -> Ask:
    """Return what is asked with documents that are called by number and count."""
    return replace(ask, label=LABEL)


class Condition(ChangedRun):
    """Number documents."""

    changes = "prompt"
    needs = "documents"
    cost = "two tokens or so for each document"

    def __init__(self, argument: str) -> None:
        if argument:
            raise errors.invalid(f"{FIELD} numbered", "no arguments", argument[:40])

    def rewrite(self, ask: Ask) -> Ask:
        """Return what is asked with documents by number and count."""
        return numbered(ask)
