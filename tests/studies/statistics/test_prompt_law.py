"""The law that intervals are tried on has the profile, the correlations and the documents that it says."""

import numpy as np
import pytest

from studies.statistics.prompt_law import PromptLaw

P = np.array([0.4, 0.1, 0.1, 0.15, 0.25])


def test_the_mean_profile_is_the_one_given():
    g, _ = PromptLaw(P, spread=0.6, reach=1.0).draw(np.random.default_rng(0), 200_000)
    assert g.mean(0) / g.mean(0).sum() == pytest.approx(P, abs=2e-3)
    assert np.log(g[:, 0]).std() == pytest.approx(np.hypot(0.6, 0.5), rel=0.01)


def test_prompts_of_a_document_share_what_they_say():
    law = PromptLaw(np.full(256, 1 / 256), shared=0.7, spread=1.0, reach=2.0)
    g, units = law.draw(np.random.default_rng(1), 4000, 2)
    assert (units == np.repeat(np.arange(4000), 2)).all()
    z = np.log(g) - np.log(g).mean(1, keepdims=True)
    first, second = z[::2], z[1::2]
    assert np.corrcoef(first[:, 5], second[:, 5])[0, 1] == pytest.approx(0.7, abs=0.04)
    assert abs(np.corrcoef(first[:-1, 5], second[1:, 5])[0, 1]) < 0.06
    together = np.corrcoef(z[:, 5], z[:, 7])[0, 1]
    assert together == pytest.approx(np.exp(-0.25), abs=0.05)
