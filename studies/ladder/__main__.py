"""``python -m studies.ladder PART``: what stands between rollout and influence, measured of the reference models."""

from functools import partial

from studies.ladder.alignment import measure_between
from studies.ladder.bound import measure_bound
from studies.ladder.rotary import measure_rotary
from studies.ladder.rungs import measure_exchanged, measure_permuted, measure_rungs
from studies.ladder.turned import measure_turned
from studies.making import PUBLISHED_SIZES, REFERENCES, ROTARY, STEPS, Part, main

LONG = tuple(name for name in REFERENCES if name != "gpt2-12")  # whose table of positions ends before
PARTS = {
    "rungs": Part("ladder", partial(measure_rungs, more=True, pairings=8), 32, 256, 16),
    "rungs-random": Part("ladder", measure_rungs, 16, 256, 16, rule="random"),
    "rungs-untrained": Part("ladder", partial(measure_rungs, init="default"), 16, 256, 16),
    "rungs-large": Part("ladder", measure_rungs, 8, 256, 8, **PUBLISHED_SIZES),
    "rungs-seeds": Part("ladder", partial(measure_rungs, pairings=8), 32, 256, 16, trained=True),
    "exchanged": Part("ladder", measure_exchanged, 16, 256, 16),
    "permuted": Part("ladder", measure_permuted, 8, 256, 8),
    "rungs-1024": Part("ladder", measure_rungs, 8, 1024, 8, models=LONG),
    "turned": Part("ladder", measure_turned, 16, 256, 16),
    "bound": Part("ladder", measure_bound, 8, 256),
    "between": Part("ladder", measure_between, 24, 256),
    STEPS: Part("ladder", measure_between, 24, 256, trained=True),
    "rotary": Part("ladder", measure_rotary, 256, 256, models=ROTARY),
}

if __name__ == "__main__":
    main("ladder", PARTS)
