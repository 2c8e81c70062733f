"""Position biases that are given or added, and temperatures: parity by hand, what is measured, built and refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from biased import FOUR, LAYERS, biased, by_layer, described, first_layer, heads, implementations, logits_of
from conftest import command
from measuring import CONFIGS, VARIED, N, make, prompts, save, settings, write_documents
from scipy.special import logsumexp, softmax
from transformers import AutoConfig, StaticCache

import posbias
from posbias import alibi_slopes
from posbias.cli import main
from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.measure.positions import read_positions
from posbias.measure.results import read_results, write_results
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.models.biases import INPUTS, _as_mask, added_biases, attach_biases, given_biases
from posbias.models.description import NO_ROTATION, description_text
from posbias.models.families import FAMILIES, family_of, window
from posbias.models.loading import Source
from posbias.predict import dense, position_kernels, predict
from posbias.rollout import masks
from posbias.rollout.influence import influence_profile
from posbias.rollout.kernels import attention_kernel, mix_heads
from posbias.rollout.position_bias import layered_biases
from posbias.rollout.untrained import untrained_profile
from posbias.settings import Settings
from studies.additions import divided_logits
from studies.interventions import replaced_rope
from studies.making import summarise
from studies.sizes import Sized, Untrained


def last_row():
    """Return the last query's biases of FOUR against the query's own, (H, n)."""
    rows = np.stack([bias.logits(N)[-1] for bias in layered_biases(FOUR, 3)[0]])
    return rows - rows[:, -1:]


@pytest.mark.parametrize("name", [name for name in VARIED if name != "gpt_oss"])
def test_weights_are_those_of_content_and_given_biases(name):
    """The first layer has the same content with and without biases; its weights follow by a softmax in 64 bits.

    Sinks would take a share: biases that are added have them below.
    """
    config, rows = settings(name), layered_biases(described(name), 3, heads(name))[0]
    content, plain = first_layer(Instrument(make(name)))
    wide = window(family_of(config).attention_of(family_of(config).layers(make(name))[0]), config)
    mask = masks.sliding_window(wide) if wide else masks.causal()
    seen = mask.matrix(N)
    for attention in implementations(name):
        own, weights = first_layer(Instrument(biased(name, attention=attention)))
        for h, bias in enumerate(rows):
            assert np.abs(own[:, h][..., seen] - content[:, h][..., seen]).max() < 1e-5  # also of keys that it hides
            expected = np.stack([attention_kernel(z[h] + bias.logits(N), mask) for z in np.where(seen, content, 0.0)])
            assert np.abs(weights[:, h] - expected).max() < 3e-6, (attention, h)
            assert np.abs(plain[:, h] - expected).max() > 1e-3


@pytest.mark.parametrize("name", VARIED)
def test_eager_and_fused_attention_agree_and_a_second_attachment_changes_nothing(name):
    found = {
        attention: logits_of(biased(name, by_layer(name), attention=attention)) for attention in implementations(name)
    }
    model = biased(name, by_layer(name))
    attach_biases(model)
    assert torch.allclose(logits_of(model), found["eager"], atol=1e-6)
    assert all((x - found["eager"]).abs().max() < 1e-5 for x in found.values())
    assert (found["eager"] - logits_of(make(name))).abs().max() > 0.1


@pytest.mark.parametrize(
    ("name", "most"), [("bloom-6-heads", 3e-6), ("mpt", 1e-5), ("mpt-6-heads", 1e-5), ("falcon-alibi", 0.02)]
)
def test_alibi_of_its_own_slopes_is_the_native_model(name, most):
    """Falcon's are divided by √d and rounded to 16 bits; its eager attention has the bias twice."""
    shrunk = 8**0.5 if name == "falcon-alibi" else 1.0
    slopes = [{"kind": "alibi", "slope": float(m) / shrunk} for m in alibi_slopes(heads(name))]
    native = logits_of(make(name, attention=implementations(name)[-1]))
    for attention in implementations(name):
        assert (logits_of(biased(name, slopes, attention=attention)) - native).abs().max() < most
        assert (logits_of(biased(name, {"kind": "none"}, attention=attention)) - native).abs().max() > 0.1


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
        with pytest.raises(ValueError, match="position_bias: expected prompts without padding on the left, .* some"):
            logits_of(model, attention_mask=seen.flip(1))


