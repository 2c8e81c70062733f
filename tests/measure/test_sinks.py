"""Sinks, which take attention and are no tokens: what files hold of them, and what rollouts leave to tokens."""

import numpy as np
import pytest
import torch
from measuring import EVERYTHING, N, make, prompts, save, write_documents
from scipy.special import softmax

from posbias.design import read_attention
from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.measure.ladder import Rungs
from posbias.measure.measurement import Measurement
from posbias.measure.positions import read_positions
from posbias.measure.run import measure
from posbias.models.loading import Source
from posbias.predict import predict
from posbias.rollout.masks import sliding_window
from posbias.settings import Settings
from studies.summaries import summarise


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return a measurement of a network with sinks."""
    root = tmp_path_factory.mktemp("sinks")
    source = Source(str(save(root / "gpt_oss", "gpt_oss", max_position_embeddings=256)))
    corpus = Corpus(str(write_documents(root / "d.jsonl", [200] * 3)))
    quantities = ("mixing", "influence", *EVERYTHING.split(","))
    return measure(Settings(source, corpus, prompts=2, length=150, batch_size=2, quantities=quantities))


def left(A, lambda_):
    """Return what the last row of a rollout leaves to tokens, normalised: kernels as they are, layer by layer."""
    v = np.eye(A.shape[-1])[-1]
    for kernel, mixing in zip(A[::-1], lambda_[::-1], strict=True):
        v = (1 - mixing) * v + mixing * (v @ kernel)
    return v / v.sum()


def test_rollouts_of_measured_attention_keep_what_sinks_leave(results):
    whole = results
    A, lambda_ = whole.attention.values.astype(float), whole.lambda_frobenius.values
    assert np.allclose(whole.sink_share, 1 - A.sum(-1).mean(-1)) and (whole.sink_share > 0.005).all()
    assert np.allclose(predict(whole, "kernels"), left(A, lambda_), atol=1e-7)
    full = predict(whole.drop_vars(["sink_share"]), "kernels")
    assert np.abs(full - left(A, lambda_)).max() > 1e-3, "rows that are made to sum to one"
    own = predict(whole, "own")
    assert own.sum() == pytest.approx(1) and float(whole.rollout_own.sum("position").max()) < 0.999


def test_the_law_of_untrained_networks_has_sinks_that_give_nothing(results):
    """The recursion with kernels whose rows sum to less than one, heads and all, against states that keep sinks."""
    whole, n = results, 150
    G, T = np.zeros((n, n)), whole.sizes["layer"]
    G[-1, -1] = 1.0
    for t in reversed(range(T)):
        seen = sliding_window(int(whole.window[t]) or n).matrix(n)
        above = G * (1 + whole.step_gain.values[t])
        added = np.zeros((n, n))
        for s, gain in zip(whole.sinks.values[t], whole.branch_gain.values[t], strict=True):
            A = softmax(np.column_stack([np.where(seen, 0.0, -np.inf), np.full(n, s)]), axis=-1)[:, :n]
            added += gain**2 * A.T @ (above * np.outer(whole.output_scale[t], whole.output_scale[t])) @ A
        G = above + added * np.outer(whole.branch_scale[t], whole.branch_scale[t])
    expected = np.sqrt(np.diag(G))
    assert np.allclose(predict(whole, "untrained"), expected / expected.sum(), atol=1e-6)
    aligned = predict(whole, "head-gains-added")
    assert aligned.shape == (n,) and aligned.sum() == pytest.approx(1)
    assert np.abs(predict(whole.drop_vars("sinks"), "untrained") - expected / expected.sum()).max() > 1e-4


def test_what_needs_rows_of_one_is_left_out_or_refused(results):
    kept = summarise(results)
    assert "attention_received" in kept and "monotonicity_violated" not in kept
    with pytest.raises(ValueError, match="measurement: expected attention whose rows sum to one, received one with si"):
        read_attention(results)


def test_a_report_says_what_sinks_take(results, tmp_path, undrawn):
    found = results.assign(sink_share=("layer", np.array([0.25, 0.05, 0.3])))
    page, without = (
        " ".join(Measurement(x).report(tmp_path / "r.html").read_text().split())
        for x in (found, found.drop_vars("sink_share"))
    )
    assert "take 20% of attention on average, from 5% in layer 2 to 30% in layer 3" in page
    assert "Sinks, which are no tokens" in page and "Sinks, which are no tokens" not in without


def test_sinks_are_read_and_given_kernels_leave_them_the_rest():
    instrument = Instrument(make("gpt_oss"))
    sinks = read_positions(instrument, N).sinks
    assert np.array_equal(sinks, [x.sinks.detach().double().numpy() for x in instrument.attentions])
    assert read_positions(Instrument(make("llama")), N).sinks is None
    logits = np.repeat(sinks[..., None, None], N, axis=2).repeat(N + 1, axis=3)
    for t, width in enumerate((5, N, 5)):
        logits[t, ..., :-1] = np.where(sliding_window(width).matrix(N), 0.0, -np.inf)
    kernels = torch.tensor(softmax(logits, axis=-1)[..., :-1], dtype=torch.float32)
    own = np.arange(3)[None]
    of_model = instrument.measure(prompts(), rungs=Rungs(own, names=("positions",))).ladder
    given = instrument.measure(prompts(), rungs=Rungs(own, kernels=kernels, names=("positions",))).ladder
    assert torch.allclose(of_model, given, rtol=1e-4)
