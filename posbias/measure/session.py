"""One model on one set of prompts: what is to be measured, checked as far as can be without the weights."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from posbias import errors
from posbias.conditions import FIELD, ChangedRun, read_condition
from posbias.measure.check import check_instrument
from posbias.measure.corpus import Prompts, make_prompts, start_tokens
from posbias.measure.instrument import Instrument
from posbias.measure.plain import PlainInstrument
from posbias.models.families import Family, family_of, row_of
from posbias.models.loading import DTYPES, check_attention, check_fits, last_part, special_tokens
from posbias.models.opening import Vocabulary
from posbias.models.weights import check_weights_fit, find_device, let_gradients_pass
from posbias.provenance import versions
from posbias.settings import ALONE, ALWAYS, QUANTITIES, Settings, settings_of


class Session:
    """Hold settings and prompts, cut as the settings say unless they are given; what cannot be measured is refused."""

    def __init__(self, settings: Settings, prompts: Prompts | None = None) -> None:
        check_settings(settings)
        self.settings, self.source = settings, settings.source
        self.condition = condition_of(settings)
        self.prompts = cut_prompts(settings) if prompts is None else prompts

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return self.source.config()

    @property
    def family(self) -> Family | None:
        """The row of the model's family, None where there is none and influence alone can be measured."""
        return row_of(self.config)

    @property
    def quantities(self) -> tuple[str, ...]:
        """What is measured."""
        return measurable(self.config, self.settings.quantities)

    @property
    def tokenizer(self) -> Any:
        """The tokenizer."""
        return self.source.load_tokenizer()

    @cached_property
    def instrument(self) -> Instrument:
        """The instrument on the model's weights, which are read unless they were."""
        model = self.source.load_model(self.dtype, str(self.place), self.settings.device_map, self.attention)
        let_gradients_pass(model)
        return PlainInstrument(model) if self.family is None else Instrument(model)

    def check_instrument(self) -> str:
        """Return how far the instrument is from the model on the first prompt, as JSON; too far is refused.

        A model in 16 bits that is not loaded yet is loaded in 32 for it if there is room: there is more to see.
        """
        source, wide = self.source, torch.float32
        unread = source.can_read_again and not source.has_weights() and self.settings.device_map is None
        other = None
        if self.dtype.itemsize < 4 and unread and self.family is not None:
            with suppress(ValueError):  # of weights that do not fit
                check_weights_fit(self.config, wide, self.place)
                other = Instrument(source.read_model(wide, str(self.place), None, self.attention))
        instrument = other or self.instrument
        with self.condition.changed(instrument.model, None):
            return check_instrument(instrument, self.ids[0])

    @property
    def place(self) -> torch.device:
        """The device."""
        return find_device(self.settings.device)

    @property
    def precision(self) -> str:
        """The name of the number format."""
        return self.settings.dtype or ("float32" if self.place.type == "cpu" else "bfloat16")

    @property
    def dtype(self) -> torch.dtype:
        """Number format of the weights."""
        return DTYPES[self.precision]

    @property
    def attention(self) -> str:
        """How attention is computed: ``eager`` or ``sdpa``."""
        return attention_of(self.settings)

    @property
    def matrices(self) -> bool:
        """Whether matrices of all pairs of tokens are kept."""
        return self.settings.length <= self.settings.kernel_size

    def prompt_arrays(self) -> dict[str, np.ndarray]:
        """Return where each prompt comes from, and its tokens if they are to be kept."""
        tokens = {"tokens": self.prompts.ids.astype(np.int32)} if self.settings.tokens else {}
        return {"document": self.prompts.origins, **tokens}

    @property
    def ids(self) -> Int[Tensor, "N n"]:
        """Token ids of the prompts."""
        return torch.from_numpy(self.prompts.ids)

    def batches(self) -> Iterator[tuple[slice, Int[Tensor, "B n"]]]:
        """Yield which prompts a batch holds, and their ids."""
        start = 0
        for ids in self.ids.split(self.settings.batch_size):
            yield slice(start, start + len(ids)), ids
            start += len(ids)

    def provenance(self) -> dict[str, Any]:
        """Return where the numbers come from: the settings that files keep, as they were resolved, and the model."""
        settings, config, source = self.settings, self.config, self.source
        kept = {name: getattr(settings, name) for name, one in settings_of(Settings).items() if one.metadata["kept"]}
        if "ladder" not in self.quantities:
            del kept["ladder_prompts"]
        kept = {name: value for name, value in kept.items() if value is not None}
        if settings.condition is not None:
            kept["condition"] = self.condition.resolved(settings.condition, config)
        if self.condition.profile:
            kept["profile"] = self.condition.profile
        tokenizer = source.find_tokenizer()
        return kept | {
            "model": source.name(),
            "revision": source.version(),
            "architecture": config.model_type,
            "dataset": last_part(settings.corpus.dataset) if settings.rule != "random" else "random tokens",
            "rule": settings.rule + (f", {settings.per_document} a document" if settings.rule == "cut" else ""),
            "dtype": self.precision,
            "device": settings.device_map or str(self.place.type),
            "tokenizer": "none" if tokenizer is None else last_part(tokenizer),
            "special_tokens": str(settings.special_tokens and not isinstance(self.tokenizer, Vocabulary)),
            "prompts_sha256": self.prompts.sha256,
            "quantities": ",".join(self.quantities),
            "attention": self.attention,
            **({} if self.family is None else of_row(config)),
            **source.about(),
            **versions("torch", "transformers"),
        }