def test_a_cache_with_room_to_spare_is_refused():
    model = biased("llama")
    cache = StaticCache(config=model.config, max_cache_len=2 * N)
    with torch.no_grad(), pytest.raises(ValueError, match="position_bias: expected a mask of the 12 tokens .* static"):
        model(prompts(), past_key_values=cache, use_cache=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["bloom", "llama", "mpt", "falcon-alibi"])
def test_in_16_bits_biases_are_rounded_and_nothing_is_lost(name, dtype):
    for attention in implementations(name):
        instrument = Instrument(biased(name, LAYERS, dtype=dtype, attention=attention))
        assert np.allclose(read_positions(instrument, N).bias, last_row(), rtol=0.02, atol=0.05)
        assert torch.isfinite(instrument.measure(prompts()).influence).all()


@pytest.mark.parametrize(
    ("name", "changes", "kind"),
    [("bloom", {}, "given"), ("mpt", {}, "given"), ("falcon-alibi", {}, "given"), ("llama", {}, "rotary and given")]
    + [("llama", NO_ROTATION, "given"), ("gpt2", {}, "learned and given")],
)
def test_positions_say_what_is_given(name, changes, kind):
    read = read_positions(Instrument(biased(name, LAYERS, **changes)), N)
    assert read.kind == kind
    if changes:
        assert read_positions(Instrument(make(name, **changes)), N).kind == "none"
    assert read.slopes.tolist() == [[0, 0, 0.3, 0], [0, 0.3, 0, 0], [0, 0, 0, 0]]
    assert np.allclose(read.bias, last_row(), rtol=1e-6, atol=1e-6)


def test_biases_that_do_not_reach_the_softmax_are_noticed():
    model = make("llama", position_bias=LAYERS)
    with pytest.raises(RuntimeError, match="expected the position bias .* in layer 0, received another"):
        read_positions(Instrument(model), N)
    model = biased("llama", LAYERS)
    model.config.position_bias = [*LAYERS[:2], FOUR]
    with pytest.raises(RuntimeError, match="expected the position bias {'kind': 'flat', 'tau': 1.5} in layer 2"):
        read_positions(Instrument(model), N)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Return measurements of tiny models with biases of their own in every layer: name → path."""
    root = tmp_path_factory.mktemp("given")
    documents = write_documents(root / "d.jsonl", [30] * 8)
    for name in ("bloom", "llama", "mistral"):
        source = Source(str(save(root / name, name, position_bias=LAYERS)))
        found = measure(Settings(source, Corpus(str(documents)), prompts=4, length=16, batch_size=2))
        write_results(root / f"{name}.nc", found)
    return {name: root / f"{name}.nc" for name in ("bloom", "llama", "mistral")}


def kernel_of(results, t, h, variant):
    """Return a head's kernel from its description, as a matrix."""
    z = layered_biases(LAYERS, 3)[t][h].logits(16)
    if variant == "c":
        z = z + np.eye(16) * float(results.content_diagonal[t, h] - results.content_offdiagonal[t, h])
    mask = masks.sliding_window(5) if results.attrs["model"] == "mistral" else masks.causal()
    return attention_kernel(z, mask)


