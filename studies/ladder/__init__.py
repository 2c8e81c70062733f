"""What a rollout throws away: rungs, directions, gains and rotary kernels."""
