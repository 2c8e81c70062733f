"""Contributions: a rollout of what each token's new state is made of, beside others and with what it is made of."""
