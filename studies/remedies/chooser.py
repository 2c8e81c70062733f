"""Toy passages whose question is scored as the measurements score it, so that the page's lines can be held to it."""

from __future__ import annotations

from typing import Any

import torch

from posbias.conditions.each.one_by_one import _asking as asking_for
from posbias.engines.local import LocalEngine
from posbias.models.loading import Source
from studies.questions.asks import as_ask, write_ask
from studies.questions.rows import INSTRUCTION, Passage, Question

OTHERS = (Passage("River", "The Thames is long."), Passage("Bridge", "It was built in 1894."))
TOY = Question("who built the tower", ("Eiffel",), Passage("Tower", "Eiffel built the tower."), OTHERS)
TEMPLATE = "User: {{ messages[0]['content'] }}\nAssistant: "
"""A chat template for a small model that has none."""


def score_toy(name: str = "reference/llama-12") -> tuple[tuple[Any, ...], list[float]]:
    """Return what a chooser takes (model, tokenizer, question, passages, instruction), and what it is to give."""
    source = Source(name)
    model, tokenizer = source.load_model(torch.float32, "cpu", None, "sdpa"), source.load_tokenizer()
    tokenizer.chat_template = TEMPLATE
    ask = as_ask(TOY, 0)
    alone = [ask.with_documents([k]) for k in range(len(ask.documents))]
    asking = [write_ask(tokenizer, asking_for(one)) for one in alone]
    found = [one.log_probability for one in LocalEngine(model, tokenizer).loglikelihood(asking)]
    return (model, tokenizer, TOY.text, ask.documents, INSTRUCTION), found