@pytest.mark.parametrize("name", ["bloom", "llama", "mistral"])
def test_rollouts_have_the_given_kernels_layer_by_layer(measured, name):
    results = read_results(measured[name])
    assert results.attrs["position"] == ("given" if name == "bloom" else "rotary and given")
    assert json.loads(results.attrs["position_bias"]) == LAYERS[:2] + [LAYERS[2]]
    for variant in "abc":
        A = np.stack([mix_heads(np.stack([kernel_of(results, t, h, variant) for h in range(4)])) for t in range(3)])
        lambda_ = np.ones(3) if variant == "a" else results.lambda_frobenius.values
        expected = influence_profile(A, lambda_)
        assert np.abs(predict(results, variant) - expected).max() < 1e-12, variant
    A = np.stack([np.stack([kernel_of(results, t, h, "b") for h in range(4)]) for t in range(3)])
    numbers = {"scales": results.branch_scale, "outputs": results.output_scale, "steps": results.step_gain}
    numbers = {key: x.values.astype(float) for key, x in numbers.items()}
    law = untrained_profile(A, results.branch_gain.values, **numbers, parallel=results.parallel.values)
    assert np.abs(predict(results, "untrained") - law).max() < 1e-9
    without = predict(results.drop_attrs(deep=False).assign_attrs(length=16), "b")
    assert np.abs(without - predict(results, "b")).max() > 1e-3
    assert predict(results, "b", length=40).size == 40


def test_summaries_and_files_keep_the_description(measured, tmp_path):
    results = read_results(measured["llama"])
    kept = summarise(results)
    assert kept.attrs["position_bias"] == results.attrs["position_bias"]
    assert (predict(kept, "b") == predict(results, "b")).all()
    assert status(["rollout", measured["llama"], "--variant", "b", "-o", tmp_path / "p.csv"]) == 0
    found = posbias.load(measured["llama"])
    assert (
        "flat" in repr(found.provenance) and "<dt>position biases</dt>" in found.report(tmp_path / "r.html").read_text()
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no JSON", "position_bias: expected a description in JSON, received no JSON"),
        ('{"kind": "log", "alpha": -2}', "position_bias.alpha: expected a number above -1, received -2.0"),
        (json.dumps(FOUR[:3]), "position_bias: expected one bias, or one for each of 4 heads, received 3"),
        (json.dumps(LAYERS[:2]), "position_bias: expected lists for 1 or 3 layers, received 2 entries"),
    ],
)
def test_files_with_a_wrong_description_are_refused(measured, tmp_path, text, words):
    write_results(tmp_path / "x.nc", read_results(measured["llama"]).assign_attrs(position_bias=text))
    for read in (read_results, posbias.load):
        with pytest.raises(ValueError) as refused:
            read(tmp_path / "x.nc")
        assert f"{tmp_path}/x.nc: {words}" in str(refused.value)


def test_a_directory_is_opened_and_says_what_is_given(tmp_path):
    save(tmp_path / "bloom", "bloom", position_bias={"kind": "log", "alpha": 1.0})
    model = posbias.open(tmp_path / "bloom")
    assert "bloom, 3 layers × 4 heads, given position biases, " in repr(model)
    loaded = Source(str(tmp_path / "bloom")).load_model(torch.float32, "cpu", None)
    again = make("bloom", position_bias={"kind": "log", "alpha": 1.0})
    attach_biases(again)
    assert torch.allclose(logits_of(loaded), logits_of(again), atol=1e-6)
    assert description_text(given_biases(loaded.config)) == '{"kind": "log", "alpha": 1.0}'


def test_descriptions_are_written_short_and_only_for_families_with_an_input():
    for description in ({"kind": "none"}, FOUR, LAYERS):
        assert json.loads(description_text(layered_biases(description, 3, 4))) == description
    assert json.loads(description_text(layered_biases([FOUR] * 3, 3, 4))) == FOUR
    assert set(INPUTS) <= set(FAMILIES)
    with pytest.raises(ValueError, match="position_bias: expected none, or a model whose family has a row, rece"):
        given_biases(AutoConfig.for_model("persimmon", position_bias={"kind": "none"}))


