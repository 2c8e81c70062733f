import numpy as np
import pytest

from studies.norms.layernorm_simulation import layer_logits, recency_share, simulate_recency


def loop(X, layers, norm, residual):
    """One sequence, written out: the logits of each layer and the recency share of each."""
    n, d = X.shape
    logits, shares = [], []
    for _ in range(layers):
        u = []
        for x in X:
            centred = x - x.mean() if norm == "layernorm" else x
            u.append(x if norm == "none" else centred * np.sqrt(d) / np.sqrt((centred**2).sum()))
        S = np.array([[u[i] @ u[j] / np.sqrt(d) for j in range(n)] for i in range(n)])
        out = []
        for i in range(n):
            weights = np.exp(S[i, : i + 1])
            out.append(sum(w * v for w, v in zip(weights / weights.sum(), u, strict=False)))
        triples = [(i, j, k) for i in range(n) for j in range(i) for k in range(j)]
        shares.append(sum(S[i, j] > S[i, k] for i, j, k in triples) / len(triples))
        logits.append(S)
        base = {"none": np.zeros_like(X), "pre": X, "post": np.array(u)}[residual]
        X = base + np.array(out)
    return np.array(logits), np.array(shares)


@pytest.mark.parametrize("norm", ["none", "layernorm", "rmsnorm"])
@pytest.mark.parametrize("residual", ["none", "pre", "post"])
def test_the_network_is_the_loop(norm, residual):
    X = np.random.default_rng(1).normal(size=(3, 5, 8)) + 0.3
    S = layer_logits(X, 3, norm=norm, residual=residual)
    for k in range(3):
        logits, shares = loop(X[k], 3, norm, residual)
        assert np.allclose(S[:, k], logits, rtol=1e-10) and np.allclose(recency_share(S[:, k]), shares)


@pytest.mark.parametrize("norm", ["none", "rmsnorm"])
@pytest.mark.parametrize("residual", ["none", "pre", "post"])
def test_uniform_attention_is_the_limit_of_small_logits(norm, residual):
    X = np.random.default_rng(5).normal(size=(4, 6))
    size = np.linalg.norm(X, axis=1, keepdims=True)
    u = X if norm == "none" else X * np.sqrt(6) / size
    means = np.cumsum(u, axis=0) / np.arange(1, 5)[:, None]
    x = means + {"none": 0, "pre": X, "post": u}[residual]
    second = x if norm == "none" else x * np.sqrt(6) / np.linalg.norm(x, axis=1, keepdims=True)
    S = layer_logits(X, 2, norm=norm, residual=residual, uniform=True)
    assert np.allclose(S, [u @ u.T / np.sqrt(6), second @ second.T / np.sqrt(6)], rtol=1e-12)


def test_a_tie_is_not_greater():
    assert recency_share(np.zeros((1, 3, 3))).tolist() == [0]


@pytest.mark.parametrize(
    ("norm", "residual"), [("none", "none"), ("layernorm", "none"), ("layernorm", "pre"), ("rmsnorm", "post")]
)
def test_the_simulation_draws_what_d_dimensions_give(norm, residual):
    """In the reduced basis and in all d dimensions the same probabilities and mean logits, within their errors."""
    rng, n, d, alpha, sequences = np.random.default_rng(2), 5, 7, 0.4, 20_000
    shared, own = rng.normal(size=(sequences, 1, d)), rng.normal(size=(sequences, n, d))
    X = (np.sqrt(alpha / (1 - alpha)) * shared + own) / np.sqrt(d)
    S = layer_logits(X, 3, norm=norm, residual=residual)
    share = recency_share(S)
    found = simulate_recency(sequences, d=d, alpha=alpha, n=n, layers=3, norm=norm, residual=residual)
    error = np.hypot(found.error, share.std(axis=1) / np.sqrt(sequences))
    assert (np.abs(found.probability - share.mean(axis=1)) < 4.5 * error + 1e-12).all()
    assert np.allclose(found.error, share.std(axis=1) / np.sqrt(sequences), rtol=0.05, atol=1e-12)
    spread = S.std(axis=1) / np.sqrt(sequences)
    assert (np.abs(found.mean_logits - S.mean(axis=1)) < 7 * spread + 1e-6).all()


def test_batches_and_precision_do_not_matter():
    setting = {"d": 16, "alpha": 0.5, "residual": "pre"}
    short = simulate_recency(3000, batch=700, **setting)
    double = simulate_recency(8000, dtype=np.float64, **setting)
    single = simulate_recency(8000, seed=1, **setting)
    assert short.sequences == 3000 and short.probability.shape == (4,) and short.mean_logits.shape == (4, 10, 10)
    gap = np.abs(single.probability - double.probability)
    assert (gap < 4.5 * np.hypot(single.error, double.error)).all()


def test_the_size_of_a_token_matters_only_where_the_network_sees_it():
    small, large = (
        simulate_recency(2000, d=16, alpha=0.5, rms=rms, dtype=np.float64).probability for rms in (0.1, 10.0)
    )
    assert np.allclose(small, large, atol=1e-9)
    small, large = (simulate_recency(2000, d=16, alpha=0.5, rms=rms, residual="pre").probability for rms in (0.1, 10.0))
    assert small[3] > large[3] + 0.05


def test_layernorm_is_rmsnorm_of_centred_tokens():
    """A shared part along the vector of ones is invisible to LayerNorm and all of α to RMSNorm."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(50, 6, 16))
    centred = X - X.mean(axis=-1, keepdims=True)
    for residual in ("none", "pre", "post"):
        a, b = layer_logits(X, 3, residual=residual), layer_logits(centred, 3, norm="rmsnorm", residual=residual)
        assert np.allclose(a, b, rtol=1e-10)
    assert np.allclose(layer_logits(X + 5.0, 3), layer_logits(X, 3), rtol=1e-10)
    assert layer_logits(X + 5.0, 2, norm="rmsnorm")[1].mean() > layer_logits(X, 2)[1].mean() + 1
