"""``python -m studies.untrained PART``: what untrained networks of real architectures listen to."""

from dataclasses import replace
from functools import partial

from posbias.shipped import PREFIX
from studies import making
from studies.making import Part
from studies.sizes import SIZES, Sized
from studies.untrained.measure import SMALL, Small, measure_untrained

LARGE = ("pythia-410m", "falcon-rw-1b", "llama-3.2-1b")
"""Published sizes that are measured only if they are named."""
RANDOM = Part(
    "untrained", measure_untrained, 8, 256, 1, rule="random", models=tuple(name for name in SIZES if name not in LARGE),
    others=LARGE, source=partial(Sized, tokenizer=f"{PREFIX}llama-12"),
)  # fmt: skip
TEXT = replace(RANDOM, rule="cut", text=True)
LONG = ("gpt2", "opt-125m", "mpt-125m", "pythia-160m")
PARTS = {
    "random": RANDOM,
    "wikitext-2": TEXT,
    "random-unrotated": replace(
        RANDOM, measure=partial(measure_untrained, unrotated=True), models=("pythia-160m", "qwen2-0.5b")
    ),
    "random-1024": replace(RANDOM, length=1024, models=LONG, others=tuple(SIZES)),
    "wikitext-2-1024": replace(TEXT, length=1024, models=LONG, others=tuple(SIZES)),
    "small": replace(
        RANDOM, measure=partial(measure_untrained, random_output=True), prompts=64, batch_size=8,
        entry="small-{model}.random", models=tuple(SMALL), others=(), source=Small,
    ),
}  # fmt: skip

if __name__ == "__main__":
    making.main("untrained", PARTS)
