"""Argument checks that name the field, what was expected and what came."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_SHOWN = 400
"""Characters of what was received that a message may have; of more it has the first quarter."""

Numbers = int | float | np.number | np.ndarray | Sequence
"""What may be given where numbers are wanted: one, a (nested) sequence, or an array."""


def invalid(field: str, expected: str, received: Any) -> ValueError:
    """Build the one form of error message, in one line: ``field: expected …, received …``.

    >>> str(invalid("texts", "a list", "x" * 10_000_000))[-60:]
    'xxxxxxxxxxxxxxxxxxxxxxxxxxxx… (10,000,000 characters in all)'
    """
    shown = str(received)
    if len(shown) > MOST_SHOWN:
        shown = f"{shown[: MOST_SHOWN // 4]}… ({len(shown):,} characters in all)"
    return ValueError(f"{field}: expected {expected}, received {shown}".replace("\n", " "))


def short(error: BaseException, most: int = 160) -> str:
    r"""Return what an error says, in one line.

    >>> short(KeyError()), short(OSError("one\n  two"))
    ('KeyError', 'one two')
    """
    return (" ".join(str(error).split()) or type(error).__name__)[:most]


def text(field: str, value: str) -> str:
    r"""Return ``value`` if it is text, or raise ValueError: half of a surrogate pair, as of bytes in a path, is none.

    >>> text("output", "m\udcff.nc")
    Traceback (most recent call last):
    ValueError: output: expected text that UTF-8 can hold, received 'm\udcff.nc'
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid(field, "text that UTF-8 can hold", ascii(value)) from None
    return value


def positive_integer(field: str, value: Any, *, minimum: int = 1) -> int:
    """Return ``value`` as an int of at least ``minimum`` that 64 bits hold, as files must, or raise ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise invalid(field, f"an integer of at least {minimum}", repr(value))
    if value >= 2**63:
        raise invalid(field, f"an integer from {minimum} to {2**63 - 1}", repr(value)[:60])
    return int(value)


def index(field: str, value: Any, length: int) -> int:
    """Return ``value`` as a position in 0..length-1 (negative counts from the end)."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not -length <= value < length:
        raise invalid(field, f"a position from {-length} to {length - 1}", repr(value))
    return int(value) % length


def finite_array(field: str, values: Numbers, *, ndim: tuple[int, ...]) -> NDArray[np.float64]:
    """Return ``values`` as a float64 array with one of the dimensions ``ndim`` and no NaN or Inf."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise invalid(field, "a rectangular array of numbers", "ragged or non-numeric values") from None
    if array.ndim not in ndim:
        dims = " or ".join(str(d) for d in ndim)
        raise invalid(field, f"an array with {dims} dimension(s)", f"shape {array.shape}")
    if not np.isfinite(array).all():
        raise invalid(field, "finite numbers", f"{array[~np.isfinite(array)].flat[0]}")
    return array


def mixing_coefficients(field: str, values: Numbers, *, T: int | None = None) -> NDArray[np.float64]:
    """Return ``values`` as a schedule of T numbers in [0, 1]; values outside are refused, never clipped."""
    schedule = finite_array(field, values, ndim=(1,))
    if T is not None and schedule.size != T:
        raise invalid(field, f"{T} values, one for each layer", f"{schedule.size}")
    outside = (schedule < 0) | (schedule > 1)
    if outside.any():
        t = int(np.argmax(outside))
        raise invalid(field, "values in [0, 1]", f"{schedule[t]} at layer {t}")
    return schedule


def distribution(field: str, values: Numbers, *, tolerance: float = 1e-8) -> NDArray[np.float64]:
    """Return ``values`` as a probability vector: one dimension, no negative entry, sum 1."""
    p = finite_array(field, values, ndim=(1,))
    if p.size == 0:
        raise invalid(field, "at least one position", "an empty array")
    if (p < -tolerance).any():
        raise invalid(field, "no negative probability", f"{p.min()} at position {int(p.argmin())}")
    if abs(p.sum() - 1) > tolerance:
        raise invalid(field, f"probabilities that sum to 1 (within {tolerance:g})", f"a sum of {p.sum()}")
    return p


def stochastic_kernel(field: str, values: Numbers, *, tolerance: float = 1e-8) -> NDArray[np.float64]:
    """Return ``values`` as one (n, n) or a stack (T, n, n) of row-stochastic kernels."""
    A = finite_array(field, values, ndim=(2, 3))
    if A.shape[-1] != A.shape[-2] or A.size == 0:
        raise invalid(field, "square kernels of at least one token", f"shape {A.shape}")
    if (A < -tolerance).any():
        raise invalid(field, "no negative weight", f"{A.min()}")
    gap = np.abs(A.sum(axis=-1) - 1)
    if gap.max() > tolerance:
        where = tuple(int(k) for k in np.unravel_index(gap.argmax(), gap.shape))
        received = f"a sum of {A.sum(axis=-1)[where]} in row {where}"
        raise invalid(field, f"rows that sum to 1 (within {tolerance:g})", received)
    return A
