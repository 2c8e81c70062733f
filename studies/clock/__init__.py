"""Rollouts as a walk in logarithmic time: profiles of many layers and when they have a trough."""
