"""Writes something twice: everything, or the question, first and last."""

from dataclasses import replace

from posbias import errors
from posbias.conditions import FIELD, ChangedRun
from posbias.prompts import LAYOUT, Ask

LAYOUTS = {"everything": LAYOUT + LAYOUT, "question": ("question", *LAYOUT)}
"""The blocks of a message by what is written twice."""


class Condition(ChangedRun):
    needs = "documents with a question; everything or question behind a colon"
    cost = "twice the tokens for everything, those of a question more for question"

    def __init__(self, argument: str) -> None:
        if argument not in LAYOUTS:
            raise errors.invalid(f"{FIELD} repeated", f"one of {', '.join(LAYOUTS)}", argument or "none")
        self.layout = LAYOUTS[argument]

    def rewrite(self, ask: Ask) -> Ask:
        return replace(ask, layout=self.layout)
