"""``python -m studies.factor PART``: what passages get in balanced orders, measured of the reference models."""

from functools import partial

from studies.factor.measure import measure_factor
from studies.making import Part, main

PARTS = {"6x40": Part("factor", partial(measure_factor, passages=6), 12, 256, 4)}

if __name__ == "__main__":
    main("factor", PARTS)
