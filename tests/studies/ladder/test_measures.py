"""What is kept of the ladder: measured on a tiny model, and made by the parts that are named for it."""

import numpy as np
from measuring import save, write_documents

from posbias.measure.corpus import Corpus
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.models.loading import Source
from posbias.predict import predict
from posbias.rollout import masks
from posbias.rollout.influence import influence_profile
from posbias.settings import Settings
from studies.ladder.alignment import COHERENCES, KERNELS, measure_between
from studies.ladder.rotary import measure_rotary, read_rotary_means
from studies.ladder.rotary_kernels import distance_kernels

CLOSE = 2e-3  # 10 bits are kept


def settings(folder, name):
    corpus = Corpus(str(write_documents(folder / "d.jsonl", [40] * 3)))
    return Settings(Source(str(save(folder / "model", name))), corpus, prompts=3, length=12, batch_size=2)


def test_between_begins_at_the_law_and_keeps_what_was_measured(tmp_path):
    how = settings(tmp_path, "bloom")
    found, whole = measure_between(how), measure(how)
    law = predict(measure(how), "head-gains-squared")
    profile = found["profile"]
    assert profile.sizes == {"kernel": len(KERNELS), "coherence": len(COHERENCES), "position": 12}
    assert np.allclose(profile.sum("position"), 1, rtol=CLOSE)
    assert np.allclose(profile.sel(kernel="content-free", coherence=0.0), law, rtol=CLOSE)
    assert not np.allclose(profile.sel(kernel="measured", coherence=0.0), law, rtol=0.01)
    kernels = predict(whole, "kernels")
    assert np.allclose(found["rollout"].sel(variant="kernels"), kernels, rtol=CLOSE)
    assert np.allclose(found["influence"], whole["influence"], rtol=CLOSE) and "document" in found
    for name in ("share", "expected_share"):
        assert ((found[name] > 0) & (found[name] < 1)).all()
    assert (abs(found["cross"]) <= found["possible"] * (1 + CLOSE)).all()


def test_every_kernel_of_a_rotary_model_is_rolled_out(tmp_path):
    how = settings(tmp_path, "llama")
    found, whole = measure_rotary(how), measure(how)
    lambdas = whole["lambda_frobenius"].values
    uniform = np.tril(np.ones((12, 12))) / np.arange(1, 13)[:, None]
    assert np.allclose(found["profile"].sum("position"), 1)
    assert np.allclose(found["profile"].sel(kernel="uniform"), influence_profile(np.stack([uniform] * 3), lambdas))
    kernels = predict(whole, "kernels")
    assert np.allclose(found["profile"].sel(kernel="measured"), kernels, rtol=1e-4)
    variation = found["variation"].mean("layer")
    assert variation.sel(kernel="measured") == 0 and (variation.drop_sel(kernel="measured") > 0).all()
    session = Session(how)
    logits = read_rotary_means(session.instrument, session.prompts.ids).logits(12)
    mean = np.stack([distance_kernels(z, masks.causal()).mean(0) for z in logits])
    assert np.allclose(found["profile"].sel(kernel="mean"), influence_profile(mean, lambdas))
