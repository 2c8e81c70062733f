"""A language model that people use: where its U comes from, and which of three things called U it has."""
