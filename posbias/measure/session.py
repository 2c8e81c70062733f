"""One model on one set of prompts: the model, its tokenizer, its prompts and the instrument, each opened once.

Everything is opened when it is first asked for, so that what can be refused without the model is refused before it is
loaded, and whoever reads one model on several sets of prompts loads it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from posbias import errors
from posbias.measure.check import check_instrument
from posbias.measure.corpus import Prompts, make_prompts
from posbias.measure.instrument import Instrument
from posbias.measure.plain import PlainInstrument
from posbias.models.families import Family, family_of, row_of
from posbias.models.loading import DTYPES, InMemory, check_attention, check_fits, last_part, special_tokens
from posbias.models.opening import Vocabulary
from posbias.models.weights import check_weights_fit, find_device, let_gradients_pass
from posbias.provenance import versions
from posbias.settings import ALONE, ALWAYS, QUANTITIES, Settings, settings_of


class Session:
    """Hold a model, its prompts and the instrument; a session ``like`` it shares the model and has other prompts."""

    def __init__(self, settings: Settings, like: Session | None = None) -> None:
        self.settings = settings
        self.opened: dict[str, Any] = {} if like is None else like.opened

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what is open under a name, made now if nothing is."""
        if name not in self.opened:
            self.opened[name] = make()
        return self.opened[name]

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return self._once("config", self.settings.source.config)

    @property
    def family(self) -> Family | None:
        """The row of the model's family, None where there is none and influence alone can be measured."""
        return row_of(self.config)

    @cached_property
    def quantities(self) -> tuple[str, ...]:
        """What is measured: of a model with a row mixing in any case; one without may be asked for influence alone."""
        asked = self.settings.quantities
        if self.family is None:
            if asked != ALONE:
                family_of(self.config)  # raises
            return asked
        return tuple(name for name in QUANTITIES if name in {*ALWAYS, *asked})

    @property
    def tokenizer(self) -> Any:
        """The tokenizer."""
        return self._once("tokenizer", self.settings.source.load_tokenizer)

    @cached_property
    def prompts(self) -> Prompts:
        """The prompts, which the model can take."""
        check_fits(self.config, self.tokenizer, self.settings.length)
        return self.cut()

    def cut(self) -> Prompts:
        """Return the prompts that the settings describe; a session with other prompts makes them here."""
        settings = self.settings
        how = {name: getattr(settings, name) for name in ("rule", "seed", "per_document", "special_tokens")}
        how["excluded"] = special_tokens(self.config)
        return make_prompts(settings.corpus, self.tokenizer, settings.prompts, settings.length, **how)

    @property
    def instrument(self) -> Instrument:
        """The instrument, with the model loaded; what is wrong with the prompts is said before."""
        self.prompts  # noqa: B018 - raises
        return self._once("instrument", self._load)  # type: ignore[no-any-return]

    def _load(self) -> Instrument:
        settings = self.settings
        model = settings.source.load_model(self.dtype, str(self.place), settings.device_map, self.attention)
        let_gradients_pass(model)
        return PlainInstrument(model) if self.family is None else Instrument(model)

    @property
    def self_check(self) -> str:
        """How far the instrument is from the model on the first prompt, as JSON; too far is refused.

        A model in 16 bits that is not loaded yet is loaded in 32 for it if there is room: there is more to see.
        """
        return str(self._once("self_check", self._check_instrument))

    def _check_instrument(self) -> str:
        settings, wide = self.settings, torch.float32
        one_device = settings.device_map is None and not isinstance(settings.source, InMemory)
        other = None
        if self.dtype.itemsize < 4 and one_device and self.family is not None and "instrument" not in self.opened:
            with suppress(ValueError):  # of weights that do not fit
                check_weights_fit(self.config, wide, self.place)
                other = Instrument(settings.source.load_model(wide, str(self.place), None, self.attention))
        return check_instrument(other or self.instrument, self.ids[0])

    @property
    def place(self) -> torch.device:
        """The device; ValueError is raised if there is no such one."""
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
        if self.settings.attention is not None:
            return self.settings.attention
        return "sdpa" if self.family is not None and self.family.is_fused(self.config) else "eager"

    @property
    def matrices(self) -> bool:
        """Whether matrices of all pairs of tokens are kept."""
        return self.settings.length <= self.settings.kernel_size

    def check(self) -> None:
        """Raise ValueError for settings out of range, and for what does not fit the model, which is not loaded."""
        settings = self.settings
        self.quantities  # noqa: B018 - raises
        if {"logits", "heads"} & {*self.quantities} and not self.matrices:
            expected = f"{settings.length} or more, all tokens, for matrices of each head"
            raise errors.invalid("kernel_size", expected, settings.kernel_size)
        self.place  # noqa: B018 - raises
        check_attention(self.config, self.attention)
        check_fits(self.config, self.tokenizer, settings.length)

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

    def with_prompts(self, **changes: Any) -> Session:
        """Return a session with the same model, opened no second time, on other prompts, such as ``rule="random"``."""
        return Session(replace(self.settings, **changes), self)

    def provenance(self) -> dict[str, Any]:
        """Return where the numbers come from: the settings that files keep, as they were resolved, and the model."""
        settings, config = self.settings, self.config
        source = settings.source
        kept = {name: getattr(settings, name) for name, one in settings_of(Settings).items() if one.metadata["kept"]}
        if "ladder" not in self.quantities:
            del kept["ladder_prompts"]
        kept = {name: value for name, value in kept.items() if value is not None}
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
            **({} if self.family is None else self.of_row()),
            **source.about(),
            **versions("torch", "transformers"),
        }

    def of_row(self) -> dict[str, Any]:
        """Return what is known of a model whose family has a row; ``head_dim`` is the size of queries and keys."""
        config = self.config
        sizes = (getattr(config, name, None) for name in ("qk_head_dim", "head_dim"))  # DeepSeek's head_dim is a part
        head_dim = next(filter(None, sizes), None) or config.hidden_size // config.num_attention_heads
        position = family_of(config).position_of(config)
        return {"head_dim": head_dim, "position": position}
