"""The module or document that prompts are from, as files tell it."""

import numpy as np
import pytest

from posbias.measure.corpus import document_units, known_units
from posbias.shipped import held_out_documents, held_out_modules
from studies.reference.measure import unit_groups
from studies.reference.texts import documents, is_held_out
from studies.results import load


@pytest.mark.parametrize(("entry", "units"), [("bloom-8.builtin", 85), ("bloom-8.random", 128)])
def test_prompts_of_kept_measurements(entry, units):
    kept = load("models")[entry]
    found = known_units(kept)
    assert found.size == kept.attrs["prompts"] and len(set(found)) == units == found.max() + 1
    if entry == "bloom-8.builtin":  # all documents are long enough, so that prompt k is of document k
        modules = held_out_modules()[: found.size]
        assert found.tolist() == [[*dict.fromkeys(modules)].index(name) for name in modules]
        bare = kept.drop_vars("document")
        assert known_units(bare) is None and known_units(bare.assign_attrs(dataset="d.jsonl")).tolist() == [*range(256)]
        assert known_units(kept.assign_attrs(dataset="d.jsonl")).tolist() == [*range(256)]


def test_modules_are_held_out_ones_and_their_texts_are_the_documents():
    modules, texts = held_out_modules(), held_out_documents()
    assert len(modules) == len(texts) and all(map(is_held_out, modules))
    named = {}
    for document in documents("held-out"):
        named.setdefault(document.name, []).append(document.text)
    here = [any(whole.startswith(text) for whole in named.get(name, ())) for name, text in zip(modules, texts)]  # noqa: B905
    elsewhere = [any(whole.startswith(text) for whole in sum(named.values(), [])) for text in texts[:40]]
    assert here[:40] == elsewhere  # another version of Python has other texts, but no other names for equal ones


def test_groups_keep_units_together_and_are_about_equal():
    units = document_units(np.arange(64), "builtin")
    group = unit_groups(units, 8)
    assert all(len(set(group[units == u])) == 1 for u in set(units)) and np.bincount(group).tolist() == [8] * 8
    with pytest.raises(ValueError, match="groups: expected at most 2, the units, received 3"):
        unit_groups(np.array([0, 1, 1]), 3)
