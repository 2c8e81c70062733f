"""Measurement: one forward and one backward of a model yield everything the theory is compared with.

Models go through :mod:`~posbias.models.families` (where things are), :mod:`~posbias.measure.instrument` (what is
seen in a batch) and :mod:`~posbias.measure.traces` (what is kept of it) into one labelled file
(:mod:`~posbias.measure.results`), from which :mod:`posbias.predict` makes predictions. What a chapter asks of
models beyond that is in ``studies``, a folder for each question.

Torch is imported here, in ``models``, ``explain`` and ``lookup``; datasets here alone.
"""