def check_settings(settings: Settings) -> None:
    """Raise ValueError for settings out of range, and for what does not fit the model, whose weights are not read."""
    config = settings.source.config()
    quantities = measurable(config, settings.quantities)
    if {"logits", "heads"} & {*quantities} and settings.length > settings.kernel_size:
        expected = f"{settings.length} or more, all tokens, for matrices of each head"
        raise errors.invalid("kernel_size", expected, settings.kernel_size)
    find_device(settings.device)
    check_attention(config, attention_of(settings))
    check_fits(config, settings.source.load_tokenizer(), settings.length)
    condition_of(settings)


def condition_of(settings: Settings) -> ChangedRun:
    """Return what a measurement changes, nothing unless asked for, or raise ValueError for what it cannot change."""
    if settings.condition is None:
        return ChangedRun()
    name, condition = read_condition(settings.condition)
    if condition.changes not in ("model", "tokens"):
        raise errors.invalid(FIELD, "one that changes the model or its tokens, for a measurement", name)
    condition.check(settings.source.config())
    return condition  # type: ignore[no-any-return]


def measurable(config: Any, asked: tuple[str, ...]) -> tuple[str, ...]:
    """Return what is measured of a model: with a row mixing in any case; without one influence may be asked for."""
    if row_of(config) is not None:
        return tuple(name for name in QUANTITIES if name in {*ALWAYS, *asked})
    if asked != ALONE:
        family_of(config)  # raises
    return asked


def attention_of(settings: Settings) -> str:
    """Return how attention is computed: as the settings say, or fused where the family has it."""
    if settings.attention is not None:
        return settings.attention
    config = settings.source.config()
    row = row_of(config)
    return "sdpa" if row is not None and row.is_fused(config) else "eager"


def cut_prompts(settings: Settings) -> Prompts:
    """Return the prompts that the settings describe, their tokens as the condition orders them."""
    tokenizer = settings.source.load_tokenizer()
    found = make_prompts(
        settings.corpus,
        tokenizer,
        settings.prompts,
        settings.length,
        rule=settings.rule,
        seed=settings.seed,
        per_document=settings.per_document,
        special_tokens=settings.special_tokens,
        excluded=special_tokens(settings.source.config()),
    )
    front = len(start_tokens(tokenizer)) if settings.special_tokens else 0
    return replace(found, ids=condition_of(settings).reorder(found.ids, settings.seed, front))


def of_row(config: Any) -> dict[str, Any]:
    """Return what is known of a model whose family has a row; ``head_dim`` is the size of queries and keys."""
    sizes = (getattr(config, name, None) for name in ("qk_head_dim", "head_dim"))  # DeepSeek's head_dim is a part
    head_dim = next(filter(None, sizes), None) or config.hidden_size // config.num_attention_heads
    return {"head_dim": head_dim, "position": family_of(config).position_of(config)}
