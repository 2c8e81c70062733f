"""A pass back through a model's layers, one at a time."""

from contextlib import AbstractContextManager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posbias.models.hooks import given, hooked, regiven, rereturned, returned


class Walk:
    """What a pass back through the layers, one at a time, has to know: what each layer was given.

    Every layer is given a tensor that knows nothing of where it comes from, so that on the way forward no layer is
    recorded. ``entered`` is what the first layer is given, ``above`` what the last one gives.
    """

    def __init__(self, layers: list[nn.Module]) -> None:
        self.layers = layers
        self.arguments: list[tuple[Any, Any]] = []
        self.entered: Tensor
        self.above: Tensor

    def kept(self) -> AbstractContextManager[None]:
        """Attach the hooks of the way forward."""
        return hooked([(layer, self._enter) for layer in self.layers], [(self.layers[-1], self._end)])

    def back(self, t: int, g: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        """Return the gradient by what layer ``t`` was given, from that by what it gave; the layer runs once more."""
        x, y = self.run(t)
        self.arguments.pop()
        (g,) = torch.autograd.grad(y, x, g.to(y.device))
        return g

    def run(self, t: int) -> tuple[Float[Tensor, "B n d"], Float[Tensor, "B n d"]]:
        """Return what layer ``t`` was given, to be differentiated by, and what it gives; the layer runs once more."""
        args, kwargs = self.arguments[t]
        x = given(args, kwargs).requires_grad_(True)
        return x, returned(self.layers[t](*args, **kwargs))

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        x = given(args, kwargs)
        if not self.arguments:
            self.entered = x
        self.arguments.append(regiven(args, kwargs, x.detach()))
        return self.arguments[-1]

    def _end(self, module: nn.Module, args: Any, output: Any) -> Any:
        self.above = returned(output).detach().requires_grad_(True)
        return rereturned(output, self.above)
