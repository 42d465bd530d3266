"""Partitions on a cluster give the same models as rows in memory."""

import itertools
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import threading
import time

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, Status
from limits import few_rows_are_many
from sklearn.base import clone

import zonal.dask.source
from zonal import SphericalGPClassifier, SphericalGPRegressor, load
from zonal.dask import DaskSphericalGPClassifier, DaskSphericalGPRegressor
from zonal.dask.source import DaskSource, LostClusterError
from zonal.tables.chunks import Chunk
from zonal.tables.target_maps import Log

# Dask warns of large graphs, of ports in use and of clusters that close.
pytestmark = pytest.mark.filterwarnings("ignore")

ROWS = 700
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(ROWS, 3))
Y = np.sin(2 * X[:, 0]) + 0.1 * GENERATOR.normal(size=ROWS)
FRAME = pd.DataFrame(X, columns=["a", "b", "c"]).assign(
    town=GENERATOR.choice(["Ulm", "Bonn"], ROWS),
    times=GENERATOR.integers(0, 3, ROWS),
)
CLASSES = {"two": np.where(Y > 0, "up", "down"), "three": np.digitize(Y, [-0.5, 0.5])}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    few_rows_are_many(monkeypatch)


def cluster(workers, processes=False):
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=processes,
        dashboard_address=None,
    )


