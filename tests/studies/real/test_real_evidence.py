"""Numbers of the page ``tokens``, on profiles made up so that the answer is known."""

import numpy as np
import pytest
import xarray as xr

from studies.real import use
from studies.real.evidence import ceiling, without_first


def entry(gradient: np.ndarray, replaced: np.ndarray, prompts: int = 40) -> xr.Dataset:
    """Return prompts whose mean is known, with a little noise that both ways share."""
    noise = np.random.default_rng(0).uniform(0.9, 1.1, (prompts, len(gradient)))
    both = {"gradient": gradient, "replaced": replaced}
    return xr.Dataset({way: (("prompt", "position"), np.array(p) * noise) for way, p in both.items()})


def test_a_part_is_counted_in_the_mean_of_the_next_three_eighths() -> None:
    flat, raised = np.ones(32), np.ones(32)
    raised[0], raised[1:4] = 6, 3
    made = entry(raised, flat)
    assert use.counted(made, "gradient", "first") == pytest.approx(6, rel=0.1)
    assert use.counted(made, "gradient", "rest") == pytest.approx(3, rel=0.1)
    assert use.counted(made, "replaced", "end") == pytest.approx(1, rel=0.1)
    gap, low, high = use.gap_of(made, "rest")
    assert low <= gap <= high and gap == pytest.approx(3, rel=1e-9)  # noise is the same by both ways


def test_a_part_is_counted_in_average_tokens() -> None:
    gradient, used = np.ones(32), np.ones(32)
    gradient[0], gradient[1:4], used[28:] = 12, 4, 3
    names = [*use.FRONTS.values(), *(name for _, name in use.FORMS.values())]
    parts = use.part_table({name: entry(gradient, used) for name in names})
    found = use.form_numbers(parts)
    assert found["use_first_gradient_64"] == pytest.approx(12 / gradient.mean(), rel=0.1)
    assert found["use_rest_replaced_chat_about"] == pytest.approx(1 / used.mean(), rel=0.1)
    ratio = 12 / gradient.mean() * used.mean()
    assert found["use_first_times_most"] == pytest.approx(ratio, rel=0.05)
    shown = use.forms_shown(parts).loc["plain text", "last eighth"]
    assert shown == "0.62 / 2.40: 0.26 (0.26 to 0.26)"  # noise is the same by both ways


def test_the_ceiling_is_what_halves_allow() -> None:
    """Two halves of a signal and noise of one variance each: a perfect prediction ranks the mean with sqrt(2/3)."""
    rng = np.random.default_rng(0)
    signal, (one, other) = rng.normal(size=10_000), rng.normal(size=(2, 10_000))
    halves = np.corrcoef(signal + one, signal + other)[0, 1]
    assert ceiling(halves) == pytest.approx(np.corrcoef(signal, signal + (one + other) / 2)[0, 1], abs=0.02)


def test_the_first_token_is_left_out() -> None:
    assert without_first(np.array([0.5, 0.3, 0.2])).tolist() == pytest.approx([0.6, 0.4])


def test_what_the_gradient_expects_is_told_from_what_comes():
    sizes = {"gradient": np.ones((9, 8)), "step": np.ones((9, 8)), "reach": np.full((9, 8), 2.0)}
    sizes["likeliest"] = np.tile([0.5, *[1.5 / 1.05] * 7], (9, 1))
    entry = xr.Dataset({name: (("prompt", "position"), x) for name, x in sizes.items()})
    kept = {f"smollm2.use-{name}": entry for name in ("64-step", "64-likeliest")}
    found = use.step_numbers(kept | {"smollm2.use-256-step": entry.isel(position=slice(None, None, -1))})
    first = 0.5 / sizes["likeliest"][0].mean()
    assert found["use_step_said"] == found["use_reach_said"] == "1.00 (1.00 to 1.00)"
    assert found["use_likeliest_said"] == f"{first:.2f} ({first:.2f} to {first:.2f})"
    of_middle = [found[f"use_likeliest{short}_middle"] for short in ("", "_256")]
    assert of_middle == ["0.3 (0.3 to 0.3)", "1.0 (1.0 to 1.0)"]
    with pytest.raises(AssertionError):
        use.step_numbers(kept | {"smollm2.use-64-likeliest": entry * 2, "smollm2.use-256-step": entry})
