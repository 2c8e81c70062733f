"""Calls documents by their number and how many there are: Document 5 of 8."""

from dataclasses import replace

from posbias.conditions import ChangedRun
from posbias.prompts import Ask


class Condition(ChangedRun):
    """Number documents."""

    needs = "documents"
    cost = "two tokens or so for each document"

    def rewrite(self, ask: Ask) -> Ask:
        """Return what is asked with documents that are called by number and count."""
        return replace(ask, label="Document {k} of {n}: ")
