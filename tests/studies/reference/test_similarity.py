"""Histograms of content logits: against numpy's, whatever the batches, and their entropy."""

import numpy as np
import pytest
from measuring import make

from posbias.measure.corpus import Corpus
from posbias.measure.session import Session
from posbias.models import attention
from posbias.models.in_memory import InMemory
from posbias.settings import Settings
from studies.reference.similarity import BIN_WIDTH, bin_centres, count_logits, entropy_similarity, measure_similarity


@pytest.mark.parametrize("name", ["bloom", "mistral"])
def test_entries_are_counted_where_numpy_counts_them(name, monkeypatch):
    monkeypatch.setitem(attention.MOST_ENTRIES, "cpu", 1)  # eight queries in a block
    source = InMemory(network=make(name))
    how = {"rule": "random", "prompts": 5, "length": 12}
    session = Session(Settings(source, Corpus(), batch_size=2, dtype="float32", device="cpu", **how))
    seen = {}
    session.instrument.measure(session.ids, lambda x: seen.update({x.layer: x.content().numpy().copy()}))
    edges = np.concatenate([[-np.inf], bin_centres()[1:] - BIN_WIDTH / 2, [np.inf]])
    counts, own = count_logits(session), np.eye(12, dtype=bool)
    for t, content in seen.items():
        for h in range(session.instrument.H):
            for region, part in enumerate((own, ~own)):
                z = content[:, h][:, part]
                assert np.abs(counts[region, t, h] - np.histogram(z[np.isfinite(z)], edges)[0]).sum() <= 4
                assert counts[region, t, h].sum() == np.isfinite(z).sum()
    found = measure_similarity(session.settings)["similarity_offdiagonal"][1]
    assert found.shape == (3, session.instrument.H) and np.array_equal(found, entropy_similarity(counts[1]))
