"""Biases in closed form, and one chosen from a measurement: what it predicts against what the model then does."""

import json
from dataclasses import replace

import numpy as np
import pytest
import yaml
from conftest import command
from measuring import save, write_documents

from posbias import design
from posbias.conditions.each.bias import read_bias
from posbias.conditions.each.sharper import sharper
from posbias.configuration import read_config
from posbias.design import closed_forms
from posbias.measure.corpus import Corpus
from posbias.measure.results import read_results, write_results
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.models.biases import description_text
from posbias.models.loading import Source
from posbias.predict import predict
from posbias.rollout.influence import influence_profile
from posbias.rollout.position_bias import AlibiBias, FlatBias, LogBias, layered_biases
from posbias.rollout.structured import biased_kernels
from posbias.settings import Settings
from studies.summaries import summarise

N = 24
LOG, FLAT = {"kind": "log", "alpha": 1.5}, {"kind": "flat", "tau": 1.5}
MIXED = [LOG, FLAT, {"kind": "none"}, {"kind": "alibi", "slope": -0.2}]


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """Return studies of tiny models by name, the attention of each head measured."""
    root = tmp_path_factory.mktemp("choice")
    corpus = Corpus(str(write_documents(root / "d.jsonl", [40] * 8)))
    quantities = ("mixing", "influence", "kernels", "heads")
    return {
        name: Session(Settings(Source(str(save(root / name, name))), corpus, 8, N, quantities=quantities))
        for name in ("bloom", "llama", "mistral")
    }


@pytest.mark.parametrize("description", [LOG, [MIXED, [LOG] * 4, MIXED[::-1]]], ids=range(2))
@pytest.mark.parametrize("name", ["bloom", "mistral"])
def test_without_content_the_prediction_is_what_the_model_does(studies, name, description):
    """Attention is then position alone: with the model's λ of the second measurement nothing is neglected."""
    study = studies[name]
    with sharper(study.instrument.model, 1e-9):
        how = study.settings, study.prompts
        plain, found = (
            measure(*how),
            measure(replace(study.settings, condition=f"bias:{json.dumps(description)}"), study.prompts),
        )
    model = design.read_attention(plain)
    same = design.Attended(model.kernels, found.lambda_frobenius.values, 4)
    biases = layered_biases(description, 3, 4)
    assert np.abs(same.profile(biases) - predict(found, "kernels")).max() < 1e-6
    assert np.abs(model.profile(biases) - predict(plain, "kernels")).max() > 1e-3


def test_a_bias_added_to_uniform_attention_is_the_engines_own():
    uniform = np.tril(np.ones((N, N))) / np.arange(1, N + 1)[:, None]
    lambda_ = np.array([0.3, 0.5, 0.2])
    model = design.Attended(np.tile(uniform, (3, 1, 1, 1)), lambda_, 4)
    expected = influence_profile(biased_kernels(3, MIXED), lambda_, N)
    assert np.abs(model.profile(layered_biases(MIXED, 3)) - expected).max() < 1e-12
    each = design.Attended(np.tile(uniform, (3, 4, 1, 1)), lambda_, 4)
    assert np.abs(each.profile(layered_biases(MIXED, 3)) - expected).max() < 1e-12


@pytest.fixture(scope="module")
def recent():
    """Return a model of three layers whose heads attend to what is near."""
    distance = np.subtract.outer(np.arange(64), np.arange(64))
    A = np.stack([np.tril(np.exp(-m * distance.clip(0))) for m in (0.2, 0.05)])
    A /= A.sum(-1, keepdims=True)
    return design.Attended(np.tile(A, (3, 1, 1, 1)), np.full(3, 0.5), 2)


def test_what_is_chosen_beats_the_model_and_its_neighbours(recent):
    plain = design.evaluate(recent, "none", {"kind": "none"})
    found = {kind: design.choose_bias(recent, kind) for kind in design.KINDS}
    for kind, choice in found.items():
        assert choice.kind == kind and choice.value < plain.value, kind
        again = design.evaluate(recent, kind, choice.description)
        assert again.value == choice.value and np.array_equal(again.profile, choice.profile)
    assert found["layers"].value <= min(found["log"].value, found["alibi"].value)
    best = design.choose_bias(recent, "best")
    assert best.value == min(choice.value for choice in found.values())
    alpha, slope = found["log"].description["alpha"], found["alibi"].description["slope"]
    for factor in (0.95, 1.05):
        others = {"log": {"kind": "log", "alpha": alpha * factor}, "alibi": {"kind": "alibi", "slope": slope * factor}}
        for kind, other in others.items():
            assert design.evaluate(recent, kind, other).value >= found[kind].value - 1e-6, kind


