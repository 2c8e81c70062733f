"""The explorer's engine, its data and its links against Python."""

import itertools
import re

import numpy as np
import pytest
from conftest import ROOT
from explorer_fields import (
    BIASES,
    DEFAULTS,
    hash_of,
    predicted,
    predicted_untrained,
    profiles,
    random_biased_fields,
    random_fields,
)

from bookkit.explorer import DATA, explorer_script
from posbias.comparison.distances import normalised_wasserstein
from posbias.rollout.influence import influence_profile
from posbias.rollout.profiles import mean_position, u_shape
from posbias.rollout.structured import structured_kernels
from studies.published import numbers

LIMITS = [
    {"length": 4096, "depth": 100, "heads": 112, "lambda": 0.05},
    {"length": 4096, "depth": 100, "heads": 16, "encoding": "decay", "slope": 4, "lambda": 1},
    {"length": 4096, "depth": 20, "heads": 8, "mask": "window", "width": 1},
    {"length": 400, "depth": 4, "heads": 2, "encoding": "log", "slopes": "one", "slope": 0.001},
    {"length": 4, "depth": 1, "heads": 1, "mask": "prefix", "width": 4096, "lambda": 1},
    {"length": 2048, "depth": 20, "encoding": "log-position", "alpha": 99, "lambda": 1},
    {"length": 1024, "depth": 20, "encoding": "flat", "tau": 0.01, "lambda": 0.05},
    {"length": 4, "depth": 5, "encoding": "flat", "tau": 0.01, "lambda": 1},
    {"lambda": 0},
]
UNTRAINED = {"law": "untrained", "length": 50, "depth": 6, "lambda": 0.5}
LIMITS_UNTRAINED = [
    UNTRAINED | fields | {"length": length}
    for length in (4, 61)
    for fields in (
        {"width": 1, "mask": "window"},
        {"width": 4096, "mask": "window"},
        {"width": length - 1, "mask": "window", "scale": 0.01},
        {"width": 4096, "mask": "prefix", "slopes": "one", "slope": 4},
        {"scale": 16, "content": "diagonal", "diagonal": -10},
        {"lambda": 0},
        {"depth": 100, "heads": 2, "lambda": 0.02},
    )
]


def drawn_at_random(draw, seed, law):
    """Return settings of each combination; untrained, they are cut down to what written-out kernels can do."""
    rng = np.random.default_rng(seed)
    for k in range(48):
        fields = draw(rng, k)
        if law == "untrained":
            content = fields["content"] == "all"
            fields |= {"model": "reference-bloom-8", "heads": 6} if content else {"heads": min(fields["heads"], 8)}
            fields["depth"] = min(fields["depth"], int(rng.integers(1, 9 if content else 13)))
            fields |= {"length": int(rng.integers(4, 61)), "width": int(rng.integers(1, 31)), "law": law}
        yield fields


@pytest.mark.parametrize("law", ["aligned", "untrained"])
def test_engine_equals_python(engine, law):
    expected, limits = (predicted, LIMITS) if law == "aligned" else (predicted_untrained, LIMITS_UNTRAINED)
    both = (random_fields, random_biased_fields)
    asked = [*limits, *(fields for draw in both for fields in drawn_at_random(draw, 20, law))]
    assert {f.get("content", "none") for f in asked} == {"none", "diagonal", "mean", "all"}
    assert any("residual" in f.get("off", ()) for f in asked)
    for k, (fields, p) in enumerate(zip(asked, profiles(engine, asked), strict=True)):
        assert np.abs(p - expected(**fields)).max() < (1e-12 if k < len(limits) else 1e-10), fields
        assert (p >= 0).all() and abs(p.sum() - 1) < 1e-9, fields


@pytest.mark.parametrize("fields", [{"encoding": "flat", "tau": 3.0}, {"encoding": "log-position", "alpha": 2.0}])
def test_limit_of_the_mean_position_in_long_prompts(engine, fields):
    (short, long) = profiles(engine, [fields | {"depth": 10, "lambda": 0.3, "length": n} for n in (512, 4096)])
    bias = BIASES[fields["encoding"]](fields)
    limit = engine.execute_script("return PosbiasEngine.limitingMean(new Array(10).fill(0.3), arguments[0])", bias)
    assert abs(mean_position(long) - limit) < 0.3 * abs(mean_position(short) - limit) < 0.01
    if fields["encoding"] == "log-position":
        assert abs(limit - (1 - 0.3 / 4) ** 10) < 1e-14


