"""``python -m studies.untrained PART``: what untrained networks of real architectures listen to."""

from functools import partial

from posbias.measure.sizes import SIZES
from posbias.measure.untrained import Untrained
from posbias.shipped import PREFIX
from studies import making
from studies.making import Part
from studies.untrained.measure import SMALL, Small, measure_untrained

LARGE = ("pythia-410m", "falcon-rw-1b", "llama-3.2-1b")
"""Published sizes that are measured only if they are named."""
PUBLISHED = {
    "models": tuple(name for name in SIZES if name not in LARGE),
    "others": LARGE,
    "source": partial(Untrained, tokenizer=f"{PREFIX}llama-12"),
}
LONG = PUBLISHED | {"models": ("gpt2", "opt-125m", "mpt-125m", "pythia-160m"), "others": tuple(SIZES)}
TURNED = PUBLISHED | {"models": ("pythia-160m", "qwen2-0.5b"), "others": ()}


def _part(n: int, more: dict, *, text: bool = False, measure=measure_untrained) -> Part:
    """Return a part of eight prompts of n tokens, random ones or cut from text, one at a time."""
    return Part("untrained", measure, 8, n, 1, rule="cut" if text else "random", text=text, **more)


PARTS = {
    "random": _part(256, PUBLISHED),
    "wikitext-2": _part(256, PUBLISHED, text=True),
    "random-unrotated": _part(256, TURNED, measure=partial(measure_untrained, unrotated=True)),
    "random-1024": _part(1024, LONG),
    "wikitext-2-1024": _part(1024, LONG, text=True),
    "small": Part(
        "untrained", partial(measure_untrained, random_output=True), 64, 256, rule="random",
        entry="small-{model}.random", models=tuple(SMALL), source=Small,
    ),
}  # fmt: skip

if __name__ == "__main__":
    making.main("untrained", PARTS)
