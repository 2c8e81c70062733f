"""The page on a lookup: its axes are those of the file."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from measuring import save, write_documents

import posbias
from posbias.report.lookup_page import place_panels


def test_places_of_copying_are_tokens_of_the_prompt(tmp_path):
    """Groups and profiles begin where the file says that the first stretch does, behind the start token."""
    save(tmp_path / "bloom", "bloom")
    write_documents(tmp_path / "d.jsonl", [40] * 12)
    asked = {"length": 24, "segment": 4, "cue": 2, "prompts": 12, "profile_prompts": 4, "dataset": tmp_path / "d.jsonl"}
    results = posbias.open(tmp_path / "bloom").lookup("copy", **asked).results
    starts = results["place_start"].values
    figure = place_panels(results.assign(place_start=results["place_start"] + 7))
    scores, profiles = figure.axes[0].lines[0].get_xdata(), figure.axes[-1].lines[0].get_xdata()
    plt.close(figure)
    np.testing.assert_array_equal(profiles, starts + 7)
    of_group = [starts[int(results[f"group_{end}"].values[0])] + 7 for end in ("first", "last")]
    assert scores[0] == np.mean(of_group) and scores[-1] <= starts[-1] + 7
