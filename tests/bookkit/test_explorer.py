"""The explorer in a browser: its engine against Python's, links, switches, words, downloads, keyboard, colours."""

import itertools
import json
import re
from functools import cache
from html import unescape

import numpy as np
import pytest
from conftest import ROOT, pages, resize
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from bookkit.explorer import DATA, REFERENCE, explorer_script, measured_presets, published_presets, standalone_page
from posbias.comparison.distances import normalised_wasserstein, spearman, total_variation, unit
from posbias.measure.measurement import Measurement
from posbias.rollout import masks, schedules
from posbias.rollout.influence import influence_profile
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.logits import alibi_slopes, geometric_slopes
from posbias.rollout.profiles import mean_position, read_profile, u_shape, write_profile
from posbias.rollout.structured import biased_kernels, structured_kernels
from posbias.rollout.untrained import untrained_profile
from studies.published import numbers
from studies.results import load

ASSETS = ROOT / DATA.parent


# ---------------------------------------------------------------- a browser and a page in it


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Return the address of the explorer on a page of its own, from disk."""
    return standalone_page(ROOT, tmp_path_factory.mktemp("explorer")).as_uri()


@pytest.fixture
def show(driver, page):
    """Return a function that opens the page at a hash, once it is drawn."""
    resize(driver, 1280)

    def open_at(hash_="", address=page):
        driver.get("about:blank")
        driver.get(address + hash_)
        drawn(driver)

    return open_at


@pytest.fixture
def engine(driver, page):
    """Return the browser with the page open at any settings, for tests of functions that do not look at them."""
    if not driver.execute_script("return window.PosbiasState"):
        driver.get(page)
        drawn(driver)
    return driver


def drawn(driver):
    ready = "return window.PosbiasExplorer && PosbiasExplorer.drawn && PosbiasExplorer.drawn.milliseconds !== undefined"
    busy = "return document.getElementById('explorer').getAttribute('aria-busy')"
    WebDriverWait(driver, 30).until(lambda d: d.execute_script(ready) and not d.execute_script(busy))


def profile(driver):
    drawn(driver)
    return np.array(driver.execute_script("return Array.from(PosbiasExplorer.drawn.profile)"), dtype=float)


def after(driver, action):
    """Do something that changes the settings, wait for the next drawing, and return the profile."""
    before = driver.execute_script("return PosbiasExplorer.redraws")
    action()
    WebDriverWait(driver, 30).until(lambda d: d.execute_script("return PosbiasExplorer.redraws") > before)
    return profile(driver)


def element(driver, name):
    return driver.find_element(By.ID, f"explorer-{name}")


def errors(driver):
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def settled_hash(driver, part):
    WebDriverWait(driver, 10).until(lambda d: part in d.execute_script("return location.hash"))


def is_said(driver, part):
    """Wait until a screen reader is told something."""
    live = driver.find_element(By.CSS_SELECTOR, "#explorer [aria-live=polite]")
    WebDriverWait(driver, 10).until(lambda d: part in live.get_attribute("textContent"))


# ---------------------------------------------------------------- what Python makes of the fields of a link

DEFAULTS = {
    "depth": 12, "mixing": "constant", "lambda": 0.1, "lambda0": 0.6, "beta": 1.0, "encoding": "alibi", "heads": 8,
    "slopes": "rule", "scale": 1.0, "slope": 0.25, "mask": "causal", "width": 16, "content": "none", "diagonal": 2.0,
    "length": 256, "off": (), "law": "aligned", "alpha": 0.2, "tau": 1.2,
}  # fmt: skip
BIASES = {
    "log-position": lambda f: {"kind": "log", "alpha": f["alpha"]},
    "flat": lambda f: {"kind": "flat", "tau": f["tau"]},
}
"""Encodings that are functions of the ratio of positions, as the package describes them."""


@cache
def presets():
    return {preset["name"]: preset for preset in (*published_presets(), *measured_presets(ROOT))}


def predicted(**fields):
    """Compute the profile that a link's fields ask for with the package's own functions."""
    schedule, n, slopes, content, mask, f = what_is_asked(**fields)
    T = len(schedule)
    plain = f["encoding"] == "none" or "position" in f["off"]
    if f["encoding"] in BIASES and not plain:
        return influence_profile(biased(T, content, f), schedule, n)
    if plain or f["encoding"] != "log":
        kernels = structured_kernels(T, slope=None if plain else slopes, diagonal=content, mask=mask, H=f["heads"])
        return influence_profile(kernels, schedule, n)
    A = kernels_written_out(n, slopes, content, mask, f).mean(axis=1)
    return influence_profile(A[0] if len(A) == 1 else A, schedule)


def biased(T, content, f):
    return biased_kernels(T, BIASES[f["encoding"]](f), diagonal=content, H=f["heads"])


def predicted_untrained(**fields):
    """Compute the law of untrained networks of a link's fields from kernels that are written out."""
    schedule, n, slopes, content, mask, f = what_is_asked(**fields)
    A = kernels_written_out(n, slopes, content, mask, f)
    A = np.broadcast_to(A, (len(schedule), *A.shape[1:]))
    if (schedule < 1).all():
        return untrained_profile(A, schedule / (1 - schedule))
    G = np.diag(np.eye(n)[-1])  # without a residual a gain has no number, but its share of the layer has
    for heads, mixing in zip(A[::-1], schedule[::-1], strict=True):
        G = (1 - mixing) ** 2 * G + mixing**2 * np.mean([head.T @ G @ head for head in heads], axis=0)
        G /= np.trace(G)
    return np.sqrt(np.diag(G)) / np.sqrt(np.diag(G)).sum()


