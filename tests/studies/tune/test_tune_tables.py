"""Tables of answers before and after fine-tuning, on answers that are known."""

import numpy as np
import pytest
import xarray as xr

from studies.tune.tables import answers_of, gain_table, last_of_middle, right_by_place

C, P = 20, 8


def entry(right, source=None):
    correct = np.tile(np.asarray(right, float), (C, 1))
    found = np.where(correct == 1, np.arange(P), -1) if source is None else source
    return xr.Dataset({"correct": (("context", "place"), correct), "source": (("context", "place"), found)})


ENDS = entry([1, 0, 0, 0, 0, 0, 0, 1])
MIDDLE = entry([0, 1, 1, 1, 1, 1, 1, 0])


def test_a_profile_that_turns_round_gains_two():
    table = gain_table({"before": ENDS, "middle": MIDDLE})
    assert table.loc["before", "lead"] == -1 and table.loc["middle", "gain"] == 2
    assert table.loc["middle", "gain low"] > 1.7 and np.isnan(table.loc["before", "gain"])


def test_arms_of_one_seed_are_taken():
    kept = {"before.answers": ENDS, "every.seed-0.answers": MIDDLE, "ends.seed-1.answers": ENDS}
    kept["every.seed-0.training"] = ENDS
    assert list(answers_of(kept)) == ["before", "every"] and list(answers_of(kept, 1)) == ["before", "ends"]
    with pytest.raises(ValueError, match=r"before\.answers"):
        answers_of({"every.seed-0.answers": MIDDLE})
    assert right_by_place({"before": ENDS})["before"][0].tolist() == [1, 0, 0, 0, 0, 0, 0, 1]


def test_answers_from_the_last_document_are_counted_in_the_middle_alone():
    source = np.full((C, P), P - 1)
    source[:, :4] = -1
    assert last_of_middle(entry([0] * P, source)) == 0.5
    assert last_of_middle(ENDS) == 0


def test_places_that_training_at_the_ends_moves_are_told_over_seeds():
    from studies.tune import evidence

    seeds = [entry([1, x, 0, 0, 0, y, y, 1]) for x, y in ((1, 0), (0, 1))]
    seen = evidence.Evidence({}, {k: {"before": ENDS, "ends": x} for k, x in enumerate(seeds)})
    said = evidence.shift_said(seen)
    assert said["why_ends_second_said"] == said["why_ends_late_said"] == "0 to 100%"
    assert said["why_before_second"] == "0.0%" and said["why_before_late"] == "0%"
