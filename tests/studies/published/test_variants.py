"""The letters of the published rollouts, what the architectures change in them, and their means."""

import numpy as np
import pytest

from posbias.published import numbers
from posbias.rollout.profiles import mean_position
from studies.published.variants import READINGS, VARIANTS, reading_frame, variant_config, variant_profile


@pytest.mark.parametrize("model", numbers.MODELS)
@pytest.mark.parametrize("variant", "ab")
def test_content_free_variants_are_the_authors_own_files(model, variant):
    own = numbers.config(model, "none", residual=variant == "b")
    assert np.array_equal(variant_profile(model, variant, 32), own.at_length(32).profile())


def test_each_letter_changes_one_thing():
    a, b, c = (variant_config("bloom-7b1", v, 16) for v in VARIANTS)
    assert (a.lambdas() == 1).all() and (b.lambdas() == c.lambdas()).all() and b.lambdas().max() < 1
    assert a.content_config == b.content_config and not np.any(b.content_config.diagonal_scores)
    assert np.any(c.content_config.diagonal_scores)
    assert {a.sequence_length, b.sequence_length, c.sequence_length} == {16}


def test_data_set_brings_its_own_schedule():
    here, there = (variant_config("mpt-7b", "b", 8, x).lambdas() for x in ("fineweb-edu", "wikipedia"))
    assert not np.allclose(here, there)


def test_readings_replace_slopes_and_scale():
    slopes = {r: variant_config("falcon-rw-7b", "c", 8, reading=r).kernels().slopes[0, 0] for r in READINGS}
    content = {r: variant_config("falcon-rw-7b", "c", 8, reading=r).kernels().diagonal[0, 0] for r in READINGS}
    assert slopes["both"] == slopes["slopes only"] == pytest.approx(slopes["as published"] / 8)  # head size 64
    assert content["both"] == content["content only"] == pytest.approx(content["as published"] / 8)
    assert (slopes["content only"], content["slopes only"]) == (slopes["as published"], content["as published"])


def test_profiles_are_kept_and_cannot_be_written_to():
    p = variant_profile("mpt-7b", "b", 8)
    assert variant_profile("mpt-7b", "b", 8) is p
    with pytest.raises(ValueError, match="read-only"):
        p[0] = 1


def test_frame_has_every_mean_once():
    frame = reading_frame(16)
    assert len(frame) == 5 * 2 * 4 and not frame.duplicated(["model", "variant", "reading"]).any()
    row = frame.query("model == 'bloom' and variant == 'c' and reading == 'both'").iloc[0]
    assert row["mean"] == mean_position(variant_profile("bloom", "c", 16, reading="both"))
    unchanged = frame.query("model == 'mpt-7b' and variant == 'b'")
    assert unchanged["mean"].nunique() == 1  # the file has MPT's slopes, and (b) has no content


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bloom", "d", 8), "variant: expected one of a, b, c, received d"),
        (("bloom", "b", 8, "fineweb-edu", "neither"), "reading: expected one of as published"),
        (("gpt", "b", 8), "model: expected one of falcon"),
        (("bloom", "b", 0), "sequence_length"),
    ],
)
def test_what_is_not_there_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        variant_profile(*arguments)
