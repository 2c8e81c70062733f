"""Orders keep what they say they keep; the split is that of a toy whose profile is known; entries are the model's."""

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from measuring import save, text
from transformers import AutoModelForCausalLM

from posbias.conditions.each.order_shuffled import ORDERS, order_shuffled
from studies import making
from studies.changes import measure_gradient
from studies.orders import measure, rounding, tables
from studies.orders.__main__ import PARTS
from studies.results import Results

N = 64


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path / "data"))


def prompts(count=40, n=N):
    return np.arange(count * n).reshape(count, n)


def blocks(row, size=32):
    return [tuple(row[k : k + size]) for k in range(0, len(row), size)]


def test_each_order_keeps_what_it_says():
    ids = prompts()
    found = {order: order_shuffled(ids, order) for order in ORDERS}
    assert np.array_equal(found["written"], ids)
    for order in ("blocks", "inside", "shuffled"):
        assert all(sorted(x) == sorted(y) for x, y in zip(found[order], ids, strict=True)), order
        assert not np.array_equal(found[order], ids)
    assert all({*blocks(x)} == {*blocks(y)} for x, y in zip(found["blocks"], ids, strict=True))
    assert any(blocks(x) != blocks(y) for x, y in zip(found["blocks"], ids, strict=True))
    for x, y in zip(found["inside"], ids, strict=True):
        assert [sorted(a) for a in blocks(x)] == [sorted(b) for b in blocks(y)]
    assert any({*x} - {*y} for x, y in zip(found["drawn"], ids, strict=True))


def test_start_tokens_stay_and_numbers_do_not_depend_on_how_many_there_are():
    ids = prompts(5)
    found = order_shuffled(ids, "shuffled", seed=3, front=2)
    assert np.array_equal(found[:, :2], ids[:, :2]) and not np.array_equal(found, ids)
    assert np.array_equal(order_shuffled(ids[:2], "shuffled", seed=3, front=2), found[:2])
    assert not np.array_equal(order_shuffled(ids, "shuffled", seed=4, front=2), found)


def test_an_order_is_refused_where_there_is_none():
    with pytest.raises(ValueError, match="order: expected prompts of at least 32 tokens, a block, received 16"):
        order_shuffled(prompts(2, 16), "blocks")
    with pytest.raises(ValueError, match="order: expected one of written, blocks, inside, shuffled, drawn, received"):
        order_shuffled(prompts(2), "sorted")


STAY, OWN, MATCH = 0.9, 1.0, 4.0


def sticky(count, n, rng, letters=4):
    """Return Markov texts: a letter is that before it with probability STAY, else one at random."""
    fresh, stay = rng.integers(letters, size=(count, n)), rng.random((count, n)) < STAY
    for k in range(1, n):
        fresh[:, k] = np.where(stay[:, k], fresh[:, k - 1], fresh[:, k])
    return fresh


def toy(ids):
    """Return the influence of a network that reads place i with weight a_i, and more where its token is the last's."""
    n = ids.shape[1]
    own = OWN * (1 + np.arange(n) / n)
    return own + MATCH * (ids == ids[:, -1:])


def test_the_split_is_that_of_a_network_whose_profile_is_known():
    letters, n = 4, N + 1
    ids = sticky(4000, n, np.random.default_rng(0), letters)
    d = n - 1 - np.arange(n - 1)
    chance = (1 - 1 / letters) * STAY**d + 1 / letters  # of a token that is the last one's, at distance d
    own = OWN * (1 + np.arange(n - 1) / n)
    pairs = np.arange(n - 1, 0, -1)  # how many pairs of tokens are 1, 2, … apart
    mean = float((pairs * chance[::-1]).sum() / pairs.sum())  # of any two tokens of a prompt
    known = {"written": own + MATCH * chance, "shuffled": own + MATCH * mean, "drawn": own + MATCH / letters}
    for order, expected in known.items():
        found = toy(order_shuffled(ids, order))[:, :-1].mean(0)
        assert np.abs(found - expected).max() < 0.12, order
    arrays = {"gradient": (("prompt", "order", "position"), np.stack([toy(order_shuffled(ids, o)) for o in known], 1))}
    split = tables.split_table(xr.Dataset(arrays, {"order": list(known)}), "gradient")["value"]
    unit = {order: p / p.mean() for order, p in known.items()}
    proper, earned = unit["drawn"][-8:].mean() - 1, (unit["written"] - unit["drawn"])[-8:].mean()
    assert split["last eighth: proper"] == pytest.approx(proper, abs=0.02) and proper > 0.15
    assert split["last eighth: earned"] == pytest.approx(earned, abs=0.04) and earned > 0.4


