"""Texts have the memory that they say, a reach is that of optimal prediction, and the command keeps what it has."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from studies.memory import evidence, measure, texts
from studies.memory.__main__ import main
from studies.memory.texts import LENGTH, LETTERS, TEXTS
from studies.results import Results


@pytest.mark.parametrize("kind", ["memory-1", "memory-8", "copy-64"])
def test_a_letter_is_one_of_those_that_its_text_remembers(kind):
    text, letters = TEXTS[kind], texts.draw_text(TEXTS[kind], 400, np.random.default_rng(0))
    last = letters[:, -1:]
    back = [text.memory] if text.copy else range(1, text.memory + 1)
    there = (letters[:, [-1 - k for k in back]] == last).any(1).mean()
    found = texts.predict_next(text, letters[:, :-1])
    assert there >= texts.STAY - 0.05 and np.allclose(found.sum(1), 1)
    elsewhere = letters[:, -1 - text.memory - 30]
    same = np.take_along_axis(found, last, 1).mean()
    assert same > np.take_along_axis(found, elsewhere[:, None], 1).mean() + 0.1


def test_no_prediction_is_better_than_the_optimal_one():
    """A table of pairs, counted on the same text, loses no less than what is known of how the text is made."""
    text = TEXTS["memory-1"]
    letters = texts.draw_text(text, 400, np.random.default_rng(3))
    counts = np.ones((LETTERS, LETTERS))
    np.add.at(counts, (letters[:200, :-1].ravel(), letters[:200, 1:].ravel()), 1)
    table = np.log(counts / counts.sum(1, keepdims=True))
    half = LENGTH // 2
    counted = -table[letters[200:, half - 1 : -1], letters[200:, half:]].mean()
    optimal = texts.optimal_loss(text, letters[200:])
    assert optimal < counted < optimal + 0.05 < np.log(LETTERS)


@pytest.mark.parametrize("kind", ["memory-1", "memory-8", "memory-64", "copy-64"])
def test_the_reach_of_optimal_prediction_is_the_memory(kind):
    text, rng = TEXTS[kind], np.random.default_rng(0)
    letters = texts.draw_text(text, 4, rng)
    use = np.zeros(letters.shape)
    own = texts.predict_next(text, letters)
    for place in range(LENGTH):
        other = letters.copy()
        other[:, place] = (other[:, place] + 1) % LETTERS
        use[:, place] = np.abs(texts.predict_next(text, other) - own).sum(1) / 2
    assert evidence.reach(use.mean(0)) == text.memory
    assert evidence.half_distance(use.mean(0)) == pytest.approx(evidence.optimal_half(kind), abs=1)


def entry(reach, learnt=True, first=1.5, prompts=6):
    """Return an entry of three seeds whose profiles reach so far, and have so much at the beginning."""
    profile = np.zeros(LENGTH)
    profile[-reach:] = 1.0
    free = np.ones(LENGTH)
    free[:16] = first
    rows = np.tile(np.stack([profile, free])[:, None], (3, 1, prompts, 1))
    loss = np.full(3, 1.0 if learnt else evidence.GUESS)
    arrays = {x: (("seed", "text", "prompt", "position"), rows) for x in evidence.QUANTITIES}
    arrays |= {"loss": (("seed",), loss), "optimum": (("seed",), np.full(3, 0.9))}
    return xr.Dataset(arrays, {"seed": [0, 1, 2], "text": ["own", "none"]})


def test_halves_are_judged_by_those_of_optimal_prediction():
    table = evidence.network_table({"rope.memory-8": entry(9), "rope.memory-64": entry(8), "rope.memory-1": entry(1)})
    assert table.groupby("text")["use half"].first().to_dict() == {"memory-1": 1, "memory-64": 4, "memory-8": 5}
    assert evidence.near_half(table, "use").tolist() == [True] * 3 + [False] * 3 + [True] * 3
    assert evidence.numbers(table)["memory_half_use"] == 6


def test_checks_say_what_was_put_in():
    kept = {"rope.memory-1": entry(1), "rope.memory-8": entry(9), "nope.memory-64": entry(5, learnt=False)}
    table = evidence.network_table(kept)
    end, beginning, *_ = evidence.memory_checks(table)
    assert end.passed and end.how["undecided"] and end.figure.startswith("6 of 6") and beginning.passed
    assert not any(end.broken["texts exchanged"]) and not any(beginning.broken["beginnings at an equal share"])
    table = evidence.network_table(kept | {"alibi.memory-64": entry(4), "alibi.none": entry(100, first=1.0)})
    end, beginning, *_ = evidence.memory_checks(table)
    assert not end.passed and "ALiBi, memory-64" in end.reason
    assert not beginning.passed and beginning.reason.startswith("3 networks")
    whole = {f"{network}.{text}": entry(texts.TEXTS[text].memory or 1) for network in evidence.NAMES for text in TEXTS}
    assert not any(check.how["undecided"] for check in evidence.memory_checks(evidence.network_table(whole)))


def test_networks_are_trained_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "PROMPTS", 2)
    monkeypatch.setitem(TEXTS, "memory-1", replace(TEXTS["memory-1"], steps=2))
    path = tmp_path / "memory.nc"
    main(["rope.memory-1", "-o", str(path)])
    kept = Results(path)["rope.memory-1"]
    assert kept["use"].shape == (3, 2, 2, LENGTH) and np.isfinite(kept["gradient"]).all()
    assert np.isfinite(kept["use"][..., -measure.DENSE :]).all()
    capsys.readouterr()
    main(["rope.memory-1", "-o", str(path)])
    assert capsys.readouterr().out == ""
    with pytest.raises(SystemExit):
        main(["rope.memory-2", "-o", str(path)])
    assert "received rope.memory-2" in capsys.readouterr().err
