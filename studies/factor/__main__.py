"""``python -m studies.factor PART``: what passages get in balanced orders, measured of the reference models."""

from functools import partial
from typing import Any

from studies.factor.measure import OTHER, Made, measure_factor
from studies.making import Part, main


def part(passages: int, length: int, sets: int = 4, **made: Any) -> Part:
    """Return sets of so many passages; a prompt has ``length`` tokens with the question."""
    return Part("factor", partial(measure_factor, made=Made(passages, **made)), sets, length, 4)


PARTS = {
    "6x40": part(6, 256, 12, natural=0),  # models.nc has the profile of natural prompts of this length
    "6x32": part(6, 208),
    "copy": part(6, 208, copy=True, natural=0),
    "4x32": part(4, 144),
    "8x16": part(8, 144),
    "3x64": part(3, 208),
    "code": part(6, 208, question=OTHER, natural=0),
}

if __name__ == "__main__":
    main("factor", PARTS)
