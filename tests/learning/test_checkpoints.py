"""A fit that is cut off resumes and ends as if nothing had happened."""

import dataclasses
import errno
import multiprocessing
import os
import signal
import time
from pathlib import Path

import killed
import numpy as np
import pytest
from killed import SMALL, TARGETS, X, Y, estimator, predictions

from zonal import (
    ARD,
    ArraySource,
    Basis,
    Bernoulli,
    ContinuousDepth,
    Poisson,
    Process,
    Recipe,
    fit,
)
from zonal.inference.natural_gradient import Watch, infer
from zonal.inference.problem import Problem
from zonal.learning.by_bound import LearningStoppedWarning
from zonal.learning.checkpoints import CheckpointWarning, load_progress, save_progress
from zonal.prior.parameters import same_values
from zonal.saving import part_of, read, write


class PowerCutError(BaseException):
    """Nothing catches this."""


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr("zonal.learning.schedule.DEFAULT", SMALL)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.zonal"


def fitted(kind, path=None, **options):
    return estimator(kind, **options).fit(X, TARGETS[kind], checkpoint=path)


def steps(model):
    return [(step["stage"], step["number"]) for step in model.history_]


@pytest.mark.parametrize(
    ("kind", "held_out", "features"),
    [
        ("gaussian", 60, 30),
        ("student-t", 0, 30),
        ("three classes", 60, None),
    ],
)
def test_cut_off_after_every_checkpoint(
    small, kind, held_out, features, path, monkeypatch
):
    schedule = dataclasses.replace(SMALL, validation_rows=held_out)
    monkeypatch.setattr("zonal.learning.schedule.DEFAULT", schedule)
    options = {"solve_features": features}
    whole = fitted(kind, **options)
    cuts, learned = 0, []

    def cut(*progress):
        save_progress(*progress)
        learned.append(progress[1].done)
        raise PowerCutError

    monkeypatch.setattr("zonal.learning.by_bound.save_progress", cut)
    while True:
        try:
            model = fitted(kind, path, **options)
            break
        except PowerCutError:
            cuts += 1
    assert cuts > 2
    # What is learned is not learned again, and passes over the rows go on.
    assert learned == sorted(learned)
    assert sum(learned) == 1 if kind == "gaussian" else sum(learned) > 2
    assert np.array_equal(predictions(kind, model), predictions(kind, whole))
    assert steps(model) == steps(whole)
    assert model.bound_ == whole.bound_
    seconds = model.history_["seconds"]
    assert np.all(np.diff(seconds) >= 0)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("coarse", [False, True])
def test_inference_goes_on_after_any_pass(coarse, path):
    """Also where sums in float32 were too coarse, and passes began anew."""
    x = X[:, :1]
    rate = np.exp((16 if coarse else 1) + np.sin(2 * x[:, 0]))
    y = np.random.default_rng(0).poisson(rate).astype(float)
    basis = Basis.build(ARD.isotropic(1), ContinuousDepth(), n_features=20)
    process, offsets = Process(basis, 1.0), np.array([np.log(y.mean())])

    def inferred(resumed=None, keep=None):
        def refit(state):
            (one,) = state.processes
            wider = 1.1 * float(one.basis.variance)
            wide = dataclasses.replace(one.basis, variance=wider)
            return (dataclasses.replace(one, basis=wide),), state.likelihood

        problem = Problem(ArraySource(x, y), Poisson(), offsets)
        watch = Watch(keep=keep, resumed=resumed)
        return infer(problem, [process], refit=refit, watch=watch)

    kept = []
    whole = inferred(keep=kept.append)
    assert len(kept) > 2
    assert {at.dtype for at in kept} == {np.float64 if coarse else np.float32}
    for at in kept:
        write(path, {"at": at}, "test")
        found = inferred(read(path, "test")["at"])
        assert found.bounds == whole.bounds
        assert np.array_equal(found.statistics[0].gram, whole.statistics[0].gram)
        assert same_values(found.processes[0], whole.processes[0])


