"""``python -m studies.contributions PART``: predictions by contributions and by other shares, of many models."""

from functools import partial

from studies.contributions.measure import measure_shares
from studies.making import PUBLISHED_SIZES, Part, main

UNTRAINED = ("bloom-12", "llama-12", "gpt2-12", "nope-12")


PARTS = {
    "shares": Part("contributions", measure_shares, 32, 256),
    "shares-untrained": Part("contributions", partial(measure_shares, init="default"), 8, 256, models=UNTRAINED),
    "shares-large": Part("contributions", measure_shares, 8, 256, 4, **PUBLISHED_SIZES),
}

if __name__ == "__main__":
    main("contributions", PARTS)
