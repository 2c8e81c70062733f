"""Copying by place: where stretches stand, what the control has there, and how gains go with profiles."""

import numpy as np
import pytest
from measuring import save, write_documents
from scipy.stats import spearmanr

from posbias.measure.corpus import Corpus
from posbias.models.loading import Source
from posbias.settings import Settings
from studies.design.copying import CUE, SEGMENT, copy_prompts, difference_p_value, measure_copies, rank_correlation


@pytest.fixture
def settings(tmp_path):
    """Return settings of prompts with 24 places after the start token."""
    corpus = Corpus(str(write_documents(tmp_path / "d.jsonl", [70] * 40)))
    length = 1 + 23 + 2 * (CUE + SEGMENT)
    return Settings(Source(str(save(tmp_path / "m"))), corpus, prompts=40, length=length, batch_size=20)


def test_copying_repeats_a_stretch_and_the_control_has_other_text_in_its_first_place(settings):
    prompts = copy_prompts(settings, 40, seed=1)
    text, width = settings.length - CUE - SEGMENT, CUE + SEGMENT
    assert prompts.starts.tolist() == list(range(1, 25)) and np.bincount(prompts.places).min() == 1
    for row, control, answer, place in zip(prompts.ids, prompts.controls, prompts.answers, prompts.places, strict=True):
        at = prompts.starts[place]
        assert row[text:].tolist() == row[at : at + width - 1].tolist()
        assert answer.tolist() == row[at + CUE : at + width].tolist()
        changed = np.flatnonzero(row != control)
        assert changed.size and changed.min() >= at and changed.max() < at + width
    assert prompts.units.tolist() == list(range(40))


def test_an_entry_has_means_of_neighbouring_places_and_rank_correlations(settings):
    data = measure_copies(settings)
    first, last = data["group_first"].values, data["group_last"].values
    for k, mean in enumerate(data["gain_mean"].values):
        inside = (data["place"] >= first[k]) & (data["place"] <= last[k])
        assert mean == pytest.approx(float(data["gain"][inside].mean()), abs=1e-6)
    assert {"measured", "a", "b", "c", "kernels", "own"} == set(data["profile_name"].values)
    assert (np.abs(data["rank_correlation"].values) <= 1).all() and data.attrs["length"] == settings.length


def test_rank_correlations_and_differences_over_groups():
    rng, mean = np.random.default_rng(1), np.arange(8.0)
    drawn, other = mean + rng.normal(size=(300, 8)), rng.permutation(8).astype(float)
    estimate, low, high = rank_correlation(mean, drawn, mean**2)
    assert estimate == 1 and 0.4 < low < 1 and high == 1
    assert rank_correlation(mean, drawn, other)[0] == pytest.approx(spearmanr(mean, other).statistic)
    inside = np.repeat(np.eye(4), 10, axis=0)
    assert difference_p_value(np.repeat([0.0, 1, 0, 1], 10) + rng.normal(size=40) / 9, inside) == 1 / 2001
    assert difference_p_value(rng.normal(size=40), inside) > 0.05
