"""The front door: a model that was opened, and what measuring it gives."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias import errors
from posbias.measure.measurement import Measurement, extra
from posbias.measure.request import check_subject
from posbias.shipped import PREFIX, reference_names

if TYPE_CHECKING:
    from posbias.measure import loading


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """Name a model that can be measured; :func:`open` makes one. Its weights are read, or drawn, when it is measured.

    Parameters
    ----------
    source
        The model, its tokenizer, and what they are allowed to do; or the network at birth.
    config
        The model's configuration.
    """

    source: loading.Source
    config: Any

    @property
    def layers(self) -> int:
        """Number of layers T."""
        return int(self.config.num_hidden_layers)

    @property
    def heads(self) -> int:
        """Number of heads H of each layer."""
        return int(self.config.num_attention_heads)

    @property
    def longest(self) -> int | None:
        """The longest prompt in tokens, None if the model states none."""
        from posbias.networks.families import family_of

        return family_of(self.config).longest(self.config)

    def measure(
        self,
        prompts: int = 200,
        length: int = 256,
        corpus: str | PathLike[str] | None = None,
        *,
        batch_size: int = 8,
        dtype: str | None = None,
        device: str | None = None,
        device_map: str | None = None,
        rule: str | None = None,
        seed: int = 0,
        per_document: int = 1,
        special_tokens: bool = True,
        separator: str | None = None,
        field: str = "text",
        quantities: str | Iterable[str] = "mixing,influence,kernels,content,branches",
        kernel_size: int = 512,
        attention: str | None = None,
        bias: Any = None,
    ) -> Measurement:
        """Measure mixing, attention, content and input-token influence on prompts, and return the measurement.

        Parameters
        ----------
        prompts, length
            How many prompts, at least 1, of how many tokens, at least 2.
        corpus
            ``builtin`` (documentation and code that come with the package), ``fineweb-edu``, ``dclm`` or ``wikipedia``
            (streamed from the hub), or a path: a text file, a folder of .txt files, .jsonl or .parquet. ``builtin``
            unless given.
        batch_size
            Prompts at a time.
        dtype
            ``float32``, ``bfloat16`` or ``float16``; 32 bits on a CPU and bfloat16 on a GPU unless given.
        device, device_map
            As torch names devices, and as accelerate spreads a model; a GPU if there is one.
        rule, seed, per_document, special_tokens
            How prompts are cut, as in :func:`~posbias.measure.corpus.make_prompts`. The rule is ``first`` unless given;
            a network at birth without a corpus gets ``random`` tokens. The seed is that of the prompts alone.
        separator, field
            Where documents begin in a text file, and the column that has the text.
        quantities
            What is measured, by name: ``mixing`` and ``influence`` always; ``kernels``, ``content``, ``logits``
            (content as matrices), ``heads`` (attention of each head), ``branches`` (for the law at birth).
        kernel_size
            Most tokens of which matrices are kept whole; those of longer prompts are averaged over as many cells.
        attention
            ``eager`` or ``sdpa``; fused where the family has it unless given.
        bias
            A position bias to add to the model's logits while it is measured: one for all heads such as
            ``{"kind": "log", "alpha": 1.4}``, a list for heads, or a list of lists for layers.

        Raises
        ------
        ValueError
            For whatever is not as it should be, with the field, what was expected and what came.
        OSError
            If a file or the hub cannot be read.
        """
        from posbias.measure.corpus import BUILTIN, Corpus
        from posbias.measure.quantities import quantities_of
        from posbias.measure.run import measured
        from posbias.measure.study import Settings
        from posbias.measure.untrained import Birth

        for name, value in (("prompts", prompts), ("length", length), ("batch_size", batch_size)):
            errors.positive_integer(name, value, minimum=2 if name == "length" else 1)
        rule = rule or ("random" if isinstance(self.source, Birth) and corpus is None else "first")
        corpus = BUILTIN if corpus is None else corpus
        if not isinstance(corpus, str | PathLike):
            raise errors.invalid("corpus", "builtin, the name of a data set, or a path", repr(corpus))
        settings = Settings(
            source=self.source,
            corpus=Corpus(fspath(corpus), separator, field),
            prompts=prompts,
            length=length,
            batch_size=batch_size,
            dtype=dtype,
            device=device,
            device_map=device_map,
            rule=rule,
            seed=seed,
            per_document=per_document,
            special_tokens=special_tokens,
            quantities=quantities_of(quantities),
            kernel_size=kernel_size,
            attention=attention,
        )
        return Measurement(measured(settings, progress=sys.stderr.isatty(), bias=bias))

    def __repr__(self) -> str:
        from posbias.measure.results import position_words
        from posbias.measure.untrained import Birth
        from posbias.networks.description import position_kind
        from posbias.networks.families import family_of

        family = family_of(self.config)
        how = position_words(position_kind(family.position_of(self.config), self.config))
        longest = f"at most {self.longest} tokens" if self.longest else "prompts of any length"
        shape = f"{self.layers} layers × {self.heads} heads, {how}, {longest}"
        weights = f"drawn with seed {self.source.seed}" if isinstance(self.source, Birth) else "read"
        name = self.source.name() if isinstance(self.source, Birth) else self.source.model
        return f"{name.removeprefix(PREFIX)}: {family.name}, {shape}; weights are {weights} by .measure()"


def open(
    model: str | PathLike[str] | None = None,
    *,
    init: str | PathLike[str] | None = None,
    seed: int = 0,
    position_bias: Any = None,
    revision: str | None = None,
    tokenizer: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    strip_prefix: str = "",
) -> Model:
    """Open a model to measure it: its configuration is read and checked, its weights are not.

    Parameters
    ----------
    model
        A directory, an id on the hub, or ``reference/NAME`` for one of the ten reference models.
    init
        In place of a model, an untrained network: a config.json or a directory with one, of which nothing else is read,
        or a name of :data:`~posbias.measure.untrained.SIZES` such as ``gpt2``. No weights are read, nothing is fetched.
    seed
        Of the weights that are drawn for ``init``; :meth:`Model.measure` has the seed of the prompts.
    position_bias
        Biases that take the place of the positions of ``init``: one for all heads such as
        ``{"kind": "log", "alpha": 1.4}``, a list for heads, or a list of lists for layers. A model in a directory has
        those that its config.json describes.
    revision
        Branch, tag or commit on the hub; the default branch unless given.
    tokenizer
        Directory or id of the tokenizer; the model's own unless given.
    trust_remote_code
        Whether code that comes with the model may run.
    allow_pickle
        Whether weights that are not in safetensors may be loaded; such files can run code.
    strip_prefix
        What stands in front of the names of the weights and is left away, such as ``module.`` or ``_orig_mod.``.

    Raises
    ------
    ValueError
        If there is no such model, or none of a family that can be measured; if both ``model`` and ``init`` are given,
        or neither.
    ModuleNotFoundError
        If the extra ``measure`` is not installed.
    """
    if init is None:
        if not isinstance(model, str | PathLike) or not fspath(model):
            raise errors.invalid("model", "a directory, an id on the hub, or reference/NAME", repr(model))
        if fspath(model) in reference_names():
            raise errors.invalid("model", f"{PREFIX}{fspath(model)} for that reference model", fspath(model))
        if Path(fspath(model)).is_file():
            raise errors.invalid("model", "the directory of a model", f"a file, {fspath(model)}")
    elif not isinstance(init, str | PathLike) or not fspath(init):
        raise errors.invalid("init", "a config.json, a directory with one, or the name of a published size", repr(init))
    options: dict[str, Any] = {"tokenizer": tokenizer, "trust_remote_code": trust_remote_code}
    options |= {"allow_pickle": allow_pickle, "strip_prefix": strip_prefix}
    source = chosen_source(
        None if model is None else fspath(model),
        None if init is None else fspath(init),
        seed,
        position_bias,
        revision=revision,
        **options,
    )
    return Model(source, source.config())


def chosen_source(
    model: str | None, init: str | None, seed: int, position_bias: Any = None, **options: Any
) -> loading.Source:
    """Return the source of a model, or of a network at birth: one of both is given.

    Parameters
    ----------
    model, init
        As :func:`open` has them.
    seed, position_bias
        Of a network at birth.
    options
        The other fields of :class:`~posbias.measure.loading.Source`.

    Raises
    ------
    ValueError
        If both are given or neither, and for options that belong to weights with ``init``.
    """
    check_subject(model, init, seed)
    if position_bias is not None and init is None:
        raise errors.invalid("position_bias", "init, for a network that is built with it", f"model {model}")
    with extra("measure"):
        from posbias.measure.loading import Source
        from posbias.measure.untrained import Birth
    if model is not None:
        return Source(model, **options)
    return Birth(str(init), seed=seed, position_bias=position_bias, **options)
