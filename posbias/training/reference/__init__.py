"""Reference models: small decoders of real architectures, trained on texts that come with every Python.

:mod:`~posbias.training.reference.texts` collects the texts, :mod:`~posbias.training.reference.tokens` turns them into
token ids, :mod:`~posbias.training.reference.models` is the table of models, and
:mod:`~posbias.training.reference.pretraining` trains them. The trained models are found, or fetched, by
:mod:`posbias.shipped`.
"""
