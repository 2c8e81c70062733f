"""The numbers that are kept, without the files that they come from: what they are, what is refused and written."""

import numpy as np
import pytest
from conftest import ROOT

from posbias.configuration import read_config
from posbias.rollout.logits import geometric_slopes
from studies.published import numbers as published

EVERY = [(m, content, x) for m in published.MODELS for content in published.CONTENTS for x in published.CORPORA]


def test_everything_that_the_papers_published_is_there():
    assert len(published.configuration_names()) == 33 and published.SHIPPED.stat().st_size < 1_000_000
    rollouts, recency = published.sources()
    assert (rollouts["repository"], rollouts["commit"]) == ("https://github.com/ml-uhh/position-bias", "a514e09")
    assert rollouts["licence"] == recency["licence"] == "MIT" and recency["copyright"] == "Copyright (c) 2026 Junu Kim"
    assert len(rollouts["files"]) == 38 and len(recency["files"]) == 3
    assert all(len(file["sha256"]) == 64 for source in published.sources() for file in source["files"])
    licences = (ROOT / "NOTICE").read_text().split()
    for source in published.sources():
        assert " ".join(source["copyright"].split()) in " ".join(licences), "NOTICE lacks a copyright line"


def test_a_configuration_is_there_or_the_refusal_says_which_are():
    for model, content, corpus in EVERY:
        if corpus in published.corpora(model, content):
            config = published.config(model, content, corpus)
            shape = (config.num_layers, config.attention_config.num_heads) if content == "all" else (1, 1)
            assert np.shape(config.content_config.diagonal_scores) == shape
            slopes = geometric_slopes(shape[1] if content == "all" else config.kernels().H)
            assert np.allclose(config.kernels().slopes[0], slopes)
        else:
            with pytest.raises(ValueError, match=f"corpus: .*with content {content}., received {corpus}"):
                published.config(model, content, corpus)


def test_numbers_are_those_of_the_authors_to_the_last_digit():
    """As they stand in the authors' files; content was recorded in single precision, the rest in double."""
    config = published.config("bloom", "all", "dclm")
    content, schedule = config.content_config, config.lambda_schedule_config
    assert content.diagonal_scores[0][:2] == [233.93902587890625, 19.272520065307617]
    assert content.base_scores[0][:2] == [28.49974822998047, -0.2713437080383301]
    assert schedule.lambdas_custom[:2] == [0.64434062063694, 0.09284814924746752]
    assert config.attention_config.alibi_slopes[0][1] == 0.9057236642639067
    for model in published.MODELS:
        content = published.config(model, "all", "wikipedia").content_config
        for values in (content.diagonal_scores, content.base_scores):
            assert np.array_equal(np.float32(values).astype(float), values)


def test_without_residual_the_authors_file_is_taken_where_there_is_one():
    own = published.config("bloom", "all", residual=False)
    assert own.save_dir.endswith("bloom-noresidual/") and (own.lambdas() == 1).all()
    derived = published.config("bloom", "all", "wikipedia", residual=False)
    assert derived == published.without_residual(published.config("bloom", "all", "wikipedia"))
    assert (derived.lambdas() == 1).all() and "noresidual" not in derived.save_dir


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize(("content", "corpus"), [("none", "fineweb-edu"), ("mean", "fineweb-edu"), ("all", "dclm")])
def test_what_is_written_is_read_back_equal(tmp_path, content, corpus, residual):
    for model in published.MODELS:
        text = published.written_config(model, content, corpus, residual)
        file = tmp_path / f"{model}.yaml"
        file.write_text(text, encoding="utf-8")
        config = published.config(model, content, corpus, residual)
        assert read_config(file) == config
        comments = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
        assert "ml-uhh/position-bias at a514e09" in comments and "MIT licence, Copyright" in comments
        assert ("Derived" in comments) == (not residual and "noresidual" not in config.save_dir)


@pytest.mark.parametrize(("figure", "variant"), [("no_residual", "a"), ("bloom", "b"), ("bloom_content", "c")])
def test_the_engine_draws_the_authors_figures(figure, variant):
    config = published.config("bloom", "all" if variant == "c" else "none", residual=variant != "a")
    y = published.figure_points(figure)
    assert y.shape == (256,) and np.abs(y - config.profile()).max() < 1e-9
    assert np.abs(published.figure_profile(figure) - config.profile()).max() < 2e-7  # what the points' sum misses 1 by


def test_the_tables_are_whole():
    entries = published.printed_tables()
    assert len(entries) == 5 * 3 + 5 * 2 * 3 + 5 * 2 * 3 and not entries.isna().any(axis=None)
    assert set(entries["model"]) == set(published.MODELS) and set(entries["dataset"]) == set(published.CORPORA)
    assert not entries.duplicated(["table", "dataset", "model", "variant"]).any()
    entry = published.printed(2, "bloom", "c")
    assert (entry.wasserstein, entry.n) == (0.01, 256)
    assert [published.printed(3, "bloom", "b", x).dataset for x in published.CORPORA] == list(published.CORPORA)
    for model in published.MODELS:
        for variant in "bc":
            assert published.printed(2, model, variant).wasserstein == published.printed(3, model, variant).wasserstein
