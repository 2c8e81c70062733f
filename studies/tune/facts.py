"""Invented facts to train on: their kinds, names and neutral sentences are none of those that a lookup tests."""

from __future__ import annotations

from itertools import product

import numpy as np

from posbias import errors
from posbias.prompts import Ask

PLACES = 8
"""Documents of a prompt."""
ASKED = 2
"""Of how many documents of one set the model is asked in a step."""
SYLLABLES = ("bra cor dun fal gri hus jel mer nor pos rin sta tul ved wil zan", "ba ce do fi ha ju ke po",
             "ton ham ford mouth wick ley stead burn field minster dale cross port haven ridge brook")  # fmt: skip
NAMES = ["".join(parts).title() for parts in product(*map(str.split, SYLLABLES))]
"""Invented ones, 2,048 as in :mod:`posbias.lookup.contexts`, none of them there."""
KINDS = (
    ("The postcode of {} begins with the number", "number"), ("The mayor of {} is called", "name"),
    ("The harbour of {} was finished in", "year"), ("The height of the mast at {} in feet is", "number"),
    ("The ferry that sails from {} is called", "name"), ("The market of {} was first held in", "year"),
    ("The number of members of the {} choir is", "number"), ("The painter who lives in {} is called", "name"),
    ("The school of {} was founded in", "year"), ("The price of the {} clock in pounds was", "number"),
    ("The horse that won the {} race is called", "name"), ("The well of {} ran dry in", "year"),
)  # fmt: skip
"""Beginnings of facts of different kinds, and what each ends with."""
NEUTRAL = (
    "Most people there have lived in the same street for years.", "The shops close early on Wednesdays.",
    "Travellers often mention the smell of fresh bread.", "There is a low stone wall along the main road.",
    "On clear days one can see the hills from there.", "A brass band plays in the square in summer.",
    "The lamps are lit a little before sunset.", "Nobody remembers who planted the chestnut trees.",
    "The path behind it leads down to a pond.", "Letters are delivered twice a week.",
)  # fmt: skip
"""Sentences that say nothing of any fact."""
WHERE = {
    "every": tuple(range(PLACES)),
    "ends": (0, PLACES - 1),
    "middle": (PLACES // 2 - 1, PLACES // 2),
    "apart": tuple(range(PLACES)),
}
"""At which places, from 0, an arm asks for the answer; the documents of ``apart`` do not compete."""
ARMS = {
    "every": "the answer at every place alike",
    "middle": "the answer at the two places in the middle",
    "ends": "the answer at the first place and the last",
    "apart": "documents that do not compete, the answer at every place alike",
    "text": "running text, no documents",
}
"""What a model is trained on, in the order in which they are trained."""


def check_arm(arm: str) -> str:
    """Return an arm, or raise ValueError for one that there is not."""
    if arm not in ARMS:
        raise errors.invalid("arm", f"one of {', '.join(ARMS)}", arm)
    return arm


def make_set(arm: str, seed: int, number: int) -> list[Ask]:
    """Return what is asked of the ``number``-th set of documents, :data:`ASKED` questions of the same documents.

    An arm that asks for every place goes through all of them in each four sets, in an order that is drawn anew.
    """
    rng = np.random.default_rng([seed, number])
    competing = arm != "apart"
    kinds = np.full(PLACES, rng.integers(len(KINDS))) if competing else rng.permutation(len(KINDS))[:PLACES]
    names = [str(name) for name in rng.permutation(NAMES)[: 2 * PLACES]]
    numbers = rng.choice(np.arange(1000, 10000), PLACES, replace=False)
    years = rng.choice(np.arange(1400, 2000), PLACES, replace=False)
    facts = []
    for k, kind in enumerate(kinds):
        begin, ending = KINDS[kind][0].format(names[k]), KINDS[kind][1]
        answers = {"number": str(numbers[k]), "year": str(years[k]), "name": names[PLACES + k]}
        before, after = rng.choice(NEUTRAL, 2, replace=False)
        facts.append((begin, answers[ending], f"{before} {begin} {answers[ending]}. {after}"))
    documents = tuple(text for _, _, text in facts)
    return [
        Ask(documents, f"How does this sentence go on? {facts[place][0]} …", facts[place][1], facts[place][0])
        for place in places_of(arm, seed, number)
    ]


def places_of(arm: str, seed: int, number: int) -> list[int]:
    """Return the places, from 0, at which the ``number``-th set has what is asked for.

    >>> sorted(place for number in range(4) for place in places_of("every", 0, number))
    [0, 1, 2, 3, 4, 5, 6, 7]
    >>> sorted(places_of("middle", 0, 5)), sorted(places_of("ends", 0, 5))
    ([3, 4], [0, 7])
    """
    where = WHERE[arm]
    round_, turn = divmod(number * ASKED, len(where))
    order = np.random.default_rng([seed, round_, 1]).permutation(where)
    return [int(place) for place in order[turn : turn + ASKED]]
