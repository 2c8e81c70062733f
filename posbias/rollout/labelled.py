"""A profile that says what it is: an influence profile with its name, its mean and its ends in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.lib.mixins import NDArrayOperatorsMixin

from posbias import errors
from posbias.errors import Numbers
from posbias.rollout.profiles import mean_position

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Profile(NDArrayOperatorsMixin, Sequence):
    """Hold an influence profile: the share of each input position, first one first, of sum 1; and a name for people.

    For measured influence ``prompts`` has that of each prompt, not normalised: intervals come from it.
    numpy takes it for the array of its values: ``np.asarray(p)``, ``np.sum(p)``, ``len(p)``, ``p[-1]``, ``p - q``.

    >>> Profile([0.4, 0.1, 0.1, 0.4], "by hand")
    by hand: 4 positions, mean 0.500
    first 0.4, last 0.4, lowest between 0.1 at position 1
    >>> p = Profile([0.4, 0.1, 0.1, 0.4])
    >>> len(p), float(p[0]), float((p - [0.4, 0, 0, 0.4]).sum().round(1))
    (4, 0.4, 0.2)
    """

    values: Float[np.ndarray, "n"]
    name: str = "profile"
    prompts: Float[np.ndarray, "N n"] | None = None

    def __init__(self, values: Numbers, name: str = "profile", prompts: Numbers | None = None) -> None:
        p = errors.distribution("profile", values, tolerance=1e-6).copy()
        p.flags.writeable = False
        if prompts is not None:
            prompts = np.asarray(prompts, dtype=np.float64)
            if prompts.ndim != 2 or prompts.shape[1] != p.size:
                raise errors.invalid("prompts", f"an array (N, {p.size})", f"shape {prompts.shape}")
        for field, value in (("values", p), ("name", name), ("prompts", prompts)):
            object.__setattr__(self, field, value)

    @property
    def mean_position(self) -> float:
        """Mean position, 0 if all influence is on the first token and 1 if on the last."""
        return mean_position(self.values / self.values.sum())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*(x.values if isinstance(x, Profile) else x for x in inputs), **options)

    def __len__(self) -> int:
        return self.values.size

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def plot(self, ax: Axes | None = None, **style: Any) -> Axes:
        """Draw the profile on a logarithmic influence axis, in a new figure unless ``ax`` is given; return the axes.

        Curves of one axes take colours in turn. ``style`` is what matplotlib's ``plot`` takes; ``label`` is the
        profile's name unless given.
        """
        from posbias.plotting import draw_profile

        return draw_profile(self.values, ax=ax, **{"label": self.name, **style})

    def __repr__(self) -> str:
        p = self.values
        ends = f"first {p[0]:.3g}, last {p[-1]:.3g}"
        if p.size > 2:
            lowest = int(p[1:-1].argmin()) + 1
            ends += f", lowest between {p[lowest]:.3g} at position {lowest}"
        return f"{self.name}: {p.size} positions, mean {self.mean_position:.3f}\n{ends}"
