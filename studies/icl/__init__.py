"""Wu et al.: small networks that learn to retrieve in context."""
