"""Reference models: small decoders of real architectures, trained on texts that every Python carries.

:mod:`~posbias.reference.texts` collects the texts, :mod:`~posbias.reference.tokens` turns them into token ids,
:mod:`~posbias.reference.models` is the table of models, and :mod:`~posbias.reference.training` trains them. The
trained models are found, or fetched, by :mod:`posbias.shipped`.
"""
