"""When an answer is right by containing an accepted one: the metric of Liu et al. (arXiv 2307.03172)."""

import re
import string
from collections.abc import Sequence

MOST, UNTIL = 100, "\n"
"""Tokens of an answer at most, as published, and the letter before which it ends: its first line counts."""
FACT_MOST, FACT_END = 12, ".\n,<"
"""Tokens of an answer that states one fact, at most, and the letters before which it ends."""
ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    r"""Return a text as SQuAD's metric compares it, without capitals, punctuation, articles and double blanks.

    >>> normalise("The  Wright\nbrothers, of course!")
    'wright brothers of course'
    """
    plain = text.lower().translate(str.maketrans("", "", string.punctuation))
    return " ".join(ARTICLES.sub(" ", plain).split())


def contains(text: str, accepted: Sequence[str]) -> bool:
    """Tell whether a text has an accepted answer in it.

    >>> contains("It was Wilhelm Conrad Röntgen.", ["Marie Curie", "wilhelm conrad röntgen"]), contains("Yes", ["no"])
    (True, False)
    """
    found = normalise(text)
    return any(normalise(answer) in found for answer in accepted)


def first_line(text: str) -> str:
    r"""Return the first line of an answer that has words.

    >>> first_line("\n It is 7.\nOr 8.")
    'It is 7.'
    """
    return text.strip().split("\n")[0].strip()


def find_holder(line: str, documents: Sequence[str]) -> int:
    """Return the number of the document that alone has an answer's words in it, -1 where none or several do.

    >>> find_holder("It is 3", ["It is 4.", "It is 3!"]), find_holder("48", ["Code 482."]), find_holder("", ["It"])
    (1, -1, -1)
    """
    said = f" {normalise(line)} "
    having = [k for k, text in enumerate(documents) if said.strip() and said in f" {normalise(text)} "]
    return having[0] if len(having) == 1 else -1