@pytest.mark.parametrize("family", ["bloom", "mpt", "llama", "gemma2"])
def test_a_network_is_built_with_biases_alone(family, tmp_path):
    """Rotation is off as if it were taken out, ALiBi is replaced, and weights are the same bits as without."""
    settings(family).save_pretrained(tmp_path)
    source = Untrained(str(tmp_path), position_bias=described(family), spread=0.2)
    model = source.load_model(torch.float32, "cpu", None)
    plain = replace(source, position_bias=None).load_model(torch.float32, "cpu", None)
    assert all(torch.equal(x, y) for x, y in zip(model.state_dict().values(), plain.state_dict().values(), strict=True))
    instrument, logits = Instrument(model), logits_of(model)
    assert read_positions(instrument, N).kind == "given" and (logits - logits_of(plain)).abs().max() > 1e-4
    if FAMILIES[family].position_of(model.config) == "rotary":
        with replaced_rope(instrument, "identity"):
            torch.testing.assert_close(logits_of(model), logits)
    assert source.name().endswith(", given biases (untrained)")
    assert source.version() != replace(source, position_bias=None).version()


def test_spread_is_the_standard_deviation_of_the_weights():
    model = Sized("llama-12x256", spread=0.0625).load_model(torch.float32, "cpu", None)
    assert abs(model.model.layers[3].self_attn.q_proj.weight.std().item() - 0.0625) < 0.001


def status(words, **program):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words], **program)
    return ended.value.code


@pytest.mark.parametrize("name", ["llama", "bloom", "mpt"])
def test_content_under_hidden_keys_is_read_in_16_bits(tmp_path, name):
    """A bias of -10,000 is added to content logits, which are read before or made again."""
    model = posbias.open(save(tmp_path / name, name, position_bias=FOUR))
    options = {"prompts": 2, "length": 16, "rule": "random", "attention": "eager"}
    low, high = (model.measure(**options, dtype=x).results for x in ("bfloat16", "float32"))
    assert np.abs(low.content_offdiagonal - high.content_offdiagonal).max() < 0.1
    assert np.abs(high.content_offdiagonal).max() > 0.1


FLAT, STEEP = {"kind": "flat", "tau": 1.0}, {"kind": "alibi", "slope": -3.0}


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
        heat = np.ones(3) if name == "llama4_text" else 2.0
        with (
            pytest.raises(RuntimeError, match="stop"),
            added_biases(model, by_layer(name)),
            divided_logits(model, heat),
        ):
            assert (logits_of(model) - before).abs().max() > 0.01
            raise RuntimeError("stop")
        assert not left(model) and torch.allclose(logits_of(model), before, atol=1e-6)
        assert all(torch.equal(x, weights[key]) for key, x in model.state_dict().items())
        with added_biases(model, {"kind": "none"}), divided_logits(model, np.ones(3)):
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
    for adds in (True, False):
        made = INPUTS.get(CONFIGS[name][0], _as_mask)(arguments, logits, adds)["attention_mask"]
        carried = 0.25 * (mask == "carried" and adds)
        assert torch.isfinite(made).all() and ((made > torch.finfo(torch.float32).min / 2) == allowed).all()
        assert made[0, 0, 2, 0] == 3 + carried and made[0, 0, 3, 3] == 5 + carried
        assert torch.isfinite(made.softmax(-1)).all() and (made.softmax(-1)[~allowed] == 0).all()


@pytest.mark.parametrize("name", ["bloom", "mpt", "llama"])
def test_logits_beyond_the_number_format_are_refused_and_the_model_is_left_as_it_was(name):
    for bias, dtype in (({"kind": "alibi", "slope": -1e38}, torch.float32), (STEEP | {"slope": -2e3}, torch.float16)):
        model = make(name, dtype=dtype)
        with pytest.raises(ValueError, match="position_bias: expected logits of at most"), added_biases(model, bias):
            logits_of(model)
        assert not left(model)


