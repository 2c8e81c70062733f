"""The residual mixing computed a second time, by other hooks and in double precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

import posbias
from posbias.measure.corpus import Corpus, make_prompts
from posbias.models.families import family_of
from posbias.models.loading import Source
from studies.checks import Check
from studies.published.mixing import READINGS, Mixing

NETWORK, PROMPTS, LENGTH, FEW = "bloom-12", 8, 256, 4
"""The network on which both readings are checked, prompts of the measurement, and those that are computed again."""
ALLOWED = 1e-4
"""Difference from which two readings are not the same."""

Parts = Float[np.ndarray, "layers prompts tokens features"]
Pair = tuple[Float[np.ndarray, "layers prompts"], Float[np.ndarray, "layers prompts"]]


@dataclass(frozen=True)
class Again:
    """Hold states before attention and what attention adds, and λ by the instrument in both readings."""

    states: Parts
    added: Parts
    instrument: Pair

    def agree(self, computed: Pair, prompts: Any = slice(None)) -> bool:
        """Say whether both readings are those of the instrument."""
        pairs = zip(computed, self.instrument, strict=True)
        return bool(max(abs(c - i)[:, prompts].max() for c, i in pairs) < ALLOWED)


def readings(x: Parts, a: Parts) -> Pair:
    """Return λ of each layer and prompt by norms over the sequence, and by tokens.

    >>> x, a = np.array([[[[3.0], [1.0]]]]), np.array([[[[1.0], [1.0]]]])
    >>> [round(float(found.item()), 3) for found in readings(x, a)]
    [0.309, 0.375]
    """
    state, addition = (np.linalg.norm(v, axis=-1) for v in (x, a))
    token = (addition / (state + addition)).mean(-1)
    state, addition = (np.linalg.norm(norms, axis=-1) for norms in (state, addition))
    return addition / (state + addition), token


def read_again() -> Again:
    """Run the network with hooks of this file, and measure it."""
    here = posbias.open(f"reference/{NETWORK}").measure(PROMPTS, LENGTH, batch_size=8, quantities="mixing")
    source = Source(f"reference/{NETWORK}")
    network = source.load_model(torch.float32, "cpu", None)
    family, states, outputs = family_of(network.config), [], []

    def keep_state(_: Any, args: Any, kwargs: Any) -> None:
        states.append((args or [kwargs["hidden_states"]])[0].double())

    def keep_output(_: Any, args: Any, out: Any) -> None:
        outputs.append((out[0] if isinstance(out, tuple) else out).double())

    for layer in family.layers(network):
        layer.register_forward_pre_hook(keep_state, with_kwargs=True)
        family.output_of(layer).register_forward_hook(keep_output)
    cut = make_prompts(Corpus("builtin"), source.load_tokenizer(), FEW, LENGTH)
    with torch.no_grad():
        network(torch.from_numpy(cut.ids))
    frobenius, token = (here.results[f"lambda_{name}_prompts"].values[:FEW].T for name in READINGS)
    return Again(torch.stack(states).numpy(), torch.stack(outputs).numpy(), (frobenius, token))


def layer_scaled(added: Parts, t: int, by: float = 1.01) -> Parts:
    """Return the attention outputs with those of one layer 1% larger."""
    scale = np.ones(len(added))
    scale[t] = by
    return np.asarray(added * scale[:, None, None, None])


def reading_check(seen: Mixing) -> Check:
    """Return the check that what is measured is λ as it is defined."""
    again = read_again()
    x, a = again.states, again.added
    wrong = {
        "the state after the addition": readings(x + a, a),
        "the two readings exchanged": readings(x, a)[::-1],
        "attention output of the layer before": readings(x, np.roll(a, 1, axis=0)),
    }
    broken = {}
    for what, found in wrong.items():
        broken[what] = [again.agree(found, k) for k in range(FEW)]  # type: ignore[arg-type]
    scaled = [again.agree(readings(x, layer_scaled(a, t))) for t in range(len(a))]
    broken["attention output 1% too large, in one layer"] = scaled
    tau = seen.totals["tau"]
    return Check(
        "RA-eq1", "",
        "A check of the instrument: both readings of $\\lambda_t$, computed again by other means, are those measured.",
        seen.inside and again.agree(readings(x, a)),
        f"measured on {len(tau)} models: Σλ from {tau.min():.2f} to {tau.max():.2f} (Frobenius); the reading by tokens "
        f"moves it by {seen.by_reading.abs().max():.0%} at most",
        "a λ is not between 0 and 1, or a reading computed a second time, by other hooks and in double precision, "
        f"differs by {ALLOWED:g} or more",
        broken, "the instrument and the hooks of this chapter disagree", {},
    )  # fmt: skip