@pytest.fixture(scope="module")
def quick_processes():
    """Workers with a process of their own are forked from one that has the imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["distributed", "zonal.dask.estimators"])
    # Before dask chooses imports of its own.
    multiprocessing.forkserver.ensure_running()
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


@pytest.fixture(scope="module")
def client():
    with cluster(2) as two, Client(two) as client:
        yield client


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_arrays_in_any_partitions_on_any_workers(workers):
    expected = SphericalGPRegressor(30, n_neighbors=0).fit(X, Y)
    mean, std = expected.predict(X, return_std=True)
    with cluster(workers) as some, Client(some) as client:
        for rows in (99, 350, ROWS):
            table = da.from_array(X, chunks=(rows, 2))
            target = da.from_array(Y, chunks=128)
            model = DaskSphericalGPRegressor(30, client=client).fit(table, target)
            found, deviation = model.predict(table, return_std=True)
            assert isinstance(found, da.Array)
            np.testing.assert_allclose(found.compute(), mean, atol=1e-6)
            np.testing.assert_allclose(deviation.compute(), std, atol=1e-6)
            ends = model.predict_interval(table, 0.8).compute()
            np.testing.assert_allclose(
                ends, expected.predict_interval(X, 0.8), atol=1e-6
            )


def test_scales_of_targets(client):
    prices = np.exp(Y)
    expected = SphericalGPRegressor(30, n_neighbors=0).fit(X, prices)
    table = da.from_array(X, chunks=(200, 3))
    model = DaskSphericalGPRegressor(30)
    model.fit(table, da.from_array(prices, chunks=128))
    assert model.target_transform_ == expected.target_transform_ == Log()
    ends = model.predict_interval(table, 0.8).compute()
    np.testing.assert_allclose(ends, expected.predict_interval(X, 0.8), rtol=1e-5)
    assert model.bound_ == pytest.approx(expected.bound_, rel=1e-6)
    prices[400] = 0.0
    with pytest.raises(ValueError, match="row 400 has 0"):
        DaskSphericalGPRegressor(30, target_transform="log").fit(
            table, da.from_array(prices, chunks=128)
        )


@pytest.mark.parametrize("kind", CLASSES)
def test_classes_in_frames(client, kind):
    table = FRAME.assign(kind=CLASSES[kind])
    expected = SphericalGPClassifier(30).fit(table, target="kind", weight="times")
    parts = dd.from_pandas(table, npartitions=5)
    model = DaskSphericalGPClassifier(30).fit(parts, target="kind", weight="times")
    assert model.client_ is client
    inputs = ["a", "b", "c", "town"]
    chance = model.predict_proba(parts[inputs]).compute()
    np.testing.assert_allclose(chance, expected.predict_proba(table[inputs]), atol=1e-6)
    assert np.array_equal(
        model.predict(parts[inputs]).compute(), expected.predict(table[inputs])
    )


def test_exposures_in_partitions(client):
    generator = np.random.default_rng(6)
    hours = generator.uniform(0.5, 5, ROWS)
    table = FRAME[["a", "town"]].assign(hours=hours)
    table["count"] = generator.poisson(hours * np.exp(Y))
    local = SphericalGPRegressor(20, likelihood="poisson")
    local.fit(table, target="count", exposure="hours")
    expected = local.predict(table, exposure="hours")
    parts = dd.from_pandas(table, npartitions=3)
    inputs = parts[["a", "town"]]
    model = DaskSphericalGPRegressor(20, likelihood="poisson")
    for given in (
        ((parts,), {"target": "count", "exposure": "hours"}),
        ((inputs, parts["count"]), {"exposure": parts["hours"]}),
    ):
        model.fit(*given[0], **given[1])
        for found in (
            model.predict(parts[["a", "town", "hours"]], exposure="hours"),
            model.predict(inputs, exposure=parts["hours"]),
        ):
            np.testing.assert_allclose(found.compute(), expected, rtol=1e-5)
        for_two = model.predict(inputs, exposure=2.0).compute()
        np.testing.assert_allclose(for_two, 2 * expected / hours, rtol=1e-5)
    ends = model.predict_interval(inputs, 0.8, exposure=parts["hours"])
    np.testing.assert_allclose(
        ends.compute(), local.predict_interval(table, 0.8, exposure="hours")
    )
    with pytest.raises(ValueError, match="an exposure is for counts"):
        DaskSphericalGPRegressor(20).fit(parts, target="count", exposure="hours")


def test_several_targets_and_empty_partitions(client):
    both = np.column_stack([Y, -Y])
    table = da.concatenate(
        [da.from_array(X[:200], chunks=100), da.zeros((0, 3)), da.from_array(X[200:])]
    )
    target = da.from_array(both).rechunk({0: table.chunks[0], 1: 2})
    model = DaskSphericalGPRegressor(30).fit(table, target)
    expected = SphericalGPRegressor(30, n_neighbors=0).fit(X, both)
    found = model.to_local().predict(X)
    np.testing.assert_allclose(found, expected.predict(X), atol=1e-6)


def test_life_after_the_fit(client, tmp_path):
    table, target = da.from_array(X, chunks=(200, 3)), da.from_array(Y, chunks=200)
    model = DaskSphericalGPRegressor(30).fit(table, target)
    before = model.predict(X[:9])
    assert isinstance(before, np.ndarray)
    model.partial_fit(table[:200], target[:200])
    assert not np.allclose(model.predict(X[:9]), before, atol=1e-5)
    model.forget(table[:200], target[:200])
    np.testing.assert_allclose(model.predict(X[:9]), before, atol=1e-8)
    model.save(tmp_path / "model.zonal")
    again = load(tmp_path / "model.zonal")
    assert type(again) is SphericalGPRegressor
    assert np.array_equal(again.predict(X[:9]), model.predict(X[:9]))
    assert clone(model).get_params()["n_features"] == 30
    assert type(clone(model).to_local()) is SphericalGPRegressor


def test_what_is_refused(client):
    table, target = da.from_array(X, chunks=(100, 3)), da.from_array(Y, chunks=100)
    model = DaskSphericalGPRegressor(30)
    with pytest.raises(TypeError, match="use SphericalGPRegressor"):
        model.fit(X, Y)
    with pytest.raises(TypeError, match="dask collections for all"):
        model.fit(table, Y)
    with pytest.raises(ValueError, match="no target"):
        model.fit(table)
    with pytest.raises(ValueError, match="not both"):
        model.fit(dd.from_pandas(FRAME, npartitions=2), target, target="a")
    poisoned = X.copy()
    poisoned[317, 1] = np.nan
    with pytest.raises(ValueError, match=r"partition 3: column 1 .*rows 17"):
        model.fit(da.from_array(poisoned, chunks=(100, 3)), target)
    assert not hasattr(model, "models_")
    wide = dd.from_pandas(FRAME, npartitions=3)
    with pytest.raises(ValueError, match="repartition"):
        model.fit(wide[["a"]], dd.from_pandas(FRAME.b, npartitions=2))


def test_columns_go_by_name_and_partitions_may_be_empty(client):
    table = FRAME.assign(y=Y)[["a", "b", "y"]]
    parts = dd.from_pandas(table, npartitions=4)
    model = DaskSphericalGPRegressor(30).fit(parts, target="y")
    model.refresh(parts[["b", "a"]], parts.y)
    assert model.to_local().score(table[["a", "b"]], Y) > 0.9
    some = parts[parts.a > 1.0][["a", "b"]]
    few = model.predict(some).compute()
    assert len(few) == (FRAME.a > 1.0).sum()
    none = da.concatenate([da.zeros((0, 2)), da.from_array(X[:, :2], chunks=(500, 2))])
    assert len(model.predict(none).compute()) == ROWS
    with pytest.raises(ValueError, match="goes with target"):
        model.fit(parts[["a", "b"]], parts.y, weight="b")
    with pytest.raises(ValueError, match="'nope' is missing"):
        model.fit(parts, target="nope")
    with pytest.raises(TypeError, match="to_local"):
        model.predict_dist(some)


def test_a_partition_that_counts_for_nothing(client):
    weights = np.ones(ROWS)
    weights[:200] = 0
    table, target = da.from_array(X, chunks=(200, 3)), da.from_array(Y, chunks=200)
    model = DaskSphericalGPRegressor(30)
    model.fit(table, target, sample_weight=da.from_array(weights, chunks=200))
    expected = SphericalGPRegressor(30, n_neighbors=0).fit(X, Y, sample_weight=weights)
    np.testing.assert_allclose(model.predict(X), expected.predict(X), atol=1e-6)


def test_a_client_is_neither_copied_nor_pickled(client):
    import pickle

    table, target = da.from_array(X, chunks=(200, 3)), da.from_array(Y, chunks=200)
    model = DaskSphericalGPRegressor(30, client=client).fit(table, target)
    assert clone(model).client is client
    assert model.emptied().client is client
    again = pickle.loads(pickle.dumps(model))
    assert again.client is None
    assert np.array_equal(again.predict(X), model.predict(X))


def counted(folder, source):
    """Rows, and the sum of their targets; the first look at row 300 is deadly."""
    rows, total = 0, 0.0
    for chunk in source.chunks(50):
        for value in chunk.y:
            if value == 300.0:
                try:
                    (folder / "seen").touch(exist_ok=False)
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)
        rows += len(chunk)
        total += float(chunk.y.sum())
    return rows, total


def added(one, other):
    return one[0] + other[0], one[1] + other[1]


def test_a_worker_that_dies_in_a_pass_loses_no_row(quick_processes, tmp_path):
    import functools

    y = np.arange(ROWS, dtype=float)
    with cluster(2, processes=True) as two, Client(two) as client:
        parts = [
            client.submit(Chunk, X[k : k + 100], y[k : k + 100])
            for k in range(0, ROWS, 100)
        ]
        source = DaskSource(client, parts, [100] * 7, 3)
        found = source.reduced(functools.partial(counted, tmp_path), added)
        assert (tmp_path / "seen").exists()
        assert found == (ROWS, y.sum())


def test_workers_that_die_at_up_to_ten_moments_of_fits(quick_processes, monkeypatch):
    fits = {
        "numbers": (DaskSphericalGPRegressor, SphericalGPRegressor, Y),
        "classes": (DaskSphericalGPClassifier, SphericalGPClassifier, CLASSES["two"]),
    }
    generator, deaths = np.random.default_rng(1), []
    gathered = zonal.dask.source.gather
    # A task that was on a dying worker more than three times is given up by default.
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 100}),
        cluster(2, processes=True) as two,
        Client(two) as client,
    ):

        def killed():
            # The one before is there again: a nanny whose worker dies while it starts
            # waits for it for ever, though the scheduler may know the worker already.
            living = [
                nanny.pid
                for nanny in two.workers.values()
                if nanny.process and nanny.process.status == Status.running
            ]
            if len(living) == len(two.scheduler.workers) == 2:
                os.kill(living[generator.integers(2)], signal.SIGKILL)
                deaths.append(time.time())

        def dying(client, future):
            timer = threading.Timer(generator.uniform(0, 0.1), killed)
            timer.start()
            try:
                return gathered(client, future)
            finally:
                timer.join()

        monkeypatch.setattr("zonal.dask.source.gather", dying)
        monkeypatch.setattr("zonal.dask.estimators.gather", dying)
        table = da.from_array(X, chunks=(100, 3))
        truth = {
            name: here(30, n_neighbors=0).fit(X, y).predict(X)
            for name, (_, here, y) in fits.items()
        }
        while len(deaths) < 10 and _back(client):
            for name, (there, _, y) in fits.items():
                expected = truth[name]
                model = there(30, client=client)
                model.fit(table, da.from_array(y, chunks=100))
                found = model.to_local().predict(X)
                if expected.dtype.kind == "f":
                    np.testing.assert_allclose(found, expected, atol=1e-6)
                else:
                    assert np.array_equal(found, expected)
        assert deaths


def _back(client):
    """Whether both workers live; a nanny now and then gives up one that died twice."""
    try:
        client.wait_for_workers(2, timeout=40)
    except TimeoutError:
        return False
    return True


def test_a_cluster_that_is_gone_is_said():
    table, target = da.from_array(X, chunks=(100, 3)), da.from_array(Y, chunks=100)
    model = DaskSphericalGPRegressor(30)
    with cluster(1) as one, Client(one, timeout="5s") as client:
        gone = []

        def close(step):
            if not gone:
                gone.append(time.time())
                one.close()

        model.set_params(client=client, callbacks=[close])
        with pytest.raises(LostClusterError, match="fit again"):
            model.fit(table, target)
    assert not hasattr(model, "models_")


@pytest.mark.parametrize("kind", ["numbers", "two"])
def test_a_fit_goes_on_where_a_lost_cluster_left_it(kind, tmp_path):
    path = tmp_path / "run.zonal"
    numbers = kind == "numbers"
    estimator = DaskSphericalGPRegressor if numbers else DaskSphericalGPClassifier
    table = da.from_array(X, chunks=(100, 3))
    target = da.from_array(Y if numbers else CLASSES[kind], chunks=100)
    seen = []
    with cluster(1) as one, Client(one, timeout="5s") as client:
        whole = estimator(30, client=client).fit(table, target)

        def close(step):
            # Classes are in the second pass over all rows by then.
            if step.stage == "learn 1" if numbers else (step.stage == "infer"):
                seen.append(step)
            if len(seen) == 2:
                one.close()

        model = estimator(30, client=client, callbacks=[close])
        with pytest.raises(LostClusterError, match=rf"{path}, and the same fit"):
            model.fit(table, target, checkpoint=path)
    assert path.exists()
    with cluster(2) as two, Client(two) as client:
        model.set_params(client=client, callbacks=[seen.append])
        model.fit(table, target, checkpoint=path)
    again = [step.stage for step in seen[2:]]
    assert ("learn 1" in again) == numbers
    assert not path.exists()
    read = "predict" if numbers else "predict_proba"
    expected = getattr(whole.to_local(), read)(X)
    assert np.array_equal(getattr(model.to_local(), read)(X), expected)


def test_small_partitions_of_a_worker_share_a_task(client, monkeypatch):
    monkeypatch.setattr("zonal.dask.source._TASK_ROWS", 100)
    counts = [10] * 30 + [0] + [80] * 9
    ends = np.cumsum([0, *counts])
    rows = np.random.default_rng(0).normal(size=(ends[-1], 3))
    pairs = itertools.pairwise(ends)
    chunks = [Chunk(rows[a:b], rows[a:b, 0]) for a, b in pairs]
    source = DaskSource(client, client.scatter(chunks), counts, 3)
    groups = source._groups()
    taken = sorted(itertools.chain(*groups))
    assert taken == [k for k, count in enumerate(counts) if count]
    assert len(groups) < 30
    assert all(sum(counts[k] for k in group) <= 100 for group in groups)
    starts = source.reduced(
        lambda part: [(part.first_row, part.n_rows)], lambda a, b: a + b
    )
    expected = [(int(a), n) for a, n in zip(ends[:-1], counts, strict=True) if n]
    assert sorted(starts) == expected