@pytest.mark.parametrize("name", ["bloom", "llama", "gpt2"])
def test_a_bias_is_added_to_one_that_is_given(name):
    log, steep = {"kind": "log", "alpha": 1.0}, {"kind": "log", "alpha": 2.5}
    whole = logits_of(biased(name, steep))
    model = biased(name, log)
    with added_biases(model, {"kind": "log", "alpha": 1.5}):
        assert (logits_of(model) - whole).abs().max() < 1e-4
    assert (logits_of(model) - whole).abs().max() > 0.01


@pytest.mark.parametrize("name", [*(name for name in VARIED if name != "llama4_text"), "stablelm", "deepseek_v2"])
def test_a_temperature_divides_content_logits_alone(name):
    """Before a soft cap, where there is one."""
    uncapped = (lambda z: 5 * np.arctanh(z / 5)) if "softcapping" in str(CONFIGS[name]) else lambda z: z
    for attention in implementations(name):
        instrument = Instrument(make(name, attention=attention))
        plain, before = first_layer(instrument)
        with divided_logits(instrument.model, [2.0, 1.0, 0.5]):
            found, weights = first_layer(instrument)
        seen = before > 0
        assert np.allclose(2 * uncapped(found[seen]), uncapped(plain[seen]), rtol=1e-3, atol=5e-5)
        assert np.abs(weights - before).max() > 1e-3


def test_queries_that_are_normed_after_their_rotation_are_not_divided():
    with pytest.raises(ValueError, match="model: expected queries that can be divided"):
        with divided_logits(make("llama4_text"), 2.0):
            pass


def asked(place, name="llama"):
    corpus = Corpus(str(place / "d.jsonl"))
    return Settings(Source(str(place / name)), corpus, prompts=4, length=16, batch_size=2, attention=None)


@pytest.mark.parametrize("name", ["bloom", "llama", "mistral"])
def test_a_measurement_with_a_bias_says_which_and_predicts_with_it(place, name):
    """Without content the measured attention is that of the model's own positions and the bias together."""
    settings = asked(place, name)
    study = Session(settings)
    with divided_logits(study.instrument.model, 1e9):  # no content
        plain, found = measure(study), measure(study, bias=by_layer(name))
    assert not left(study.instrument.model)
    assert "added_bias" not in plain.attrs and json.loads(found.attrs["added_bias"]) == by_layer(name)
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
    log = {"kind": "log", "alpha": 1.0}
    first = measure(settings, partial=partial, bias=log)
    assert measure(settings, partial=partial, bias=log).influence.equals(first.influence)
    for other in (None, FLAT):
        with pytest.raises(ValueError, match='a run with the same settings, received added_bias={"kind": "log"'):
            measure(settings, partial=partial, bias=other)
    kept = summarise(first)
    assert (predict(kept, "b") == predict(first, "b")).all()
    with pytest.raises(ValueError, match="m.nc: added_bias: expected"):
        write_results(path, first.assign_attrs(added_bias="[{"))
        read_results(path)


def test_the_command_and_the_front_door_add_the_bias(place, tmp_path, capsys):
    words = [place / "llama", "-d", place / "d.jsonl", "-N", 2, "-n", 16]
    (tmp_path / "b.yaml").write_text("position_bias: {kind: log, alpha: 2.0}\n")
    found = []
    for k, bias in enumerate(["none", ' {"kind": "log", "alpha": 2.0}', tmp_path / "b.yaml"]):
        assert not command("measure", "-o", tmp_path / f"{k}.nc", *words, "--bias", bias), capsys.readouterr().err
        found.append(read_results(tmp_path / f"{k}.nc"))
    assert "added_bias" not in found[0].attrs and found[1].identical(found[2])
    model = posbias.open(place / "llama")
    again = model.measure(2, 16, place / "d.jsonl", bias={"kind": "log", "alpha": 2.0}).results
    assert np.allclose(again.influence, found[1].influence) and not np.allclose(again.influence, found[0].influence)
