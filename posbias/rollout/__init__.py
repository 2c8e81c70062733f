"""Rollouts: masks, logits and kernels, their rollout, and the profiles that come out. numpy and scipy only."""
