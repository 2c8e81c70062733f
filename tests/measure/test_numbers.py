"""The numbers of tiny models of all families, as they stood before the core was made smaller: compared as numbers.

``PYTHONPATH=tests python tests/measure/test_numbers.py`` adds families that the file lacks; those in it stay.
"""

import warnings
from pathlib import Path

import numpy as np
import pytest
from measuring import CONFIGS, HYBRIDS, make

import posbias

NAMES = [name for name in CONFIGS | HYBRIDS if name != "gemma3"]  # whose decoder is gemma3_text
FILE = Path(__file__).with_name("numbers.npz")
ASKED = {"prompts": 3, "length": 10, "batch_size": 3, "rule": "random", "attention": "eager"}
ASKED |= {"quantities": "kernels,content,branches,ladder"}
KEPT = (
    "lambda_frobenius", "lambda_token", "influence_prompts", "influence_signed_prompts", "probability", "attention",
    "rollout_own", "content_diagonal", "content_offdiagonal", "ladder_prompts", "branch_gain", "branch_scale",
    "output_scale", "parallel", "step_gain", "slopes", "position_bias", "scale", "window", "sinks", "sink_share",
    "contributions_own",
)  # fmt: skip
"""What is kept of a measurement, as far as it has it."""
NEAR = {("bloom", "influence_signed_prompts"): 1e-2, ("granitemoehybrid", "contributions_own"): 1e-3}
"""Of the largest number, by how much another processor may differ where terms cancel, else 2e-5. BLOOM's gradient ×
input: a norm follows the embedding, so that the products of a token's features sum to nearly nothing. Granite's first
layer: what a token's state loses is a small difference of sums of sizes."""


def measured(name):
    """Return the numbers of one tiny model by variable, each in one row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        more = {"quantities": "contributions"} if name in HYBRIDS else {}
        results = posbias.open(make(name)).measure(**ASKED | more).results
    return {key: results[key].values.astype(np.float64).ravel() for key in KEPT if key in results}


@pytest.mark.parametrize("name", NAMES)
def test_a_family_has_the_numbers_that_it_had(name):
    with np.load(FILE) as kept:
        before = {key.partition("/")[2]: kept[key] for key in kept.files if key.startswith(f"{name}/")}
    now = measured(name)
    assert set(now) == set(before)
    for key, values in now.items():
        finite = np.isfinite(before[key])
        size = np.abs(before[key][finite]).max(initial=0.0)
        near = NEAR.get((name.partition("-")[0], key), 2e-5)
        np.testing.assert_allclose(values, before[key], rtol=2e-4, atol=near * size, err_msg=key)


if __name__ == "__main__":
    with np.load(FILE) as kept:
        rows = dict(kept)
    for new in {*NAMES} - {key.partition("/")[0] for key in rows}:
        rows |= {f"{new}/{key}": row.astype(np.float32) for key, row in measured(new).items()}
    np.savez_compressed(FILE, **rows)
