"""``python -m studies.ladder PART``: what stands between rollout and influence, measured of the reference models."""

from studies.ladder.alignment import measure_between
from studies.ladder.gap import measure_refinements
from studies.ladder.gradients import measure_hops
from studies.ladder.paths import measure_pathways
from studies.ladder.rotary import measure_rotary
from studies.making import ROTARY, STEPS, Part, main

PARTS = {
    "hops": Part("ladder", measure_hops, 16, 256),
    "gap": Part("ladder", measure_refinements, 48, 256, 4),
    "paths-64": Part("ladder", measure_pathways, 8, 64, 4),
    "paths-128": Part("ladder", measure_pathways, 2, 128, 4, models=("bloom-8", "llama-12", "gpt2-12")),
    "between": Part("ladder", measure_between, 24, 256),
    STEPS: Part("ladder", measure_between, 24, 256, trained=True),
    "rotary": Part("ladder", measure_rotary, 256, 256, models=ROTARY),
    "rotary-1024": Part("ladder", measure_rotary, 24, 1024, 2, models=ROTARY),
}

if __name__ == "__main__":
    main("ladder", PARTS)
