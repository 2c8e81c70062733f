"""Position bias in transformers: residual-aware attention rollout, its theory, and its checks.

A model is opened and measured, the measurement predicts by rollout, and profiles are compared::

    m = posbias.open("reference/bloom-8").measure(prompts=200, length=256)
    posbias.compare(m.rollout("layer-shares"), m.influence)

Without a model, masks and logits make kernels, kernels make rollouts, rollouts make profiles:

>>> import posbias
>>> kernels = posbias.structured_kernels(T=12, slope=posbias.alibi_slopes(8))
>>> p = posbias.influence_profile(kernels, posbias.schedules.constant(12, 0.1), n=64)
>>> p.shape, round(posbias.u_shape(p).depth, 2)
((64,), 0.56)

Nothing is loaded before a name is asked for (PEP 562): neither numpy nor torch by ``import posbias`` itself, torch and
transformers only when a model is opened. Figures are in :mod:`posbias.plotting`, the pipeline in :mod:`bookkit`.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posbias.comparison.distances import normalised_wasserstein, spearman
    from posbias.comparison.pairs import compare
    from posbias.lookup.file import load_lookup as load_lookup
    from posbias.measure.measurement import load
    from posbias.measure.model import open as open
    from posbias.rollout import masks, schedules
    from posbias.rollout.influence import influence_history, influence_profile, rollout_matrix
    from posbias.rollout.kernels import attention_kernel, mix_heads
    from posbias.rollout.labelled import Profile
    from posbias.rollout.logits import alibi_slopes, geometric_slopes, position_logits
    from posbias.rollout.order import dominates, prefix_masses, stochastic_monotonicity
    from posbias.rollout.profiles import mean_position, u_shape
    from posbias.rollout.structured import StructuredKernels, structured_kernels

__version__ = "0.2.0"

# tqdm says it, with a path of the machine, when transformers is loaded in a notebook without widgets; ours need none
warnings.filterwarnings("ignore", message="IProgress not found")

_NAMES = {
    "comparison.distances": ("normalised_wasserstein", "spearman"),
    "comparison.pairs": ("compare",),
    "lookup.file": ("load_lookup",),
    "measure.model": ("open",),
    "measure.measurement": ("load",),
    "rollout.influence": ("influence_history", "influence_profile", "rollout_matrix"),
    "rollout.kernels": ("attention_kernel", "mix_heads"),
    "rollout.labelled": ("Profile",),
    "rollout.logits": ("alibi_slopes", "geometric_slopes", "position_logits"),
    "rollout.order": ("dominates", "prefix_masses", "stochastic_monotonicity"),
    "rollout.profiles": ("mean_position", "u_shape"),
    "rollout.structured": ("StructuredKernels", "structured_kernels"),
}  # fmt: skip
"""Module → the names of the front page that it has."""
_HOME = {name: module for module, names in _NAMES.items() for name in names}
_MODULES = ("masks", "schedules")
"""Modules of ``posbias.rollout`` that go by their own name."""

# ``open`` would take the place of the builtin, ``load_lookup`` brings torch
__all__ = sorted({*_HOME, *_MODULES} - {"open", "load_lookup"})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = import_module(f"posbias.rollout.{name}")
    elif name in _HOME:
        value = getattr(import_module(f"posbias.{_HOME[name]}"), name)
    else:
        raise AttributeError(f"module 'posbias' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})
