"""Reference models: small decoders of real architectures, trained on texts that every Python carries.

:mod:`~posbias.reference.texts` collects the texts, :mod:`~posbias.reference.tokens` turns them into token ids,
:mod:`~posbias.reference.models` is the table of models, and :mod:`~posbias.reference.training` trains them. What
came out ships with the package: :mod:`posbias.shipped`.
"""
