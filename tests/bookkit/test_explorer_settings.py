"""The explorer in a browser: what it opens with, links, switches, files of one's own, downloads."""

import re

import numpy as np
from conftest import ROOT, resize
from explorer_fields import hash_of, predicted, predicted_untrained
from explorer_page import after, choose, element, errors, is_said, legend, profile, settled_hash, thin
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from bookkit.explorer import standalone_page
from posbias.comparison.distances import normalised_wasserstein, spearman, total_variation, unit
from posbias.measure.measurement import Measurement
from posbias.rollout.profiles import mean_position, read_profile, write_profile
from studies.published import numbers
from studies.results import load


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


def test_logits_by_ratios_are_causal_alone(driver, show):
    show("#mask=window&width=9&off=mask&length=64")
    p = choose(driver, "encoding", "log-position")
    assert np.abs(p - predicted(encoding="log-position", length=64)).max() < 1e-12
    mask, switch = element(driver, "mask"), element(driver, "force-mask")
    assert mask.get_attribute("value") == "causal" and "Causal only" in element(driver, "mask-hint").text
    assert switch.is_selected() and not switch.is_enabled() and not mask.is_enabled()
    choose(driver, "encoding", "alibi")
    assert mask.is_enabled() and switch.is_enabled()


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
