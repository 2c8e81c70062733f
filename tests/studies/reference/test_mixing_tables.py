"""Tables of residual mixing, on measurements made up so that the answer is known."""

import numpy as np
import pytest

from studies.reference.mixing_tables import (
    schedule_shapes,
)


def test_shapes_of_schedules():
    schedules = {
        "falls": np.linspace(0.9, 0.1, 8),
        "rises": np.linspace(0.1, 0.2, 8),
        "none": np.array([0.3, 0.2, 0.4, 0.1, 0.1, 0.4, 0.2, 0.3]),
    }
    shapes = schedule_shapes(schedules)
    assert shapes["trend"].to_dict() == {name: name for name in schedules}
    assert shapes["below_half"].tolist() == [0.5, 1, 1]
    assert shapes.loc["falls", "rank"] == -1
    assert shapes.loc["none", "early"] == pytest.approx(1.0) and shapes["layers"].tolist() == [8] * 3
    twelve = schedule_shapes({"twelve": np.arange(12, 0, -1) / 20}).loc["twelve"]
    assert twelve["early"] == pytest.approx(11 / 6.5)  # the first three layers of twelve over all
    assert schedule_shapes(schedules, level=0.0)["trend"].tolist() == ["none"] * 3
    assert shapes.loc["falls", "p"] == pytest.approx(2 / 40320)  # of 8! orders, two are this one and its reverse
    weak = np.array([0.5, 0.3, 0.4, 0.2, 0.35, 0.1, 0.15])
    alone, family = (schedule_shapes({str(k): weak for k in range(m)}).loc["0"] for m in (1, 5))
    assert alone["trend"] == "falls" and family["trend"] == "none"
    assert family["adjusted"] == pytest.approx(5 * family["p"]) and alone["adjusted"] == alone["p"]
