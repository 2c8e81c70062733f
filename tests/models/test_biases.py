"""Position biases that are added: parity by hand, what is measured and refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from biased import FOUR, LAYERS, biased, by_layer, described, first_layer, heads, implementations, logits_of
from conftest import command
from measuring import CONFIGS, VARIED, N, make, prompts, save
from scipy.special import logsumexp, softmax
from transformers import AutoConfig, StaticCache

import posbias
from posbias.cli import main
from posbias.conditions.each.bias import read_bias
from posbias.conditions.each.sharper import sharper
from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.measure.positions import read_positions
from posbias.measure.results import read_results, write_results
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.measured_kernels import dense, position_kernels
from posbias.models.biases import INPUTS, _as_mask, added_biases, description_text, fitting_biases
from posbias.models.families import FAMILIES
from posbias.models.loading import Source
from posbias.predict import predict
from posbias.rollout.position_bias import layered_biases
from posbias.settings import Settings
from studies.summaries import summarise


@pytest.mark.parametrize("name", VARIED)
def test_a_cache_and_padding_on_the_right_leave_positions_as_they_are(name):
    for attention in implementations(name):
        model = biased(name, attention=attention)
        whole, ids = logits_of(model), prompts()
        for first in (7, N - 1):
            with torch.no_grad():
                cache = model(ids[:, :first], use_cache=True).past_key_values
                rest = model(ids[:, first:], past_key_values=cache).logits
            assert (rest - whole[:, first:]).abs().max() < 2e-5
        seen = torch.ones(3, N, dtype=torch.long)
        seen[0, -3:] = 0
        assert (logits_of(model, attention_mask=seen)[0, :-3] - whole[0, :-3]).abs().max() < 1e-5
        with pytest.raises(ValueError, match="bias: expected prompts without padding on the left, .* some"):
            logits_of(model, attention_mask=seen.flip(1))


def test_a_cache_with_room_to_spare_is_refused():
    model = biased("llama")
    cache = StaticCache(config=model.config, max_cache_len=2 * N)
    with torch.no_grad(), pytest.raises(ValueError, match="bias: expected a mask of the 12 tokens .* static"):
        model(prompts(), past_key_values=cache, use_cache=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["bloom", "llama", "mpt", "gpt2"])
def test_in_16_bits_biases_are_rounded_and_nothing_is_lost(name, dtype):
    rows = np.stack([bias.logits(N)[-1] for bias in layered_biases(FOUR, 3)[0]])
    for attention in implementations(name):
        own = read_positions(Instrument(make(name, dtype=dtype, attention=attention)), N).bias
        instrument = Instrument(biased(name, LAYERS, dtype=dtype, attention=attention))
        found = read_positions(instrument, N).bias - own
        assert np.allclose(found, rows - rows[:, -1:], rtol=0.02, atol=0.05)
        assert torch.isfinite(instrument.measure(prompts()).influence).all()


def test_descriptions_are_written_short_and_only_for_families_with_a_row():
    for description in ({"kind": "none"}, FOUR, LAYERS):
        assert json.loads(description_text(layered_biases(description, 3, 4))) == description
    assert json.loads(description_text(layered_biases([FOUR] * 3, 3, 4))) == FOUR
    assert set(INPUTS) <= set(FAMILIES)
    with pytest.raises(ValueError, match="architecture: expected a family with a row, received persimmon"):
        fitting_biases(AutoConfig.for_model("persimmon"), {"kind": "none"})


def test_a_configuration_with_biases_of_its_own_is_refused(tmp_path):
    save(tmp_path / "bloom", "bloom", position_bias={"kind": "log", "alpha": 1.0})
    said = "position_bias: expected none; a bias is given beside a model, as --condition bias:FILE, received some"
    with pytest.raises(ValueError, match=said):
        posbias.open(tmp_path / "bloom")
    with pytest.raises(ValueError, match=said):
        posbias.open(make("llama", position_bias=FOUR))


def status(words, **program):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words], **program)
    return ended.value.code


@pytest.mark.parametrize("name", ["llama", "bloom", "mpt"])
def test_content_under_hidden_keys_is_read_in_16_bits(tmp_path, name):
    """A bias of -10,000 is added to content logits, which are read before or made again."""
    model = posbias.open(save(tmp_path / name, name))
    options = {"prompts": 2, "length": 16, "rule": "random", "attention": "eager"}
    options["condition"] = f"bias:{json.dumps(FOUR)}"
    low, high = (model.measure(**options, dtype=x).results for x in ("bfloat16", "float32"))
    assert np.abs(low.content_offdiagonal - high.content_offdiagonal).max() < 0.1
    assert np.abs(high.content_offdiagonal).max() > 0.1


FLAT, STEEP = {"kind": "flat", "tau": 1.0}, {"kind": "alibi", "slope": -3.0}


def as_condition(description):
    return f"bias:{json.dumps(description)}"


def left(model):
    return [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]


@pytest.mark.parametrize("name", VARIED)
def test_weights_are_multiplied_by_the_exponential_of_the_bias(name):
    """In the first layer; its own positions stay, a sliding window too, and eager and fused attention agree.

    A sink's logit has no bias.
    """
    rows, outputs = layered_biases(described(name), 3, heads(name))[0], {}
    for attention in implementations(name):
        instrument = Instrument(make(name, attention=attention))
        content, plain = first_layer(instrument)
        with added_biases(instrument.model, described(name)):
            own, weights = first_layer(instrument)
        seen = plain[:, 0] > 0
        for h, bias in enumerate(rows):
            z = np.where(seen, np.log(np.where(seen, plain[:, h], 1.0)) + bias.logits(N), -np.inf)
            sinks = np.full(z.shape[:2], -np.inf)
            if name == "gpt_oss":
                own_sink = float(instrument.attentions[0].sinks[h])
                visible = np.where(seen, content[:, h], -np.inf)
                sinks = own_sink - np.logaddexp(logsumexp(visible, axis=-1), own_sink)
            expected = softmax(np.concatenate([z, sinks[..., None]], axis=-1), axis=-1)[..., :-1]
            assert np.abs(weights[:, h] - expected).max() < 3e-5, (attention, h)
            assert np.abs(weights[:, h] - plain[:, h]).max() > 1e-3
        with added_biases(instrument.model, by_layer(name)):
            outputs[attention] = logits_of(instrument.model)
    if "alibi" not in name:  # Falcon's own eager attention adds its ALiBi twice
        assert all((x - outputs["eager"]).abs().max() < 1e-5 for x in outputs.values())


@pytest.mark.parametrize("name", VARIED)
def test_the_model_is_what_it_was_to_the_bit_also_after_an_exception(name):
    for attention in implementations(name):
        model = make(name, attention=attention)
        before, weights = logits_of(model), {key: x.clone() for key, x in model.state_dict().items()}
        factor = 1.0 if name == "llama4_text" else 0.5
        with (
            pytest.raises(RuntimeError, match="stop"),
            added_biases(model, by_layer(name)),
            sharper(model, factor),
        ):
            assert (logits_of(model) - before).abs().max() > 0.01
            raise RuntimeError("stop")
        assert not left(model) and torch.allclose(logits_of(model), before, atol=1e-6)
        assert all(torch.equal(x, weights[key]) for key, x in model.state_dict().items())
        with added_biases(model, {"kind": "none"}), sharper(model, 1.0):
            assert (logits_of(model) - before).abs().max() < 5e-6


@pytest.mark.parametrize("bias", [FLAT, STEEP, {"kind": "log", "alpha": 40.0}])
@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon-alibi", "llama", "gemma2"])
def test_no_later_key_and_no_key_outside_of_a_window_is_shown(name, bias):
    """What comes later changes nothing of what came before, and hidden keys have no weight."""
    other = prompts().clone()
    other[:, 7:] = 1 + (other[:, 7:] + 5) % 90
    for attention in implementations(name):
        instrument = Instrument(make(name, attention=attention))
        _, plain = first_layer(instrument)
        with added_biases(instrument.model, bias), torch.no_grad():
            _, weights = first_layer(instrument)
            first, second = (instrument.model(ids, use_cache=False).logits[:, :7] for ids in (prompts(), other))
        assert (weights[plain == 0] == 0).all() and np.isfinite(weights).all()
        assert (first - second).abs().max() < 2e-6


MASKS = {
    "finfo": lambda allowed: torch.where(allowed, 0.0, torch.finfo(torch.float32).min),
    "infinite": lambda allowed: torch.where(allowed, 0.0, -torch.inf),
    "carried": lambda allowed: torch.where(allowed, 0.25, -torch.inf),
    "bool": lambda allowed: allowed,
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["llama", "falcon-rotary", "gpt2"])
def test_any_kind_of_mask_wins_over_a_bias(name, mask):
    allowed = torch.ones(4, 4, dtype=torch.bool).tril()[None, None]
    allowed[..., 3, 1] = False
    logits = torch.tensor([[3.0, 1e30, -1e39, 5.0]]).expand(1, 4, 4).tril()
    arguments = {"attention_mask": MASKS[mask](allowed), "hidden_states": torch.zeros(1, 4, 8)}
    made = INPUTS.get(CONFIGS[name][0], _as_mask)(arguments, logits)["attention_mask"]
    carried = 0.25 * (mask == "carried")
    assert torch.isfinite(made).all() and ((made > torch.finfo(torch.float32).min / 2) == allowed).all()
    assert made[0, 0, 2, 0] == 3 + carried and made[0, 0, 3, 3] == 5 + carried
    assert torch.isfinite(made.softmax(-1)).all() and (made.softmax(-1)[~allowed] == 0).all()


@pytest.mark.parametrize("name", ["bloom", "mpt", "llama"])
def test_logits_beyond_the_number_format_are_refused_and_the_model_is_left_as_it_was(name):
    for bias, dtype in (({"kind": "alibi", "slope": -1e38}, torch.float32), (STEEP | {"slope": -2e3}, torch.float16)):
        model = make(name, dtype=dtype)
        with pytest.raises(ValueError, match="bias: expected logits of at most"), added_biases(model, bias):
            logits_of(model)
        assert not left(model)


def asked(place, name="llama"):
    corpus = Corpus(str(place / "d.jsonl"))
    return Settings(Source(str(place / name)), corpus, prompts=4, length=16, batch_size=2, attention=None)


@pytest.mark.parametrize("name", ["bloom", "llama", "mistral"])
def test_a_measurement_with_a_bias_says_which_and_predicts_with_it(place, name):
    """Without content the measured attention is that of the model's own positions and the bias together."""
    settings = asked(place, name)
    study = Session(settings)
    with sharper(study.instrument.model, 1e-9):  # no content
        plain = measure(study.settings, study.prompts)
        found = measure(replace(study.settings, condition=as_condition(by_layer(name))), study.prompts)
    assert not left(study.instrument.model)
    assert "condition" not in plain.attrs and found.attrs["condition"] == as_condition(by_layer(name))
    assert np.array_equal(plain.slopes, found.slopes) and np.array_equal(plain.position_bias, found.position_bias)
    for results in (plain, found):
        assert (
            np.abs(dense(position_kernels(results), *results.attention.shape[:2]) - results.attention.values).max()
            < 1e-6
        )
    assert np.abs(plain.attention.values - found.attention.values).max() > 0.1
    assert np.abs(predict(plain, "untrained") - predict(found, "untrained")).max() > 1e-3


