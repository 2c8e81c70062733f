"""One file for each question that a chapter asks of a model."""
