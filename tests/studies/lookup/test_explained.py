"""Prompts of known answers, explained many at a time, and one at a time by the front door."""

import numpy as np
import pytest

import posbias
from posbias.measure.instrument import Instrument
from studies.lookup.explained import TIMES, WAYS, _drawn, measure_explained, segment_sizes, shares
from studies.lookup.network import load, save, untrained
from studies.lookup.prompts import vocabulary
from studies.lookup.settings import Setting

SETTING = Setting("steep", layers=2, pairs=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("networks")
    save(untrained(SETTING, 0), SETTING, root / f"{SETTING.name}.seed0")
    return root


def test_many_at_a_time_are_as_each_by_the_front_door(folder):
    place, names = folder / f"{SETTING.name}.seed0", vocabulary(SETTING)
    asked, others = (_drawn(SETTING, 8, 1, which) for which in (0, 1))
    instrument, texts = Instrument(load(place)), [" ".join(names[i] for i in row) for row in others.ids.tolist()]
    sizes = segment_sizes(instrument, asked.ids, 1, shares(instrument, others.ids).mean(0))
    opened = posbias.open(place)
    profile = opened.measure(texts=texts, length=5, quantities=("mixing", "influence"))
    for k in (0, 5):
        text = " ".join(names[i] for i in asked.ids[k].tolist())
        found = opened.explain(text, segments=" ", profile=profile).segments[:-1]
        assert np.allclose(found["share"], sizes[0, k], rtol=1e-4)
        ratio = found["without_position"] / sizes[1, k]
        assert np.allclose(ratio, ratio.iloc[0], rtol=1e-4)
        assert np.allclose(-found["removed"], sizes[3, k], atol=1e-4)
        assert np.allclose(sizes[2, k] / sizes[0, k], (sizes[1, k] / sizes[0, k])[::-1])


def test_a_network_that_reads_one_place_is_named_for_it_alone(folder, monkeypatch):
    """Where one pair alone has any size, it is first when the answer is there, and never else."""
    sizes = np.zeros((4, 16, 4)) + [1, 0, 0, 0]
    monkeypatch.setattr("studies.lookup.explained.segment_sizes", lambda _, ids, *__: sizes[:, : len(ids)])
    monkeypatch.setattr("studies.lookup.explained.shares", lambda _, ids: np.ones(ids.shape))
    found = measure_explained(SETTING, [0], folder, asked=16, profiled=4)
    assert found["first"].dims == ("seed", "times", "prompt", "way") and found.sizes["way"] == len(WAYS)
    assert found["place"].shape == (len(TIMES), 16)
    assert (found["first"].sel(way="removed")[0].values == (found["place"].values == 0)).all()
