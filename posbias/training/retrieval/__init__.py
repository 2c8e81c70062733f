"""Position bias learned from scratch: a retrieval task, small attention-only networks, and their training."""
