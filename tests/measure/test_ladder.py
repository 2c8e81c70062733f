"""The rungs of the ladder, against layers that are simpler by other means."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from measuring import VARIED, N, arguments, make, refused, status

import posbias
from posbias.cli import main
from posbias.measure.instrument import Instrument
from posbias.measure.ladder import Rungs, mean_weights, ring
from posbias.measure.measurement import Measurement
from posbias.measure.positions import read_positions
from posbias.measure.results import read_results
from posbias.models.families import family_of
from posbias.models.loading import Source
from posbias.settings import RUNGS
from studies.summaries import summarise

B, T = 4, 3
OWN = Rungs(np.arange(B)[None])
PAIRED = Rungs(np.stack([ring(B, (0, k)) for k in range(2)]))
FUSED = [name for name in VARIED if family_of(make(name).config).is_fused(make(name).config)]


def prompts(seed=1):
    return torch.randint(1, 97, (B, N), generator=torch.Generator().manual_seed(seed))


def climbed(model, rungs, rung, ids=None):
    found = Instrument(model).measure(prompts() if ids is None else ids, rungs=rungs)
    return found, found.ladder[:, list(RUNGS).index(rung)].numpy()


def close(ours, theirs, rtol=2e-5):
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol * np.abs(theirs).max())


def chain(model, pairing, change=lambda layer: None, turns=None):
    """Return the gradients' norms by layers on the inputs that they had, one prompt at a time."""
    instrument, kept = Instrument(model), []
    hooks = [
        layer.register_forward_pre_hook(lambda module, args, kwargs: kept.append((args, kwargs)), with_kwargs=True)
        for layer in instrument.layers
    ]
    x = instrument.embeddings(prompts())
    with torch.no_grad():
        logits = model(inputs_embeds=x, use_cache=False).logits
    for hook in hooks:
        hook.remove()
    inputs = [args[0] if args else kwargs["hidden_states"] for args, kwargs in kept]
    with torch.no_grad():
        above = instrument.layers[-1](inputs[-1], **kept[-1][1])
    above.requires_grad_(True)
    p = model.lm_head(model.model.norm(above))[:, -1].softmax(-1).amax(-1)
    torch.testing.assert_close(p.detach(), logits[:, -1].softmax(-1).amax(-1))
    (g,) = torch.autograd.grad(p.sum(), above)
    for t in reversed(range(T)):
        layer, (_, kwargs) = instrument.layers[t], kept[t]
        change(layer)
        g = g if turns is None else torch.einsum("bne,ef->bnf", g, turns[t + 1])
        g = g[torch.from_numpy(pairing)]

        def run(one, layer=layer, kwargs=kwargs):
            mask = kwargs["attention_mask"][:1]
            return layer(one[None], **{**kwargs, "attention_mask": mask})[0]

        g = torch.stack([torch.autograd.functional.vjp(run, inputs[t][s], g[s])[1] for s in range(B)])
    g = g if turns is None else g @ turns[0]
    return g[torch.from_numpy(pairing)].norm(dim=-1).numpy()


@pytest.mark.parametrize("name", VARIED)
def test_the_first_rung_without_exchange_is_the_gradient_itself(name):
    model = make(name)
    exact = Instrument(model).measure(prompts()).influence.numpy()
    reading, first = climbed(model, OWN, "independent")
    assert np.array_equal(reading.influence, exact) and np.array_equal(first[:, 0], exact)
    _, exchanged = climbed(model, PAIRED, "independent")
    assert abs(exchanged[:, 0] - exact).max() > 0.02 * exact.max()
    assert not np.allclose(exchanged[:, 0], exchanged[:, 1])


def test_weights_of_fused_attention_are_made_once_where_they_are_small(monkeypatch):
    made = []

    def counted(reading):
        weights = mean_weights(reading)
        return lambda: made.append(1) or weights()

    monkeypatch.setattr("posbias.measure.ladder.mean_weights", counted)
    rungs, model = Rungs(PAIRED.pairings, names=("vectors",)), make("llama", attention="sdpa")
    few = Instrument(model).measure(prompts(), rungs=rungs).ladder
    assert len(made) == T and N <= B * 8
    made.clear()
    long = torch.randint(1, 97, (2, 40), generator=torch.Generator().manual_seed(1))
    Instrument(model).measure(long, rungs=Rungs(np.array([[1, 0]]), names=("vectors",)))
    assert len(made) == 2 * T and 40 > 2 * 8 and few.isfinite().all()


@pytest.mark.parametrize("name", FUSED)
def test_fused_attention_climbs_the_same_ladder(name):
    eager, fused = (
        Instrument(make(name, attention=kind)).measure(prompts(), rungs=PAIRED) for kind in ("eager", "sdpa")
    )
    close(fused.ladder.numpy(), eager.ladder.numpy())


