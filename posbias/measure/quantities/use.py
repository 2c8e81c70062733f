"""what replacing each token by another changes of the next token's distribution; a forward pass for each.

Influence says how a token's vector is felt; use says whether the token matters. A token may have much of the one and
little of the other.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from posbias.measure import quantities
from posbias.measure.instrument import Instrument


class Quantity(quantities.Quantity):
    variables = {
        "use_prompts": (
            ("prompt", "position"),
            "total variation of the next token's distribution when the token is one of another prompt",
        )
    }

    def read(self, batch: slice, ids: Int[Tensor, "B n"]) -> dict[str, Tensor]:
        every, settings = self.traces.ids, self.traces.settings
        others = [draw_replacements(every, k, settings.seed) for k in range(batch.start, batch.stop)]
        pairs = zip(ids, others, strict=True)
        found = [measure_use(self.instrument, *pair, settings.batch_size) for pair in pairs]
        return {"use_prompts": torch.stack(found)}


def draw_replacements(ids: Int[Tensor, "N n"], prompt: int, seed: int) -> Int[Tensor, "n"]:
    """Return what a prompt's tokens are replaced by: the tokens of the prompt before it, shuffled.

    The first prompt's are of the second; a single prompt's are its own. They do not depend on the number of prompts.
    """
    other = prompt - 1 if prompt else min(1, len(ids) - 1)
    return ids[other][torch.from_numpy(np.random.default_rng([seed, prompt]).permutation(ids.shape[1]))]


@torch.no_grad()
def measure_use(
    instrument: Instrument, ids: Int[Tensor, "n"], others: Int[Tensor, "n"], together: int = 8
) -> Float[Tensor, "n"]:
    """Return the total variation of the next token's distribution when each token in turn is replaced."""
    own = instrument.logits(instrument.embeddings(ids[None])).softmax(-1, dtype=torch.float32)
    found = torch.zeros(len(ids), dtype=torch.float64)
    for places in torch.arange(len(ids)).split(together):
        changed = ids.repeat(len(places), 1)
        changed[torch.arange(len(places)), places] = others[places]
        p = instrument.logits(instrument.embeddings(changed)).softmax(-1, dtype=torch.float32)
        found[places] = (p - own).abs().sum(-1).double().cpu() / 2
    return found