# Rows are too few for anything to be compiled, so a process is there in no time.
@pytest.fixture(scope="module")
def processes():
    context = multiprocessing.get_context("forkserver")
    # (`zonal` alone imports nothing before it is used.)
    context.set_forkserver_preload(
        ["zonal.estimators.classifier", "zonal.estimators.regressor"]
    )
    return context


def identity(path):
    """Changes when a checkpoint is written."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return None


def wait_for_writes(process, path, writes):
    before = identity(path)
    while writes and process.is_alive():
        now = identity(path)
        writes -= now != before
        before = now
        time.sleep(0.001)


@pytest.mark.parametrize("kind", ["gaussian", "two classes"])
def test_killed_ten_times_at_any_moment(processes, kind, path, tmp_path):
    generator = np.random.default_rng(4)
    results, kills, in_writes, resumed = [], 0, 0, 0
    result = tmp_path / "result.npy"

    def started(checkpoint, dies_in_write=0):
        arguments = (kind, checkpoint, result, dies_in_write)
        process = processes.Process(target=killed.train, args=arguments)
        process.start()
        return process

    def ended(process):
        process.join()
        if process.exitcode == 0:
            results.append(np.load(result))
        return process.exitcode == 0

    assert ended(started(None))
    while kills < 10:
        resumed += path.exists()
        if kills % 3 == 2:
            process = started(path, int(generator.integers(1, 3)))
            done = ended(process)
            in_writes += not done
        else:
            process = started(path)
            wait_for_writes(process, path, int(generator.integers(0, 3)))
            time.sleep(generator.uniform(0, 0.1))
            process.kill()
            done = ended(process)
        kills += not done
        if not done:
            assert process.exitcode == -signal.SIGKILL
            assert not path.exists() or read(path, "checkpoint")["progress"]
    assert in_writes >= 2
    assert resumed >= 5
    assert ended(started(path))
    assert all(np.array_equal(one, results[0]) for one in results)
    assert {file.name for file in tmp_path.iterdir()} == {"result.npy"}


def test_a_fit_that_is_done_leaves_nothing_behind(small, path):
    """The next one starts afresh, with other rows too."""
    part_of(path).write_bytes(b"left by a process that was killed")
    fitted("gaussian", path)
    assert list(path.parent.iterdir()) == []
    estimator("gaussian").fit(X, -Y, checkpoint=str(path))
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("kind", ["gaussian", "two classes"])
def test_a_fit_that_was_stopped_goes_on_with_more_time(small, kind, path):
    def stop(step):
        return step.stage == "learn 2" and step.number > 4

    with pytest.warns(LearningStoppedWarning, match="a callback"):
        short = fitted(kind, path, callbacks=[stop])
    assert path.exists()
    assert not read(path, "checkpoint")["progress"].done
    whole, long = fitted(kind), fitted(kind, path)
    assert np.array_equal(predictions(kind, long), predictions(kind, whole))
    assert len(long.history_) > len(short.history_) - 20
    assert not path.exists()


def leave_checkpoint(kind, path, **options):
    """A checkpoint of a fit that was cut off early."""

    def cut(step):
        if step.stage != "start":
            raise PowerCutError

    with pytest.raises(PowerCutError):
        fitted(kind, path, callbacks=[cut], **options)
    assert path.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
def test_a_disk_that_is_full_for_a_while(small, path):
    """The fit goes on, and so do checkpoints once there is room."""
    whole = fitted("gaussian")
    kept = []

    def fill(step):
        if (step.stage, step.number) == ("learn 2", 1):
            kept.append(path.read_bytes())
            part_of(path).symlink_to("/dev/full")
        if (step.stage, step.number) == ("learn 2", 4):
            kept.append(path.read_bytes())
        if (step.stage, step.number) == ("learn 2", 7):
            kept.append(path.read_bytes())

    with pytest.warns(CheckpointWarning, match=r"No space left.*make room") as told:
        model = fitted("gaussian", path, callbacks=[fill])
    assert len(told) == 1
    assert kept[0] == kept[1] != kept[2]
    assert np.array_equal(
        predictions("gaussian", model), predictions("gaussian", whole)
    )


def test_a_disk_that_stays_full_is_warned_of_once(small, path, monkeypatch):
    leave_checkpoint("two classes", path)
    before = path.read_bytes()

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("zonal.saving.os.fsync", full)
    seen = []
    with pytest.warns(CheckpointWarning) as told:
        fitted(
            "two classes", path, callbacks=[lambda step: seen.append(path.read_bytes())]
        )
    assert len(told) == 1
    assert set(seen) == {before}


def test_a_checkpoint_that_cannot_be_removed_is_said(small, path, monkeypatch):
    def refuse(self, missing_ok=False):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    with pytest.warns(CheckpointWarning, match=r"remove it before other rows"):
        fitted("gaussian", path)


@pytest.mark.parametrize("kind", ["gaussian", "two classes"])
def test_what_cannot_be_read_is_said_before_learning(small, kind, path):
    def nothing(step):
        pytest.fail("something was learned")

    path.mkdir()
    with pytest.raises(ValueError, match=r"cannot be read .* name another file"):
        fitted(kind, path, callbacks=[nothing])
    path.rmdir()
    leave_checkpoint(kind, path)
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="remove it to start afresh"):
            fitted(kind, path, callbacks=[nothing])
        assert path.read_bytes() == damaged
    if os.getuid():
        path.chmod(0)
        with pytest.raises(ValueError, match="cannot be read"):
            load_progress(path, "")


def test_a_folder_that_cannot_be_written_to(small, path, monkeypatch):
    with pytest.raises(ValueError, match="there is no folder"):
        fitted("gaussian", path.parent / "nowhere" / "run.zonal")
    monkeypatch.setattr("zonal.learning.checkpoints.os.access", lambda *_: False)
    with pytest.raises(ValueError, match="cannot be written to"):
        fitted("gaussian", path)


def test_random_choices_that_would_differ_are_refused(path):
    with pytest.raises(ValueError, match="set random_state to an integer"):
        fitted("gaussian", path, random_state=None)


def test_a_checkpoint_of_another_fit_is_refused(small, path):
    def source(rows=X, classes=Y > 0):
        return ArraySource(rows, np.float64(classes))

    def stop(step):
        if step.stage != "start":
            raise PowerCutError

    recipe = Recipe(n_features=20, most_steps=2)
    start = fit(source(), recipe, Bernoulli()).process
    with pytest.raises(PowerCutError):
        fit(source(), recipe, Bernoulli(), stop, path, start)
    # A class that is changed may be of a row that was not drawn.
    changed = np.where(np.arange(len(Y)) == 7, Y <= 0, Y > 0)
    for other in (
        (source(rows=X + X**2), recipe, Bernoulli(), start),
        (source(classes=changed), recipe, Bernoulli(), start),
        (source(), Recipe(n_features=21), Bernoulli(), start),
        (source(), recipe, Bernoulli("probit"), start),
        (source(), recipe, Bernoulli(), None),
    ):
        *same, begin = other
        with pytest.raises(ValueError, match="another recipe or other rows; remove it"):
            fit(*same, checkpoint=path, start=begin)
    resumed = fit(source(), recipe, Bernoulli(), None, path, start)
    whole = fit(source(), recipe, Bernoulli(), start=start)
    assert resumed.bound == whole.bound


def test_several_targets_resume_too(small, path):
    both = np.column_stack([Y, X[:, 1] * X[:, 2]])
    whole = estimator("gaussian").fit(X, both)

    def cut(step):
        if (step.stage, step.number) == ("learn 2", 5):
            raise PowerCutError

    with pytest.raises(PowerCutError):
        estimator("gaussian", callbacks=[cut]).fit(X, both, checkpoint=path)
    model = estimator("gaussian").fit(X, both, checkpoint=path)
    assert np.array_equal(model.predict(X), whole.predict(X))
    assert steps(model) == steps(whole)


def test_the_engine_removes_it_as_well(small, path):
    fit(ArraySource(X, Y), Recipe(n_features=30, most_steps=2), checkpoint=path)
    assert not path.exists()
