"""What studies keep: entries come back as they were given, others stay, and every committed entry can be read."""

import numpy as np
import pytest
import xarray as xr
from conftest import ROOT

from studies import results

QUESTIONS = sorted(path.stem for path in (ROOT / "results").glob("*.nc"))


def measured(layers, seed=0, **attrs):
    rng = np.random.default_rng(seed)
    data = {
        "lambda_": ("layer", rng.random(layers)),
        "shares": (("prompt", "layer"), rng.random((2, layers)).astype("f4")),
    }
    data["document"] = ("prompt", np.array([3, 7]), {"long_name": "document"})
    return xr.Dataset(data, {"layer": np.arange(layers), "variant": ["a", "b"]}, {"model": f"m{layers}"} | attrs)


def same(one, other):
    assert set(one.variables) == set(other.variables) and one.attrs == other.attrs
    for name, x in one.variables.items():
        assert x.dims == other[name].dims and x.dtype == other[name].dtype and x.attrs == other[name].attrs, name
        if x.dtype.kind == "f":
            assert np.allclose(x, other[name], rtol=1e-7), name
        else:
            assert (x.values == other[name].values).all(), name


def test_entries_come_back_as_they_were_others_stay_and_a_write_that_fails_leaves_the_file(tmp_path):
    entries = {
        "one.kind": measured(2, steps=5),
        "two.kind": measured(3, 1, rate=0.25, text="x"),
        "other": measured(1, 2),
    }
    path = tmp_path / "q.nc"
    results.save(path, entries)
    back = results.load("q", tmp_path)
    assert list(back) == sorted(entries) and "three.kind" not in back
    for name, data in entries.items():
        same(data, back[name])
    results.save(path, {"two.kind": measured(4, 2)})  # in the place of its own, and of no other
    for name, data in (entries | {"two.kind": measured(4, 2)}).items():
        same(data, results.Results(path)[name])
    before = path.read_bytes()
    with pytest.raises(Exception):  # noqa: B017 - whatever xarray says of what it cannot keep
        results.save(path, {"b.kind": measured(2).assign(bad=("layer", np.array([object(), object()])))})
    assert path.read_bytes() == before


def test_what_has_11_bits_takes_16_and_the_rest_stays_as_it_is(tmp_path):
    rng = np.random.default_rng(0)
    short = rng.integers(1024, 2048, (3, 300)) * 2.0 ** rng.integers(-9, 9, (3, 300))
    short[0, 0], short[1, 0] = 0, np.inf
    arrays = {"short": short.astype("f4"), "wide": short, "long": rng.random((3, 300)).astype("f4")}
    data = xr.Dataset({name: (("prompt", "position"), x) for name, x in arrays.items()}, attrs={"model": "m"})
    results.save(tmp_path / "q.nc", {"m.kind": data})
    same(data, results.load("q", tmp_path)["m.kind"])
    stored = xr.load_dataset(tmp_path / "q.nc", group="kind", engine="h5netcdf")
    assert {name: stored[name].dtype.name for name in arrays} == {
        "short": "uint16",
        "wide": "uint16",
        "long": "float32",
    }


def test_states_of_all_steps_are_one_group_and_what_no_page_reads_is_left_out(tmp_path):
    received = measured(1).assign(attention_received=("prompt", [1.0, -1.0]))
    names = ("m.step-000001", "m.step-000010", "m.seed-1.builtin", "gpt2-12.builtin", "m-1-untrained-unit.builtin")
    results.save(tmp_path / "models.nc", dict.fromkeys(names, received))
    kept = results.load("models", tmp_path)
    assert [name for name in kept if "attention_received" in kept[name]] == ["gpt2-12.builtin"]
    assert kept._groups["m.step-000001"] == kept._groups["m.step-000010"]


def test_entries_are_found_by_kind_and_by_seed(tmp_path):
    names = ("m.kind", "m.seed-2.kind", "m.seed-10.kind", "n.kind", "m.other")
    results.save(tmp_path / "q.nc", {name: measured(1, text=name) for name in names})
    kept = results.load("q", tmp_path)
    of_kind = results.of_kind(kept, "kind", ["n", "m", "o"])
    assert [(k, x.attrs["text"]) for k, x in of_kind.items()] == [("n", "n.kind"), ("m", "m.kind")]
    found = results.seeds_of(kept, "kind", ["n", "m"])
    assert list(found) == ["m"] and list(found["m"]) == [2, 10] and found["m"][10].attrs["text"] == "m.seed-10.kind"


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_entry_says_what_it_is_and_what_makes_it_again(question):
    kept = results.load(question)
    assert len(kept) > 0
    for name, data in kept.items():
        assert data.sizes, name
        assert str(data.attrs.get("command", "")).startswith(("python -m studies.", "posbias lookup ")), name
        for variable, x in data.variables.items():
            empty = x.dtype.kind == "f" and x.size and not np.isfinite(x.values).any()
            assert not empty or variable == "first", (name, variable)
