"""The table of known models: what ships agrees with results/ and with the published numbers."""

import pytest
from conftest import ROOT

pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from posbias.report import known_models as standing


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    if not (ROOT / "results" / "models").is_dir():
        pytest.skip("results/ is not here")
    return standing.rebuild(ROOT / "results", tmp_path_factory.mktemp("table") / "standing.csv")


def test_the_table_that_ships_is_what_results_give(made):
    ours, fresh = standing.known_models(), standing.known_models(made)
    names = [x.name for x in ours]
    assert names == [x.name for x in fresh] and len(set(names)) == len(names)
    for one, other in zip(ours, fresh, strict=True):
        for field, value in vars(one).items():
            again = getattr(other, field)
            assert again == (pytest.approx(value, abs=2e-5) if isinstance(value, float) else value), (one.name, field)
    assert made.read_text().startswith(standing.HEADER) and standing.TABLE.read_text().startswith(standing.HEADER)


def test_every_kind_is_there_and_sources_exist():
    known = standing.known_models()
    assert {x.kind for x in known} == set(standing.KINDS)
    if (ROOT / "results").is_dir():
        files = [x.source for x in known if x.source.startswith("results/")]
        assert files and all((ROOT / file).is_file() for file in files)


def test_a_row_by_hand():
    """BLOOM-8 of the reference models, read off its summary by other means, and published ones as printed."""
    known = {x.name: x for x in standing.known_models()}
    assert (known["MPT-30B"].a, known["MPT-30B"].b, known["MPT-30B"].c) == (0.61, 0.16, 0.05)
    assert known["MPT-30B"].mean is None and known["BLOOM-176B"].mean == pytest.approx(0.651, abs=1e-3)
    if (ROOT / "results").is_dir():
        from posbias.measure.measurement import load

        m = load(ROOT / "results" / "models" / "bloom-8.builtin.nc")
        row = known["bloom-8"]
        assert (row.mean, row.mixing) == pytest.approx((m.influence.mean_position, m.mixing.sum()), abs=1e-5)
        assert row.b == pytest.approx(m.compare()["b"].wasserstein, abs=1e-5)


@pytest.mark.parametrize("damage", [("reference", "other"), (",12,", ",twelve,"), ("mixing", "mix")])
def test_a_damaged_table_is_refused(tmp_path, damage):
    (tmp_path / "t.csv").write_text(standing.TABLE.read_text().replace(*damage))
    with pytest.raises(ValueError, match="t.csv: expected the table of known models, received"):
        standing.known_models(tmp_path / "t.csv")
