"""Networks with designed position biases, trained and untrained: what they listen to, and what was promised of it.

Untrained, one body has the family's own initialisation (``default``) or weights of standard deviation 1/√D (``unit``).
It is measured with every bias of :data:`BIASES`, the logarithmic and the flat one being those that theory gives for the
mixing of the body without biases; and with designs for the law of untrained networks, which know the gains of its
attentions alone, its gates too, or what is read of the networks of the design before: a design changes what its
networks do. Those are measured as they are and with queries of zero, so that nothing but positions tells what attention
listens to.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias import errors
from posbias.design import Description
from posbias.measure.branches import Branches, read_branches
from posbias.measure.instrument import Instrument
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.rollout.logits import alibi_slopes
from posbias.rollout.structured import biased_kernels
from posbias.rollout.untrained import untrained_profile
from posbias.settings import Settings
from studies.design.gains import even_gains, mean_gains
from studies.design.search import Task, design
from studies.sizes import Untrained
from studies.summaries import shave, summarise
from studies.untrained_profiles import MEANING, PROBED, SEEDS, of_seeds, read_network

PLACES = 16
"""Equal parts of a prompt whose losses are kept."""
READ = ("mixing", "influence", "kernels")
"""What is measured of trained networks: content logits are not."""
SQUARES = 512
"""Most tokens for which the law of squares is computed, at O(n³) for each head."""
KEPT = ("influence_prompts", "rollout", "lambda_frobenius", "attention_received", "document", "loss_places")
"""What is kept of trained networks, and of untrained ones."""
KEPT_UNTRAINED = ("influence_prompts", "profile", "lambda_frobenius", "branch_gain", "step_gain")
BIASES = ("none", "alibi", "log", "flat", "mixed")
STEEP = 0.5
"""Slope of local heads in logits a token: the steepest of the rule for 8 heads."""
LEAST = 0.05
"""Total mixing that flat biases are made for at least."""
DIGITS = 3
"""Digits of an exponent and of a mixing in a description."""
DESIGNS = ("gains", "gates", "again")
"""Designs by what they know: gains of attentions, gates too, and both as they are in the networks of the second."""
CONTENTS = ("as drawn", "none")
"""Networks as they are, and with queries of zero."""
LOCAL = 4
"""One head in so many stays local."""
MEANING_GATED = {
    "promise": "profile of the design under the law of untrained networks with the gains that it was made with",
    "influence_prompts": "‖∂p/∂embedding‖ for each seed and prompt, its squares summing to 1; rounded to 10 bits",
    "own": "the law of untrained networks with all that is read of the network itself, for each seed",
}


def measure_designed(settings: Settings) -> xr.Dataset:
    """Measure a trained model, and keep the summary with ``loss_places`` (prompt, place) in nats a token."""
    squares = ("branches",) if settings.length <= SQUARES else ()
    study = Session(replace(settings, quantities=(*READ, *squares)))
    losses = np.concatenate([place_losses(study.instrument.model, ids) for _, ids in study.batches()])
    kept = (("prompt", "place"), shave(losses.astype(np.float32)), {"long_name": "mean loss by place, nats a token"})
    documents = ("prompt", study.prompts.origins.astype(np.int32), {"long_name": "where each prompt is from"})
    return summarise(measure(study.settings, study.prompts)).assign(loss_places=kept, document=documents)[list(KEPT)]


@torch.no_grad()
def place_losses(model: nn.Module, ids: Int[Tensor, "N n"], places: int = PLACES) -> Float[np.ndarray, "N places"]:
    """Return the mean loss of each part of each prompt in nats a token, NaN for parts without; the first has none."""
    ids = ids.to(next(model.parameters()).device)
    logits = model(ids, use_cache=False).logits[:, :-1].float()
    losses = nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none").double().cpu().numpy()
    n = ids.shape[1]
    which = np.arange(1, n) * places // n
    counts = np.bincount(which, minlength=places)
    sums = np.stack([np.bincount(which, row, places) for row in losses])
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def untrained_bodies(settings: Settings, init: str, seeds: int) -> list[Settings]:
    """Return the settings of an untrained body for each seed, of the weights and of the prompts."""
    if not isinstance(settings.source, Untrained):
        raise errors.invalid("source", "an untrained network", settings.source.model)
    spread = None if init == "default" else float(settings.source.config().hidden_size) ** -0.5
    return [
        replace(settings, source=replace(settings.source, seed=seed, spread=spread), seed=seed) for seed in range(seeds)
    ]


def biased(settings: Settings, description: Any) -> Session:
    """Return an untrained body with position biases, with its prompts."""
    return Session(replace(settings, source=replace(settings.source, position_bias=description)))  # type: ignore[call-arg]


def designed_biases(tau: float, heads: int) -> dict[str, Any]:
    """Return the descriptions of :data:`BIASES` for a body of total mixing τ, by name.

    ``log`` has α = τ - 1; ``flat`` the τ of the body; in ``mixed`` half of the heads are steep ALiBi, so that half of
    the hops are local, and half are flat with τ/2.

    Source: ours; the chapter on designing the prior.

    >>> designed_biases(2.4, 2)["log"]
    {'kind': 'log', 'alpha': 1.4}
    """
    flat, half = (round(max(x, LEAST), DIGITS) for x in (tau, tau / 2))
    local = {"kind": "alibi", "slope": STEEP}
    return {
        "none": {"kind": "none"},
        "alibi": [{"kind": "alibi", "slope": float(m)} for m in alibi_slopes(heads)],
        "log": {"kind": "log", "alpha": round(tau - 1, DIGITS)},
        "flat": {"kind": "flat", "tau": flat},
        "mixed": [local] * (heads // 2) + [{"kind": "flat", "tau": half}] * (heads - heads // 2),
    }


def measure_designs(settings: Settings, init: str, *, seeds: int = SEEDS) -> xr.Dataset:
    """Measure an untrained body with every bias of :data:`BIASES`, and compute what both laws predict."""
    networks = untrained_bodies(settings, init, seeds)

    def over_seeds(description: Any) -> xr.Dataset:
        return xr.concat([read_network(biased(x, description))[list(KEPT_UNTRAINED)] for x in networks], "seed")

    plain = over_seeds({"kind": "none"})
    tau = float(plain["lambda_frobenius"].sum("layer").mean())
    descriptions = designed_biases(tau, int(networks[0].source.config().num_attention_heads))
    found = [plain, *(over_seeds(descriptions[name]) for name in BIASES[1:])]
    out = xr.concat(found, "bias").astype(np.float32).assign_coords(bias=list(BIASES))
    about = {"init": init, "tau": tau, "position_biases": json.dumps(descriptions)}
    return of_seeds(out, Session(networks[-1]), seeds, MEANING).assign_attrs(about)


def measure_gated(settings: Settings, init: str, *, seeds: int = SEEDS) -> xr.Dataset:
    """Design for an even profile of an untrained body, build networks of the designs, and measure them."""
    networks = untrained_bodies(settings, init, seeds)
    n, H = settings.length, int(networks[0].source.config().num_attention_heads)
    plain = mean_gains([_read(biased(x, {"kind": "none"})) for x in networks])
    known = {"gains": even_gains(np.sqrt((plain.attention**2).mean(1))), "gates": plain}
    found, descriptions = [], {}
    for name in DESIGNS:
        task = Task(np.full(n, 1 / n), known[name], H, H // LOCAL)
        descriptions[name] = made = design(task)
        measured = [[_measured(x, made, content) for x in networks] for content in CONTENTS]
        if name == "gates":
            known["again"] = mean_gains([branches for _, branches in measured[0]])
        influence = np.array([[x for x, _ in row] for row in measured])
        laws = np.array([[own_law(branches, made, n) for _, branches in row] for row in measured])
        found.append(xr.Dataset({
            "promise": ("position", task.profile(made)),
            "influence_prompts": (("content", "seed", "prompt", "position"), influence),
            "own": (("content", "seed", "position"), laws),
        }))  # fmt: skip
    out = xr.concat(found, "design").astype(np.float32)
    out = of_seeds(out, Session(networks[-1]), seeds, MEANING_GATED).assign_coords(
        design=[*DESIGNS], content=[*CONTENTS]
    )
    return out.assign_attrs(init=init, position_biases=json.dumps(descriptions))


def own_law(branches: Branches, description: Description, n: int) -> Float[np.ndarray, "n"]:
    """Return the profile of the law of untrained networks with all that is read of one."""
    T, H = branches.branch_gain.shape
    return untrained_profile(
        biased_kernels(T, description, H=H),
        branches.branch_gain,
        n,
        scales=branches.branch_scale,
        outputs=branches.output_scale,
        steps=branches.step_gain,
        parallel=branches.parallel,
    )


def quieten(instrument: Instrument) -> None:
    """Set the queries of all layers to zero: attention listens by positions alone."""
    for attention in instrument.attentions:
        for k, projection in enumerate(instrument.family.projections_of(attention)):
            weight: Any = projection.weight
            axis = 1 if type(projection).__name__ == "Conv1D" else 0
            queries = torch.from_numpy(instrument.family.columns(attention, k, weight.shape[axis]) == "q")
            with torch.no_grad():
                weight.mul_((~queries).to(weight) if axis else (~queries).to(weight)[:, None])
                if getattr(projection, "bias", None) is not None:
                    projection.bias.mul_((~queries).to(weight))  # type: ignore[union-attr, operator]


def _read(study: Session) -> Branches:
    return read_branches(study.instrument, study.ids[:PROBED])


def _measured(settings: Settings, description: Description, content: str) -> tuple[np.ndarray, Branches]:
    """Return the influence on each prompt of a network of a design, its squares summing to 1, and its branches."""
    study = biased(settings, description)
    if content == "none":
        quieten(study.instrument)
    influence = np.concatenate([study.instrument.measure(ids).influence.numpy() for _, ids in study.batches()])
    sizes = np.linalg.norm(influence.astype(np.float64), axis=1, keepdims=True)
    return shave((influence / sizes).astype(np.float32)), _read(study)
