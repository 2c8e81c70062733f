"""Retrieval by place: how well a model finds what stands at each place of its prompt, beside the prompts' profiles."""
