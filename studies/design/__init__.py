"""Designed priors: theory, networks that are given them, and known remedies."""