def test_a_file_with_a_bias_is_not_taken_for_one_without(place, tmp_path):
    settings, path, partial = asked(place), tmp_path / "m.nc", tmp_path / "m.nc.partial"
    log = replace(settings, condition=as_condition({"kind": "log", "alpha": 1.0}))
    first = measure(log, partial=partial)
    assert measure(log, partial=partial).influence.equals(first.influence)
    for other in (None, as_condition(FLAT)):
        with pytest.raises(ValueError, match='a run with the same settings, received condition=bias:{"kind": "log"'):
            measure(replace(settings, condition=other), partial=partial)
    kept = summarise(first)
    assert (predict(kept, "b") == predict(first, "b")).all()
    with pytest.raises(ValueError, match="m.nc: condition: expected"):
        write_results(path, first.assign_attrs(condition="bias:[{"))
        read_results(path)


def test_the_command_and_the_front_door_add_the_bias(place, tmp_path, capsys):
    words = [place / "llama", "-d", place / "d.jsonl", "-N", 2, "-n", 16]
    for suffix in ("yaml", "yml"):
        (tmp_path / f"b.{suffix}").write_text("position_bias: {kind: log, alpha: 2.0}\n")
    assert read_bias(str(tmp_path / "b.yml")) == read_bias(str(tmp_path / "b.yaml")) == {"kind": "log", "alpha": 2.0}
    found = []
    for k, more in enumerate([[], ['bias: {"kind": "log", "alpha": 2.0}'], [f"bias:{tmp_path / 'b.yaml'}"]]):
        said = [word for text in more for word in ("--condition", text)]
        assert not command("measure", "-o", tmp_path / f"{k}.nc", *words, *said), capsys.readouterr().err
        found.append(read_results(tmp_path / f"{k}.nc"))
    assert "condition" not in found[0].attrs and found[1].identical(found[2])
    model = posbias.open(place / "llama")
    again = model.measure(2, 16, place / "d.jsonl", condition=as_condition({"kind": "log", "alpha": 2.0})).results
    assert np.allclose(again.influence, found[1].influence) and not np.allclose(again.influence, found[0].influence)
