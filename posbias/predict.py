"""Predictions of the influence profile from what was measured: one function each, in one registry.

A predictor is a function of a measurement. Its name and label, and what has to be measured for it, stand above it; what
it assumes is the first line of its docstring. The variants of :meth:`~posbias.measure.measurement.Measurement.rollout`
and of ``posbias rollout --variant``, the rows of a report and of a comparison, and the advice on what to measure are
made of the registry.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from posbias import errors
from posbias.comparison.fits import power_fit
from posbias.measured_kernels import LAW, law, measured_kernels, position_kernels, self_preferring_kernels
from posbias.rollout.influence import influence_profile
from posbias.rollout.untrained import aligned_profile, untrained_profile
from posbias.settings import ATTENDED, MATRICES

Prediction = Float[np.ndarray, "n"]

HELD: dict[str, set[str]] = {
    "mixing": {"lambda_frobenius", "slopes"},
    "kernels": {"attention"},
    "content": {"content_diagonal", "content_offdiagonal"},
    "branches": {*LAW.values(), "step_gain"},
    "ladder": {"ladder_prompts"},
}
"""Variables by which a file shows a quantity, unless a predictor says what it reads; one of that name for others."""


@dataclass(frozen=True)
class Predictor:
    """Hold a function that predicts the profile, and what is said of it; ``former`` are names of earlier editions."""

    name: str
    label: str
    needs: frozenset[str]
    function: Callable[[xr.Dataset], Prediction]
    former: tuple[str, ...]
    reads: frozenset[str]

    @property
    def meaning(self) -> str:
        """What it assumes: the first line of the function's docstring."""
        return str(self.function.__doc__).strip().splitlines()[0]

    @property
    def kept_as(self) -> str:
        """Its name in files, which is the former one where there is one."""
        return self.former[0] if self.former else self.name

    def is_in(self, results: xr.Dataset) -> bool:
        """Return whether a measurement has what this is made of."""
        there = {str(name) for name in results.variables}
        return (self.reads or set().union(*(HELD.get(name, {name}) for name in self.needs))) <= there


PREDICTORS: dict[str, Predictor] = {}
"""Every predictor by its name."""
NAMES: dict[str, str] = {}
"""Every name that is understood → the predictor's."""


def predictor(
    name: str, *, needs: Collection[str], label: str, former: Sequence[str] = (), reads: Collection[str] = ()
) -> Callable[[Callable[..., Prediction]], Callable[..., Prediction]]:
    """Register a function of a measurement.

    ``needs`` are quantities to measure, none for a yardstick; ``reads`` are variables, where it reads no others.
    """

    def register(function: Callable[..., Prediction]) -> Callable[..., Prediction]:
        one = Predictor(name, label, frozenset(needs), function, tuple(former), frozenset(reads))
        PREDICTORS[name] = one
        NAMES.update(dict.fromkeys((name, *former), name))
        return function

    return register


def find(name: Any) -> Predictor:
    """Return the predictor of a name, which may be a former one, or raise ValueError."""
    if not isinstance(name, str) or name not in NAMES:
        raise errors.invalid("variant", f"one of {', '.join(PREDICTORS)}", repr(name))
    return PREDICTORS[NAMES[name]]


def available(results: xr.Dataset) -> tuple[str, ...]:
    """Return what a measurement, or the summary of one, can be predicted with, yardsticks aside."""
    kept = _kept(results)
    return tuple(one.name for one in PREDICTORS.values() if one.needs and (one.kept_as in kept or one.is_in(results)))


def yardsticks() -> tuple[str, ...]:
    """Return the predictors that need nothing of a model."""
    return tuple(one.name for one in PREDICTORS.values() if not one.needs)


