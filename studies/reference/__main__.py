"""``python -m studies.reference``: measure what chapters keep of the reference models; ``train NAME`` trains them."""

import sys
from functools import partial

from posbias.cli import main
from studies import making
from studies.making import REFERENCES, STEPS, Part
from studies.reference.measure import (
    measure_corpus,
    measure_report,
    measure_seed,
    measure_snapshot,
    measure_untrained,
)

LONG = tuple(name for name in REFERENCES if name != "gpt2-12")
PARTS = {
    "builtin": Part("models", measure_corpus, 256, 256),
    "report": Part("models", measure_report, 200, 256, models=("bloom-8",)),
    "random": Part("models", measure_corpus, 128, 256, rule="random"),
    "wikitext-2": Part("models", measure_corpus, 256, 256, rule="cut", per_document=8, text=True),
    "builtin-1024": Part("models", measure_corpus, 24, 1024, 2, models=LONG),
    **{
        init: Part("models", partial(measure_untrained, init=init), 32, 256, entry="{model}-untrained-{part}.builtin")
        for init in ("default", "unit")
    },
    "seeds": Part("models", measure_seed, 64, 256, entry="{model}.builtin", trained=True),
    STEPS: Part("mixing", measure_snapshot, 16, 256, trained=True, seeds=False),
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        main(groups=["studies.reference.commands"], name="python -m studies.reference")
    else:
        making.main("reference", PARTS)