def kernels_written_out(n, slopes, content, mask, f):
    """Return the kernels of all heads, of one layer or of all: (1 or T, H, n, n)."""
    plain = f["encoding"] == "none" or "position" in f["off"]
    if f["encoding"] in BIASES and not plain:
        one = [[biased(1, d, f | {"heads": 1}).dense(0, n) for d in row] for row in content]
        return np.array(one)
    distance = np.subtract.outer(np.arange(n), np.arange(n))
    distance = np.log1p(np.abs(distance)) if f["encoding"] == "log" else distance
    logits = -(0 if plain else 1) * slopes[:, None, None] * distance
    return np.stack([attention_kernel(logits + d[:, None, None] * np.eye(n), mask) for d in content])


def what_is_asked(**fields):
    """Return λ, n, slopes, content by layer and head, the mask, and all fields."""
    f = DEFAULTS | fields
    T, H, n = f["depth"], f["heads"], f["length"]
    if "model" in f:
        preset = presets()[f["model"]]
        own, mean, diagonals = np.array(preset["lambda"]), preset["mean"], preset["diagonal"]
    schedule = {
        "constant": lambda: schedules.constant(T, float(f["lambda"])),
        "decay": lambda: schedules.power_decay(T, f["lambda0"], f["beta"]),
        "model": lambda: own[:T],
    }[f["mixing"]]()
    rules = {
        "rule": lambda: f["scale"] * alibi_slopes(H),
        "geometric": lambda: f["scale"] * geometric_slopes(H),
        "one": lambda: np.full(H, f["slope"]),
    }
    slopes = rules["one" if f["encoding"] == "decay" else f["slopes"]]()
    content = {
        "none": lambda: np.zeros((1, H)),
        "diagonal": lambda: np.full((1, H), f["diagonal"]),
        "mean": lambda: np.full((1, H), mean),
        "all": lambda: diagonals[:T],
    }[f["content"]]()
    mask = {
        "causal": masks.causal,
        "window": lambda: masks.sliding_window(f["width"]),
        "prefix": lambda: masks.prefix(f["width"]),
    }[f["mask"]]()
    mask = masks.full() if "mask" in f["off"] else mask
    schedule = np.ones(T) if "residual" in f["off"] else schedule
    content = np.zeros((1, H)) if "content" in f["off"] else content
    return schedule, n, slopes, content, mask, f


