"""Sums over prompts against sums done the long way, whatever the batches."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from measuring import N, make, prompts  # noqa: E402

from posbias.measure import layer_sums  # noqa: E402
from posbias.measure.attention import AttentionReading
from posbias.measure.instrument import Instrument  # noqa: E402
from posbias.measure.layer_sums import LayerStatistics, bin_centres, entropy_similarity  # noqa: E402
from posbias.measure.positions import read_positions  # noqa: E402

CPU = torch.device("cpu")


def collected(name, sizes, B=6, dtype=torch.float32, **keep):
    """Return each layer's means after the prompts came in batches of these sizes."""
    instrument = Instrument(make(name, dtype=dtype))
    layers = [LayerStatistics(instrument.H, N, CPU, **keep) for _ in range(instrument.T)]
    for batch in prompts(B).split(sizes):
        instrument.measure(batch, lambda seen: layers[seen.layer].add(seen))
    positions = read_positions(instrument, N)
    return [layer.means(B, positions.allowed(t)) for t, layer in enumerate(layers)]


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon-alibi", "mistral", "gemma2"])
@pytest.mark.parametrize(("rows", "heads"), [(5, True), (32, False)])
def test_means_are_those_of_the_prompts_one_by_one(name, rows, heads, monkeypatch):
    monkeypatch.setattr(layer_sums, "_query_block", lambda n: rows)
    layer_sums._Scratch._made.clear()
    instrument = Instrument(make(name))
    content, weights = [], []

    def observe(seen):
        content.append(torch.where(seen.allowed, seen.content().double(), torch.nan).numpy())
        weights.append(seen.probabilities.double().numpy())

    instrument.measure(prompts(6), observe)
    eye = np.eye(N, dtype=bool)
    for t, means in enumerate(collected(name, [4, 2], heads=heads)):
        assert np.allclose(means["content_logits"], content[t].mean(0), atol=2e-6, equal_nan=True)
        assert ("attention_heads" in means) == heads
        if heads:
            assert np.allclose(means["attention_heads"], weights[t].mean(0), atol=1e-7)
        assert np.allclose(means["attention"], weights[t].mean((0, 1)), atol=1e-7)
        off = content[t][..., ~eye]
        assert np.allclose(means["content_diagonal"], content[t][..., eye].mean((0, 2)), atol=2e-6)
        assert np.allclose(means["content_offdiagonal"], np.nanmean(off, axis=(0, 2)), atol=2e-6)
        for name_, entries in (("diagonal", content[t][..., eye]), ("offdiagonal", off)):
            edges = np.append(bin_centres(), 32.0)[1:] - layer_sums.BIN_WIDTH / 2
            for h in range(instrument.H):
                kept = np.sort(np.clip(entries[:, h][np.isfinite(entries[:, h])], -32.0, 31.75))
                counted = np.cumsum(means[f"histogram_{name_}"][h])
                # below each edge: an entry that 32 bits and other batches may round over it counts on either side
                assert (np.searchsorted(kept, edges - 1e-5) <= counted).all()
                assert (counted <= np.searchsorted(kept, edges + 1e-5)).all()


@pytest.mark.parametrize("name", ["bloom", "mistral", "falcon-alibi"])
@pytest.mark.parametrize("keep", [{"heads": True}, {"content": False}])
def test_the_batch_size_makes_no_difference(name, keep):
    one = collected(name, 1, **keep)
    for sizes in (2, 6, [5, 1]):
        for first, second in zip(one, collected(name, sizes, **keep), strict=True):
            for key in first:
                if key.startswith("histogram"):  # an entry on the edge of two bins may go either way
                    assert np.abs(first[key] - second[key]).sum() <= 4, key
                else:
                    assert np.allclose(first[key], second[key], atol=1e-6, rtol=1e-5, equal_nan=True), key


def test_the_same_numbers_come_without_matrices():
    for full, lean in zip(collected("mistral", 3), collected("mistral", 3, content=False), strict=True):
        assert "content_logits" in full and "content_logits" not in lean
        for key in lean:
            assert np.allclose(full[key], lean[key], atol=1e-6), key


@pytest.mark.parametrize("limit", [1, 2 * 4 * N * N, 10**6])
def test_entries_are_taken_in_pieces_without_a_difference(monkeypatch, limit):
    monkeypatch.setitem(layer_sums.CHUNK, "cpu", limit)
    layer_sums._Scratch._made.clear()
    pieces = collected("bloom", 5)
    layer_sums._Scratch._made.clear()
    monkeypatch.undo()
    for first, second in zip(pieces, collected("bloom", 5), strict=True):
        assert np.allclose(first["content_logits"], second["content_logits"], atol=1e-6, equal_nan=True)
        assert (first["histogram_offdiagonal"] == second["histogram_offdiagonal"]).all()


def test_masked_entries_are_counted_nowhere():
    for name, dtype in (("bloom", torch.bfloat16), ("mistral", torch.float32)):
        for means in collected(name, 3, dtype=dtype):
            assert means["histogram_diagonal"].sum() == 6 * 4 * N
            visible = np.isfinite(means["content_logits"][0]).sum() - N
            assert means["histogram_offdiagonal"].sum() == 6 * 4 * visible
            assert (means["histogram_offdiagonal"] >= 0).all()
            assert np.isfinite(means["content_logits"]).sum() == 4 * (visible + N)


def test_bins_are_centred_and_the_outer_ones_open():
    layer = LayerStatistics(1, 2, CPU)
    logits = torch.tensor([[[[0.12, -torch.inf], [-100.0, 100.0]]], [[[0.13, -torch.inf], [-0.12, 31.9]]]])
    allowed = torch.ones(2, 2, dtype=torch.bool).tril()
    layer.add(AttentionReading(0, logits, logits.softmax(-1), None, allowed))
    means = layer.means(2, allowed.numpy())
    centres = bin_centres()
    assert dict(zip(centres, means["histogram_diagonal"][0], strict=True)) == {
        **dict.fromkeys(centres, 0), 0.0: 1, 0.25: 1, 31.75: 2
    }  # fmt: skip
    assert dict(zip(centres, means["histogram_offdiagonal"][0], strict=True)) == {
        **dict.fromkeys(centres, 0), -32.0: 1, 0.0: 1
    }  # fmt: skip


def test_similarity_of_hand_made_histograms():
    assert entropy_similarity(np.array([5, 0, 0])) == 1.0
    assert entropy_similarity(np.array([1, 1, 1])) == pytest.approx(0.0, abs=1e-15)
    assert entropy_similarity(np.array([2, 2, 0, 0])) == pytest.approx(0.5)


@pytest.mark.parametrize("counts", [[0, 0], [3]])
def test_similarity_of_nothing_is_refused(counts):
    with pytest.raises(ValueError, match="counts: expected histograms"):
        entropy_similarity(np.array(counts))
