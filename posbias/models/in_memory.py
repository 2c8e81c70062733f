"""A model in memory: measured where it is and in its number format, and given back as it was."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posbias import errors
from posbias.models.families import check_family
from posbias.models.loaded import Loaded
from posbias.models.loading import DTYPES, Source, check_attention, check_shape, config_digest, last_part
from posbias.settings import DEFAULT, as_text, quantities_of

WRAPPERS = ("_orig_mod", "module")
"""What torch.compile, and what data-parallel training call the model that they wrap."""


@dataclass(frozen=True, eq=False)
class InMemory(Loaded):
    """Hold a network, and its tokenizer: an object, a directory or an id; without one, random tokens."""

    network: Any
    tokenizer: Any = None

    when = "weights as they are when .measure() is called"
    can_read_again = False

    def __post_init__(self) -> None:
        """Unwrap the model, and refuse one that cannot be measured."""
        network, given = self.network, type(self.network).__name__
        for name in WRAPPERS:
            if name == "_orig_mod" or not hasattr(network, "config"):
                network = getattr(network, name, network)
        if hasattr(network, "peft_config"):
            if any(one.is_prompt_learning for one in network.peft_config.values()):
                raise errors.invalid("model", "adapters that change weights, not ones that add tokens", given)
            network = network.get_base_model()
        if not hasattr(network, "get_output_embeddings") or network.get_output_embeddings() is None:
            raise errors.invalid("model", "a causal language model of transformers", given)
        object.__setattr__(self, "network", network)
        object.__setattr__(self, "model", self.name())
        self.dtype()

    def name(self) -> str:
        """Return what the model is called in results."""
        name = self.network.name_or_path
        return f"{last_part(name) if name else type(self.network).__name__} (in memory)"

    def version(self) -> str:
        """Return a digest of the configuration and of every parameter and buffer, in its own format."""
        found = config_digest(self.network.config)
        for name, x in sorted(self.network.state_dict().items()):
            for part in _plain(x):
                found.update(f"{name} {part.dtype} {tuple(part.shape)}\n".encode())
                found.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return f"memory-{found.hexdigest()[:16]}"

    def find_tokenizer(self) -> str | None:
        """Return the directory or id of the tokenizer, the name of one in memory, or None."""
        if self.tokenizer is None or isinstance(self.tokenizer, str):
            return self.tokenizer
        return getattr(self.tokenizer, "name_or_path", "") or type(self.tokenizer).__name__

    def read_config(self) -> Any:
        """Return the configuration, of a causal language model."""
        check_family(self.network.config.to_dict(), row=False)
        check_shape("model", self.network.config)
        return self.network.config

    def read_tokenizer(self) -> Any:
        """Return the tokenizer that is in memory, or the one that is named."""
        return Source(self.tokenizer).read_tokenizer() if isinstance(self.tokenizer, str) else self.tokenizer

    def load_model(
        self, dtype: torch.dtype, device: str, device_map: str | None = None, attention: str = "eager"
    ) -> Any:
        """Return the network itself, which computes attention in the way that is asked for until it is given back."""
        check_attention(self.config(), attention)
        own = self.network.config._attn_implementation
        if own != attention:
            self.network.set_attn_implementation(attention)
        if self.network.config._attn_implementation != attention:
            raise errors.invalid("attention", f"{own}, which the model was made with", attention)
        return self.network

    def dtype(self) -> str:
        """Return the name of the model's number format, or raise ValueError if it is none of those that are known."""
        name = str(self.network.dtype).removeprefix("torch.")
        if name not in DTYPES:
            raise errors.invalid("model", f"numbers in {', '.join(DTYPES)}", name)
        return name

    def settings(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return settings with the model's own number format and device, or raise ValueError for what it cannot have.

        The law of untrained networks is read from weights, which adapters that are not merged change only as they work.
        """
        if any(hasattr(one, "base_layer") and not getattr(one, "merged", False) for one in self.network.modules()):
            if asked.get("quantities") is None:
                asked = {**asked, "quantities": [name for name in DEFAULT if name != "branches"]}
            elif "branches" in quantities_of(asked["quantities"]):
                raise errors.invalid("quantities", "none of branches beside adapters: merge them first", "branches")
        device = self.network.device
        for name, own in (("dtype", self.dtype()), ("device", str(device)), ("device_map", None)):
            given = as_text(asked.get(name))
            if given is not None and given not in (own, device.type if name == "device" else own):
                raise errors.invalid(name, f"{own or 'none'}, as the model in memory has it", given)
        return {**asked, "dtype": self.dtype(), "device": str(device)}

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Give the network back as it was: its mode, what is differentiated, and how attention is computed."""
        network = self.network
        training = [module for module in network.modules() if module.training]
        learned = [parameter for parameter in network.parameters() if parameter.requires_grad]
        attention = network.config._attn_implementation
        try:
            yield
        finally:
            for module in training:
                module.training = True
            for parameter in learned:
                parameter.requires_grad_(True)
            if network.config._attn_implementation != attention:
                network.set_attn_implementation(attention)


def _plain(x: Any) -> Iterator[Tensor]:
    """Yield the plain tensors that a parameter is made of: several, where it is quantised."""
    if not isinstance(x, Tensor):
        return
    if hasattr(x, "__tensor_flatten__"):
        for name in x.__tensor_flatten__()[0]:
            yield from _plain(getattr(x, name))
    else:
        yield x