def predict(results: xr.Dataset, name: str) -> Prediction:
    """Return a profile that a measurement predicts, or the summary of one, which has kept it; by a predictor's name."""
    one = find(name)
    if one.needs and one.name not in available(results):
        raise errors.invalid("variant", *_absent(results, one))
    if one.kept_as in _kept(results) and not one.needs <= {"mixing", "content"}:  # which a summary has all of
        return np.asarray(results["rollout"].sel(variant=one.kept_as).values)
    return one.function(results)


def advice(results: xr.Dataset, name: str) -> str:
    """Return why a measurement lacks a prediction: what to measure, or that this model has none of it."""
    one = find(name)
    needed = set(one.needs)
    if needed & {"mixing", *ATTENDED}:  # by positions, or as measured
        needed.add("attention")
    for quantity in needed:
        if (why := results.attrs.get(f"no_{quantity}")) is not None:
            return f"none of a model with {why}"
    asked, n = {*str(results.attrs.get("quantities")).split(",")}, int(results.attrs["length"])
    size = f"--kernel-size {n}, for matrices of all tokens"
    small = int(results.attrs.get("kernel_size", n)) < n and one.needs & MATRICES
    if one.needs <= asked and small:
        return f"needs {size}"
    beyond = ",".join(sorted(one.needs - {"influence", "mixing"}) or sorted(one.needs))
    return f"needs --quantities with {beyond}" + (f", and {size}" if small else "")


def _kept(results: xr.Dataset) -> set[str]:
    """Return what a summary has kept, by the names of files."""
    return {str(name) for name in results["variant"].values} if "rollout" in results else set()


def _absent(results: xr.Dataset, one: Predictor) -> tuple[str, str]:
    """Return what a measurement can be predicted with, and what it lacks for another."""
    there = available(results)
    if not there and "lambda_frobenius" not in results:
        return "none, of a measurement of influence alone", one.name
    why = advice(results, one.name)
    return f"one of {', '.join(there) or 'none'}, which the measurement describes", f"{one.name}: {why}"


# Rollouts: sizes, through kernels mixed with the identity


@predictor("attention-only", needs={"mixing"}, label="attention only", former=("a", "attention"))
def attention_only(results: xr.Dataset) -> Prediction:
    """Multiply the layers' attention by positions alone, without the residual stream (λ = 1)."""
    return influence_profile(position_kernels(results), np.ones(results.sizes["layer"]), results.sizes["position"])


@predictor("layer-shares", needs={"mixing"}, label="layer shares", former=("b", "residual"))
def layer_shares(results: xr.Dataset) -> Prediction:
    """Mix attention by positions alone with the residual stream, by each layer's measured share λ."""
    return influence_profile(position_kernels(results), _lambda(results), results.sizes["position"])


@predictor(
    "layer-shares-self",
    needs={"mixing", "content"},
    label="layer shares with self-preference",
    former=("c", "content"),
)
def layer_shares_self(results: xr.Dataset) -> Prediction:
    """Add to layer shares the mean content logits of each head, by which a token prefers itself to others."""
    return influence_profile(self_preferring_kernels(results), _lambda(results), results.sizes["position"])


@predictor("measured-attention", needs={"mixing", "kernels"}, label="measured attention, mean", former=("kernels",))
def measured_attention(results: xr.Dataset) -> Prediction:
    """Mix the measured mean attention of each layer with the residual stream by λ."""
    p = influence_profile(measured_kernels(results), _lambda(results))
    return _of_tokens(p) if "sink_share" in results else p


@predictor(
    "measured-attention-own",
    needs={"mixing", "kernels"},
    reads={"rollout_own"},
    label="measured attention, own",
    former=("own",),
)
def measured_attention_own(results: xr.Dataset) -> Prediction:
    """Roll out each prompt's own attention and λ, and take the mean over prompts."""
    return _mean(results["rollout_own"])


# Contributions: what a token's new state is made of


@predictor("contributions", needs={"contributions"}, label="contributions, mean")
def contributions(results: xr.Dataset) -> Prediction:
    """Multiply the layers' mean contributions: the share of each token's part in what a token becomes."""
    kernels = results["contributions"].values.astype(np.float64)
    kernels /= kernels.sum(-1, keepdims=True)  # rounded to 32 bits in a file
    return influence_profile(kernels, np.ones(len(kernels)), kernels.shape[-1])


