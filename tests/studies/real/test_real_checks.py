"""Checks of the chapter ``real``: they pass on what they are for and fail on what is broken."""

import numpy as np
import pytest
import torch
import xarray as xr
from measuring import N, make, prompts

from studies.real.checks import (
    break_entries,
    break_ways,
    is_sensitive,
    is_unused,
    lemma_holds,
    readings_part,
    spread,
    ways_agree,
)


@pytest.fixture(scope="module")
def entry():
    """Return prompts with a first token that is sensitive and not used, and use that is a power law."""
    rng, n = np.random.default_rng(0), 24
    use = 1 / np.arange(n, 0, -1.0)
    gradient = use.copy()
    gradient[0] = 0.5
    noise = rng.uniform(0.9, 1.1, (2, 40, n))
    both = zip(("gradient", "replaced"), (gradient, use), noise, strict=True)
    return xr.Dataset({way: (("prompt", "position"), p * x) for way, p, x in both})


@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_a_long_state_moves_nothing_but_lambda(name):
    network, ids = make(name).double(), prompts(2)
    assert all(lemma_holds(network, ids, t, 300.0) for t in range(network.config.num_hidden_layers))
    assert not lemma_holds(network, ids, 1, 300.0, every=True)
    assert not lemma_holds(network, ids, 1, 300.0, output=1.01)
    assert not any(layer._forward_hooks for layer in network.modules())


@pytest.mark.parametrize(("name", "alike"), [("llama", True), ("bloom", True), ("gpt2", False)])
def test_states_of_one_repeated_token_are_alike_unless_positions_are_learned(name, alike):
    network = make(name).double()
    assert (spread(network, torch.full((N,), 7)) < 1e-5) == alike
    assert spread(network, torch.arange(N)) > 1e-3


def test_readings_part_where_states_are_long():
    ratio, apart = np.array([1.0, 2.0, 50.0, 100.0]), np.array([1.0, 1.1, 8.0, 9.0])
    attention, contributed = np.array([0.1, 0.1, 0.5, 0.5]), np.array([0.1, 0.1, 0.2, 0.2])
    assert readings_part(ratio, apart, attention, contributed)
    assert not readings_part(ratio, apart, attention, attention)
    assert not readings_part(ratio, apart[::-1], attention, contributed)


@pytest.mark.parametrize(
    ("check", "what"),
    [
        (is_sensitive, "places of each prompt shuffled"),
        (is_unused, "gradients in place of use"),
        (is_unused, "use of the first token eight times as large"),
    ],
)
def test_checks_pass_on_what_is_so_and_fail_on_what_is_broken(entry, check, what):
    assert check(entry)
    assert not any(check(broken) for broken in break_entries(entry, runs=2)[what])


def test_ways_of_taking_a_token_away_agree_and_broken_ones_do_not(entry):
    rng = np.random.default_rng(1)
    ways = {
        way: (entry["replaced"].dims, entry["replaced"].values * rng.uniform(0.95, 1.05, (40, 24)))
        for way in ("deleted", "hidden")
    }
    whole = entry.assign(ways)
    assert ways_agree(whole, resamples=100)
    assert not any(ways_agree(x, resamples=100) for xs in break_ways(whole, runs=3).values() for x in xs)
