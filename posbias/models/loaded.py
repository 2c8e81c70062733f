"""What was read of a model stays with it."""

from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch

from posbias.models.opening import Vocabulary


class Loaded:
    """Be a model with what was read of it so far; a kind of it says how each part is read, and what it is called.

    Configuration and tokenizer are read once. Weights are those that were read last: asked for in another number
    format, on another device or with another attention, they are read anew, and the first ones are let go.
    """

    model: str
    """What a user calls the model."""
    when = "weights are read by .measure()"
    can_read_again = True
    """Whether weights can be read a second time, in another number format."""

    def find_tokenizer(self) -> Any:
        """Return the directory, id or name of the tokenizer, None where there is none."""

    def read_config(self) -> Any:
        """Read the configuration, or raise ValueError for one that cannot be measured."""

    def read_tokenizer(self) -> Any:
        """Read the tokenizer that there is."""

    def read_model(self, dtype: torch.dtype, device: str, device_map: str | None, attention: str) -> Any:
        """Read the weights, on one device or spread by ``device_map``."""

    def about(self) -> dict[str, str]:
        """Return what else results say of the model."""
        return {}

    def settings(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return settings as the model needs them, or raise ValueError for what it cannot have."""
        return asked

    def lent(self) -> AbstractContextManager[None]:
        """Give the model back as it was when the block ends, where it is anybody else's."""
        return nullcontext()

    def config(self) -> Any:
        """Return the configuration."""
        return self._config

    def load_tokenizer(self) -> Any:
        """Return the tokenizer; where there is none, the vocabulary, of which random tokens can be drawn."""
        return self._tokenizer

    def load_model(
        self, dtype: torch.dtype, device: str, device_map: str | None = None, attention: str = "eager"
    ) -> Any:
        """Return the network with its weights."""
        how = (dtype, device, device_map, attention)
        if how not in self._weights:
            self._weights.clear()
            self._weights[how] = self.read_model(*how)
        return self._weights[how]

    def has_weights(self) -> bool:
        """Tell whether weights were read."""
        return bool(self._weights)

    @cached_property
    def _config(self) -> Any:
        return self.read_config()

    @cached_property
    def _tokenizer(self) -> Any:
        return Vocabulary(int(self.config().vocab_size)) if self.find_tokenizer() is None else self.read_tokenizer()

    @cached_property
    def _weights(self) -> dict[Any, Any]:
        return {}