def test_independent_layers_are_those_of_other_prompts():
    _, ours = climbed(make("llama"), PAIRED, "independent")
    close(ours[:, 1], chain(make("llama"), PAIRED.pairings[1]))


def test_gradients_are_turned_at_every_depth():
    turns = torch.randn(T + 1, 32, 32, generator=torch.Generator().manual_seed(3))
    assert make("llama").config.hidden_size == 32
    _, ours = climbed(make("llama"), Rungs(PAIRED.pairings, turns=turns), "independent")
    close(ours[:, 1], chain(make("llama"), PAIRED.pairings[1], turns=turns))
    same = Rungs(PAIRED.pairings, turns=torch.eye(32).expand(T + 1, 32, 32))
    close(climbed(make("llama"), same, "vectors")[1], climbed(make("llama"), PAIRED, "vectors")[1])


def test_fixed_attention_is_that_of_queries_and_keys_without_gradient():
    def detached(layer):
        for module in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            module.register_forward_hook(lambda module, args, out: out.detach())

    _, ours = climbed(make("llama"), PAIRED, "fixed-attention")
    close(ours[:, 0], chain(make("llama"), PAIRED.pairings[0], detached))
    assert not np.allclose(ours[:, 0], chain(make("llama"), PAIRED.pairings[0]), rtol=0.01)


@pytest.mark.parametrize("name", ["mistral", "llama", "gpt_oss", "deepseek_v3"])
def test_positions_alone_is_the_layer_with_queries_of_zero(name):
    """Without queries all logits are 0: what is left is the mask, with its window."""

    def silent(layer):
        queries = layer.self_attn.q_b_proj if name == "deepseek_v3" else layer.self_attn.q_proj
        for parameter in queries.parameters():
            parameter.data.zero_()

    _, ours = climbed(make(name), PAIRED, "positions")
    close(ours[:, 0], chain(make(name), PAIRED.pairings[0], silent))


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon-alibi", "gpt2", "gemma2", "gpt_oss", "gpt_neo"])
def test_mean_attention_of_one_prompt_is_its_own(name):
    same = prompts()[:1].expand(B, -1)
    _, fixed = climbed(make(name), PAIRED, "fixed-attention", same)
    _, mean = climbed(make(name), PAIRED, "vectors", same)
    close(mean, fixed, rtol=1e-4)
    _, different = climbed(make(name), PAIRED, "vectors")
    assert not np.allclose(different, climbed(make(name), PAIRED, "fixed-attention")[1], rtol=0.01)


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon-alibi"])
def test_positions_keep_the_slopes(name):
    """Given its own kernels of mask and slopes the rung does not move; given others, it does."""
    model = make(name)
    _, ours = climbed(model, PAIRED, "positions")
    slopes = torch.from_numpy(read_positions(Instrument(model), N).slopes).float()
    distance = torch.arange(N)[:, None] - torch.arange(N)
    logits = (-slopes[..., None, None] * distance).masked_fill(distance < 0, -torch.inf)
    kernels = logits.softmax(-1)
    close(climbed(model, Rungs(PAIRED.pairings, kernels), "positions")[1], ours)
    shifted = kernels.roll(1, 1)
    assert not np.allclose(climbed(model, Rungs(PAIRED.pairings, shifted), "positions")[1], ours, rtol=0.01)


def test_a_layer_is_changed_only_where_its_attention_is_replaced():
    model = make("llama")
    seen = []

    @contextmanager
    def changed(t):
        layer, kept = model.model.layers[t], model.model.layers[t].self_attn
        layer.self_attn = model.model.layers[(t + 1) % T].self_attn
        seen.append(t)
        yield
        layer.self_attn = kept

    even = torch.full((N, N), 1.0).tril()
    kernels = (even / even.sum(-1, keepdim=True)).expand(T, 4, N, N)
    exchanged = Instrument(model).measure(prompts(), rungs=Rungs(PAIRED.pairings, kernels, changed=changed))
    own = Instrument(model).measure(prompts(), rungs=Rungs(PAIRED.pairings, kernels))
    assert seen == [2, 2, 1, 1, 0, 0]
    assert torch.equal(exchanged.influence, own.influence) and torch.equal(exchanged.ladder[:, :2], own.ladder[:, :2])
    assert not torch.allclose(exchanged.ladder[:, 3], own.ladder[:, 3], rtol=0.05)


def test_kernels_that_are_given_are_taken_by_fused_attention_too():
    kernels = torch.rand(T, 4, N, N, generator=torch.Generator().manual_seed(2)).tril()
    given = Rungs(PAIRED.pairings, kernels / kernels.sum(-1, keepdim=True))
    close(
        climbed(make("llama", attention="sdpa"), given, "positions")[1], climbed(make("llama"), given, "positions")[1]
    )


