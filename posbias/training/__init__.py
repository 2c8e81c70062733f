"""Networks that are trained here: reference language models and small retrieval networks, with one training loop."""
