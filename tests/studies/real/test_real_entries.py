"""The study's entries: what was stopped goes on, and results/real.nc says what the page says of it."""

import numpy as np
import pytest
from measuring import save, text
from transformers import AutoTokenizer

from studies import making
from studies.real import entries
from studies.real.__main__ import PARTS
from studies.results import Results


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    save(folder / "tiny", "llama", start=False)
    (folder / "articles.txt").write_text("".join(f" = Article {k} = \n{text(60, k)}\n" for k in range(12)))
    return folder


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path / "data"))


def run(place, output, *parts, prompts=3):
    words = [
        "--only",
        place / "tiny",
        "--prompts",
        prompts,
        "--length",
        16,
        "-o",
        output,
        "--wikitext",
        place / "articles.txt",
    ]
    making.main("real", PARTS, [*parts, *map(str, words)])
    return Results(output)


def test_what_was_stopped_goes_on(place, tmp_path, monkeypatch):
    whole = run(place, tmp_path / "whole.nc", "use-64-ways")["tiny.use-64-ways"]
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path / "other"))
    read, measure = [], entries.measure_gradient

    def stop(*given):
        read.append(given)
        if len(read) == 2:
            raise KeyboardInterrupt
        return measure(*given)

    monkeypatch.setattr(entries, "measure_gradient", stop)
    with pytest.raises(SystemExit):
        run(place, tmp_path / "parts.nc", "use-64-ways")
    parts = run(place, tmp_path / "parts.nc", "use-64-ways")["tiny.use-64-ways"]
    assert len(read) == 2 + 2  # the first prompt is not read again
    for name in ("deleted", "hidden", "integrated", "gradient"):
        assert parts[name].shape == (3, 16) and np.allclose(parts[name], whole[name], atol=1e-6)
    assert "use-64-ways" in parts.attrs["command"] and parts.attrs["prompts"] == 3


def test_a_prompts_numbers_do_not_depend_on_how_many_there_are(place, tmp_path):
    three = run(place, tmp_path / "three.nc", "use-64")["tiny.use-64"].replaced
    four = run(place, tmp_path / "four.nc", "use-64", prompts=4)["tiny.use-64"].replaced
    assert np.allclose(three, four[:3], atol=1e-6) and not np.allclose(four[3], four[2], atol=1e-3)


def test_every_eighth_place_moves_with_the_prompt(place, tmp_path):
    found = run(place, tmp_path / "long.nc", "use-256")["tiny.use-256"]
    assert (
        np.flatnonzero(np.isfinite(found.replaced[1])).tolist() == [0, 1, 9, 15] and np.isfinite(found.gradient).all()
    )


def test_sinks_are_counted_by_text_and_front(place, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(place / "tiny")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(place / "tiny")
    kept = run(place, tmp_path / "more.nc", "sinks")
    sinks = kept["tiny.sinks"]
    assert sinks.heads.dims == ("prompt", "text", "front", "layer") and sinks.norm.shape == (3, 3)
    assert 0 < sinks.first_attention.min() and sinks.first_attention.max() < 1
