"""The study's entries: what was stopped goes on, and results/real.nc says what the page says of it."""

import numpy as np
import pytest
import xarray as xr
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
    words = ["--only", place / "tiny", "--prompts", prompts, "--length", 16, "-o", output]
    words += ["--wikitext", place / "articles.txt"]
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


def test_rollouts_are_crossed_by_how_much_and_from_whom():
    rng, (T, n) = np.random.default_rng(0), (3, 8)
    A, C = (np.tril(rng.uniform(0.1, 1, (T, n, n))) for _ in range(2))
    C[1, 4] = np.eye(n)[4]  # a token to which no other contributes
    A, C = A / A.sum(-1, keepdims=True), C / C.sum(-1, keepdims=True)
    arrays = {"attention": (("layer", "query", "key"), A), "contributions": (("layer", "query", "key"), C)}
    arrays |= {name: (("layer",), rng.uniform(0.1, 0.5, T)) for name in ("lambda_frobenius", "lambda_token")}
    results = xr.Dataset(arrays)
    found = entries.cross_rollouts(results)
    for amount, shares in (("token", results["lambda_token"].values), ("half", np.full(T, 0.5))):
        row = np.eye(n)[-1]
        for share, kernel in zip(shares[::-1], A[::-1], strict=True):
            row = (1 - share) * row + share * (row @ kernel)
        np.testing.assert_allclose(found.crossed.sel(whom="attention", amount=amount), row)
    np.testing.assert_allclose(found.crossed.sum("position"), 1)
    assert found.first_share.sel(whom="contributions").values[1] == pytest.approx(
        sum(C[1, i, 0] / (1 - C[1, i, i]) for i in range(1, n) if i != 4) / (n - 1)
    )
    assert found.first_share.sel(whom="uniform").values == pytest.approx(np.mean(1 / np.arange(2, n + 1)))
    assert found.first_share_late.sel(whom="uniform").values == pytest.approx(np.mean(1 / np.arange(5, n + 1)))
    assert found.first_share.sel(whom="contributions").values[0] == pytest.approx(
        np.mean([C[0, i, 0] / (1 - C[0, i, i]) for i in range(1, n)])
    )
    assert found.contributions_taken.values == pytest.approx(1 - np.einsum("tii->ti", C)[:, n // 4 :].mean(1))


def test_a_prompt_in_a_template_is_what_the_template_makes(place, monkeypatch):
    tokenizer = AutoTokenizer.from_pretrained(place / "tiny")
    tokenizer.chat_template = "w1 w2 {{ messages[0]['content'] }} w3{% if add_generation_prompt %} w4{% endif %}"
    before, after = entries.frame_of(tokenizer, "chat")
    whole = tokenizer.apply_chat_template(
        [{"role": "user", "content": "w5 w6"}], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    own = tokenizer("w5 w6", add_special_tokens=False).input_ids
    assert before and [*before, *own, *after.tolist()] == whole
    assert entries.frame_of(tokenizer, "none")[1].tolist() == []
    monkeypatch.setattr(entries, "ASKS", "w7 w8 ")
    monkeypatch.setattr(entries, "BEGINS", " w9")
    asked, begun = (tokenizer(text, add_special_tokens=False).input_ids for text in ("w7 w8", "w9"))
    assert entries.frame_of(tokenizer, "about")[1].tolist() == begun
    assert entries.frame_of(tokenizer, "chat-about")[0] == before
    assert entries.frame_of(tokenizer, "chat-about")[1].tolist() == [*asked, *after.tolist(), *begun]
