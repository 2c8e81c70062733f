"""The sizes of gradients stay below the aligned sum, whichever prompts the layers draw."""

from dataclasses import replace

import numpy as np
import pytest

from studies.ladder import second_moments as sm


@pytest.mark.parametrize("kind", ["random maps", *sm.EXAMPLES])
def test_the_bound_holds(kind):
    for seed in range(5):
        net = sm.example("random signs" if kind == "random maps" else kind, seed, T=3)
        if kind == "random maps":
            net = replace(net, maps=np.random.default_rng(seed).standard_normal(net.maps.shape))
        n = net.A.shape[-1]
        g = sm.gradients_of_draws(sm.layer_jacobians(net.A, net.maps), net.top)
        largest = np.linalg.norm(g.reshape(len(g), n, -1), axis=-1).max(0)
        bound = sm.aligned_sizes(net.A, net.operator_norms, np.eye(n)[-1])[0]
        assert (largest <= bound * (1 + 1e-12)).all()