def rising(end, count=12, size=1.0):
    """Return an entry of noisy profiles, drawn ones that rise to 2 and written ones to so much; the first is larger."""
    rng, orders = np.random.default_rng(0), ["written", "shuffled", "drawn"]
    to = {"written": end, "shuffled": 2.0, "drawn": 2.0}
    rows = np.stack([np.linspace(1, to[x], N + 1) * rng.uniform(0.9, 1.1, (count, N + 1)) for x in orders], 1)
    rows[0] *= size
    return xr.Dataset({"gradient": (("prompt", "order", "position"), rows)}, {"order": orders})


def test_texts_that_count_alike_do_not_weigh_by_their_size():
    small, large = rising(4.0), rising(4.0, size=100.0)
    tables_of = {alike: [tables.order_table(x, "gradient", alike=alike) for x in (small, large)] for alike in (0, 1)}
    pd.testing.assert_frame_equal(*tables_of[1])
    written = [table.loc["written"] for table in (*tables_of[0], tables_of[1][1])]
    added, with_one_large, alike = (x["last eighth high"] - x["last eighth low"] for x in written)
    assert with_one_large > added and added == pytest.approx(alike, abs=0.02)


def often(order):
    """Return an entry with twenty draws for each prompt: profiles that rise to 2."""
    rng, (count, _, n) = np.random.default_rng(2), order["gradient"].shape
    rows = np.linspace(1, 2, n) * rng.uniform(0.9, 1.1, (count * 20, n))
    parts = tables.binned(rows).reshape(count, 20, tables.BINS)
    return order.assign(draws=(("prompt", "draw", "part"), parts))


def test_many_draws_stand_for_the_one_and_each_counts_alike():
    order = often(rising(4.0))
    order["gradient"][:, 2] = 1.0  # the one draw is flat
    one, many = (
        tables.order_table(x, "gradient").loc["drawn", "last eighth"] for x in (order.drop_vars("draws"), order)
    )
    assert one == pytest.approx(1.0) and many == pytest.approx(1.28, abs=0.03)
    order["draws"][0, 0] = 0.0
    order["draws"][0, 0, 0] = 1e6
    added, alike = (tables.order_table(order, "gradient", alike=x).loc["drawn", "first eighth"] for x in (False, True))
    assert added > 7 and alike < 0.9


def test_prompts_that_outweigh_the_others_are_named():
    from studies.orders import evidence

    heavy, plain = rising(4.0), evidence.one_draw_numbers(rising(4.0))
    heavy["gradient"][0, 2] = 1.0
    heavy["gradient"][0, 2, 52:56] = 1000.0  # the fourteenth of sixteen parts of 64 tokens
    found = evidence.one_draw_numbers(heavy)
    assert (
        found["why_part_one"] > plain["why_part_one"] + 0.1 and found["why_two_weight"] > 0.6 > plain["why_two_weight"]
    )
    for name in ("why_part_shuffled", "why_part_shuffled_alike"):
        assert plain[name] == pytest.approx(plain["why_part_one"], abs=0.05)
    parts = evidence.parts_earned(often(rising(4.0)))
    assert parts["why_part_alike_low"] < parts["why_part_alike"] < parts["why_part_alike_high"]
    assert parts["why_windows_least"] <= parts["why_part"] <= parts["why_windows_most"]
    begins = evidence.beginning_numbers(often(rising(4.0)))
    assert begins["why_over_text"] < begins["why_over_drawn"] - 0.1 and begins["why_over_more"].startswith("-0.")


@pytest.mark.parametrize(("end", "verdict"), [(2.0, "smaller"), (99.0, "undecided"), (9.0, "larger")])
def test_a_text_that_earns_more_than_is_proper_contradicts(end, verdict):
    from studies.orders import evidence

    order = rising(end, count=40)
    if verdict == "undecided":  # for half of the texts the end is much more, for the others nothing
        order["gradient"][::2, 0] = order["gradient"][::2, 2]
    seen = evidence.Evidence(order, tables.split_table(order, "gradient"), {}, often(order))
    made = evidence.alike_checks(seen)
    for last in made[1:] if verdict == "undecided" else made:  # added up, the few that are much more decide
        assert last.passed == (verdict != "larger") and last.how["undecided"] == (verdict != "smaller")
        assert last.how["post_hoc"] and last.part.startswith("last eighth, 20 draws")


