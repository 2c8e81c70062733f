"""Uncertainty: resampled units, coverage of intervals, many comparisons at once, and the power of a check.

:mod:`~posbias.statistics.resampling` draws units (prompts, documents, seeds, architectures) with replacement,
:mod:`~posbias.statistics.coverage` says how often an interval contains the truth,
:mod:`~posbias.statistics.multiplicity` controls errors over a family of comparisons, and
:mod:`~posbias.statistics.power` counts how often a check notices what it should reject.
"""
