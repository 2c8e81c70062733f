"""Networks as they are: model families, hooks on their modules, and position biases that they are given."""
