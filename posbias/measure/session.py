"""One model on one set of prompts: the model, its tokenizer, its prompts and the instrument, each opened once.

Everything is opened when it is first asked for, so that what can be refused without the model is refused before it is
loaded, and whoever reads one model on several sets of prompts loads it once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from posbias import errors
from posbias.measure.corpus import Prompts, Vocabulary, make_prompts
from posbias.measure.instrument import Instrument
from posbias.measure.loading import DTYPES, check_attention, check_fits, last_part
from posbias.measure.memory import Need, check_memory, memory_available, memory_need, operations_a_second
from posbias.measure.offload import check_device_map
from posbias.measure.precision import TOKENS, differences, read_prompt
from posbias.measure.progress import clock_time
from posbias.measure.settings import Settings, check_settings, settings_of
from posbias.measure.untrained import special_tokens
from posbias.networks.description import description_text
from posbias.networks.families import content_form, family_of
from posbias.networks.given_biases import given_biases, hides
from posbias.provenance import versions
from posbias.rollout.position_bias import Biases
from posbias.rollout.token_bins import TokenBins, token_bins

OF_MODEL = ("source", "dtype", "device", "device_map", "attention")
"""Settings that belong to the model: other prompts keep them."""


class Session:
    """Hold a model, its prompts and the instrument; what is wrong with one is raised when it is first asked for."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def config(self) -> Any:
        """The model's configuration, of a supported family."""
        return self.settings.source.config()

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer."""
        return self.settings.source.load_tokenizer()

    @cached_property
    def prompts(self) -> Prompts:
        """The prompts, which the model can take; only if there is memory for it and for them."""
        check_fits(self.config, self.tokenizer, self.settings.length)
        if "instrument" not in self.__dict__:
            need = self.need()
            if self.settings.device_map is not None:  # then weights go where there is room, on disk if need be
                need = replace(need, weights=0)
            check_memory(need, self.dtype, self.settings.place())
        return self.cut()

    def cut(self) -> Prompts:
        """Return the prompts that the settings describe; a session with other prompts makes them here."""
        settings = self.settings
        how = {name: getattr(settings, name) for name in ("rule", "seed", "per_document", "special_tokens")}
        excluded = special_tokens(self.config)
        return make_prompts(
            settings.corpus, self.tokenizer, settings.prompts, settings.length, **how, excluded=excluded
        )

    @cached_property
    def instrument(self) -> Instrument:
        """The instrument, with the model loaded; what is wrong with the prompts is said before."""
        self.prompts  # noqa: B018 - raises
        settings = self.settings
        model = settings.source.load_model(self.dtype, str(settings.place()), settings.device_map, self.attention)
        return Instrument(model)

    @property
    def dtype(self) -> torch.dtype:
        """Number format of the weights."""
        return DTYPES[self.settings.precision()]

    @property
    def attention(self) -> str:
        """How attention is computed: ``eager`` or ``sdpa``."""
        if self.settings.attention is not None:
            return self.settings.attention
        return "sdpa" if family_of(self.config).is_fused(self.config) else "eager"

    @property
    def cells(self) -> TokenBins:
        """How tokens are divided where matrices are kept."""
        return token_bins(self.settings.length, self.settings.kernel_size)

    def check(self) -> None:
        """Raise ValueError for settings out of range, and for what does not fit the model, which is not loaded."""
        settings = self.settings
        check_settings({name: getattr(settings, name) for name in settings_of(Settings)})
        settings.place()
        if settings.device_map is not None:
            check_device_map(settings.device_map)
        check_attention(self.config, self.attention)
        check_fits(self.config, self.tokenizer, settings.length)
        self.check_hidden(given_biases(self.config))

    def check_hidden(self, biases: Biases | None) -> None:
        """Raise ValueError where content is to be measured of heads whose biases hide keys, and cannot be read."""
        low = self.dtype.itemsize < 4 and family_of(self.config).exact_in_16_bit
        if low and self.attention == "eager" and "content" in self.settings.quantities and hides(biases):
            expected = "float32, or --attention sdpa where there is one, for the content of heads that hide keys"
            raise errors.invalid("dtype", expected, self.settings.precision())

    def format_error(self) -> str | None:
        """Return what the number format costs, as JSON, or why that is not known; None in 32 bits.

        The model is loaded in 32 bits for it, before it is loaded in its own format.
        """
        settings = self.settings
        if self.dtype.itemsize >= 4:
            return None
        if settings.device_map is not None or "instrument" in self.__dict__:
            return "not measured: the model is spread over devices, or was loaded before"
        wide = replace(settings, dtype="float32", prompts=1, batch_size=1, length=min(TOKENS, settings.length))
        try:
            check_memory(Session(wide).need(), torch.float32, settings.place())
        except ValueError as error:
            return f"not measured: {error}"
        model = settings.source.load_model(torch.float32, str(settings.place()), None, self.attention)
        exact = read_prompt(Instrument(model), self.ids[0])
        del model  # before it is loaded once more
        return differences(read_prompt(self.instrument, self.ids[0]), exact)

    def estimate(self) -> str:
        """Return what a measurement takes in memory, disk and time, in words; :meth:`check` comes first."""
        self.check()
        need, place = self.need(), self.settings.place()
        speed = operations_a_second(self.dtype, place)
        there = memory_available(place)
        has = "" if there is None else f"; {there / 2**30:.1f} GiB are available"
        return "\n".join((
            f"memory: about {need} on {place}{has}",
            f"disk: at most {need.file / 2**20:.1f} MiB for the result, twice as much for a checkpoint",
            f"time: about {clock_time(need.operations / speed)} at {speed / 1e9:.0f} billion operations a second",
        ))  # fmt: skip

    def prompt_arrays(self) -> dict[str, np.ndarray]:
        """Return where each prompt comes from, and its tokens if they are to be kept."""
        found = {"document": self.prompts.origins, "offset": self.prompts.offsets}
        return found | ({"tokens": self.prompts.ids.astype(np.int32)} if self.settings.tokens else {})

    def need(self) -> Need:
        """Return an estimate of the memory and the disk that a measurement takes."""
        settings = self.settings
        return memory_need(
            self.config,
            self.dtype,
            min(settings.batch_size, settings.prompts),
            settings.length,
            fused=self.attention == "sdpa",
            quantities=settings.quantities,
            cells=len(self.cells.starts),
            prompts=settings.prompts,
            pairings=settings.pairings,
        )

    @property
    def ids(self) -> Int[Tensor, "N n"]:
        """Token ids of the prompts."""
        return torch.from_numpy(self.prompts.ids)

    def batches(self) -> Iterator[tuple[slice, Int[Tensor, "B n"]]]:
        """Yield which prompts a batch holds, and their ids."""
        for start in range(0, len(self.ids), self.settings.batch_size):
            rows = slice(start, min(start + self.settings.batch_size, len(self.ids)))
            yield rows, self.ids[rows]

    def with_prompts(self, **changes: Any) -> Session:
        """Return a session with the same model, opened no second time, on other prompts, such as ``rule="random"``."""
        if wrong := sorted(set(changes) & set(OF_MODEL)):
            raise errors.invalid("changes", "settings of the prompts", ", ".join(wrong))
        other = Session(replace(self.settings, **changes))
        for name in ("config", "tokenizer", "instrument"):
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other

    def provenance(self) -> dict[str, Any]:
        """Return where the numbers come from: the settings that files keep, as they were resolved, and the model."""
        settings, config = self.settings, self.config
        source, biases = settings.source, given_biases(config)
        kept = {name: getattr(settings, name) for name, one in settings_of(Settings).items() if one.metadata["kept"]}
        if "ladder" not in settings.quantities:
            del kept["pairings"]
        return kept | {
            "model": source.name(),
            "revision": source.version(),
            "architecture": family_of(config).name,
            "dataset": last_part(settings.corpus.dataset) if settings.rule != "random" else "random tokens",
            "rule": settings.rule + (f", {settings.per_document} a document" if settings.rule == "cut" else ""),
            "dtype": settings.precision(),
            "device": settings.device_map or str(settings.place().type),
            "tokenizer": source.tokenizer_name(),
            "special_tokens": str(settings.special_tokens and not isinstance(self.tokenizer, Vocabulary)),
            "prompts_sha256": self.prompts.sha256,
            "head_dim": getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            "quantities": ",".join(settings.quantities),
            "attention": self.attention,
            "content_form": content_form(config),
            **({} if biases is None else {"position_bias": description_text(biases)}),
            **versions("torch", "transformers"),
        }
