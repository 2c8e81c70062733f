"""Position bias in transformers: residual-aware attention rollout, its theory, and its checks.

Masks and logits make kernels, kernels make rollouts, rollouts make profiles, profiles are compared:

>>> import posbias
>>> kernels = posbias.structured_kernels(T=12, slope=posbias.alibi_slopes(8))
>>> p = posbias.influence_profile(kernels, posbias.schedules.constant(12, 0.1), n=64)
>>> p.shape, round(posbias.u_shape(p).depth, 2)
((64,), 0.56)

Nothing here imports torch or matplotlib; figures are in :mod:`posbias.plotting`, the pipeline in
:mod:`posbias.book`.
"""

from posbias.comparison.distances import mean_identity, normalised_wasserstein, spearman
from posbias.rollout import masks, schedules
from posbias.rollout.influence import influence_by_hops, influence_history, influence_profile, rollout_matrix
from posbias.rollout.kernels import attention_kernel, mix_heads, residual_kernel
from posbias.rollout.logits import alibi_slopes, content_logits, geometric_slopes, position_logits
from posbias.rollout.order import (
    dominates,
    is_monotone,
    monotone_rearrangement,
    prefix_masses,
    stochastic_monotonicity,
)
from posbias.rollout.profiles import mean_position, u_shape
from posbias.rollout.structured import StructuredKernels, structured_kernels

__version__ = "0.1.0"

__all__ = [
    "StructuredKernels",
    "alibi_slopes",
    "attention_kernel",
    "content_logits",
    "dominates",
    "geometric_slopes",
    "influence_by_hops",
    "influence_history",
    "influence_profile",
    "is_monotone",
    "masks",
    "mean_identity",
    "mean_position",
    "mix_heads",
    "monotone_rearrangement",
    "normalised_wasserstein",
    "position_logits",
    "prefix_masses",
    "residual_kernel",
    "rollout_matrix",
    "schedules",
    "spearman",
    "stochastic_monotonicity",
    "structured_kernels",
    "u_shape",
]
