"""Measurement: one forward and one backward of a model yield everything the theory is compared with."""
