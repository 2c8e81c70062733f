"""A study's subject: the model, its tokenizer, its prompts and the instrument, each opened once.

Everything is opened when it is first asked for, so that what can be refused without the model is refused before it is
loaded, and a study that reads one model on several prompts loads it once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from posbias import errors
from posbias.measure.corpus import Corpus, Prompts, Vocabulary, make_prompts
from posbias.measure.instrument import Instrument
from posbias.measure.loading import DTYPES, Source, check_attention, check_fits, last_part
from posbias.measure.memory import Need, check_memory, memory_available, memory_need, operations_a_second
from posbias.measure.offload import check_device_map
from posbias.measure.precision import TOKENS, format_error
from posbias.measure.processes import local_rank
from posbias.measure.progress import clock_time
from posbias.measure.quantities import DEFAULT
from posbias.measure.request import check_dtype, check_numbers
from posbias.measure.untrained import special_tokens
from posbias.networks.description import description_text
from posbias.networks.families import content_form, family_of
from posbias.networks.given_biases import given_biases, hides
from posbias.provenance import versions
from posbias.rollout.cells import Cells, cells_of
from posbias.rollout.position_bias import Biases

SUBJECT = ("source", "dtype", "device", "device_map", "attention")
"""Settings that belong to the model: other prompts keep them."""
KERNEL_SIZE = 512
"""Most tokens of which matrices are kept whole, unless another number is given."""


@dataclass(frozen=True)
class Settings:
    """Hold everything that decides what a measurement finds.

    Parameters
    ----------
    source, corpus
        Model, or :class:`~posbias.measure.untrained.Birth` for one at birth, and documents.
    prompts, length, batch_size
        How many prompts, of how many tokens, and how many at a time.
    dtype
        ``float32``, ``bfloat16`` or ``float16``; None takes 32 bits on a CPU and bfloat16 on a GPU.
    device
        As torch names it; None takes a GPU if there is one.
    device_map
        How accelerate spreads the model (``auto``, ``balanced``, …); None keeps it on one device.
    rule, seed, per_document, special_tokens
        As in :func:`~posbias.measure.corpus.make_prompts`.
    quantities
        What is measured: names of :data:`~posbias.measure.quantities.QUANTITIES`.
    kernel_size
        Most tokens of which matrices are kept whole; those of longer prompts are kept averaged over as many cells.
    attention
        ``eager``, which shows its weights; ``sdpa``, torch's fused kernel, of which they are computed again in blocks;
        None takes the fused kernel where the family has one.
    keep_tokens
        Whether to keep the prompts' token ids, beside the document and the offset that each was cut from.
    """

    source: Source
    corpus: Corpus
    prompts: int
    length: int
    batch_size: int = 8
    dtype: str | None = None
    device: str | None = None
    device_map: str | None = None
    rule: str = "first"
    seed: int = 0
    per_document: int = 1
    special_tokens: bool = True
    quantities: tuple[str, ...] = DEFAULT
    kernel_size: int = KERNEL_SIZE
    attention: str | None = "eager"
    keep_tokens: bool = True

    def place(self) -> torch.device:
        """Return the device, or raise ValueError if there is no such one."""
        if self.device is not None:
            errors.device("device", self.device)
            try:
                device = torch.device(self.device)
            except (RuntimeError, TypeError):
                raise errors.invalid("device", "cpu, cuda or cuda:0, cuda:1, …", repr(self.device)) from None
        else:
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if device.type == "cuda":
            there = torch.cuda.device_count()
            if (device.index or 0) >= there:
                raise errors.invalid("device", f"one of {there} GPUs", str(device))
            if device.index is None:
                device = torch.device("cuda", local_rank() % there)
        elif device.type != "cpu":
            _check_device(device)
        return device

    def with_source(self, source: Source) -> Settings:
        """Return the same settings for another model."""
        return replace(self, source=source)

    def cut(self, tokenizer: Any, excluded: Collection[int] = ()) -> Prompts:
        """Return the prompts that these settings describe, with no token of ``excluded`` among random ones."""
        return make_prompts(
            self.corpus,
            tokenizer,
            self.prompts,
            self.length,
            rule=self.rule,
            seed=self.seed,
            per_document=self.per_document,
            special_tokens=self.special_tokens,
            excluded=excluded,
        )

    def precision(self) -> str:
        """Return the name of the number format, or raise ValueError for an unknown one."""
        name = self.dtype or ("float32" if self.place().type == "cpu" else "bfloat16")
        check_dtype(name)
        return name


class Study:
    """Hold a model, its prompts and the instrument for one study.

    Parameters
    ----------
    settings
        Model, prompts and where to run.

    Raises
    ------
    ValueError, OSError
        When something is first asked for that is not as it should be or cannot be read.
    """

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
            check_memory(need, DTYPES[self.settings.precision()], self.settings.place())
        return self.cut()

    def cut(self) -> Prompts:
        """Return the prompts that the settings describe; a study of other prompts makes them here."""
        return self.settings.cut(self.tokenizer, special_tokens(self.config))

    @cached_property
    def instrument(self) -> Instrument:
        """The instrument, with the model loaded; what is wrong with the prompts is said before."""
        self.prompts  # noqa: B018 - raises
        settings = self.settings
        dtype, place = DTYPES[settings.precision()], str(settings.place())
        return Instrument(settings.source.load_model(dtype, place, settings.device_map, self.attention))

    @property
    def attention(self) -> str:
        """How attention is computed: ``eager`` or ``sdpa``."""
        if self.settings.attention is not None:
            return self.settings.attention
        return "sdpa" if family_of(self.config).is_fused(self.config) else "eager"

    @property
    def cells(self) -> Cells:
        """How tokens are divided where matrices are kept."""
        return cells_of(self.settings.length, self.settings.kernel_size)

    def check(self) -> None:
        """Raise ValueError for settings out of range, and for what does not fit the model, which is not loaded."""
        settings = self.settings
        check_numbers(settings.prompts, settings.length, settings.batch_size)
        settings.place(), settings.precision()
        if settings.device_map is not None:
            check_device_map(settings.device_map)
        self.cells  # noqa: B018 - raises
        check_attention(self.config, self.attention)
        check_fits(self.config, self.tokenizer, settings.length)
        self.check_hidden(given_biases(self.config))

    def check_hidden(self, biases: Biases | None) -> None:
        """Raise ValueError where content is to be measured of heads whose biases hide keys, and cannot be read."""
        settings = self.settings
        low = DTYPES[settings.precision()].itemsize < 4 and family_of(self.config).exact_in_16_bit
        if low and self.attention == "eager" and "content" in settings.quantities and hides(biases):
            expected = "float32, or --attention sdpa where there is one, for the content of heads that hide keys"
            raise errors.invalid("dtype", expected, settings.precision())

    def format_error(self) -> str | None:
        """Return what the number format costs, as JSON, or why that is not known; None in 32 bits.

        The model is loaded in 32 bits for it, before it is loaded in its own format.
        """
        settings = self.settings
        dtype = DTYPES[settings.precision()]
        if dtype.itemsize >= 4:
            return None
        if settings.device_map is not None or "instrument" in self.__dict__:
            return "not measured: the model is spread over devices, or was loaded before"
        wide = replace(settings, dtype="float32", prompts=1, batch_size=1, length=min(TOKENS, settings.length))
        try:
            check_memory(Study(wide).need(), torch.float32, settings.place())
        except ValueError as error:
            return f"not measured: {error}"
        place = str(settings.place())

        def high() -> Instrument:
            return Instrument(settings.source.load_model(torch.float32, place, None, self.attention))

        return format_error(lambda: self.instrument, high, self.ids[0])

    def estimate(self) -> str:
        """Return what a measurement takes in memory, disk and time, in words; :meth:`check` comes first."""
        self.check()
        need, place = self.need(), self.settings.place()
        speed = operations_a_second(DTYPES[self.settings.precision()], place)
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
        return found | ({"tokens": self.prompts.ids.astype(np.int32)} if self.settings.keep_tokens else {})

    def need(self) -> Need:
        """Return an estimate of the memory and the disk that a measurement takes."""
        settings = self.settings
        return memory_need(
            self.config,
            DTYPES[settings.precision()],
            min(settings.batch_size, settings.prompts),
            settings.length,
            fused=self.attention == "sdpa",
            quantities=settings.quantities,
            cells=len(self.cells.starts),
            prompts=settings.prompts,
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

    def with_prompts(self, **changes: Any) -> Study:
        """Return a study of the same model, opened no second time, on other prompts.

        Parameters
        ----------
        changes
            Settings with their new values, such as ``rule="random"``.

        Raises
        ------
        ValueError
            For a setting of the model itself.
        """
        wrong = sorted(set(changes) & set(SUBJECT))
        if wrong:
            raise errors.invalid("changes", "settings of the prompts", ", ".join(wrong))
        other = Study(replace(self.settings, **changes))
        for name in ("config", "tokenizer", "instrument"):
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other

    def provenance(self) -> dict[str, Any]:
        """Return where the numbers come from."""
        settings = self.settings
        source, heads, biases = settings.source, self.config.num_attention_heads, given_biases(self.config)
        return {
            "model": source.name(),
            "revision": source.version(),
            "architecture": family_of(self.config).name,
            "dataset": last_part(settings.corpus.dataset) if settings.rule != "random" else "random tokens",
            "prompts": settings.prompts,
            "rule": settings.rule + (f", {settings.per_document} a document" if settings.rule == "cut" else ""),
            "length": settings.length,
            "batch_size": settings.batch_size,
            "dtype": settings.precision(),
            "device": settings.device_map or str(settings.place().type),
            "seed": settings.seed,
            "tokenizer": source.tokenizer_name(),
            "special_tokens": str(settings.special_tokens and not isinstance(self.tokenizer, Vocabulary)),
            "prompts_sha256": self.prompts.sha256,
            "head_dim": getattr(self.config, "head_dim", None) or self.config.hidden_size // heads,
            "quantities": ",".join(settings.quantities),
            "attention": self.attention,
            "kernel_size": settings.kernel_size,
            "content_form": content_form(self.config),
            **({} if biases is None else {"position_bias": description_text(biases)}),
            **versions("torch", "transformers"),
        }


def _check_device(device: torch.device) -> None:
    """Raise ValueError unless a device that is neither a CPU nor a GPU of CUDA holds numbers, also in 64 bits."""
    try:
        torch.zeros(1, device=device, dtype=torch.float64).item()
    except Exception:  # each kind of device that is not there has an error of its own
        raise errors.invalid("device", "cpu, cuda or cuda:0, cuda:1, …", repr(str(device))) from None
