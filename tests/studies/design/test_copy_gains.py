"""How much a model copies from each part of a prompt, for studies that change the model."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from measuring import save, write_documents
from transformers import AutoModelForCausalLM

from posbias.lookup.copies import copy_prompts
from posbias.lookup.tasks import CUE, SEGMENT, Task
from posbias.measure.corpus import Corpus
from posbias.measure.loading import Source
from posbias.measure.study import Settings
from posbias.networks.added_biases import added_biases
from studies.design.copy_gains import PARTS, copy_gains

PLACES, PROMPTS = 12, 30
LENGTH = 1 + PLACES - 1 + 2 * (CUE + SEGMENT)
"""Tokens of prompts with so many places after the start token."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """Return settings of a tiny random Llama whose tokenizer puts a token in front."""
    root = tmp_path_factory.mktemp("copying")
    corpus = Corpus(str(write_documents(root / "d.jsonl", [40] * PROMPTS)))
    return Settings(Source(str(save(root / "llama"))), corpus, prompts=4, length=LENGTH, batch_size=7)


@pytest.fixture(scope="module")
def model(settings):
    return AutoModelForCausalLM.from_pretrained(settings.source.model, attn_implementation="eager").eval()


@torch.no_grad()
def by_hand(model, settings):
    """Return the gain of each part from the model's logits alone, a prompt at a time."""
    task = Task("copy", length=LENGTH)
    drawn = copy_prompts(task, settings.corpus, settings.source.load_tokenizer(), PROMPTS)
    assert len(drawn.starts) == PLACES and set(drawn.places) == set(range(PLACES))
    found = [[] for _ in range(PARTS)]
    for ids, control, answer, place in zip(drawn.ids, drawn.controls, drawn.answers, drawn.places, strict=True):
        seen, without = (
            model(torch.from_numpy(x[None])).logits[0, -SEGMENT:].double().log_softmax(-1).numpy()
            for x in (ids, control)
        )
        at = np.arange(SEGMENT), answer
        found[int(place / PLACES * PARTS)].append((seen[at] - without[at]).mean())
    return np.array([np.mean(x) for x in found])


def test_parts_are_means_of_the_gains_of_their_places(settings, model):
    found = copy_gains(settings, PROMPTS)(model)
    expected = by_hand(model, settings)
    assert found.shape == (PARTS,) and np.ptp(expected) > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-5)
    whole = copy_gains(replace(settings, batch_size=PROMPTS), PROMPTS)(model)
    np.testing.assert_allclose(whole, expected, atol=1e-5)


def test_a_changed_model_gains_what_it_does_then_and_the_same_as_before_afterwards(settings, model):
    gains = copy_gains(settings, PROMPTS)
    before = gains(model)
    with added_biases(model, {"kind": "alibi", "slope": 0.3}):
        inside, expected = gains(model), by_hand(model, settings)
    assert (np.abs(inside - before) > 1e-3).all()
    np.testing.assert_allclose(inside, expected, atol=1e-5)
    np.testing.assert_array_equal(gains(model), before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 39}, "length: expected at least 40, for a text that has cue and segment, and these again"),
        ({"length": 40}, "length: expected at least 41, for a text that has cue and segment, and these again"),
        ({"length": 70}, f"expected {PROMPTS} prompts of 50 tokens, received 0 from {PROMPTS} documents"),
    ],
)
def test_prompts_that_cannot_be_copied_from_are_refused(settings, changes, message):
    with pytest.raises(ValueError, match=message):
        copy_gains(replace(settings, **changes), PROMPTS)
