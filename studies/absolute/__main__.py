"""``python -m studies.absolute PART``: where absolute position leaks into the attention of rotary models."""

from dataclasses import replace
from functools import partial

from studies import making
from studies.absolute.measure import measure_components, measure_control, measure_start
from studies.making import ROTARY, Part

COMPONENTS = Part("absolute", measure_components, 128, 256, rule="cut", models=ROTARY, entry="{part}")
NETWORKS = replace(COMPONENTS, measure=partial(measure_components, interventions=False), trained=True)
"""The same architectures from another seed of training."""
PARTS = {
    "components": COMPONENTS,
    "control": replace(COMPONENTS, measure=measure_control, rule="random", models=("llama-12",)),
    "start": replace(COMPONENTS, measure=measure_start, prompts=64, length=128, models=(*ROTARY, "gpt2-12", "nope-12")),
    "seed-1": NETWORKS,
    "seed-2": NETWORKS,
}

if __name__ == "__main__":
    making.main("absolute", PARTS)
