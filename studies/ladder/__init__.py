"""What a rollout throws away: paths, hops, gains and rotary kernels."""
