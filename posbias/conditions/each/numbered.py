"""Calls documents by their number and how many there are: Document 5 of 8."""

from dataclasses import replace

from posbias.conditions import ChangedRun
from posbias.prompts import Ask


class Condition(ChangedRun):
    needs = "documents"
    cost = "two tokens or so for each document"

    def rewrite(self, ask: Ask) -> Ask:
        return replace(ask, label="Document {k} of {n}: ")
