"""Models: opened from files or memory, families of decoders, hooks on their modules, and position biases."""

from posbias.models.families import Family, register

__all__ = ["Family", "register"]