@predictor("contributions-own", needs={"contributions"}, reads={"contributions_own"}, label="contributions, own")
def contributions_own(results: xr.Dataset) -> Prediction:
    """Multiply each prompt's own contributions, and take the mean over prompts."""
    return _mean(results["contributions_own"])


# Head gains: what the weights let through, in place of λ


@predictor("head-gains-squared", needs={"mixing", "branches"}, label="head gains, squared", former=("untrained",))
def head_gains_squared(results: xr.Dataset) -> Prediction:
    """Add the effects of different sets of layers as squares: the law of untrained networks."""
    p = untrained_profile(**law(results))
    return _of_tokens(p) if "sinks" in results else p


@predictor("head-gains-added", needs={"mixing", "branches"}, label="head gains, added")
def head_gains_added(results: xr.Dataset) -> Prediction:
    """Add the same effects as sizes, as if all pointed the same way."""
    p = aligned_profile(**law(results))
    return _of_tokens(p) if "sinks" in results else p


# The ladder: the model's own gradient through layers that are simpler


@predictor("value-maps", needs={"ladder"}, label="value maps", former=("vectors",))
def value_maps(results: xr.Dataset) -> Prediction:
    """Take the model's own value maps and steps, each from another prompt, with attention averaged over prompts."""
    return _rung(results, "vectors")


@predictor("value-maps-positional", needs={"ladder"}, label="value maps, positional attention", former=("positions",))
def value_maps_positional(results: xr.Dataset) -> Prediction:
    """Take value maps with attention from positions alone."""
    return _rung(results, "positions")


@predictor("fixed-attention", needs={"ladder"}, label="fixed attention")
def fixed_attention(results: xr.Dataset) -> Prediction:
    """Take the model's own gradient, each layer from another prompt, with attention weights held fixed."""
    return _rung(results, "fixed-attention")


@predictor("independent-layers", needs={"ladder"}, label="independent layers", former=("independent",))
def independent_layers(results: xr.Dataset) -> Prediction:
    """Take the model's own gradient, each layer from another prompt."""
    return _rung(results, "independent")


# Yardsticks: nothing of the model


@predictor("last", needs=(), label="last token")
def last_token(results: xr.Dataset) -> Prediction:
    """Give all to the last token."""
    return np.eye(results.sizes["position"])[-1]


@predictor("even", needs=(), label="equal shares")
def even(results: xr.Dataset) -> Prediction:
    """Give every token an equal share."""
    n = results.sizes["position"]
    return np.full(n, 1 / n)


@predictor("power-law", needs=(), label="power law (one fitted number)")
def power_law(results: xr.Dataset) -> Prediction:
    """Fit a power of the distance from the end, one number, to the measured curve itself."""
    p = results["influence"].values.astype(np.float64)
    return power_fit(p / p.sum())


# What several of them do


def _lambda(results: xr.Dataset) -> Float[np.ndarray, "T"]:
    """Return the mixing of each layer."""
    return results["lambda_frobenius"].values.astype(np.float64)


def _mean(rows: xr.DataArray) -> Prediction:
    """Return the mean of profiles over all that is no position, normalised; prompts without one are left out."""
    p = rows.astype(np.float64).mean([dim for dim in rows.dims if dim != "position"]).values
    return np.asarray(p / p.sum())


def _rung(results: xr.Dataset, rung: str) -> Prediction:
    """Return the mean over prompts of a rung of the ladder, by its name in files."""
    return _mean(results["ladder_prompts"].sel(rung=rung))


def _of_tokens(p: Float[np.ndarray, "states"]) -> Prediction:
    """Return the part of a profile that belongs to tokens, where the first state is the sinks."""
    return p[1:] / p[1:].sum()