def random_biased_fields(rng, k):
    """Draw settings with logits by the ratio of positions, which are causal; content of all kinds occurs with both."""
    fields = random_fields(rng, 12 * (k // 2) + 1)  # content of the kind k // 2, and no logarithmic distance
    total = float(np.exp(rng.uniform(np.log(0.01), np.log(100))))
    off = tuple(x for x in fields["off"] if x != "mask")
    encoding = ("log-position", "flat")[k % 2]
    return fields | {"encoding": encoding, "alpha": total - 1, "tau": total, "mask": "causal", "off": off}


def hash_of(fields):
    parts = {name: ",".join(x) if isinstance(x, tuple) else x for name, x in fields.items()}
    return "#" + "&".join(f"{name}={value}" for name, value in parts.items())


def random_fields(rng, k):
    """Draw settings; the k-th has the k-th combination of encoding, mask and content, so that all occur."""
    encoding = ("none", "alibi", "decay", "log")[k % 4]
    mask = ("causal", "window", "prefix")[k // 4 % 3]
    content = ("none", "diagonal", "mean", "all")[k // 12 % 4]
    log = encoding == "log"
    small = [f"reference-{name}" for name in REFERENCE]
    fields = {}
    if content in ("mean", "all") or rng.random() < 0.4:
        fields["model"] = str(rng.choice(small if log and content == "all" else [*small, *numbers.MODELS]))
        T, H = presets()[fields["model"]]["diagonal"].shape
    else:
        T, H = 100, int(rng.integers(1, 33))
    H = H if content == "all" else int(rng.integers(1, 33))
    longest = 200 if log else 2048 if content != "all" else 400
    return fields | {
        "depth": int(rng.integers(1, min(T, 12 if log else T) + 1)),
        "mixing": str(rng.choice(["constant", "decay", "model"] if "model" in fields else ["constant", "decay"])),
        "lambda": float(rng.uniform().__round__(3)),
        "lambda0": float(rng.uniform(0.01, 1)),
        "beta": float(rng.uniform(0, 3)),
        "encoding": encoding,
        "heads": H,
        "slopes": str(rng.choice(["rule", "geometric", "one"])),
        "scale": float(np.exp(rng.uniform(np.log(0.05), np.log(4)))),
        "slope": float(np.exp(rng.uniform(np.log(0.001), np.log(4)))),
        "mask": mask,
        "width": int(np.exp(rng.uniform(0, np.log(longest)))) + 1,
        "content": content,
        "diagonal": float(rng.uniform(-10, 10)),
        "length": int(np.exp(rng.uniform(np.log(4), np.log(longest)))),
        "off": tuple(str(x) for x in ("mask", "residual", "position", "content") if rng.random() < 0.15),
    }


PROFILES = """
const scheme = PosbiasState, engine = PosbiasEngine, presets = PosbiasPresets;
return arguments[0].map(hash => {
  const { state, refused } = scheme.parse(hash, presets);
  if (refused.length) return refused;
  return Array.from(engine.influence(scheme.settingsOf(state, presets)));
});
"""


def profiles(driver, asked):
    found = driver.execute_script(PROFILES, [hash_of(fields) for fields in asked])
    assert all(isinstance(p[0], int | float) for p in found), found[:1]
    return [np.array(p, dtype=float) for p in found]


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


# ---------------------------------------------------------------- presets


def test_committed_data_are_what_python_generates():
    committed = (ROOT / DATA).read_text(encoding="utf-8")
    assert committed == explorer_script(ROOT), "run python -m bookkit explorer-data"
    assert (ROOT / DATA).stat().st_size < 300_000


def test_published_presets_give_the_published_predictions(engine):
    for name, content, residual in itertools.product(numbers.MODELS, numbers.CONTENTS, (True, False)):
        fields = {"model": name, "content": content} | ({} if residual else {"off": ("residual",)})
        (found,) = profiles(engine, [fields])
        assert np.abs(found - numbers.config(name, content, residual=residual).profile()).max() < 1e-13, fields


def test_page_opens_with_prediction_beside_measurement(driver, show):
    show("#model=bloom")
    measured = np.array(driver.execute_script("return Array.from(PosbiasExplorer.drawn.measured)"))
    assert np.abs(measured - numbers.measured_profile()).max() < 1e-8 and "trough" in legend(driver)
    show()
    state = driver.execute_script("return PosbiasExplorer.state")
    assert (state["model"], state["axis"], state["beside"]) == ("smollm2", "log", "both")
    x = load("real")["smollm2.wiki-256"]
    kept = {"measured": x["influence"], "contributions": x["rollout"].sel(variant="contributions")}
    kept |= {"maps": x["rollout"].sel(variant="vectors")}
    for name, p in kept.items():
        assert np.abs(thin(driver, name) - p.values).max() < 1e-5
    kept["profile"] = profile(driver)
    q = kept.pop("measured").values
    for p in map(np.asarray, kept.values()):
        said = f"W₁ {normalised_wasserstein(unit(p), q):.3f}, total variation {total_variation(unit(p), q):.3f}, rank "
        said += f"{float(f'{spearman(p, q):.2g}'):g}".replace("-", "−")
        assert said in driver.find_element(By.CLASS_NAME, "explorer-words").text
    assert all(name in legend(driver) for name in ("rollout", "measured", "contributions", "value maps"))
    choose(driver, "beside", "contributions")
    assert "value maps" not in legend(driver) and errors(driver) == []


def give(driver, file):
    """Drop a file on the page, as its field takes one, and return what the page says of it."""
    before = driver.execute_script("return PosbiasExplorer.redraws")
    element(driver, "file").send_keys(str(file))
    hint = driver.find_element(By.CSS_SELECTOR, ".explorer-own [role=status]")
    WebDriverWait(driver, 10).until(lambda d: file.name in hint.text or "Not shown" in hint.text)
    if file.name in hint.text:
        WebDriverWait(driver, 10).until(lambda d: d.execute_script("return PosbiasExplorer.redraws") > before)
    return hint.text


def test_a_measurement_of_ones_own_is_drawn(driver, show, tmp_path):
    show()
    results = load("models")["bloom-8.builtin"]
    Measurement(results).to_pandas().to_csv(tmp_path / "mine.csv")
    write_profile(tmp_path / "short.csv", np.arange(1, 41) / 820)
    (tmp_path / "none.csv").write_text("a,b\n1,2\n")
    assert give(driver, tmp_path / "mine.csv") == "mine.csv: 256 tokens, drawn as measured."
    assert np.abs(thin(driver, "measured") - unit(results["influence"].values)).max() < 1e-9
    assert "mine.csv" in legend(driver) and "contributions" not in legend(driver)
    assert give(driver, tmp_path / "short.csv").startswith("short.csv: 40 tokens")
    assert profile(driver).size == 40 and np.abs(thin(driver, "measured") - np.arange(1, 41) / 820).max() < 1e-12
    assert "expected a column measured or probability, received a,b" in give(driver, tmp_path / "none.csv")
    after(driver, driver.find_element(By.XPATH, "//button[text()='Without it']").click)
    assert not thin(driver, "measured").size and errors(driver) == []


def test_documents_are_coloured_by_what_each_did(driver, tmp_path):
    resize(driver, 1280)
    driver.get(standalone_page(ROOT, tmp_path, "source").as_uri())
    used = load("documents")["smollm2.used"]

    def shown():
        return [x.text for x in driver.find_elements(By.CLASS_NAME, "explorer-document-value")]

    def put(name, value):
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        driver.execute_script(script, element(driver, f"documents-{name}"), str(value))

    for gold in range(8):
        put("asked", gold + 1)
        assert shown() == [f"{max(0, -x):.1f}" for x in used["removed"].values[0, gold].astype(float).round(4)]
        cards = driver.find_elements(By.CLASS_NAME, "explorer-document")
        assert [k for k, card in enumerate(cards) if "asked for" in card.text] == [gold]
        source = [k for k, card in enumerate(cards) if "answer given" in card.text]
        assert source == [int(used["source"].values[0, gold])]
    put("prompt", 1)
    put("way", "influence")
    put("by", "place")
    values = used["influence"].values[1].astype(float).round(4)
    assert shown() == [f"× {x:.2f}" for x in values[7] / values[:7].mean(0)]
    driver.find_elements(By.CLASS_NAME, "explorer-document")[2].click()
    assert element(driver, "documents-asked").get_attribute("value") == "3"
    assert errors(driver) == []


# ---------------------------------------------------------------- links


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


REFUSED = {
    "#depth=3.5": "an integer from 1 to 100",
    "#length=1e9": "an integer from 4 to 4096",
    "#lambda=": "a number from 0 to 1",
    "#model=gpt": "falcon-rw-7b, mpt-7b",
    "#mixing=model": "one of constant, decay without a model",
    "#encoding=log-position&alpha=-1": "a number from -0.99 to 99",
    "#encoding=flat&mask=window": "one of causal with encoding=flat",
    "#off=mask,gravity": "any of mask, residual, position, content",
    "#colour=<img src=x>": "one of the fields model, depth",
}


def test_a_broken_link_says_what_was_refused(driver, show):
    show("#depth=3.5&colour=<img src=x>&=%E0%A4%A&&&")
    box = driver.find_element(By.CSS_SELECTOR, ".explorer-refused[role=alert]")
    assert box.is_displayed() and "depth: expected an integer from 1 to 100, received 3.5" in box.text
    assert "expected one of the fields model, depth" in box.text
    assert abs(profile(driver).sum() - 1) < 1e-9 and errors(driver) == []
    for hash_, wanted in REFUSED.items():
        (refused,) = driver.execute_script("return PosbiasState.parse(arguments[0], PosbiasPresets).refused", hash_)
        assert wanted in refused["expected"], (hash_, refused)


def test_settings_go_into_the_address_and_come_back(driver, show):
    show("#depth=24&length=64")
    p = after(driver, lambda: driver.execute_script("PosbiasExplorer.change({lambda: 0.4, off: ['position']})"))
    settled_hash(driver, "off=position")
    link = driver.execute_script("return location.href")
    assert element(driver, "link").get_attribute("value") == link
    show(link.partition("#")[2].join(["#", ""]))
    assert np.array_equal(profile(driver), p)
    assert np.abs(p - predicted(depth=24, length=64, **{"lambda": 0.4}, off=("position",))).max() < 1e-9
    assert after(driver, lambda: driver.execute_script("location.hash = '#depth=6&length=60'")).size == 60
    driver.execute_script("location.hash = '#what-to-try'")
    assert profile(driver).size == 60 and not driver.find_element(By.CLASS_NAME, "explorer-refused").is_displayed()
    show("#what-to-try")
    is_said(driver, "First token")
    assert driver.execute_script("return location.hash") == "#what-to-try", "a heading's address is kept"


# ---------------------------------------------------------------- the two laws


def legend(driver):
    return driver.find_element(By.CLASS_NAME, "explorer-legend").text


def thin(driver, name):
    return np.array(driver.execute_script(f"return Array.from(PosbiasExplorer.drawn.{name} || [])"), dtype=float)


def test_the_switch_between_the_laws(driver, show):
    start = {"depth": 6, "lambda": 0.4, "length": 50}
    show(hash_of(start))
    sizes = profile(driver)
    assert "adding sizes" not in legend(driver) and not thin(driver, "sizes").size
    squares = choose(driver, "law", "untrained")
    assert np.abs(squares - predicted_untrained(**start)).max() < 1e-12
    assert np.array_equal(thin(driver, "sizes"), sizes), "the thin line is the rollout"
    assert "law of untrained networks" in legend(driver) and "adding sizes" in legend(driver)
    said = driver.find_element(By.CLASS_NAME, "explorer-words").text
    distance, hops = normalised_wasserstein(squares, sizes), 6 * 0.4**2 / (0.4**2 + 0.6**2)
    for part in (
        f"mean position {mean_position(sizes):.3f}",
        f"distance {distance:.3f}",
        f"squares {hops:.4g} attention",
    ):
        assert part in said
    is_said(driver, "Law of untrained networks: squares")
    assert "#" + driver.execute_script("return location.hash").strip("#") == hash_of(start | {"law": "untrained"})
    without = after(driver, element(driver, "force-position").click)
    assert np.abs(without - predicted_untrained(**start, off=("position",))).max() < 1e-12
    assert np.array_equal(thin(driver, "all"), squares), "the thin line is the same law with all forces"
    assert "law of untrained networks without positional encoding" in legend(driver)
    assert "adding sizes" not in legend(driver)
    after(driver, element(driver, "force-position").click)
    assert np.array_equal(choose(driver, "law", "aligned"), sizes)


def test_a_change_ends_a_long_computation(driver, show):
    show("#heads=64&length=256")
    script = """const [done] = arguments, E = PosbiasExplorer; E.change({law: "untrained"});
        setTimeout(() => { E.change({heads: 2, length: 40}); done() }, 400)"""
    driver.execute_async_script(script)
    wanted = predicted_untrained(heads=2, length=40)
    WebDriverWait(driver, 60).until(lambda d: profile(d).size == 40 and np.abs(profile(d) - wanted).max() < 1e-12)
    redraws = driver.execute_script("return PosbiasExplorer.redraws")
    drawings = "const [done] = arguments; setTimeout(() => done(PosbiasExplorer.redraws), 1500)"
    assert driver.execute_async_script(drawings) == redraws


def test_too_much_is_said_and_not_begun(driver, show):
    show("#law=untrained&length=4096&heads=64&depth=40")
    note = driver.find_element(By.CLASS_NAME, "explorer-note")
    assert "would take too long" in note.text and "fewer heads or layers" in note.text
    is_said(driver, "would take too long")
    assert np.abs(profile(driver) - predicted(length=4096, heads=64, depth=40)).max() < 1e-12, "the rollout instead"
    assert "rollout, adding sizes" in legend(driver) and "law of untrained networks" not in legend(driver)
    fits = int(re.search(r"up to (\d+) tokens", note.text)[1])
    # one kernel for all heads takes linear time, and any length
    after(driver, lambda: driver.execute_script("PosbiasExplorer.change({encoding: 'decay'})"))
    assert "law of untrained networks" in legend(driver) and not note.is_displayed()
    after(driver, lambda: driver.execute_script("PosbiasExplorer.change({encoding: 'alibi', off: ['position']})"))
    assert "thin line is left out" in note.text and not thin(driver, "all").size
    after(driver, lambda: driver.execute_script("PosbiasExplorer.change({off: []})"))
    button = note.find_element(By.TAG_NAME, "button")
    assert button.text == f"Show {fits} tokens"
    button.send_keys(Keys.ENTER)
    assert driver.execute_script("return PosbiasExplorer.state.length") == fits


# ---------------------------------------------------------------- the four forces


def test_a_model_fills_in_the_settings_and_its_depth_has_an_end(driver, show):
    show("#depth=100&encoding=none")
    enabled = [element(driver, f"force-{force}").is_enabled() for force in ("position", "content", "residual")]
    assert enabled == [False, False, True], "a force that is not there cannot be switched"
    choose(driver, "model", "mpt-7b")
    state = driver.execute_script("return PosbiasExplorer.state")
    assert (state["depth"], state["heads"], state["mixing"], state["content"]) == (32, 32, "model", "all")
    after(driver, lambda: driver.execute_script("PosbiasExplorer.change({depth: 90})"))
    assert driver.execute_script("return PosbiasExplorer.state.depth") == 32
    choose(driver, "model", "")
    state = driver.execute_script("return PosbiasExplorer.state")
    assert (state["mixing"], state["content"]) == ("constant", "none")
    assert not driver.find_element(By.CLASS_NAME, "explorer-refused").is_displayed()


def choose(driver, name, value):
    return after(driver, lambda: Select(element(driver, name)).select_by_value(value))


# ---------------------------------------------------------------- logits by the ratio of positions


def test_logits_by_ratios_are_causal_alone(driver, show):
    show("#mask=window&width=9&off=mask&length=64")
    p = choose(driver, "encoding", "log-position")
    assert np.abs(p - predicted(encoding="log-position", length=64)).max() < 1e-12
    mask, switch = element(driver, "mask"), element(driver, "force-mask")
    assert mask.get_attribute("value") == "causal" and "Causal only" in element(driver, "mask-hint").text
    assert switch.is_selected() and not switch.is_enabled() and not mask.is_enabled()
    choose(driver, "encoding", "alibi")
    assert mask.is_enabled() and switch.is_enabled()


# ---------------------------------------------------------------- downloads


def test_downloads_are_files(driver, show, tmp_path):
    show("#model=bloom-7b1&length=128")
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    for kind in ("CSV", "PNG"):
        driver.find_element(By.XPATH, f"//button[text()='Download {kind}']").click()
        file = tmp_path / f"profile-bloom-7b1-128.{kind.lower()}"
        WebDriverWait(driver, 20).until(lambda d, file=file: file.is_file())
    WebDriverWait(driver, 20).until(lambda d: not list(tmp_path.glob("*.crdownload")))
    assert np.array_equal(read_profile(tmp_path / "profile-bloom-7b1-128.csv"), profile(driver))
    assert (tmp_path / "profile-bloom-7b1-128.png").read_bytes().startswith(b"\x89PNG")


# ---------------------------------------------------------------- everyone can use it


def enter(field, text):
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(text, Keys.ENTER)


def test_keyboard_alone(driver, show):
    show("#depth=10&length=40")
    body = driver.switch_to.active_element
    reached = []
    for _ in range(60):
        ActionChains(driver).send_keys(Keys.TAB).perform()  # to a file's field, send_keys gives a file
        body = driver.switch_to.active_element
        reached.append(body.get_attribute("id") or body.text)
        if reached[-1] == "explorer-depth":
            break
    assert reached[-1] == "explorer-depth" and "explorer-force-mask" in reached and "explorer-model" in reached
    p = after(driver, lambda: body.send_keys(Keys.ARROW_RIGHT))
    assert np.abs(p - predicted(depth=11, length=40)).max() < 1e-9
    p = after(driver, lambda: element(driver, "force-residual").send_keys(Keys.SPACE))
    assert p[0] > 0.9 and driver.execute_script("return PosbiasExplorer.state.off") == ["residual"]
    exact = element(driver, "length-exact")
    p = after(driver, lambda: enter(exact, "77"))
    assert p.size == 77
    element(driver, "token").send_keys(Keys.HOME, Keys.ARROW_RIGHT)
    spoken = element(driver, "token").get_attribute("aria-valuetext")
    assert spoken.startswith("Token 2 of 77: ")
    assert spoken == driver.find_element(By.CLASS_NAME, "explorer-reading").text


def test_a_wrong_number_is_refused_and_the_old_one_kept(driver, show):
    show("#depth=10")
    exact = element(driver, "depth-exact")
    enter(exact, "500")
    box = driver.find_element(By.CLASS_NAME, "explorer-refused")
    assert "depth: expected an integer from 1 to 100, received 500; kept as it was." in box.text
    assert driver.execute_script("return PosbiasExplorer.state.depth") == 10
    assert exact.get_attribute("value") == "10"
    after(driver, lambda: enter(exact, "20"))
    assert not box.is_displayed()


def test_every_control_has_a_name_and_the_summary_is_spoken_once(driver, show):
    show("#depth=10&length=40")
    unnamed = """const label = e => e.labels && e.labels.length, said = e => e.getAttribute("aria-label");
        const named = e => label(e) || said(e) || e.textContent.trim();
        const all = [...document.querySelectorAll("#explorer :is(input, select, button)")];
        return [all.length, all.filter(e => !named(e) || (e.tagName === "SELECT" && !e.labels.length)).length]"""
    total, without = driver.execute_script(unnamed)
    assert total > 30 and without == 0
    live = driver.find_element(By.CSS_SELECTOR, "#explorer [aria-live=polite]")
    count = "window.spoken = 0; new MutationObserver(() => window.spoken++).observe(arguments[0], {childList: true})"
    WebDriverWait(driver, 10).until(lambda d: live.get_attribute("textContent"))
    driver.execute_script(count, live)
    element(driver, "depth").send_keys(*10 * [Keys.ARROW_RIGHT])
    settled_hash(driver, "depth=20")
    assert driver.execute_script("return window.spoken") == 1
    said = live.get_attribute("textContent")
    for part in ("First token", "Trough", "Last token", "Mean position"):
        assert part in said
    image = driver.find_element(By.CLASS_NAME, "explorer-plot")
    assert image.get_attribute("role") == "img" and "First token" in image.get_attribute("aria-label")


CONTRAST = """
const style = getComputedStyle(document.getElementById("explorer"));
const context = document.createElement("canvas").getContext("2d");
const rgb = name => {
  context.fillStyle = style.getPropertyValue("--explorer-" + name).trim();
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
return Object.fromEntries(arguments[0].map(name => [name, rgb(name)]));
"""


def luminance(rgb):
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in np.array(rgb) / 255]
    return float(np.array([0.2126, 0.7152, 0.0722]) @ linear)


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast(driver, show, theme):
    show()
    driver.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    least = dict.fromkeys(
        ["soft", "accent", "profile", "measured", "contributions", "maps", "all", "sizes", "uniform"], 4.5
    ) | {"text": 7, "line": 3}
    colours = driver.execute_script(CONTRAST, [*least, "ground", "warning"])
    assert (luminance(colours["ground"]) < 0.2) == (theme == "dark")
    for name, ratio in least.items():
        assert contrast(colours[name], colours["ground"]) >= ratio, name
    assert contrast(colours["text"], colours["warning"]) >= 7


@pytest.mark.parametrize(
    "hash_",
    [
        "#depth=3.5&colour=1&axis=linear&mask=window&content=diagonal&mixing=decay&slopes=one&off=mask,residual",
        "#encoding=flat&tau=4.8&depth=24&lambda=0.2&length=2048&content=diagonal&law=untrained",
    ],
)
def test_phone_has_no_sideways_scrolling(driver, show, hash_):
    resize(driver, 360)
    show(hash_)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 360
    beyond = """return [...document.querySelectorAll("#explorer *:not(.explorer-spoken)")].filter(
        e => e.getBoundingClientRect().right > 361).map(e => e.className)"""
    assert driver.execute_script(beyond) == []


# ---------------------------------------------------------------- the network, and the built book


def test_nothing_is_asked_of_the_network(driver, show):
    driver.get_log("performance")
    show("#model=bloom")
    after(driver, lambda: element(driver, "depth").send_keys(Keys.ARROW_LEFT))
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert len(sent) >= 6 and all(url.startswith(("file:///", "about:", "data:")) for url in sent), sent
    assert errors(driver) == []
    sources = "".join(file.read_text() for file in ASSETS.glob("*.js") if "uPlot" not in file.name)
    assert not re.search(r"\bfetch\(|XMLHttpRequest|sendBeacon|WebSocket|EventSource|\bimport\(", sources)


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_built_page(driver, html, width, theme):
    address = (html / "book" / "explorer.html").as_uri()  # where the page was
    resize(driver, width)
    driver.get("about:blank")
    driver.get_log("browser")
    driver.get(f"{address}#model=bloom&content=none")
    drawn(driver)
    top = driver.execute_script("return document.getElementById('explorer').getBoundingClientRect().top")
    assert "/notebooks/one_page.html#model=bloom" in driver.current_url and 0 <= top < 100
    driver.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    assert np.abs(profile(driver) - numbers.config("bloom", "none").profile()).max() < 1e-9
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    ground = driver.execute_script(CONTRAST, ["ground"])["ground"]
    assert (luminance(ground) < 0.2) == (theme == "dark")
    collapse = driver.find_element(By.LINK_TEXT, "Collapse")
    p = after(driver, lambda: driver.execute_script("arguments[0].click()", collapse))
    assert p[0] > 0.99
    trough = driver.find_element(By.LINK_TEXT, "A trough before training")
    p = after(driver, lambda: driver.execute_script("arguments[0].click()", trough))
    assert u_shape(p).present and driver.execute_script("return PosbiasExplorer.drawn.law") == "untrained"
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert errors(driver) == []


def test_every_link_to_the_explorer_in_the_built_book_is_accepted(html, engine):
    found = {}
    for built in pages(html):
        for href in re.findall(r'href="((?:[^"]*one_page\.html)?#[^"]*=[^"]*)"', built.read_text(encoding="utf-8")):
            found[unescape(href).partition("#")[2]] = built.name
    assert {"one_page.html", "rollout.html"} <= {*found.values()}
    for fragment, name in found.items():
        parsed = engine.execute_script("return PosbiasState.parse('#' + arguments[0], PosbiasPresets)", fragment)
        assert parsed["refused"] == [], f"{name}: {fragment}"
