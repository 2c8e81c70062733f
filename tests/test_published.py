import functools
import hashlib
import http.server
import threading

import numpy as np
import pytest

from posbias import published
from posbias.logits import alibi_slopes, geometric_slopes

needs_files = pytest.mark.skipif(
    not published.available(), reason="the authors' files are not in POSBIAS_DATA or the cache"
)


@pytest.fixture
def small_registry(tmp_path, monkeypatch):
    """A registry of two files, none of them there yet."""
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path / "data"))
    files = {"LICENSE": b"licence", "figures/one.pdf": b"a figure"}
    entries = {name: f"sha256:{hashlib.sha256(content).hexdigest()}" for name, content in files.items()}
    monkeypatch.setattr(published, "registry", lambda *_: entries)
    return files


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{running.server_port}/"
    running.shutdown()
    running.server_close()


def serve(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def test_missing_files_are_downloaded_checked_and_then_read(small_registry, server):
    folder, url = server
    serve(folder, small_registry)
    assert not published.available()
    paths = published.download(url)
    assert [path.read_bytes() for path in paths] == list(small_registry.values()) and published.available()
    assert published.path("figures/one.pdf").read_bytes() == b"a figure"


def test_a_download_with_another_checksum_is_not_kept(small_registry, server):
    folder, url = server
    serve(folder, {**small_registry, "LICENSE": b"something else"})
    with pytest.raises(ValueError, match="hash"):
        published.download(url)
    assert not (published.data_dir() / "LICENSE").exists()


def test_an_unreachable_server_is_an_os_error(small_registry, server):
    with pytest.raises(OSError):
        published.download(server[1] + "nowhere/")


def test_a_changed_file_is_refused_and_removed(small_registry):
    bad = published.data_dir() / "LICENSE"
    bad.parent.mkdir(parents=True)
    bad.write_bytes(b"changed")
    with pytest.raises(ValueError, match="checksum: expected sha256:.*received sha256:.*was removed"):
        published.path("LICENSE")
    assert not bad.exists()


def test_what_is_not_there_says_how_to_get_it(small_registry):
    with pytest.raises(FileNotFoundError, match="--download"):
        published.path("LICENSE")
    with pytest.raises(FileNotFoundError, match="from https://github.com/starmpcc"):
        published.path("LICENSE", "layernorm_recency_bias")
    with pytest.raises(ValueError, match="one of the 2 names.*received other"):
        published.path("other")


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="model: expected one of falcon-rw-7b"):
        published.config("gpt-2")
    with pytest.raises(ValueError, match="figure: expected one of measured"):
        published.figure_profile("figure 7")
    with pytest.raises(ValueError, match="entry: expected"):
        published.printed(4, "bloom", "a")


def test_the_tables_are_whole():
    entries = published.printed_tables()
    assert len(entries) == 5 * 3 + 5 * 2 * 3 + 5 * 2 * 3
    assert {e.model for e in entries} == set(published.MODELS)
    entry = published.printed(2, "bloom", "c")
    assert (entry.wasserstein, entry.n) == (0.01, 256) and (entry.low, entry.high) == pytest.approx((0.005, 0.015))
    for model in published.MODELS:
        for variant in "bc":
            assert published.printed(2, model, variant).wasserstein == published.printed(3, model, variant).wasserstein


@needs_files
@pytest.mark.parametrize("model", published.MODELS)
def test_every_configuration_is_read_as_published(model):
    full, none, mean = (published.config(model, content) for content in ("all", "none", "mean"))
    assert np.array_equal(full.lambdas(), none.lambdas()) and np.array_equal(full.lambdas(), mean.lambdas())
    assert full.kernels().diagonal.shape == (full.num_layers, full.attention_config.num_heads)
    assert np.allclose(full.kernels().slopes[0], geometric_slopes(full.kernels().H), rtol=1e-12)
    assert not np.array_equal(full.lambdas(), published.config(model, "all", "dclm").lambdas())


@needs_files
@pytest.mark.parametrize(("figure", "variant"), [("no_residual", "a"), ("bloom", "b"), ("bloom_content", "c")])
def test_the_engine_draws_the_authors_figures(figure, variant):
    config = published.config("bloom")
    config = config if variant == "c" else config.without_content()
    config = config.without_residual() if variant == "a" else config
    assert np.abs(published.figure_profile(figure) - config.profile()).max() < 2e-7  # what the points' sum misses 1 by


@needs_files
def test_the_measured_curve_is_a_profile_of_256_tokens():
    p = published.measured_profile()
    assert p.size == 256 and p.sum() == pytest.approx(1) and (p > 0).all()
    assert p.argmax() == 255 and p[0] > p[1]


@needs_files
def test_only_bloom_176b_has_a_number_of_heads_that_is_no_power_of_two():
    for name in published.MODELS:
        H = published.config(name, "none").attention_config.num_heads
        assert np.allclose(geometric_slopes(H), alibi_slopes(H)) == (name != "bloom")


def test_the_printed_recency_probabilities_are_whole():
    entries = published.printed_recency()
    assert len(entries) == 2 * 4 * 4 and len({(e.d, e.alpha, e.norm, e.residual, e.layer) for e in entries}) == 32
    assert {e.d for e in entries} == {16, 64} and {e.layer for e in entries} == {1, 2, 3, 4}
    first = [e.probability for e in entries if e.layer == 1]
    assert first == [0.5] * 8
    assert max(entries, key=lambda e: e.probability) == published.PrintedRecency(
        16, 0.5, "layernorm", "none", 4, 0.9079
    )


@pytest.mark.skipif(
    not published.available("layernorm_recency_bias"), reason="the LayerNorm authors' figures are not in POSBIAS_DATA"
)
def test_the_table_is_what_the_figures_print():
    read = []
    for name in published.RECENCY_FIGURES:
        read += published.read_recency_figure(published.path(name, "layernorm_recency_bias"))
    assert len(read) == 32 and set(read) == set(published.printed_recency())


@needs_files
def test_a_figure_without_recency_probabilities_is_refused():
    with pytest.raises(ValueError, match="expected 0 × 0 probabilities, received 0"):
        published.read_recency_figure(published.path(published.FIGURES["bloom"]))
