"""A check of the chapter ``use`` on made-up prompts; what else is wrong with checks, the chapters notice."""

import numpy as np
import xarray as xr

from studies.real.checks import break_entries, is_unused


def test_what_is_used_more_than_an_equal_share_is_not_called_unused():
    """The first of 24 tokens is sensitive and not used; with eight times its use, still less than that, it is used."""
    use = 1 / np.arange(24, 0, -1.0)
    gradient = np.append(0.5, use[1:])
    noise = np.random.default_rng(0).uniform(0.9, 1.1, (2, 40, 24))
    both = zip(("gradient", "replaced"), (gradient, use), noise, strict=True)
    entry = xr.Dataset({way: (("prompt", "position"), p * x) for way, p, x in both})
    assert is_unused(entry)
    assert not any(map(is_unused, break_entries(entry, runs=2)["use of the first token eight times as large"]))
