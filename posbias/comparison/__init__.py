"""Distances between profiles, their uncertainty over prompts, and many comparisons at once."""
