"""The table of any models: what is in it by hand, what stays empty, and a model that cannot be had."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from transformers import AutoConfig, AutoModelForCausalLM, set_seed

from posbias.shipped import model_folder
from studies import results
from studies.field import __main__ as field
from studies.field import tables

MAMBA = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}


def entry(p, **more):
    """Return an entry of three tokens, whose predictions are all on the last token but contributions, which are p."""
    n = len(p)
    profile = np.stack([p, *[np.eye(n)[-1]] * 3])
    data = {"influence": ("position", p), "halves": (("half", "position"), np.stack([p, p[::-1]]))}
    data |= {"profile": (("prediction", "position"), profile)} | more
    return xr.Dataset(data, attrs={"model": "reference/one", "parameters": 7, "position": "rotary"})


def test_the_table_by_hand():
    p = np.array([0.3, 0.1, 0.6])
    law = {"untrained": ("position", p), "law": ("position", p[::-1])}
    ((name, row),) = field.field_table({"one.field": entry(p, **law)}).iterrows()
    assert (name, row["position"], row["parameters"]) == ("one", "rotary", 7)
    assert np.allclose(row[["first", "last", "untrained first"]].astype(float), [0.9, 1.8, 0.9])
    assert row["W1 contributions"] == 0 and row["rank contributions"] == pytest.approx(1)
    assert row["W1 layer-shares"] == pytest.approx(0.3 + 0.1 / 2)  # by two steps and by one, of two
    assert row["W1 halves"] == row["untrained W1"] == pytest.approx(0.3)


def test_what_is_not_known_stays_empty_in_table_and_figure():
    alone = entry(np.array([0.2, 0.3, 0.5])).drop_vars("profile").assign_attrs(model="alone")
    table = field.field_table({"a.field": entry(np.array([0.3, 0.1, 0.6])), "b.field": alone})
    known = {"position", "parameters", "first", "last", "W1 halves"}
    assert {*table.columns[table.loc["alone"].notna()]} == known
    assert table.loc["one", [*tables.COLUMNS][:-2]].notna().all() and table[[*tables.COLUMNS][-2:]].isna().all(
        axis=None
    )
    (ax,) = field.draw_field(table).axes
    assert len(ax.texts) == int(table[[*tables.COLUMNS]].notna().sum().sum()) + len(tables.GROUPS)


def test_a_model_that_cannot_be_had_is_one_line_and_the_others_go_on(tmp_path, capsys, monkeypatch):
    mamba, path = tmp_path / "mamba", tmp_path / "field.nc"
    tokens = Path(model_folder("reference/bloom-8"))
    config = AutoConfig.for_model("mamba", vocab_size=AutoConfig.from_pretrained(tokens).vocab_size, **MAMBA)
    set_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(mamba)
    for file in tokens.glob("tokenizer*"):
        shutil.copy(file, mamba)
    missing, short = str(tmp_path / "none"), ["--prompts", "2", "--length", "16"]
    asked = ["reference/bloom-8", str(mamba), "-o", str(path), *short]
    assert field.main([missing, *asked, "--figure", str(tmp_path / "field.png")]) == 1
    assert sum(line.startswith(missing) for line in capsys.readouterr().err.splitlines()) == 1
    assert (tmp_path / "field.png").stat().st_size > 0
    kept = results.Results(path)
    assert {*kept} == {"reference/bloom-8.field", "mamba.field"} and "profile" not in kept["mamba.field"]
    bloom = kept["reference/bloom-8.field"]
    assert bloom.attrs["command"] == "python -m studies.field reference/bloom-8 --prompts 2 --length 16"
    assert np.allclose(bloom["profile"].sum("position"), 1, atol=1e-5) and bloom.attrs["prompts"] == 2
    monkeypatch.setattr(field, "measure_cells", lambda settings: pytest.fail("measured again"))
    assert field.main(asked) == 0
    (mamba / "generation_config.json").unlink()  # of the same name, and not the same model
    assert field.main(asked) == 1 and "which is in the file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["", "--figure F/f.png -o F/none.nc", "reference/bloom-8 -o F/none/f.nc", "reference/bloom-8 -o F/text.nc"]
)
def test_what_cannot_be_done_is_refused_before_a_model_is_opened(words, tmp_path, capsys, monkeypatch):
    (tmp_path / "text.nc").write_text("text")
    monkeypatch.setattr(field, "Source", lambda model: pytest.fail("opened"))
    with pytest.raises(SystemExit, match="2"):
        field.main(words.replace("F", str(tmp_path)).split())
    assert capsys.readouterr().err.splitlines()[-1].count("expected") == 1
