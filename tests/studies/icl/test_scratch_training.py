"""Training networks: through a kill, with one that fails, in several processes; and the command."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("xarray", reason="xarray is not installed")

from posbias.cli import main
from posbias.rollout.masks import causal, full
from studies.icl import experiment
from studies.icl import optimisation as module
from studies.icl.experiment import is_done, run_settings
from studies.icl.optimisation import Training, train
from studies.icl.outcomes import VARIABLES, read_results, write_results
from studies.icl.settings import Network, Setting, Task

TASK = Task(items=4, classes=40, labels=8, burstiness=2, dimension=8)
PAIR = [Setting(TASK, Network(2, mask, residual=True)) for mask in (causal(), full())]
SHORT = Training(12, batch_size=4)


@pytest.fixture(autouse=True)
def few_trials(monkeypatch):
    monkeypatch.setattr(module, "TRIALS", 20)


def same(one, other):
    theirs = dict(other.named_parameters())
    return all(torch.equal(x, theirs[name]) for name, x in one.named_parameters())


def test_setting_seed_and_precision_decide_a_network():
    one, again = (train(PAIR[0], 1, SHORT) for _ in range(2))
    assert same(one.network, again.network) and (one.loss == again.loss).all()
    half = Training(12, batch_size=4, precision="bfloat16")
    for other in (train(PAIR[1], 1, SHORT), train(PAIR[0], 2, SHORT), train(PAIR[0], 1, half)):
        assert not same(one.network, other.network) and (one.loss != other.loss).all()


def test_the_loss_falls_and_its_log_is_the_mean_since_the_time_before(monkeypatch):
    training = Training(60, batch_size=16, rate=1e-2)
    monkeypatch.setattr(module, "LOGGED", 4)
    coarse = train(PAIR[0], 0, training)
    monkeypatch.setattr(module, "LOGGED", 60)
    fine = train(PAIR[0], 0, training)
    np.testing.assert_allclose(coarse.loss, fine.loss.reshape(4, 15).mean(1), rtol=1e-5)
    assert coarse.loss[-1] < np.log(8) - 0.3 and fine.gaps.shape == (20, 3)


def test_a_killed_run_goes_on_to_the_same_end(tmp_path):
    whole = train(PAIR[1], 1, SHORT)
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
        train(PAIR[1], 1, SHORT, path=path, checkpoint_every=0.0)
    resumed = train(PAIR[1], 1, SHORT, path=path)
    assert same(whole.network, resumed.network)
    np.testing.assert_array_equal(whole.loss, resumed.loss)
    np.testing.assert_array_equal(whole.gaps, resumed.gaps)
    with pytest.raises(ValueError, match="a checkpoint of a run with the same settings, received iterations=12"):
        train(PAIR[1], 1, Training(13, batch_size=4), path=path)


def test_a_network_whose_loss_is_not_finite_stops_alone(monkeypatch, tmp_path):
    real = module.AttentionOnly

    def broken(setting, seed, **options):
        network = real(setting, seed, **options)
        if seed == 7:
            network.weights["value_0"].data.fill_(torch.inf)
        return network

    monkeypatch.setattr(module, "AttentionOnly", broken)
    stopped = train(PAIR[0], 7, SHORT)
    assert stopped.stopped == 0 and np.isnan(stopped.loss).all() and np.isnan(stopped.gaps).all()
    ((_, found),) = run_settings(PAIR[:1], [0, 7], SHORT, tmp_path, size=30)
    assert found["stopped"].values.tolist() == [-1, 0]
    assert np.isfinite(found["accuracy"][0]).all() and np.isnan(found["accuracy"][1]).all()


def test_networks_trained_in_16_bits_are_tested_in_32(monkeypatch, tmp_path):
    seen = []
    real = experiment.accuracies
    monkeypatch.setattr(
        experiment, "accuracies", lambda network, *rest: seen.append(network.dtype) or real(network, *rest)
    )
    list(run_settings(PAIR[:1], [0], Training(2, batch_size=4, precision="bfloat16"), tmp_path, size=20))
    assert seen == [torch.float32]


def test_processes_give_what_one_gives(tmp_path):
    found = {}
    for processes in (1, 2):
        (tmp_path / str(processes)).mkdir()
        out = run_settings(PAIR, [0, 1], SHORT, tmp_path / str(processes), size=30, processes=processes)
        found[processes] = dict((path.name, results) for path, results in out)
    assert list(found[1]) == [f"{setting.name}.nc" for setting in PAIR]
    for name, one in found[1].items():
        assert one.attrs["processes"] == 1 and found[2][name].attrs["processes"] == 2
        np.testing.assert_allclose(found[2][name]["loss"], one["loss"], rtol=1e-4)


def test_what_is_done_of_a_setting_is_not_trained_again(tmp_path, monkeypatch):
    def interrupted(setting, seed, *rest, **options):
        if seed == 1:
            raise KeyboardInterrupt
        return train(setting, seed, *rest, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(experiment, "train", interrupted)
        list(run_settings(PAIR[:1], [0, 1], SHORT, tmp_path, size=30))
    (path,) = tmp_path.iterdir()
    assert path.name == f"{PAIR[0].name}.seed0.checkpoint"
    with pytest.raises(ValueError, match="expected no checkpoint of an unfinished run"):
        list(run_settings(PAIR[:1], [0, 1], SHORT, tmp_path, size=30))
    steps = []
    real = module._Run.step
    monkeypatch.setattr(module._Run, "step", lambda run, k: steps.append(run.seed) or real(run, k))
    list(run_settings(PAIR[:1], [0, 1], SHORT, tmp_path, size=30, resume=True))
    assert set(steps) == {1} and [p.suffix for p in tmp_path.iterdir()] == [".nc"]


def test_results_are_labelled_and_say_where_they_come_from(tmp_path):
    found = [results for _, results in run_settings(PAIR, [0, 1], SHORT, tmp_path, size=30)]
    path = tmp_path / f"{PAIR[1].name}.nc"
    kept = read_results(path)
    assert (
        set(kept) == set(VARIABLES)
        and dict(kept.sizes)["key"] == TASK.tokens
        and kept["seed"].values.tolist() == [0, 1]
    )
    np.testing.assert_allclose(kept["accuracy"], found[1]["accuracy"], rtol=1e-6)
    np.testing.assert_allclose(kept["kernels"].sum("key"), 1, rtol=1e-5)
    assert kept.attrs["mask"] == "full" and kept.attrs["iterations"] == 12 and kept.attrs["processes"] == 1
    assert not list(tmp_path.glob("*.checkpoint"))
    assert is_done(path, PAIR[1], [0, 1], SHORT, 30) and not is_done(tmp_path / "none.nc", PAIR[1], [0], SHORT, 30)
    with pytest.raises(ValueError, match="seeds: expected"):
        is_done(path, PAIR[1], [0, 2], SHORT, 30)
    with pytest.raises(ValueError, match="expected no earlier results"):
        list(run_settings(PAIR, [0, 1], SHORT, tmp_path, size=30))
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
        (["--processes", "0"], "processes: expected an integer of at least 1, received 0"),
        (["--tested", "0"], "tested: expected an integer of at least 1, received 0"),
        (["--batch-size", "-1"], "batch_size: expected an integer of at least 1"),
        (["--device", "abacus"], "device: expected cpu, cuda or cuda:0"),
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
