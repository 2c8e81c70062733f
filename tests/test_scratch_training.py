"""Training many networks at once: as alone, through a kill, with one that fails; and the command."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("xarray", reason="xarray is not installed")

from posbias.cli import main  # noqa: E402
from posbias.rollout.masks import causal, full  # noqa: E402
from posbias.training.retrieval import experiment  # noqa: E402
from posbias.training.retrieval import optimisation as module  # noqa: E402
from posbias.training.retrieval.experiment import is_done, run_group, together  # noqa: E402
from posbias.training.retrieval.members import Members  # noqa: E402
from posbias.training.retrieval.optimisation import Training, train  # noqa: E402
from posbias.training.retrieval.outcomes import VARIABLES, read_results, write_results  # noqa: E402
from posbias.training.retrieval.settings import Network, Setting, Task, preset  # noqa: E402

TASK = Task(items=4, classes=40, labels=8, burstiness=2, dimension=8)
PAIR = [Setting(TASK, Network(2, mask, residual=True)) for mask in (causal(), full())]
SHORT = Training(12, batch_size=4)


@pytest.fixture(autouse=True)
def few_trials(monkeypatch):
    monkeypatch.setattr(module, "TRIALS", 20)


def weights_of(members, k):
    return {name: x[k].detach() for name, x in members.weights.items()}


def same(one, other):
    return all(torch.equal(x, other[name]) for name, x in one.items())


def apart(one, other):
    """Return the distance between the weights of two networks."""
    return float(torch.cat([(x - other[name]).flatten() for name, x in one.items()]).norm())


# Not to the last bit: a product that is batched over other members may add in another order. 12 steps on weights that
# are off by 1e-7 (by 1e-3 in 16 bits) end at 1e-5 (at 0.06) of the way that training takes them.
@pytest.mark.parametrize(("precision", "share", "loss"), [("float32", 1e-4, 1e-5), ("bfloat16", 0.15, 1e-2)])
def test_a_network_ends_as_it_would_alone(precision, share, loss):
    training = Training(12, batch_size=4, precision=precision)
    many = train([PAIR[1], PAIR[1], PAIR[0], PAIR[0]], [0, 1, 0, 1], training)
    alone = train([PAIR[0]], [1], training)
    ends = [weights_of(many.members, k) for k in range(4)]
    way = apart(weights_of(Members(PAIR[:1], [1]), 0), weights_of(alone.members, 0))
    assert apart(ends[3], weights_of(alone.members, 0)) < share * way
    np.testing.assert_allclose(many.loss[3], alone.loss[0], rtol=loss)
    assert np.abs(many.gaps[3] - alone.gaps[0]).mean() < 0.005
    assert all(apart(ends[k], ends[3]) > 2 * share * way for k in range(3))
    assert np.abs(many.loss[:3] / many.loss[3] - 1).max(1).min() > 2 * loss
    assert np.abs(many.gaps[:3] - many.gaps[3]).mean((1, 2)).min() > 0.01


def test_the_loss_falls_and_its_log_is_the_mean_since_the_time_before(monkeypatch):
    training = Training(60, batch_size=16, rate=1e-2)
    monkeypatch.setattr(module, "LOGGED", 4)
    coarse = train(PAIR[:1], [0], training)
    monkeypatch.setattr(module, "LOGGED", 60)
    fine = train(PAIR[:1], [0], training)
    np.testing.assert_allclose(coarse.loss[0], fine.loss[0].reshape(4, 15).mean(1), rtol=1e-5)
    assert coarse.loss[0, -1] < np.log(8) - 0.3 and fine.gaps.shape == (1, 20, 3)


def test_a_killed_run_goes_on_to_the_same_end(tmp_path):
    whole = train(PAIR, [0, 1], SHORT)
    path = tmp_path / "run.checkpoint"

    class Killed(Exception):
        pass

    real = module.checkpoint.save

    def save_then_die(path, tensors, done, fingerprint):
        real(path, tensors, done, fingerprint)
        if done == 7:
            raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(module.checkpoint, "save", save_then_die)
        train(PAIR, [0, 1], SHORT, path=path, checkpoint_every=0.0)
    resumed = train(PAIR, [0, 1], SHORT, path=path)
    assert same(weights_of(whole.members, 1), weights_of(resumed.members, 1))
    np.testing.assert_array_equal(whole.loss, resumed.loss)
    np.testing.assert_array_equal(whole.gaps, resumed.gaps)
    with pytest.raises(ValueError, match="a checkpoint of a run with the same settings, received iterations=12"):
        train(PAIR, [0, 1], Training(13, batch_size=4), path=path)


def test_a_network_whose_loss_is_not_finite_stops_alone(monkeypatch, tmp_path):
    alone = train(PAIR[:1], [0], SHORT)
    real = module.Members

    def broken(settings, seeds, **options):
        members = real(settings, seeds, **options)
        members.weights["value_0"].data[seeds.index(7)] = torch.inf
        return members

    monkeypatch.setattr(module, "Members", broken)
    both = train([PAIR[0], PAIR[0]], [0, 7], SHORT)
    assert both.stopped.tolist() == [-1, 0]
    way = apart(weights_of(real(PAIR[:1], [0]), 0), weights_of(alone.members, 0))
    assert apart(weights_of(both.members, 0), weights_of(alone.members, 0)) < 1e-4 * way
    assert np.isnan(both.loss[1]).all()
    (found,) = run_group(PAIR[:1], [0, 7], SHORT, tmp_path, size=30)
    assert found["stopped"].values.tolist() == [-1, 0]
    assert np.isfinite(found["accuracy"][0]).all() and np.isnan(found["accuracy"][1]).all()


def test_networks_trained_in_16_bits_are_tested_in_32(monkeypatch, tmp_path):
    seen = []
    real = experiment.accuracies
    monkeypatch.setattr(
        experiment, "accuracies", lambda members, *rest: seen.append(members.dtype) or real(members, *rest)
    )
    run_group(PAIR[:1], [0], Training(2, batch_size=4, precision="bfloat16"), tmp_path, size=20)
    assert seen == [torch.float32]


def test_settings_are_grouped_by_shape_and_no_seed_is_torn_away():
    settings = preset("figure6")
    groups = list(together(settings, [0, 1, 2], 12))
    assert sorted(s.name for group in groups for s in group) == sorted(s.name for s in settings)
    assert max(map(len, groups)) == 4 and all(len(group) == 1 for group in together(settings, [0, 1, 2], 2))


def test_results_are_labelled_and_say_where_they_come_from(tmp_path):
    found = run_group(PAIR, [0, 1], SHORT, tmp_path, size=30)
    path = tmp_path / f"{PAIR[1].name}.nc"
    kept = read_results(path)
    assert (
        set(kept) == set(VARIABLES)
        and dict(kept.sizes)["key"] == TASK.tokens
        and kept["seed"].values.tolist() == [0, 1]
    )
    np.testing.assert_allclose(kept["accuracy"], found[1]["accuracy"], rtol=1e-6)
    np.testing.assert_allclose(kept["kernels"].sum("key"), 1, rtol=1e-5)
    assert kept.attrs["mask"] == "full" and kept.attrs["iterations"] == 12 and kept.attrs["networks_at_once"] == 4
    assert not list(tmp_path.glob("*.checkpoint"))
    assert is_done(path, PAIR[1], [0, 1], SHORT, 30) and not is_done(tmp_path / "none.nc", PAIR[1], [0], SHORT, 30)
    with pytest.raises(ValueError, match="seeds: expected"):
        is_done(path, PAIR[1], [0, 2], SHORT, 30)
    with pytest.raises(ValueError, match="expected no results of that name"):
        run_group(PAIR, [0, 1], SHORT, tmp_path, size=30)
    write_results(path, kept.drop_vars("sinks"))
    with pytest.raises(ValueError, match="expected every variable of the layout, received a file without sinks"):
        read_results(path)
    write_results(path, kept.assign_attrs(posbias_scratch_schema=0))
    with pytest.raises(ValueError, match="results of layout 1, received layout 0"):
        read_results(path)


SMALL = "--items 4 --classes 40 --labels 8 --burstiness 2 --dimension 8 --seeds 2 --iterations 6 --tested 20".split()


def test_the_command_writes_a_file_for_each_setting_and_skips_what_is_done(tmp_path, capsys):
    command = ["train-icl", "--preset", "figure7", "--preset", "figure3", *SMALL, "-o", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 0
    assert "2 seeds, first vs middle" in capsys.readouterr().out
    files = sorted((tmp_path / "out").iterdir())
    assert len(files) == 7 and all(path.suffix == ".nc" for path in files)
    before = {path: path.stat().st_mtime_ns for path in files}
    files[0].unlink()
    with pytest.raises(SystemExit) as ended:
        main([*command, "--resume"])
    assert ended.value.code == 0 and capsys.readouterr().out.count("seeds") == 1
    assert {path: path.stat().st_mtime_ns for path in files[1:]} == {path: before[path] for path in files[1:]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--burstiness", "3"], "burstiness: expected a divisor of the 8 items"),
        (["--items", "16", "--burstiness", "1", "--classes", "8", "--labels", "8"], "classes: expected at least"),
        (["--labels", "4096"], "labels: expected at most the 2048 classes"),
        (["--mask", "window", "--width", "0"], "window: expected 1 to 17 tokens, received 0"),
        (["--mask", "prefix", "--width", "18"], "prefix: expected 1 to 17 tokens, received 18"),
        (["--mask", "window"], "width: expected a number of tokens with --mask window or prefix"),
        (["--width", "3"], "with --mask window or prefix, none with other masks, received 3"),
        (["--preset", "figure1"], "preset: expected one of figure2"),
        (["--iterations", "0"], "iterations: expected an integer of at least 1, received 0"),
        (["--layers", "0"], "layers: expected an integer of at least 1"),
        (["--seeds", "0"], "seeds: expected an integer of at least 1, received 0"),
        (["--together", "0"], "together: expected an integer of at least 1, received 0"),
        (["--tested", "0"], "tested: expected an integer of at least 1, received 0"),
        (["--batch-size", "-1"], "batch_size: expected an integer of at least 1"),
        (["--device", "abacus"], "device: expected a device that torch can use here"),
    ],
)
def test_bad_input_is_said_in_a_line_and_nothing_is_written(options, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["train-icl", "-o", str(tmp_path / "out"), *options])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and message in said and said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_results_and_checkpoints_of_other_settings_are_kept(tmp_path, capsys):
    command = ["train-icl", *SMALL, "-o", str(tmp_path)]
    with pytest.raises(SystemExit):
        main(command)
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()
    for more, message in (
        ([], "expected no earlier results, received a file; give --resume"),
        (["--resume", "--iterations", "7"], "iterations: expected 7, received 6"),
        (["--resume", "--classes", "41"], "classes: expected 41, received 40"),
    ):
        with pytest.raises(SystemExit) as ended:
            main([*command, *more])
        assert ended.value.code == 2 and message in capsys.readouterr().err and path.read_bytes() == before
