"""A model that is opened is read once: measuring, explaining and looking up share its weights and its tokenizer."""

import numpy as np
import pytest
import torch
from measuring import WORDS, save, text

import posbias
from posbias.models.loading import Source

ROWS = [{"documents": [text(6, 1), text(6, 2)], "question": text(3, 3), "answer": WORDS[0], "gold": 0}]
ASKED = {"prompts": 2, "length": 12, "rule": "random"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("place") / "llama", max_position_embeddings=512)


@pytest.fixture
def reads(monkeypatch):
    """Return what was read of files so far: how weights were asked for, and ``tokenizer``."""
    found, weights, tokenizer = [], Source.read_model, Source.read_tokenizer
    monkeypatch.setattr(Source, "read_model", lambda self, *how: found.append(how) or weights(self, *how))
    monkeypatch.setattr(Source, "read_tokenizer", lambda self: found.append("tokenizer") or tokenizer(self))
    return found


def test_all_that_is_asked_of_a_model_shares_its_weights(folder, reads):
    opened = posbias.open(folder)
    assert not reads, "opening reads the configuration alone"
    opened.preview_lookup(rows=ROWS)
    assert reads == ["tokenizer"]
    first = opened.measure(**ASKED)
    explained = opened.explain(text(20, 0))
    found = opened.lookup(rows=ROWS, arms="competing", score="exact")
    again = opened.measure(**ASKED)
    assert reads == ["tokenizer", (torch.float32, "cpu", None, "sdpa")]
    np.testing.assert_array_equal(first.influence, again.influence)  # nothing of the others is left in the model
    alone = [posbias.open(folder) for _ in range(2)]
    assert alone[0].explain(text(20, 0)).value == explained.value
    scores = alone[1].lookup(rows=ROWS, arms="competing", score="exact").results["log_probability"]
    np.testing.assert_array_equal(found.results["log_probability"], scores)


@pytest.mark.parametrize("other", [{"dtype": "bfloat16"}, {"attention": "eager"}])
def test_weights_are_read_anew_for_another_format_or_attention(folder, reads, other):
    opened = posbias.open(folder)
    opened.measure(**ASKED)
    changed = opened.measure(**ASKED, **other)
    assert [how for how in reads if how != "tokenizer"] == [
        (torch.float32, "cpu", None, "sdpa"),
        (getattr(torch, other.get("dtype", "float32")), "cpu", None, other.get("attention", "sdpa")),
    ]
    assert changed.provenance["dtype"] == other.get("dtype", "float32")
    assert len(opened.source._weights) == 1, "the first weights are let go"


def test_in_16_bits_the_instrument_is_checked_in_32_before_weights_stay(folder, reads):
    opened = posbias.open(folder)
    first = opened.measure(**ASKED, dtype="bfloat16")
    assert [how[0] for how in reads if how != "tokenizer"] == [torch.float32, torch.bfloat16]
    opened.measure(**ASKED, dtype="bfloat16")
    assert len(reads) == 2 + (reads[0] == "tokenizer") and '"bits": 32' in first.provenance["self_check"]
