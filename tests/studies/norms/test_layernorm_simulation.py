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