@pytest.mark.parametrize("prompts", [2, 5, 16])
def test_in_a_ring_a_gradient_comes_back_last(prompts):
    taken = ring(prompts, (3, 1))
    at, visited = 0, []
    for _ in range(prompts):
        at = taken[at]
        visited.append(at)
    assert sorted(visited) == list(range(prompts)) and visited[-1] == 0
    assert not np.array_equal(ring(16, (3, 1)), ring(16, (3, 2)))


@pytest.fixture(scope="module")
def laddered(place, tmp_path_factory):
    """Return the file of a measurement with the ladder."""
    output = tmp_path_factory.mktemp("laddered") / "m.nc"
    with pytest.raises(SystemExit) as ended:
        main(arguments(place, output, "-q", "ladder", "--seed", "3", batch_size=5))
    assert ended.value.code == 0
    return output


def test_a_file_has_the_rungs_and_a_rollout_of_each(laddered, tmp_path, capsys):
    kept = read_results(laddered)
    assert dict(kept["ladder_prompts"].sizes) == {"prompt": 10, "rung": 4, "pairing": 1, "position": 16}
    assert list(kept["rung"].values) == list(RUNGS)
    m = posbias.load(laddered)
    assert {"value-maps", "value-maps-positional", "fixed-attention", "independent-layers"} < set(m.variants)
    small = Measurement(summarise(m.results))
    for rung in RUNGS:
        p = kept["ladder_prompts"].sel(rung=rung).values.astype(float).mean((0, 1))
        close(m.rollout(rung).values, p / p.sum(), rtol=1e-12)
        close(small.rollout(rung).values, p / p.sum(), rtol=1e-6)
    out = tmp_path / "p.csv"
    assert status(capsys, ["rollout", str(laddered), "--variant", "vectors", "-o", str(out)])[0] == 0
    assert out.stat().st_size > 0


def test_pairings_are_those_of_the_seed_and_the_batch(place, laddered):
    ids = torch.from_numpy(read_results(laddered)["tokens"].values.astype(np.int64))
    instrument, kept = Instrument(Source(str(place / "bloom")).load_model(torch.float32, "cpu", None)), []
    for start in (0, 5):
        rungs = Rungs(ring(5, (3, start, 0))[None])
        kept.append(instrument.measure(ids[start : start + 5], rungs=rungs).ladder)
    close(read_results(laddered)["ladder_prompts"].values, torch.cat(kept).numpy(), rtol=1e-5)


def test_one_prompt_has_none_to_exchange_layers_with(place, tmp_path, capsys):
    for prompts, size in ((1, 8), (10, 1)):
        words = arguments(place, tmp_path / "x.nc", "-q", "ladder", prompts=prompts, batch_size=size)
        refused(capsys, tmp_path, words, "batch_size: expected 2 prompts or more in a batch, for ladder", "received 1")


def test_few_prompts_climb_and_the_others_are_left_out(place):
    """Nine prompts in batches of four: the last is alone; where two or four are, the first batch climbs."""
    opened, climbed = posbias.open(place / "bloom"), ("rung", "pairing", "position")
    how = {"prompts": 9, "length": 16, "dataset": place / "d.jsonl", "quantities": "ladder", "batch_size": 4}
    every, few, four = (opened.measure(ladder_prompts=most, **how) for most in (None, 2, 4))
    there = [np.isfinite(m.results["ladder_prompts"]).all(climbed).values.tolist() for m in (every, few, four)]
    assert there == [[True] * 8 + [False], *[[True] * 4 + [False] * 5] * 2]
    rows = few.results["ladder_prompts"].sel(rung="vectors").values[:4, 0].astype(float)
    close(rows, every.results["ladder_prompts"].sel(rung="vectors").values[:4, 0], rtol=1e-6)
    for m in (few, Measurement(summarise(few.results))):
        close(m.rollout("value-maps").values, rows.sum(0) / rows.sum(), rtol=1e-5)
    assert few.provenance["ladder_prompts"] == 2 and "ladder_prompts" not in every.provenance
    close(few.influence.values, every.influence.values, rtol=1e-6)


def test_a_rung_that_was_not_measured_says_what_to_measure(place, tmp_path, capsys):
    assert status(capsys, arguments(place, tmp_path / "plain.nc", "-q", "mixing"))[0] == 0
    plain = posbias.load(tmp_path / "plain.nc")
    with pytest.raises(ValueError, match="received value-maps: needs --quantities with ladder$"):
        plain.rollout("vectors")
