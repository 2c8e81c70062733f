"""``python -m studies.absolute PART``: where absolute position leaks into the attention of rotary models."""

from functools import partial

from studies import making
from studies.absolute.measure import measure_components, measure_control, measure_start
from studies.making import ROTARY, Part

CUT = {"rule": "cut", "entry": "{part}"}
NETWORKS = Part(
    "absolute", partial(measure_components, interventions=False), 128, 256, models=ROTARY, trained=True, **CUT
)
PARTS = {
    "components": Part("absolute", measure_components, 128, 256, models=ROTARY, **CUT),
    "control": Part("absolute", measure_control, 128, 256, rule="random", entry="{part}", models=("llama-12",)),
    "start": Part("absolute", measure_start, 64, 128, models=(*ROTARY, "gpt2-12", "nope-12"), **CUT),
    "seed-1": NETWORKS,
    "seed-2": NETWORKS,
}

if __name__ == "__main__":
    making.main("absolute", PARTS)
