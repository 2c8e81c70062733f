"""Networks as they are: model families, hooks on their modules, and position biases that they are given."""

from posbias.models.families import Family, register

__all__ = ["Family", "register"]
