"""Use: what replacing each token changes, against the model itself, and as a quantity of a measurement."""

import numpy as np
import pytest
import torch
from measuring import CONFIGS, N, make, prompts, save, write_documents

import posbias
from posbias.comparison.fits import power_fit
from posbias.measure.instrument import Instrument
from posbias.measure.quantities.use import draw_replacements, measure_use
from posbias.models.loading import Source
from posbias.report import text
from posbias.report.stats import Evidence

NAMES = [name for name in CONFIGS if name != "gemma3" and not name.startswith("falcon-alibi")]
"""All but the name of a family whose decoder is another, and Falcon with ALiBi, which rounds its bias to bf16."""


@pytest.mark.parametrize("name", NAMES)
def test_use_is_the_total_variation_of_the_models_own_distribution(name):
    model, ids = make(name), prompts(2)
    others = draw_replacements(ids, 0, 0)
    found = measure_use(Instrument(model), ids[0], others, together=5)
    with torch.no_grad():
        own = model(ids[:1]).logits[0, -1].softmax(-1)
        for place in (0, N // 2, N - 1):
            changed = ids[0].clone()
            changed[place] = others[place]
            p = model(changed[None]).logits[0, -1].softmax(-1)
            assert float(found[place]) == pytest.approx(float((p - own).abs().sum() / 2), abs=1e-5)
    assert found[-1] > 1e-4


def test_replacements_are_another_prompts_tokens_and_do_not_depend_on_how_many_there_are():
    ids = torch.arange(4 * N).view(4, N)
    for prompt, other in ((0, 1), (1, 0), (3, 2)):
        found = draw_replacements(ids, prompt, 7)
        assert sorted(found.tolist()) == ids[other].tolist() and found.tolist() != ids[other].tolist()
    assert draw_replacements(ids, 1, 7).tolist() != draw_replacements(ids, 1, 8).tolist()
    assert draw_replacements(ids[:2], 1, 7).tolist() == draw_replacements(ids, 1, 7).tolist()
    assert sorted(draw_replacements(ids[:1], 0, 7).tolist()) == ids[0].tolist()


def test_a_measurement_has_use_and_a_report_says_it(tmp_path):
    save(tmp_path / "m", "llama")
    write_documents(tmp_path / "d.jsonl", [40] * 4)
    opened = posbias.open(tmp_path / "m")
    m = opened.measure(prompts=4, length=20, dataset=tmp_path / "d.jsonl", batch_size=2, quantities="use")
    model = Source(str(tmp_path / "m")).load_model(torch.float32, "cpu", None)
    instrument, ids = Instrument(model), torch.from_numpy(m.results["tokens"].values.astype(np.int64))
    for k in range(4):
        own = measure_use(instrument, ids[k], draw_replacements(ids, k, 0))
        np.testing.assert_allclose(m.results["use_prompts"].values[k], own, atol=1e-6)
    assert m.use.values.sum() == pytest.approx(1) and posbias.compare(m.use, m.influence).wasserstein > 0
    words = "".join(text.answer(Evidence(m._subject(), resamples=20), "used"))
    gradient = m.influence.values[0] * 20
    assert f"changes by {m.use.values[0] * 20:.2f} equal shares; by the gradient it has {gradient:.2f}" in words
    away = posbias.compare(m.influence, m.use)
    assert f"Influence is {away.wasserstein:.3f} of the length from what" in words
    assert f"(rank correlation {away.spearman:+.2f})" in words
    law = posbias.compare(power_fit(m.use.values), m.use).wasserstein
    assert words.endswith(f"with one fitted number, is {law:.3f} from it.")
    without = opened.measure(prompts=2, length=20, dataset=tmp_path / "d.jsonl", quantities="mixing")
    assert "".join(text.answer(Evidence(without._subject(), resamples=20), "used")) == ""
    with pytest.raises(ValueError, match="use: expected a measurement of use"):
        without.use  # noqa: B018
