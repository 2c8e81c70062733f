"""Profiles against profiles: distances, scores, and their uncertainty over prompts."""
