"""``python -m studies.design PART``: what the chapters on designed priors keep."""

from functools import partial
from typing import Any

from studies import making
from studies.design.copying import measure_copies
from studies.design.measure import measure_designed, measure_designs, measure_gated
from studies.design.remedies import measure_added_biases, measure_remedies
from studies.making import Part
from studies.reference.models import DESIGNED
from studies.sizes import BODIES, Sized

TRAINED: dict[str, Any] = {"models": ("llama-12", "bloom-12", *DESIGNED), "trained": True}
UNTRAINED: dict[str, Any] = {"batch_size": 1, "rule": "random", "models": tuple(BODIES), "source": Sized}

PARTS = {
    "designed": Part("design", measure_designed, 64, 256, **TRAINED),
    "designed-1024": Part("design", measure_designed, 24, 1024, 2, **TRAINED),
    **{
        f"{name}-{init}": Part(
            "design", partial(measure, init=init), N, 256, entry=f"{name}-{{model}}.{init}", **UNTRAINED
        )
        for name, measure, N in (("untrained", measure_designs, 8), ("gates", measure_gated, 16))
        for init in ("default", "unit")
    },
    "remedies": Part("design", measure_remedies, 24, 256, models=("llama-12",)),
    "remedies-1024": Part("design", measure_remedies, 8, 1024, 2, models=("llama-12",)),
    "copies": Part("lookup", measure_copies, 200, 256),
    "added": Part("lookup", measure_added_biases, 24, 256, models=("llama-12", "bloom-12")),
}

if __name__ == "__main__":
    making.main("design", PARTS)
