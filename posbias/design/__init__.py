"""Position biases for a wanted profile."""
