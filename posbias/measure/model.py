"""The front door: a model that was opened, and what measuring it gives."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from posbias import errors
from posbias.measure.corpus import Corpus, chosen_corpus
from posbias.measure.measurement import Measurement, extra
from posbias.measure.opening import check_subject
from posbias.measure.settings import Settings, check_settings, quantities_of, settings_of
from posbias.shipped import PREFIX

if TYPE_CHECKING:
    from posbias.measure import loading


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """Name a model that can be measured; :func:`open` makes one. Its weights are read, or drawn, when it is measured.

    Parameters
    ----------
    source
        The model, its tokenizer, and what they are allowed to do; or the untrained network.
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
        dataset: str | PathLike[str] | None = None,
        *,
        bias: Any = None,
        **settings: Any,
    ) -> Measurement:
        """Measure mixing, attention, content and input-token influence on prompts, and return the measurement.

        Parameters
        ----------
        prompts, length
            How many prompts, at least 1, of how many tokens, at least 2.
        dataset
            ``builtin`` (documentation and code that come with the package), ``fineweb-edu``, ``dclm`` or ``wikipedia``
            (streamed from the hub), or a path: a text file, a folder of .txt files, .jsonl, .csv or .parquet.
            ``builtin`` unless given; random tokens for an untrained network.
        bias
            A position bias to add to the model's logits while it is measured: one for all heads such as
            ``{"kind": "log", "alpha": 1.4}``, a list for heads, or a list of lists for layers.
        settings
            Any other setting by the name that it has as an option of ``posbias measure``: ``batch_size``, ``dtype``,
            ``device``, ``device_map``, ``rule``, ``seed`` (of the prompts alone), ``per_document``, ``special_tokens``,
            ``separator``, ``field``, ``quantities``, ``kernel_size``, ``pairings``, ``attention``, ``tokens``.

        Raises
        ------
        ValueError
            For whatever is not as it should be, with the field, what was expected and what came.
        OSError
            If a file or the hub cannot be read.
        """
        from posbias.measure.run import measured
        from posbias.measure.untrained import Untrained

        if not isinstance(dataset, str | PathLike | None):
            raise errors.invalid("dataset", "builtin, the name of a data set, or a path", repr(dataset))
        asked = {"prompts": prompts, "length": length, **settings}
        if dataset is not None:
            asked["dataset"] = fspath(dataset)
        chosen = chosen_settings(self.source, asked, untrained=isinstance(self.source, Untrained))
        return Measurement(measured(chosen, progress=sys.stderr.isatty(), bias=bias))

    def __repr__(self) -> str:
        from posbias.measure.results import position_words
        from posbias.measure.untrained import Untrained
        from posbias.networks.description import position_kind
        from posbias.networks.families import family_of

        family = family_of(self.config)
        how = position_words(position_kind(family.position_of(self.config), self.config))
        longest = f"at most {self.longest} tokens" if self.longest else "prompts of any length"
        shape = f"{self.layers} layers × {self.heads} heads, {how}, {longest}"
        weights, name = "read", self.source.model
        if isinstance(self.source, Untrained):
            weights, name = f"drawn with seed {self.source.seed}", self.source.name()
        return f"{name.removeprefix(PREFIX)}: {family.name}, {shape}; weights are {weights} by .measure()"


def chosen_settings(source: loading.Source | None, asked: dict[str, Any], *, untrained: bool) -> Settings:
    """Return the settings that a user chose by name, the others as they are unless given; nothing heavy is loaded."""
    known = settings_of(Corpus, Settings)
    if unknown := sorted(set(asked) - set(known)):
        raise errors.invalid("measure", f"settings among {', '.join(known)}", ", ".join(unknown))
    check_settings(asked)
    corpus, rule = chosen_corpus(asked, untrained=untrained)
    of_run = {name: asked[name] for name in settings_of(Settings) if name in asked}
    if "quantities" in asked:
        of_run["quantities"] = quantities_of(asked["quantities"])
    return Settings(source, corpus, **{"attention": None, **of_run, "rule": rule})  # type: ignore[arg-type]


def open(
    model: str | PathLike[str] | None = None,
    *,
    untrained: str | PathLike[str] | None = None,
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
    untrained
        In place of a model, an untrained network: a config.json or a directory with one, of which nothing else is read,
        or a name of :data:`~posbias.measure.sizes.SIZES` such as ``gpt2``. No weights are read, nothing is fetched.
    seed
        Of the weights that are drawn for ``untrained``; :meth:`Model.measure` has the seed of the prompts.
    position_bias
        Biases that take the place of the positions of ``untrained``: one for all heads such as
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
        If there is no such model, or none of a family that can be measured; if both ``model`` and ``untrained`` are
        given, or neither.
    ModuleNotFoundError
        If the extra ``measure`` is not installed.
    """
    for field, value in (("model", model), ("untrained", untrained)):
        if not isinstance(value, str | PathLike | None):
            raise errors.invalid(field, "a path or a name", repr(value))
    opening: dict[str, Any] = {"model": "" if model is None else fspath(model), "revision": revision}
    opening |= {"tokenizer": tokenizer, "trust_remote_code": trust_remote_code, "allow_pickle": allow_pickle}
    opening |= {"strip_prefix": strip_prefix}
    source = chosen_source(opening, None if untrained is None else fspath(untrained), seed, position_bias)
    return Model(source, source.config())


def chosen_source(
    opening: dict[str, Any], untrained: str | None = None, seed: int = 0, position_bias: Any = None
) -> loading.Source:
    """Return the source of a model, or of the untrained network: one of both is named."""
    model, of_weights = opening["model"], {name: x for name, x in opening.items() if name not in ("model", "tokenizer")}
    check_subject(model, untrained, seed, **of_weights)
    if position_bias is not None and untrained is None:
        raise errors.invalid("position_bias", "untrained, for a network that is built with it", f"model {model}")
    with extra("measure"):
        from posbias.measure.loading import Source
        from posbias.measure.untrained import Untrained
    if untrained is None:
        return Source(**opening)
    return Untrained(untrained, tokenizer=opening["tokenizer"], seed=seed, position_bias=position_bias)