def test_what_a_profile_says_equals_python(engine):
    rng = np.random.default_rng(3)
    script = "const [p, q] = arguments, e = PosbiasEngine; return [e.meanPosition(p), e.uShape(p), e.wasserstein(p, q)]"
    falling = np.arange(9, 0, -1.0) / 45  # and its last token alone above the others: no trough
    atom = np.append(falling / 2, 0.5)
    cases = [rng.dirichlet(np.full(n, own), size=2) for n in (4, 10, 257) for own in (1, 50)]
    cases += [(influence_profile(structured_kernels(4, slope=m), [0.3] * 4, 40), np.full(40, 1 / 40)) for m in (0.1, 2)]
    shallow = np.array([104, 101, 100, 104, 91.0]) / 500  # lower inside, but by less than the tolerance
    cases += [(atom, atom[::-1]), (shallow, shallow[::-1])]
    seen = set()
    for p, q in cases:
        mean, shape, distance = engine.execute_script(script, p.tolist(), q.tolist())
        expected = u_shape(p)
        assert abs(mean - mean_position(p)) < 1e-12 and abs(distance - normalised_wasserstein(p, q)) < 1e-12
        for field in ("start", "end", "trough", "location", "depth", "low", "high"):
            assert abs(shape[field] - getattr(expected, field)) < 1e-12, field
        assert shape["present"] == expected.present
        seen.add(expected.present)
    assert seen == {True, False}
    refused = "try { PosbiasEngine.uShape([0.5, 0.2, 0.3]); return '' } catch (e) { return e.message }"
    assert engine.execute_script(refused) == "profile: expected at least 4 positions, received 3"


def test_committed_data_are_what_python_generates():
    committed = (ROOT / DATA).read_text(encoding="utf-8")
    assert committed == explorer_script(ROOT), "run python -m bookkit explorer-data"
    assert (ROOT / DATA).stat().st_size < 300_000


def test_published_presets_give_the_published_predictions(engine):
    for name, content, residual in itertools.product(numbers.MODELS, numbers.CONTENTS, (True, False)):
        fields = {"model": name, "content": content} | ({} if residual else {"off": ("residual",)})
        (found,) = profiles(engine, [fields])
        assert np.abs(found - numbers.config(name, content, residual=residual).profile()).max() < 1e-13, fields


def test_links_bring_settings_back(engine):
    rng = np.random.default_rng(5)
    round_trip = """const [hash] = arguments, s = PosbiasState, presets = PosbiasPresets;
        const first = s.parse(hash, presets), link = s.format(first.state, presets), again = s.parse(link, presets);
        return [first, link, again]"""
    for k in range(40):
        draw = random_biased_fields if k % 5 == 0 else random_fields
        fields = draw(rng, k) | {"law": ("aligned", "untrained")[k % 2]}
        first, link, again = engine.execute_script(round_trip, hash_of(fields))
        assert first["state"]["law"] == fields["law"]
        assert first == again and again["refused"] == [] and link.startswith("#"), link


def test_defaults_of_the_page_are_those_that_it_prints(engine):
    initial = engine.execute_script("return PosbiasState.initialState(null)")
    assert {name: tuple(x) if isinstance(x, list) else x for name, x in initial.items()} == {
        "model": "", "axis": "log", "beside": "none", **DEFAULTS
    }  # fmt: skip
    table = dict(re.findall(r"^\| (`[^|]*) \|.*\| ([^|]*) \|$", (ROOT / "book" / "plot.md").read_text(), re.M))
    for names, values in table.items():
        for name, value in zip(re.findall(r"`(\w+)`", names), values.replace("`", "").split(", "), strict=True):
            expected = initial[name]
            assert value == "none" if expected in ("", []) else value == f"{expected}", name
    documented = {name for names in table for name in re.findall(r"`(\w+)`", names)}
    assert documented == set(initial)