def test_a_network_without_an_order_has_no_bias_proper():
    """A mean over tokens reads every place alike, so that only a text with an order of its own could have a profile."""
    ids = sticky(2000, N, np.random.default_rng(1))
    early = np.where(np.arange(N) < N // 2, 3.0, 1.0)  # tokens of the first half are long ones
    size = np.where(order_shuffled(ids * 0 + early.astype(int), "shuffled") > 1, 3.0, 1.0)
    flat = tables.ends_of(tables.binned(size).mean(0) / size.mean())
    assert flat["first eighth"] == pytest.approx(1, abs=0.05) and flat["last eighth"] == pytest.approx(1, abs=0.05)
    written = tables.ends_of(tables.binned(np.tile(early, (5, 1))).mean(0) / early.mean())
    assert written["first eighth"] == pytest.approx(1.5, abs=0.05)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("orders")
    save(folder / "tiny", "llama", start=True)
    (folder / "articles.txt").write_text("".join(f" = Article {k} = \n{text(80, k)}\n" for k in range(12)))
    return folder


def run(place, output, *parts, count=4):
    words = [*parts, "--only", place / "tiny", "--prompts", count, "--length", 40, "-o", output]
    making.main("orders", PARTS, [*map(str, [*words, "--wikitext", place / "articles.txt"])])
    return Results(output)


def test_entries_are_the_models_own_and_go_on(place, tmp_path, monkeypatch):
    read = []

    def stop(*given):
        read.append(given)
        if len(read) == 7:
            raise KeyboardInterrupt
        return measure_gradient(*given)

    monkeypatch.setattr(measure, "measure_gradient", stop)
    with pytest.raises(SystemExit):
        run(place, tmp_path / "orders.nc", "gradient")
    kept = run(place, tmp_path / "orders.nc", "gradient", "use")
    found, use = kept["tiny.gradient"], kept["tiny.use"]["use"].values
    assert len(read) == 7 + 3 * 5  # the first prompt is not read again
    assert found["gradient"].shape == use.shape == (4, 5, 40) and found.attrs["front"] == 1
    model = AutoModelForCausalLM.from_pretrained(place / "tiny")
    assert np.allclose(found["gradient"][0, 0], measure_gradient(model, read[0][1]), rtol=2e-3)
    assert np.isfinite(use).sum(-1).min() >= 7 and np.isfinite(use[..., 0]).all()
    assert not np.allclose(found["gradient"][0, 0], found["gradient"][0, 3], rtol=1e-2)
    table = tables.order_table(found, "gradient")
    assert list(table.index) == list(ORDERS) and table["first eighth"].between(0, 8).all()
    more = run(place, tmp_path / "more.nc", "gradient", count=5)["tiny.gradient"]
    assert np.array_equal(more["gradient"][:4, :4], found["gradient"][:, :4])


def test_rounded_weights_are_as_near_as_four_bits_and_come_back(place, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(place / "tiny")
    own = [x.detach().clone() for x in model.parameters()]
    with rounding.rounded_weights(model):
        now = [x.detach().clone() for x in model.parameters()]
    assert all(torch.equal(x, y) for x, y in zip(own, model.parameters(), strict=True))
    for x, y in zip(own, now, strict=True):
        if x.dim() == 1:
            assert torch.equal(x, y)
        for a, b in zip(x.split(32, 1), y.split(32, 1), strict=True) if x.dim() == 2 else ():
            step = (a.amax(1) - a.amin(1)) / 15
            assert ((a - b).abs().amax(1) <= 0.51 * step + 2e-3 * a.abs().amax(1)).all() and not torch.equal(a, b)
            assert max(len(row.unique()) for row in b) <= 16
    kept = run(place, tmp_path / "orders.nc", "rounded", count=2)["tiny.rounded"]
    table = tables.rounding_table(kept)
    assert 0 < table.loc["apart", "value"] < 0.2 and kept["gradient"].shape == (2, 2, 40)


def test_rounding_is_judged_by_its_intervals():
    from studies.orders import evidence

    parts = ["apart", "first eighth", "last eighth"]
    same = pd.DataFrame({"value": [0.002, 0.01, 0.0], "low": [0.001, -0.1, -0.1], "high": [0.008, 0.1, 0.1]}, parts)
    seen = evidence.Evidence(None, None, {"a": same}, None)
    assert evidence.bits_checks(seen)[0].passed and not evidence.bits_checks(seen)[0].how["undecided"]
    wide = same.assign(high=[0.012, 0.1, 0.1])
    assert evidence.bits_checks(evidence.Evidence(None, None, {"a": wide}, None))[0].how["undecided"]
    far = same * 20
    assert not evidence.bits_checks(evidence.Evidence(None, None, {"a": same, "b": far}, None))[0].passed
    assert (
        "3 small" not in evidence.bits_said(seen) and evidence.bits_said(evidence.Evidence(None, None, {}, None)) == ""
    )
