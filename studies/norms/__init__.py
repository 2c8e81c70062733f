"""LayerNorm and recency: the paper's probabilities, and norms in trained models."""
