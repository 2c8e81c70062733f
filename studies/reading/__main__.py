"""``python -m studies.reading PART``: from which of several competing documents SmolLM2's answers come.

What was expected of four parts, on 2026-11-29 before they were run, from the law fitted to the 80 sets of ``eight`` and
``eight-new`` (γ .81 per place; the first place pulls .6 nats more than the places between, the last 2.8):

``kinds`` and ``plain``
    The law of the 80 sets, with nothing fitted anew, expects the answers better than place with a bonus for the right
    document, fitted to the same 80 sets; the interval of the difference over sets is above 0. γ fitted anew is .7 in
    both, and its ratio to .81 has an interval within 1/2 and 2.
``others``
    Where each document states a fact of another kind, a bonus for the right document is left: with distance in the law
    its interval over sets is above 1, expected 4. At most a third of wrong answers come from a neighbour.
``thirty-two``
    γ is .20 per place, a quarter of that of eight, as if the unit were the share of the list: in 95% of resamples of
    sets log γ is nearer to the share's than to the places'. Right are 12% of the answers, 28% at the first place and
    78% at the last (39%, 69% and 95% if places were the unit).

Of ``diluted``, on the same day at 15:20, before it was run: if a long list is read more bluntly because its many tokens
dilute attention, scores multiplied by log n over that of its first eight documents bring γ of 16 documents back to that
of eight, which is a ratio to γ as it is of 2 or more. Expected: the whole 95% interval of that ratio over sets is below
2, so it is not dilution.
"""

from functools import partial
from typing import Any

from posbias.models.loading import Source
from studies.making import Part, main
from studies.reading import sets
from studies.reading.blur import measure_blur
from studies.reading.heads import measure_changed, measure_diluted, measure_heads, measure_patched
from studies.reading.measure import FOLDER, measure_answers


def source(model: str) -> Any:
    """Return the source of the model that ``make real`` fetches."""
    return Source(str(FOLDER))


def part(name: str, made: sets.Sets, count: int, **how: Any) -> tuple[str, Part]:
    """Return a part: so many sets of such lists; lengths are about those of a prompt."""
    measure = partial(measure_answers, sets=made, name=name, **how)
    return name, Part("reading", measure, count, 400, models=("smollm2",), source=source)


SHORT = "bfloat16"
"""The number format of parts that take long; ``short`` has the first ten sets of ``eight`` in it, to compare."""
PARTS = dict(
    [
        part("eight", sets.competing(8, 0), 40),
        part("eight-new", sets.competing(8, 1), 40),
        part("four", sets.competing(4, 2), 40),
        part("sixteen", sets.competing(16, 3), 40),
        part("apart", sets.apart(), 40),
        part("dose", sets.one_competitor(), 40),
        part("ends", sets.with_neutral("ends", 4), 40),
        part("between", sets.with_neutral("between", 5), 40),
        part("around", sets.with_neutral("around", 6), 40),
        part("inside", sets.with_neutral("inside", 10), 40),
        part("kinds", sets.other_kinds(), 40),
        part("plain", sets.competing(8, 11), 40, template=False),
        part("others", sets.among_others(12), 40, dtype=SHORT),
        part("thirty-two", sets.competing(32, 13), 10, dtype=SHORT),
        part("short", sets.competing(8, 0), 10, dtype=SHORT),
    ]
)
"""In order of importance."""
for name, measure, count in (
    ("heads", measure_heads, 48),
    ("changed", measure_changed, 16),
    ("patched", measure_patched, 24),
    ("blur", measure_blur, 24),
    ("diluted", measure_diluted, 12),
):
    PARTS[name] = Part("reading", measure, count, 400, models=("smollm2",), source=source)

if __name__ == "__main__":
    main("reading", PARTS)