@pytest.mark.parametrize("bias", [LogBias(1.5), LogBias(-2.0), AlibiBias(0.3), AlibiBias(-0.3)])
def test_factors_of_keys_are_those_of_the_bias(recent, monkeypatch, bias):
    quick = recent.profile(((bias,) * 2,))
    monkeypatch.setattr(design, "SAFE", 0.0)
    assert design.key_factors(bias, 64) is None and np.abs(recent.profile(((bias,) * 2,)) - quick).max() < 1e-12
    steep = recent.profile(((AlibiBias(50.0),) * 2,))  # e^-3150 is none of a double
    assert steep[-1] == pytest.approx(1) and np.isfinite(steep).all()


def test_a_query_of_which_all_is_hidden_sees_itself():
    """Attention to itself alone, behind a bias that hides the query: what it would have given stays."""
    alone = design.Attended(np.eye(8)[None, None], np.array([0.5]), 1)
    assert alone.profile(((FlatBias(1.0),),)).tolist() == np.eye(8)[-1].tolist()
    alone.kernels[0, 0, -1] = 1 / 8
    assert alone.profile(((FlatBias(1.0),),)).sum() == pytest.approx(1), "what others give it stays, too"


def test_the_distance_to_even_by_hand():
    assert design.distance_to_even(np.array([0.1, 0.1, 0.2, 0.6])) == pytest.approx((0.15 + 0.3 + 0.35) / 3)


@pytest.fixture(scope="module")
def file(studies, tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "m.nc"
    write_results(path, measure(studies["llama"].settings))
    return path


def test_the_command_writes_what_the_option_takes(file, tmp_path, capsys):
    output = tmp_path / "b.yaml"
    assert command("design", "--measured", file, "-o", output) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    found = read_bias(str(output))
    model = design.read_attention(read_results(file))
    assert np.abs(model.kernels.sum(-1) - 1).max() < 1e-12, "rounded to 32 bits in the file"
    choice = design.choose_bias(model)
    wish = layered_biases(choice.description, 3, 4)
    assert json.loads(description_text(layered_biases(found, 3, 4))) == json.loads(description_text(wish))
    assert (
        f"expected with the bias: W1 to uniform {choice.value:.4f}" in said
        and said.splitlines()[0] in output.read_text()
    )
    assert yaml.safe_load(output.read_text())["position_bias"] == found
    assert command("design", "--measured", file, "-o", output) == 2 and "--overwrite" in capsys.readouterr().err


def test_measurements_that_do_not_serve_are_refused(studies, file, tmp_path, capsys):
    results = read_results(file)
    for other, said in (
        (results.drop_vars(["attention", "attention_heads"]), "measurement: expected --quantities with kernels"),
        (results.assign_attrs(condition=f"bias:{json.dumps(LOG)}"), "measurement: expected one of the model as it is"),
        (results.assign_attrs(condition="sharper:2"), "one of the model as it is, received one under sharper:2"),
    ):
        write_results(tmp_path / "other.nc", other)
        assert command("design", "--measured", tmp_path / "other.nc", "-o", tmp_path / "b.yaml") == 2
        assert said in capsys.readouterr().err and not (tmp_path / "b.yaml").exists()
    with pytest.raises(ValueError, match="measurement: expected --quantities"):
        design.read_attention(summarise(results))


def test_closed_forms_by_hand():
    lambda_ = np.array([0.5, 0.25, 0.75])
    forms = closed_forms(lambda_, 4)
    assert [x["slope"] for x in forms["ALiBi's rule"]] == [2.0**-k for k in (2, 4, 6, 8)]
    assert forms["log, α = Σλ - 1"] == [{"kind": "log", "alpha": 0.5}] * 4
    assert forms["flat, τ = Σλ"] == [{"kind": "flat", "tau": 1.5}] * 4
    assert closed_forms(lambda_ * 0.01, 2)["log, α = Σλ - 1"][0]["alpha"] == -0.985
    assert closed_forms(lambda_ * 1e-5, 2)["log, α = Σλ - 1"][0]["alpha"] == -0.999, "scale-free above -1"


def test_the_command_writes_the_nearest_closed_form(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--depth", 12, "--heads", 4, "--length", 256]
    for lambda_, kind in (("0.2", "flat"), ("0.9", "log")):
        assert command("design", *words, "--lambda", lambda_, "-o", "c.yaml", "--overwrite") == 0
        said, config = capsys.readouterr().out, read_config("c.yaml")
        assert [x["kind"] for x in config.position_bias] == [kind] * 4
        values = [float(line.split()[-1]) for line in said.splitlines() if "W1 to uniform" in line]
        assert len(values) == 4 and min(values) == pytest.approx(design.distance_to_even(config.profile()), abs=1e-4)
    mixing = ",".join(["0.1", "0.3"] * 6)
    assert command("design", *words, "--lambda", mixing, "-o", "d.yaml") == 0
    assert read_config("d.yaml").lambdas().tolist() == [0.1, 0.3] * 6
