"""Remedies for position bias: what their formulas say, the model as before, searches, and the study's tables."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from conftest import ROOT
from measuring import make, prompts, save, write_documents

from posbias.design.choice import Attended, power
from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.measure.interventions import replaced_rope
from posbias.measure.loading import Source
from posbias.measure.rollouts import measured_profile
from posbias.measure.run import measured
from posbias.measure.study import Settings, Study
from posbias.rollout.influence import influence_profile
from posbias.rollout.logits import rope_logits
from posbias.rollout.position_bias import AlibiBias, FlatBias, LogBias, NoBias, described, layered_biases
from studies.design import remedies
from studies.design.bias_proposals import proposed, strengthened
from studies.design.remedies import (
    Attempt,
    Remedies,
    chosen,
    genetic_search,
    measure_added_biases,
    measure_remedies,
    prompts_aside,
    read_forward,
    read_influence,
    rolled_out,
)
from studies.design.remedy_hooks import (
    added_logits,
    bezier_curve,
    calibration_logits,
    distance_ratios,
    head_awareness,
    head_scales,
    positional_channels,
    scaled_channel,
    scaled_rope,
)
from studies.design.remedy_tables import (
    ADDED,
    CHOICES,
    KNOWN,
    REMEDIES,
    legend,
    read_remedies,
    remedy_map,
    remedy_table,
    search_table,
    setting_words,
    statistics_of,
)

ALL_HEADS = {"num_key_value_heads": 4}


def left(model):
    return [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]


def seen(instrument, ids, what="logits"):
    """Return what the softmax was given or gave, (T, B, H, n, n), hidden logits as 0."""
    found = {}

    def observe(reading):
        x = getattr(reading, what)
        found[reading.layer] = torch.where(reading.allowed, x, 0.0).double().numpy()

    instrument.forward(ids, observe)
    return np.stack([found[t] for t in range(instrument.T)])


def contexts(instrument, n=12):
    rng = np.random.default_rng(0)
    T, H = instrument.T, instrument.H
    return {
        "layers": lambda: scaled_rope(instrument, np.linspace(1, 3, T)),
        "channel": lambda: scaled_channel(instrument, 5, -1.0, [1]),
        "logits": lambda: added_logits(instrument, rng.normal(size=(T, H, n, n))),
        "heads": lambda: scaled_rope(instrument, np.linspace(1.2, 1.8, T * H).reshape(T, H)),
    }


@pytest.mark.parametrize("name", ["layers", "channel", "logits", "heads"])
def test_a_remedy_acts_inside_its_context_and_leaves_the_model_as_it_was(name):
    model, ids = make("llama", **ALL_HEADS), prompts()
    instrument = Instrument(model)
    weights = {key: x.clone() for key, x in model.state_dict().items()}
    before, influence = seen(instrument, ids), instrument.measure(ids).influence
    with pytest.raises(RuntimeError, match="stop"), contexts(instrument)[name]():
        assert not np.allclose(seen(instrument, ids), before)
        assert not torch.allclose(instrument.measure(ids).influence, influence)
        raise RuntimeError("stop")
    assert not left(model)
    assert np.array_equal(seen(instrument, ids), before)
    assert torch.equal(instrument.measure(ids).influence, influence)
    assert all(torch.equal(x, weights[key]) for key, x in model.state_dict().items())


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "qwen3", "gemma", "phi"])
def test_one_scale_is_the_linear_interpolation_of_transformers(name):
    """Position i / s for all layers and heads is what a configuration calls rope_type linear."""
    ids = prompts()
    model = make(name)
    rope = {**model.config.rope_parameters, "rope_type": "linear", "factor": 2.5}
    other = make(name, rope_parameters=rope)
    other.load_state_dict(model.state_dict())
    instrument = Instrument(model)
    with scaled_rope(instrument, np.full(instrument.T, 2.5)):
        ours = seen(instrument, ids)
    assert np.allclose(ours, seen(Instrument(other), ids), atol=2e-4)
    assert not np.allclose(ours, seen(instrument, ids), atol=1e-2)


def test_scales_of_heads_by_hand():
    """Each head's logits are those of the model's queries and keys, turned by position / scale."""
    model, ids = make("llama", **ALL_HEADS), prompts(B=1)
    instrument = Instrument(model)
    scales = np.array([[1.0, 1.5, 2.0, 4.0]] * 3)
    attention = instrument.attentions[0]
    x = instrument.layers[0].input_layernorm(instrument.embeddings(ids))
    q, k = (p(x)[0].unflatten(-1, (4, -1)).detach().double().numpy() for p in (attention.q_proj, attention.k_proj))
    theta = model.model.rotary_emb.inv_freq.double().numpy()
    d = q.shape[-1]
    order = np.arange(d).reshape(2, -1).T.ravel()  # pairs in halves
    with scaled_rope(instrument, scales):
        logits = seen(instrument, ids)[0, 0]
    for h, s in enumerate(scales[0]):
        expected = attention.scaling * rope_logits(q[:, h][:, order], k[:, h][:, order], theta / s)
        assert np.allclose(logits[h], np.tril(expected), atol=1e-4)


def test_a_scale_of_one_changes_no_bit_and_an_endless_one_is_no_rotation():
    instrument, ids = Instrument(make("llama")), prompts()
    plain = seen(instrument, ids)
    with scaled_rope(instrument, np.ones((3, 4))):
        assert np.array_equal(seen(instrument, ids), plain)
    with replaced_rope(instrument, "identity"):
        unturned = seen(instrument, ids)
    with scaled_rope(instrument, np.full(3, 1e12)):
        assert np.allclose(seen(instrument, ids), unturned, atol=1e-4)


def test_a_scaled_channel_by_hand():
    """Queries and keys of the layer read the scaled channel; the values do not."""
    instrument, ids = Instrument(make("llama", **ALL_HEADS)), prompts(B=1)
    attention, values = instrument.attentions[0], []
    x = instrument.layers[0].input_layernorm(instrument.embeddings(ids)).detach()
    scaled = x.clone()
    scaled[..., 3] *= -0.5
    q, k = (p(scaled)[0].unflatten(-1, (4, -1)).detach().double() for p in (attention.q_proj, attention.k_proj))
    handle = attention.v_proj.register_forward_hook(lambda module, args, output: values.append(output))
    try:
        with scaled_channel(instrument, 3, -0.5, [0]), replaced_rope(instrument, "identity"):
            logits = seen(instrument, ids)
    finally:
        handle.remove()
    expected = attention.scaling * torch.einsum("ihd,jhd->hij", q, k).tril().numpy()
    assert np.allclose(logits[0, 0], expected, atol=1e-4)
    assert torch.allclose(values[0], attention.v_proj(x))


@pytest.mark.parametrize("name", ["llama", "gpt2", "bloom", "mistral"])
def test_added_logits_are_added_where_the_mask_allows(name):
    """In the first layer alone: what it returns changes the others. A sliding window stays."""
    instrument, ids = Instrument(make(name)), prompts()
    plain, weights = seen(instrument, ids)[0], seen(instrument, ids, "probabilities")[0]
    z = np.random.default_rng(1).normal(size=(3, 4, 12, 12)).astype(np.float32)
    with added_logits(instrument, z):
        found, after = seen(instrument, ids)[0], seen(instrument, ids, "probabilities")[0]
    allowed = plain[0, 0] != 0
    assert np.allclose(np.where(allowed, found - plain, 0), np.where(allowed, z[0], 0), atol=1e-3)
    expected = weights * np.exp(z[0])
    assert np.allclose(after, expected / expected.sum(-1, keepdims=True), atol=1e-4)
    with added_logits(instrument, np.full((1, 1, 12, 12), 3.0)):
        assert np.allclose(seen(instrument, ids, "probabilities")[0], weights, atol=1e-4)


def test_calibrated_attention_by_hand():
    """Where attention is a function of distance, and of the query for key 0, calibrated attention is uniform."""
    n = 6
    shape = np.tril(0.5 ** np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / np.arange(1, n + 1)[:, None])
    shape[:, 0] = 0.9 / np.arange(1, n + 1)
    near, first = distance_ratios(1e9 * shape[None, None], 10**9)
    assert np.allclose(near[0, 0, :-1], 0.5 ** np.arange(n - 1)) and np.allclose(first, 0.9)
    logits = np.log(np.maximum(shape, 1e-300)) + calibration_logits(near, first)[0, 0]
    A = np.exp(logits) * np.tri(n)
    assert np.allclose(A / A.sum(1, keepdims=True), np.tri(n) / np.arange(1, n + 1)[:, None])
    none = distance_ratios(np.zeros((1, 1, n, n)), 3)
    assert none[0].min() > 0 and none[1] == pytest.approx(0.25)  # one uniform pair beside three that are 0
    with pytest.raises(ValueError, match="ratios: expected numbers above 0"):
        calibration_logits(0 * near, first)


def test_curves_heads_and_awareness_by_hand():
    assert bezier_curve([2.0], 3).tolist() == [2, 2, 2] and bezier_curve([1, 3], 3).tolist() == [1, 2, 3]
    curve = bezier_curve([1, 4, 2, 3], 5)
    assert curve[[0, -1]].tolist() == [1, 3] and curve[2] == pytest.approx((1 + 3 * 4 + 3 * 2 + 3) / 8)
    shared = head_scales(np.array([[0.0, 0.2, 0.5, 0.5]]), 2)
    assert shared.tolist() == [[1.8, 1.8, 1.2, 1.2]]
    assert head_awareness(np.full((2, 4), 0.25)).tolist() == [0, 0]


def test_channels_are_found_by_how_monotone_they_are(monkeypatch):
    instrument, ids = Instrument(make("llama")), prompts(B=2, n=10)

    def embeddings(ids):
        x = torch.randn(2, 10, 32, generator=torch.Generator().manual_seed(0))
        x[..., 7] = -torch.arange(10).float()
        return x

    monkeypatch.setattr(instrument, "embeddings", embeddings)
    monkeypatch.setattr(instrument.layers[0].input_layernorm, "forward", lambda x: x)
    channels, monotone = positional_channels(instrument, ids, [0])
    assert channels[0] == 7 and monotone[7] == pytest.approx(1) and (monotone >= 0).all() and monotone[3] < 1


BAD = [
    ("bloom", lambda i: scaled_rope(i, np.ones(3)), "model: expected one with rotary positions"),
    ("gpt_neox", lambda i: scaled_rope(i, np.ones(3)), "model: expected one with modules for queries and keys"),
    ("llama", lambda i: scaled_rope(i, np.ones(4)), r"scales: expected numbers above 0, shape \(3,\) or \(3, 4\)"),
    ("llama", lambda i: scaled_rope(i, np.zeros(3)), "scales: expected numbers above 0"),
    ("llama", lambda i: scaled_rope(i, [1.0, np.nan, 1.0]), "scales"),
    ("llama", lambda i: scaled_rope(i, [[1, 2, 1, 1]] * 3), "scales: expected one for the 2 query heads that share"),
    ("gpt2", lambda i: scaled_channel(i, 0, 0.0, [0]), "model: expected one projection for queries"),
    ("llama", lambda i: scaled_channel(i, 32, 0.0, [0]), "channel: expected a number from 0 to 31, received 32"),
    ("llama", lambda i: scaled_channel(i, 0, np.inf, [0]), "factor"),
    ("llama", lambda i: scaled_channel(i, 0, 0.0, [3]), "layers"),
    ("llama", lambda i: added_logits(i, np.zeros((2, 1, 12, 12))), "logits: expected shape"),
    ("llama", lambda i: added_logits(i, np.zeros((1, 1, 12, 11))), "logits: expected shape"),
    ("llama", lambda i: added_logits(i, np.full((1, 1, 12, 12), -np.inf)), "logits"),
    ("llama", lambda i: added_logits(i, np.zeros((1, 1, 9, 9))), "logits: expected those of 12 tokens"),
]


@pytest.mark.parametrize(("name", "context", "message"), BAD)
def test_what_cannot_be_is_refused_and_leaves_nothing(name, context, message):
    instrument = Instrument(make(name))
    with pytest.raises(ValueError, match=message), context(instrument):
        instrument.forward(prompts(), lambda reading: None)
    assert not left(instrument.model)


def test_fused_attention_without_a_mask_is_refused():
    instrument = Instrument(make("llama", attention="sdpa"))
    with pytest.raises(ValueError, match="model: expected attention with an additive mask"):
        with added_logits(instrument, np.zeros((1, 1, 12, 12))):
            instrument.forward(prompts(), lambda reading: None)


@pytest.mark.parametrize("name", ["llama", "bloom", "gemma2"])
def test_a_forward_pass_gives_what_the_instrument_measures(name):
    instrument, ids = Instrument(make(name)), prompts(B=3)
    reading = read_forward(instrument, ids, 2)
    assert np.allclose(reading.mixing, instrument.measure(ids).lambda_frobenius, rtol=1e-5)
    assert np.allclose(reading.kernels.swapaxes(0, 1), seen(instrument, ids, "probabilities").mean(2), atol=1e-6)
    assert np.allclose(reading.loss, instrument.losses(ids).mean(-1), rtol=1e-5)
    assert np.allclose(read_influence(instrument, ids, 2), instrument.measure(ids).influence, rtol=1e-4)


def test_weighted_rollouts_are_those_of_weighted_means():
    rng = np.random.default_rng(0)
    kernels = np.tril(rng.random((3, 4, 5, 5)) + 0.1)
    kernels /= kernels.sum(-1, keepdims=True)
    mixing, weights = rng.uniform(0.1, 0.6, (3, 4)), np.array([[1.0, 1.0, 1.0], [0.0, 2.0, 0.0], [3.0, 0.0, 1.0]])
    shares = weights / weights.sum(1, keepdims=True)
    expected = [influence_profile(np.einsum("k,ktij->tij", w, kernels), w @ mixing) for w in shares]
    assert np.allclose(rolled_out(kernels, mixing, weights), expected, atol=1e-12)


def test_a_genetic_search_uses_what_it_is_given_and_comes_near_the_lowest_point():
    tried = []

    def attempt(setting):
        tried.append(setting)
        return Attempt(setting, float(np.sum(np.square(np.array(setting) - 3))), 1.0)

    found = genetic_search(attempt, np.ones(2), np.full(2, 4.0), 41)
    assert [x.setting for x in found] == tried and len(tried) == 41 and tried[0] == (1.0, 1.0)
    assert (np.array(tried) >= 1).all() and (np.array(tried) <= 4).all()
    best = min(x.distance for x in found)
    assert best < min(x.distance for x in found[:11]) / 2 and best < 0.1
    assert len(genetic_search(attempt, np.ones(2), np.full(2, 4.0), 1)) == 1


def test_a_cheap_setting_is_cheap_and_nearer_than_the_intact_model():
    few = [Attempt((1.0,), 0.3, 2.05), Attempt((2.0,), 0.1, 5.0), Attempt((3.0,), 0.35, 1.0)]
    assert chosen(few, Attempt((), 0.5, 2.0)) == {"nearest": (2.0,), "cheap": (1.0,)}
    assert chosen(few, Attempt((), 0.5, 1.9)) == {"nearest": (2.0,), "cheap": (3.0,)}
    assert chosen(few, Attempt((), 0.2, 2.0)) == {"nearest": (2.0,)}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    root = tmp_path_factory.mktemp("remedies")
    corpus = Corpus(str(write_documents(root / "d.jsonl", [40] * 20)))
    return Settings(Source(str(save(root / "model", **ALL_HEADS))), corpus, prompts=4, length=16, batch_size=3)


@pytest.fixture(scope="module")
def found(settings):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remedies, "EVALUATIONS", 6)
        patch.setattr(remedies, "CALIBRATION_PROMPTS", 5)
        patch.setattr(remedies, "RESAMPLES", 20)
        yield measure_remedies(settings)


def test_prompts_aside_are_from_other_documents(settings):
    study = Study(settings)
    aside = prompts_aside(study, 6, 16)
    own = {tuple(row) for row in study.ids.tolist()}
    assert aside.shape == (6, 16) and not own & {tuple(row) for row in aside.tolist()}
    with pytest.raises(ValueError, match="expected .* prompts of 16 tokens"):
        prompts_aside(study, 17, 16)
    shipped = Study(Settings(Source("reference/llama-12"), Corpus("builtin"), 24, 32))
    from posbias.shipped import held_out_modules

    modules = np.array(held_out_modules())
    own = set(modules[shipped.prompts.origins])
    aside = prompts_aside(shipped, 6, 32)
    cut = shipped.with_prompts(prompts=60).prompts
    places = [int(np.flatnonzero((cut.ids == row).all(1))[0]) for row in aside.numpy()]
    assert not own & set(modules[cut.origins[places]])


def test_the_study_measures_what_the_settings_say(found, settings):
    remedy, choice = found["remedy"].values.tolist(), found["choice"].values.tolist()
    assert remedy[0] == "intact" and set(remedy) == set(KNOWN) and set(choice) <= set(CHOICES)
    plain = measured(settings)
    intact = found.isel(condition=0)
    assert np.allclose(intact["lambda_frobenius"], plain["lambda_frobenius"], rtol=1e-5)
    assert np.allclose(intact["influence_prompts"], plain["influence_prompts"], rtol=1e-3)
    for variant in ("kernels", "own"):
        expected = measured_profile(plain, variant)
        assert np.allclose(intact["rollout"].sel(variant=variant), expected, atol=1e-5)
    for k, name in enumerate(remedy):
        unchanged = name in ("intact", "layers", "one scale") and bool((found["rope_scale"][k] == 1).all())
        same = np.allclose(found["influence_prompts"][k], intact["influence_prompts"], rtol=1e-3)
        assert same == unchanged, name
    assert found["rope_scale"].values[remedy.index("heads"), 2].tolist() == pytest.approx(
        head_scales(found["awareness"].values, 4)[2].tolist()
    )
    assert (found["rope_scale"].values[0] == 1).all() and (found["rope_scale"] >= 1).all()
    assert found["search_W1"].shape == (sum(REMEDIES[x].searched for x in KNOWN), 6)
    assert found.attrs["evaluations"] == 6 and "our" not in found.attrs["choices"] and "LPES" not in found.attrs
    nearest = {r: k for k, (r, c) in enumerate(zip(remedy, choice, strict=True)) if c == "nearest"}
    for name, k in nearest.items():
        best = int(found["search_W1"].sel(searched=name).values.argmin())
        tried = found["search_setting"].sel(searched=name).values[best]
        assert np.array_equal(tried, found["setting"].values[k], equal_nan=True)


def test_given_biases_are_those_of_their_formulas(settings):
    few = Study(settings)
    own = Remedies(few.instrument, few.ids)
    assert own.bias("log", (1.5,)) == described(LogBias(1.5)) and own.bias("flat", (2.0,)) == described(FlatBias(2.0))
    assert own.bias("mixed flat", (2.0,)) == [described(NoBias())] * 2 + [described(FlatBias(2.0))] * 2
    assert own.bias("layers", (1.0,) * 4) == described(NoBias())
    with pytest.raises(ValueError, match="remedy: expected one of intact"):
        own.context("wishing", (), 16)
    with pytest.raises(ValueError, match="setting of log: expected 1 numbers, received 2"):
        own.context("log", (1.0, 2.0), 16)
    with pytest.raises(ValueError, match="n: expected at most 16 tokens, as calibrated, received 17"):
        own.context("calibration", (), 17)


@pytest.fixture(scope="module")
def added(settings, tmp_path_factory):
    """Return the study of added biases of a rotary model and of one without, with a score by place."""
    folder = save(tmp_path_factory.mktemp("bloom") / "model", "bloom")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remedies, "EVALUATIONS", 8)
        patch.setattr(remedies, "CALIBRATION_PROMPTS", 5)
        patch.setattr(remedies, "RESAMPLES", 20)
        patch.setattr(remedies, "copy_gains", lambda settings: _score)
        sources = {"llama": settings.source, "bloom": Source(str(folder))}
        found = {name: measure_added_biases(settings.with_source(x)) for name, x in sources.items()}
        yield found | {"sources": sources}


def _score(model):
    """Return the mean size of the logits in four places."""
    with torch.no_grad():
        return model(prompts(), use_cache=False).logits.abs().mean((0, 2)).reshape(4, -1).mean(1).numpy()


@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_an_added_bias_is_measured_beside_rivals_of_as_many_evaluations(added, settings, name):
    found = added[name]
    remedy = found["remedy"].values.tolist()
    rival = "layers" if name == "llama" else "temperatures"
    assert remedy[0] == "intact" and set(remedy) == {"intact", "chosen", rival, "temperature"} <= set(ADDED)
    assert found["searched"].values.tolist() == ["chosen", rival, "temperature"]
    assert found["search_W1"].shape == (3, 8) and np.isfinite(found["search_W1"]).all()
    assert not {"awareness", "near", "monotone"} & set(found)
    for k, one in enumerate(remedy):
        bias = json.loads(str(found["added_bias"].values[k]))
        assert (bias == {"kind": "none"}) == (one != "chosen")
        layered_biases(bias, 3, 4)
        assert bool((found["temperature"][k] == 1).all()) == (one not in ("temperatures", "temperature"))
    assert found["score"].dims == ("condition", "place") and np.unique(found["score"][:, 0]).size > 2
    study = Study(found_settings := settings.with_source(added["sources"][name]))
    assert np.allclose(found["score"][0], _score(study.instrument.model))
    k = remedy.index("chosen")
    again = measured(found_settings, bias=json.loads(str(found["added_bias"].values[k])))
    assert np.allclose(found["lambda_frobenius"][k], again["lambda_frobenius"], rtol=1e-4)
    assert np.allclose(found["rollout"][k].sel(variant="kernels"), measured_profile(again, "kernels"), atol=1e-5)
    assert len(remedy_table(found)) == len(remedy) and len(search_table(found)) == 24
    assert set(legend(ADDED)["remedy"]) == set(ADDED)


def test_proposals_are_as_many_as_asked_for_and_of_every_kind():
    distance = np.subtract.outer(np.arange(32), np.arange(32)).clip(0)
    A = np.tril(np.exp(-0.2 * distance))
    model = Attended(np.tile(A / A.sum(-1, keepdims=True), (3, 1, 1, 1)), np.full(3, 0.4), 6)
    for number in (4, 9, 32):
        found = proposed(model, number)
        assert len(found) == number and {setting[0] for setting in found} == {0, 1, 2, 3}
        for description in found.values():
            layered_biases(description, 3, 6)
    shares = [setting[1] for setting in found if setting[0] == 3]
    assert len(shares) == 6 and max(shares) == 1
    flat = found[3.0, 0.5]
    assert [part["kind"] for part in flat] == ["none"] * 3 + ["flat"] * 3
    assert strengthened(described(AlibiBias(-0.2)), 0.5) == described(AlibiBias(-0.1))
    assert strengthened(described(power(-2.0)), 0.25) == described(LogBias(-0.5))
    with pytest.raises(ValueError, match="evaluations: expected an integer of at least 4"):
        proposed(model, 3)


def test_tables_say_what_the_file_holds(found):
    table = remedy_table(found)
    assert len(table) == found.sizes["condition"] and table["extra"].iloc[0] == 0
    assert np.allclose(table["loss"], found["loss_prompts"].mean("prompt"))
    assert np.allclose(table["tau"], found["lambda_frobenius"].sum("layer"))
    p = found["rollout"].sel(variant="kernels").values.astype(float)
    assert np.allclose(table["kernels_W1"], statistics_of(p / p.sum(1, keepdims=True))["W1"])
    for name in ("loss", "kernels_W1", "own_W1", "influence_W1"):
        assert (table[f"{name}_low"] <= table[name]).all() and (table[name] <= table[f"{name}_high"]).all(), name
    tried = search_table(found)
    assert len(tried) == found["search_W1"].size and set(tried["remedy"]) == set(found["searched"].values.tolist())
    for _, own in tried.groupby("remedy"):
        assert own.loc[own["W1"].idxmin(), "frontier"] and own.loc[own["loss"].idxmin(), "frontier"]
        kept = own[own["frontier"]].sort_values("W1")
        assert (np.diff(kept["loss"]) <= 1e-12).all()


def test_the_map_starts_at_the_intact_model(found):
    drawn = remedy_map({("tiny", 16): found})
    assert (drawn["x0"] == drawn["x"].iloc[0]).all() and (drawn["y0"] == drawn["y"].iloc[0]).all()
    assert np.allclose(drawn["gain"], drawn["x0"] - drawn["x"]) and drawn.iloc[0][["gain_low", "gain_high"]].eq(0).all()
    assert (drawn["tokens"] == 16).all() and drawn["label"].iloc[0] == "none"
    by_influence = remedy_map({("tiny", 16): found}, "influence")
    assert not np.allclose(by_influence["x"], drawn["x"])
    with pytest.raises(ValueError, match="profile: expected one of kernels, own, influence, received gradient"):
        remedy_map({("tiny", 16): found}, "gradient")


def test_the_legend_says_whose_reading_each_is():
    table = legend()
    assert table["remedy"].tolist() == list(KNOWN) and (table["reading"].str.len() > 10).all()
    assert {"arXiv 2606.27705", "arXiv 2403.04797", "arXiv 2406.02536", "arXiv 2406.16008"} <= set(table["source"])


def test_settings_are_written_in_words(found):
    at = found["remedy"].values.tolist().index("one scale")
    assert setting_words(found, at).startswith("scale ") and setting_words(found, 0) == ""


def test_the_committed_study_is_read_and_says_what_made_it():
    studies = read_remedies(ROOT / "results")
    assert ("llama-12", 256) in studies
    for (model, n), study in studies.items():
        assert study.attrs["command"].startswith(f"posbias study remedies --only {model}")
        assert study.attrs["length"] == n and study.sizes["position"] == n
        assert len(remedy_table(study)) >= len(KNOWN)
