"""Every check of what pulls where, in the order in which its random cases are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from studies.checks import Check
from studies.theorems import force_checks, head_checks, logit_checks
from studies.theorems.drifts import Draws, draw_families


def checks_and_numbers() -> tuple[list[Check], dict[str, Any]]:
    """Return the checks of propositions 4.2 to 4.5 and appendix B, and the numbers that the page quotes of them."""
    draws = Draws(np.random.default_rng(0))
    lemmas, families = force_checks.lemma_check(draws), draw_families(draws)
    mask, lost = force_checks.mask_check(draws, families)
    made = [lemmas, mask, force_checks.residual_check(draws, families), force_checks.residual_proof_check(draws)]
    made += [logit_checks.position_check(draws), logit_checks.position_proof_check(draws)]
    made.append(logit_checks.diagonal_check(draws, families))
    noticed = [1 - np.mean(runs) for check in made for runs in check.broken.values()]
    crossing = logit_checks.mixed_signs()
    heads, numbers = head_checks.head_checks()
    numbers |= {"forces_broken": lost, "forces_cross_1": crossing[0], "forces_cross_2": crossing[1]}
    numbers |= {"forces_random": draws.cases, "forces_runs": draws.runs}
    numbers |= {"forces_noticed": min(noticed), "forces_broken_ways": len(noticed)}
    return [*made, *heads], numbers
