"""The one place that attaches hooks to a model's modules and takes them off again.

Everything that looks into a forward pass or changes one goes through :func:`hooked`, so that a model is always left as
it was.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

Before = Callable[[nn.Module, Any, Any], Any]
"""Called with a module, its positional and its keyword arguments; may return a new pair of them, or None."""

After = Callable[[nn.Module, Any, Any], Any]
"""Called with a module, its positional arguments and its output; may return another output, or None."""


@contextmanager
def hooked(
    before: Iterable[tuple[nn.Module, Before]] = (), after: Iterable[tuple[nn.Module, After]] = ()
) -> Iterator[None]:
    """Attach hooks until the block ends, however it ends.

    >>> import torch
    >>> double = nn.Identity()
    >>> with hooked(after=[(double, lambda module, args, output: 2 * output)]):
    ...     float(double(torch.tensor(3.0)))
    6.0
    >>> float(double(torch.tensor(3.0)))
    3.0
    """
    handles = []
    try:
        for module, enter in before:
            handles.append(attach(module, enter))
        for module, leave in after:
            handles.append(module.register_forward_hook(leave))
        yield
    finally:
        for handle in handles:
            handle.remove()


def attach(module: nn.Module, before: Before) -> RemovableHandle:
    """Attach a hook to what a module is given, and return what takes it off again."""
    return module.register_forward_pre_hook(before, with_kwargs=True)


def given(args: Any, kwargs: Any) -> Tensor:
    """Return the hidden states among a module's arguments."""
    found: Tensor = args[0] if args else kwargs["hidden_states"]
    return found


def regiven(args: Any, kwargs: Any, x: Tensor) -> tuple[Any, Any]:
    """Return a module's arguments with other hidden states."""
    return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": x})


def returned(output: Any) -> Tensor:
    """Return the hidden states in a module's output.

    >>> import torch
    >>> returned((torch.tensor(3.0), None))
    tensor(3.)
    """
    found: Tensor = output[0] if isinstance(output, tuple) else output
    return found


def rereturned(output: Any, x: Tensor) -> Any:
    """Return a module's output with other hidden states."""
    return (x, *output[1:]) if isinstance(output, tuple) else x
