"""The retrieval task from scratch: its settings, presets, and the sequences that it makes."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch

from studies.icl.settings import PAIRS, PRESETS, Bias, Task, preset
from studies.icl.task import Stream

FIXED = Task(vocabulary="fixed")


def test_presets_are_the_figures_grids():
    sizes = {name: len(preset(name)) for name in PRESETS}
    assert sizes == {
        "figure2": 18, "figure3": 6, "figure4": 9, "figure5": 9, "figure6": 18, "figure7": 1, "figure8": 7,
        "figure9": 9, "figure10": 9, "figure11": 24, "figure12": 1, "figure13": 7, "spread": 12, "deep": 3,
    }  # fmt: skip
    everything = {setting for name in PRESETS for setting in preset(name)}
    assert len({setting.name for setting in everything}) == len(everything)
    assert {s.network.mask.width for s in preset("figure8")} == {0, 5, 9, 13, 2, 4, 6}
    assert all(s.task.vocabulary == "fixed" for k in (9, 10, 11, 12, 13) for s in preset(f"figure{k}"))
    with pytest.raises(ValueError, match="preset: expected one of figure2, .*, received figure1"):
        preset("figure1")


def items_labels_query(tokens):
    return tokens[..., :-1:2, :], tokens[..., 1::2, :], tokens[..., -1, :]


@pytest.mark.parametrize("bias", get_args(Bias))
def test_the_query_has_the_class_of_an_item_that_the_bias_allows(bias):
    stream = Stream(replace(FIXED, bias=bias), 0)
    tokens, label = stream.batch(300)
    items, labels, query = items_labels_query(tokens)
    same = (items == query[:, None]).all(-1)
    told = (labels == stream.label_vectors[label][:, None]).all(-1)
    assert (same.sum(1) == 4).all() and (told | ~same).all()  # B items of the class, all with its label
    if bias in ("first", "middle", "last"):
        assert same[:, stream.task.places[bias]].all()
    if bias == "ends":
        assert (same[:, 0] | same[:, -1]).all() and not same[:, 0].all() and not same[:, -1].all()
    if bias == "none":
        assert 0.4 < same.float().mean() < 0.6 and same.float().mean(0).max() < 0.62


def test_items_of_a_class_scatter_by_epsilon_and_fixed_classes_share_a_direction():
    stream = Stream(Task(), 0)
    centre = stream.centres[:1].expand(50_000, -1)
    x = stream._items(centre)
    assert torch.allclose(x.mean(0), stream.centres[0] / (1 + 0.75**2) ** 0.5, atol=0.003)
    assert (x - x.mean(0)).std().item() == pytest.approx(0.75 / 8 / (1 + 0.75**2) ** 0.5, rel=0.01)
    fixed = Stream(FIXED, 0).centres
    cosine = torch.nn.functional.cosine_similarity(fixed[0::2], fixed[1::2])
    assert cosine.mean().item() == pytest.approx(0.75**2 / (1 + 0.75**2), abs=0.05)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("task", [Task(), FIXED, Task(items=4, burstiness=1, labels=5)])
def test_the_two_orders_of_a_trial_differ_in_two_labels_alone(task, pair):
    stream = Stream(task, 0)
    tokens, label = stream.trials(*pair, 50)
    a, b = (task.places[name] for name in pair)
    items, labels, query = items_labels_query(tokens)
    right = stream.label_vectors[label]
    assert torch.equal(items[:, :, a], items[:, :, b])
    assert torch.equal(labels[0, :, a], right) and torch.equal(labels[1, :, b], right)
    assert torch.equal(labels[0, :, b], labels[1, :, a]) and not (labels[0, :, b] == right).all(-1).any()
    changed = (tokens[0] != tokens[1]).any(-1).any(0)
    assert changed.nonzero().flatten().tolist() == [2 * a + 1, 2 * b + 1]
    rest = [i for i in range(task.items) if i not in (a, b)]
    for row in labels[0]:
        assert len(np.unique(row.numpy(), axis=0)) == task.items  # every label once
    if task.vocabulary == "fixed":
        assert torch.equal(query[0], items[0, :, a]) and not (items[0][:, rest] == query[0][:, None]).all(-1).any()
    else:
        near = torch.nn.functional.cosine_similarity(query[0], items[0, :, a]).mean().item()
        assert near == pytest.approx(1 / (1 + 0.75**2), abs=0.1)  # of one class, and not the same
        assert not torch.isin(items[0, :, a], stream.centres).all()


def test_novel_sequences_have_new_classes_and_the_query_any_place():
    stream = Stream(FIXED, 0)
    tokens, label = stream.novel(500)
    items, labels, query = items_labels_query(tokens)
    same = (items == query[:, None]).all(-1)
    assert (same.sum(1) == 4).all()
    assert torch.equal(same, (labels == stream.label_vectors[label][:, None]).all(-1))
    assert not any((stream.centres == x).all(-1).any() for x in query[:20])


def test_a_seed_decides_all_and_what_is_drawn_apart_changes_nothing():
    one, other, third = Stream(Task(), 3), Stream(Task(), 3), Stream(Task(), 4)
    apart = one.apart(9)
    apart.trials("first", "last", 5)
    assert torch.equal(apart.centres, one.centres)
    assert torch.equal(one.batch(5)[0], other.batch(5)[0])
    assert not torch.equal(third.batch(5)[0], other.batch(5)[0])
