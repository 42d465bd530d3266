"""Models fitted to files are those fitted to the same rows in memory."""

import time

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from limits import few_rows_are_many

import zonal.tables.batches
from zonal import SphericalGPClassifier, SphericalGPRegressor, Stream
from zonal.tables.batches import BatchReader, read_ahead
from zonal.tables.streams import StreamSource, stream_of

ROWS = 700


@pytest.fixture(autouse=True)
def small(monkeypatch):
    few_rows_are_many(monkeypatch)


def frame(rows=ROWS, seed=0):
    generator = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "a": generator.normal(size=rows),
            "town": generator.choice(["Ulm", "Bonn", "Kiel"], rows),
            "day": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(generator.integers(0, 900, rows), "D"),
            "b": np.where(generator.random(rows) < 0.1, np.nan, generator.random(rows)),
            "times": generator.integers(0, 3, rows),
        }
    )
    table["y"] = (
        np.sin(2 * table.a) + (table.town == "Ulm") + 0.1 * generator.normal(size=rows)
    )
    table["class"] = np.where(table.y > 0.5, "high", "low")
    table["third"] = np.select([table.y > 0.8, table.y < 0], ["up", "down"], "mid")
    return table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same rows as files: one, several in a folder, CSV, Feather."""
    path = tmp_path_factory.mktemp("tables")
    table = pa.Table.from_pandas(frame(), preserve_index=False)
    pq.write_table(table, path / "one.parquet", row_group_size=150)
    (path / "many").mkdir()
    for number, start in enumerate(range(0, ROWS, 250)):
        part = table.slice(start, 250)
        pq.write_table(part, path / "many" / f"part-{number}.parquet")
    pa.csv.write_csv(table, path / "one.csv")
    pyarrow.feather.write_feather(table, path / "one.feather")
    return path


INPUTS = ["a", "town", "day", "b", "times"]


def regressor():
    return SphericalGPRegressor(
        n_features=40, n_neighbors=0, solve_features=40, missing="indicator"
    )


@pytest.fixture(scope="module")
def in_memory():
    """Fitted to the frame, under the same limits as the streams."""
    with pytest.MonkeyPatch.context() as patch:
        few_rows_are_many(patch)
        table = frame()
        return regressor().fit(table[INPUTS], table.y)


def opened(folder, kind):
    return {
        "path": lambda: folder / "one.parquet",
        "text": lambda: str(folder / "one.parquet"),
        "folder": lambda: folder / "many",
        "pattern": lambda: folder / "many" / "part-*.parquet",
        "csv": lambda: folder / "one.csv",
        "feather": lambda: folder / "one.feather",
        "dataset": lambda: pyarrow.dataset.dataset(folder / "many"),
        "table": lambda: pq.read_table(folder / "one.parquet"),
        "polars": lambda: pl.read_parquet(folder / "one.parquet"),
        "pandas": frame,
        "frames": lambda: Stream.of([frame()[:300], frame()[300:]]),
        "spooled": lambda: Stream.of(
            (frame()[start : start + 90] for start in range(0, ROWS, 90)), spool=True
        ),
        "reader": lambda: Stream.of(
            pq.read_table(folder / "one.parquet").to_reader(max_chunksize=99),
            spool=True,
        ),
    }[kind]()


KINDS = [
    "path",
    "text",
    "folder",
    "pattern",
    "csv",
    "feather",
    "dataset",
    "table",
    "polars",
    "pandas",
]
KINDS += ["frames", "spooled", "reader"]


@pytest.mark.parametrize("kind", KINDS)
def test_files_give_the_model_of_the_frame(folder, in_memory, kind):
    columns = Stream.of(frame()[["y", *INPUTS]]).names
    source = opened(folder, kind)
    stream = source if isinstance(source, Stream) else stream_of(source)
    stream = Stream.of(source) if stream is None else stream
    assert stream.n_rows == ROWS
    chosen = _Only(stream, columns)
    model = regressor().fit(chosen, target="y")
    places = frame(200, seed=1)
    mean, std = model.predict(places[INPUTS], return_std=True)
    expected, deviation = in_memory.predict(places[INPUTS], return_std=True)
    np.testing.assert_allclose(mean, expected, atol=1e-6)
    np.testing.assert_allclose(std, deviation, atol=1e-6)
    assert model.columns_.names == [*INPUTS]


@pytest.mark.parametrize("kind", ["folder", "csv", "reader"])
def test_rows_from_files_are_stored_as_those_of_the_frame(folder, kind):
    table = frame()[["y", *INPUTS]]
    expected = SphericalGPRegressor(missing="indicator").fit(table[INPUTS], table.y)
    source = opened(folder, kind)
    stream = source if isinstance(source, Stream) else stream_of(source)
    model = SphericalGPRegressor(missing="indicator")
    model.fit(_Only(stream, list(table)), target="y")
    assert model.n_samples_seen_ == ROWS
    places = frame(100, seed=1)
    np.testing.assert_allclose(
        model.predict(places[INPUTS]), expected.predict(places[INPUTS]), atol=1e-4
    )
    more = frame(50, seed=2)[[*INPUTS, "y"]]
    before = model.predict(places[INPUTS])
    path = folder / "more.parquet"
    more.to_parquet(path)
    model.partial_fit(path, target="y").forget(path, target="y")
    np.testing.assert_allclose(model.predict(places[INPUTS]), before, atol=1e-5)


class _Only(BatchReader):
    """A stream with some of its columns, inputs in the order of the frame."""

    def __init__(self, stream, names):
        self._stream, self._names = stream, [*names[1:], names[0]]

    @property
    def names(self):
        return self._names

    @property
    def n_rows(self):
        return self._stream.n_rows

    def batches(self, columns=None):
        return self._stream.batches(self._names if columns is None else columns)


@pytest.mark.parametrize("target", ["class", "third"])
def test_classes_from_files(folder, target):
    table = frame()
    model = SphericalGPClassifier(n_features=40, missing="indicator")
    whole = model.fit(table[INPUTS], table[target])
    expected = whole.predict_proba(table[INPUTS])
    classes = list(whole.classes_)
    kept = table[[*INPUTS, target]]
    path = folder / f"{target}.parquet"
    kept.to_parquet(path)
    model = SphericalGPClassifier(n_features=40, missing="indicator")
    model.fit(path, target=target)
    assert list(model.classes_) == classes
    np.testing.assert_allclose(model.predict_proba(path), expected, atol=1e-6)


def test_weights_in_a_column(folder):
    table = frame()[[*INPUTS, "y"]]
    weighted = regressor().fit(table, target="y", weight="times")
    inputs = table.drop(columns=["y", "times"])
    expected = regressor().fit(inputs, table.y, sample_weight=table.times)
    np.testing.assert_allclose(
        weighted.predict(inputs), expected.predict(inputs), atol=1e-6
    )


def counted(rows=ROWS):
    """Counts beside the hours that they were counted in."""
    table = frame(rows)[["a", "town", "times", "y"]]
    generator = np.random.default_rng(5)
    table["hours"] = generator.uniform(0.5, 5, rows)
    table["count"] = generator.poisson(table.hours * np.exp(table.y))
    return table.drop(columns="y")


@pytest.mark.parametrize("rows", [ROWS, 120])
def test_exposures_in_a_column(tmp_path, rows):
    table, path = counted(rows), tmp_path / "counts.parquet"
    table.to_parquet(path)
    model = SphericalGPRegressor(n_features=20, likelihood="poisson")
    model.fit(path, target="count", weight="times", exposure="hours")
    assert model.columns_.names == ["a", "town"]
    inputs, hours = table[["a", "town"]], table.hours
    whole = SphericalGPRegressor(n_features=20, likelihood="poisson")
    whole.fit(inputs, table["count"], table.times, exposure=hours)
    expected = whole.predict(inputs)
    np.testing.assert_allclose(model.predict(inputs), expected, atol=1e-6)
    np.testing.assert_allclose(model.predict(path), expected, atol=1e-6)
    for given in (path, table, pl.from_pandas(table)):
        found = model.predict(given, exposure="hours")
        np.testing.assert_allclose(found, hours * expected, rtol=1e-6)
    found = model.predict(path, exposure=hours)
    np.testing.assert_allclose(found, hours * expected, rtol=1e-6)
    model.partial_fit(path, target="count", weight="times", exposure="hours")
    whole.partial_fit(inputs, table["count"], table.times, exposure=hours)
    np.testing.assert_allclose(model.predict(inputs), whole.predict(inputs), rtol=1e-4)


def test_bad_exposures_in_files_are_named(tmp_path):
    table, path = counted(), tmp_path / "counts.parquet"
    model = SphericalGPRegressor(n_features=20, likelihood="poisson")
    good = model.fit(table, target="count", exposure="hours")
    for wrong, shown in ((0.0, "0"), (np.nan, "nan")):
        table.loc[333, "hours"] = wrong
        table.to_parquet(path)
        message = rf"counts.parquet: exposure must .* positive; row 333 has {shown}"
        with pytest.raises(ValueError, match=message):
            good.fit(path, target="count", exposure="hours")
        with pytest.raises(ValueError, match=message):
            good.predict(path, exposure="hours")
    with pytest.raises(ValueError, match="'minutes' is missing"):
        good.predict(path, exposure="minutes")
    with pytest.raises(ValueError, match="exposure must be the name of a column"):
        good.fit(path, target="count", exposure=table.hours)
    with pytest.raises(ValueError, match="pass weight=, the name of a column"):
        good.fit(path, None, table.times, target="count")


def test_several_targets(folder):
    table = frame()[["a", "times", "y"]]
    table["z"] = -2 * table.y
    model = SphericalGPRegressor(n_features=30).fit(table, target=["y", "z"])
    expected = SphericalGPRegressor(n_features=30).fit(
        table[["a", "times"]], table[["y", "z"]]
    )
    inputs = table[["a", "times"]]
    assert model.predict(inputs).shape == (ROWS, 2)
    np.testing.assert_allclose(
        model.predict(inputs), expected.predict(inputs), atol=1e-6
    )


def test_life_after_the_fit_from_files(folder, in_memory):
    table = frame(300, seed=2)[[*INPUTS, "y"]]
    model = regressor().fit(folder_table(folder), target="y")
    before = model.predict(table[INPUTS])
    path = folder / "more.parquet"
    table.to_parquet(path)
    model.partial_fit(path, target="y")
    assert not np.allclose(model.predict(path), before, atol=1e-4)
    model.forget(path, target="y")
    np.testing.assert_allclose(model.predict(path), before, atol=1e-6)
    larger = model.copy_with(path, target="y", n_features=60)
    assert larger.process_.basis.n_features > model.process_.basis.n_features


def folder_table(folder):
    return frame()[[*INPUTS, "y"]]


def test_a_filter_leaves_rows_out(folder):
    import pyarrow.compute as pc

    stream = Stream.files(folder / "one.parquet", filter=pc.field("a") > 0)
    assert stream.n_rows == int((frame().a > 0).sum())
    kept = pd.concat([batch.frame.to_pandas() for batch in stream.batches(["a", "y"])])
    assert list(kept.columns) == ["a", "y"]
    assert (kept.a > 0).all()


@pytest.mark.parametrize("rows", [ROWS, 120])
def test_errors_say_that_rows_are_counted_after_the_filter(tmp_path, rows):
    import pyarrow.compute as pc

    table = frame(rows)[["a", "y"]].sort_values("y", ignore_index=True)
    table.loc[60, "a"] = np.inf
    table.to_parquet(tmp_path / "t.parquet")
    stream = Stream.files(
        tmp_path / "t.parquet", filter=pc.field("y") >= float(table.y[50])
    )
    with pytest.raises(ValueError, match=r"t.parquet, of the rows kept by .*rows 10\)"):
        SphericalGPRegressor(n_features=20).fit(stream, target="y")


def test_lazy_frames_raise():
    lazy = pl.from_pandas(frame()[["a", "y"]]).lazy()
    model = SphericalGPRegressor(n_features=20).fit(frame(50)[["a"]], frame(50).y)
    for attempt in (
        lambda: SphericalGPRegressor().fit(lazy.select("a"), frame().y),
        lambda: SphericalGPRegressor().fit(lazy, target="y"),
        lambda: model.predict(lazy.select("a")),
    ):
        with pytest.raises(TypeError, match=r"LazyFrame .*pass X.collect\(\)"):
            attempt()


def test_a_small_file_gives_the_model_of_the_frame(folder):
    table = frame(120)[["a", "y"]]
    path = folder / "few.parquet"
    table.to_parquet(path)
    model = SphericalGPRegressor(n_features=30).fit(path, target="y")
    expected = SphericalGPRegressor(n_features=30).fit(table[["a"]], table.y)
    assert np.array_equal(model.predict(table[["a"]]), expected.predict(table[["a"]]))


BAD = {
    "nothing": (lambda f: (f / "none.parquet", {"target": "y"}), "no file"),
    "no target": (lambda f: (f / "one.parquet", {}), "pass target="),
    "both": (lambda f: (frame(), {"target": "y", "y": [1]}), "not both"),
    "unknown target": (
        lambda f: (f / "one.parquet", {"target": "z"}),
        "'z' is missing",
    ),
    "unknown weight": (
        lambda f: (f / "one.parquet", {"target": "y", "weight": "w"}),
        "'w' is missing",
    ),
    "lonely weight": (lambda f: (frame(), {"weight": "times"}), "goes with target"),
    "only once": (lambda f: (Stream.of(iter([])), {}), "only once"),
    "unknown kind": (lambda f: (f / "one.what", {"target": "y"}), "format"),
    "not parquet": (lambda f: (f / "fake.parquet", {"target": "y"}), "fake.parquet"),
    "no inputs": (
        lambda f: (frame()[["y"]], {"target": "y"}),
        "no input columns",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_raise(folder, case):
    (folder / "one.what").write_text("a,y\n1,2\n")
    (folder / "fake.parquet").write_text("not at all")
    make, message = BAD[case]

    def attempt():
        table, options = make(folder)
        SphericalGPRegressor().fit(table, **options)

    with pytest.raises((ValueError, OSError), match=message):
        attempt()


def test_errors_name_the_file_and_the_row(folder, tmp_path):
    table = frame()[["a", "y"]]
    for number, start in enumerate(range(0, ROWS, 200)):
        part = table[start : start + 200].copy()
        if number == 2:
            part.iloc[7, 0] = np.nan
        part.to_parquet(tmp_path / f"part-{number}.parquet")
    with pytest.raises(ValueError, match=r"part-2.parquet.*'a'.*rows 7"):
        SphericalGPRegressor(n_features=20).fit(tmp_path, target="y")
    table.loc[333, "y"] = np.inf
    path = tmp_path / "infinite.parquet"
    table.to_parquet(path)
    with pytest.raises(ValueError, match=r"infinite.parquet.*y contains infinity"):
        SphericalGPRegressor(n_features=20).fit(path, target="y")


def test_a_missing_column_at_prediction_is_named(folder, in_memory):
    path = folder / "narrow.parquet"
    frame(20)[["a", "town"]].to_parquet(path)
    with pytest.raises(ValueError, match="'day' is missing"):
        in_memory.predict(path)


def test_chunks_have_one_size_and_the_order_of_the_rows(folder):
    stream = Stream.files(folder / "many")

    def encode(part, first_row):
        from zonal.tables.chunks import Chunk

        a = part.column("a").to_numpy()
        return Chunk(a[:, None], a)

    source = StreamSource(stream, ["a"], encode, 1)
    chunks = list(source.chunks(100))
    assert [len(chunk) for chunk in chunks] == [100] * 7
    assert np.array_equal(np.concatenate([one.y for one in chunks]), frame().a)
    everything = source.sample(50, seed=4)
    from zonal import ArraySource

    expected = ArraySource(frame().a.to_numpy()[:, None], frame().a).sample(50, seed=4)
    assert np.array_equal(everything.y, expected.y)


def test_reading_ahead_keeps_order_and_errors():
    assert list(read_ahead(iter(range(20)))) == list(range(20))

    def fails():
        yield 1
        raise ValueError("no more")

    ahead = read_ahead(fails())
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="no more"):
        next(ahead)


def test_a_reader_that_stops_early_ends_the_thread():
    import threading

    ahead = read_ahead(iter(range(1000)))
    next(ahead)
    ahead.close()
    assert not [one for one in threading.enumerate() if one.name == "zonal-read-ahead"]


def test_streams_without_pyarrow_say_what_to_install(monkeypatch):
    import builtins

    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(
        zonal.tables.batches.importlib, "import_module", lambda name: without(name)
    )
    with pytest.raises(ImportError, match="zonal\\[parquet\\]"):
        Stream.files("some.parquet")


def test_time_zones_are_the_same_from_file_and_frame(tmp_path):
    hours = pd.date_range("2024-01-01", periods=400, freq="h", tz="America/New_York")
    table = pd.DataFrame({"t": hours, "y": np.sin(2 * np.pi * hours.hour / 24)})
    table.to_parquet(tmp_path / "t.parquet")
    model = SphericalGPRegressor(n_features=30).fit(tmp_path / "t.parquet", target="y")
    for other in (table[["t"]], pl.from_pandas(table[["t"]])):
        np.testing.assert_allclose(
            model.predict(other), model.predict(tmp_path / "t.parquet"), atol=1e-9
        )


def test_the_index_of_pandas_is_not_an_input(tmp_path):
    table = frame()[["a", "b", "y"]].dropna()
    table[table.a > 0].to_parquet(tmp_path / "filtered.parquet")
    table.set_index("b").to_parquet(tmp_path / "named.parquet")
    assert Stream.files(tmp_path / "filtered.parquet").names == ["a", "b", "y"]
    assert Stream.files(tmp_path / "named.parquet").names == ["a", "y"]
    halves = (table[table.a > 0], table[table.a <= 0].reset_index(drop=True))
    assert Stream.of(iter(halves), spool=True).names == ["a", "b", "y"]


def test_folders_with_keys_hidden_files_and_differing_columns(tmp_path):
    table = frame()[["a", "y"]]
    for key, part in (("u", table[:300]), ("v", table[300:])):
        (tmp_path / f"k={key}").mkdir()
        part.to_parquet(tmp_path / f"k={key}" / "part.parquet", index=False)
    (tmp_path / "_temporary").mkdir()
    table.to_parquet(tmp_path / "_temporary" / "part.parquet", index=False)
    stream = Stream.files(tmp_path)
    assert stream.n_rows == ROWS
    assert sorted(stream.names) == ["a", "k", "y"]
    other = tmp_path / "more"
    other.mkdir()
    whole = table[:300].assign(a=np.arange(300))
    whole.to_parquet(other / "0.parquet", index=False)
    table[300:].assign(c=1.5).to_parquet(other / "1.parquet", index=False)
    stream = Stream.files(other)
    assert sorted(stream.names) == ["a", "c", "y"]
    read = pd.concat([one.frame.to_pandas() for one in stream.batches(["a", "c"])])
    assert read.a.iloc[400] == table.a.iloc[400]
    assert read.c.isna().sum() == 300


def test_strings_in_csv_files(tmp_path):
    (tmp_path / "gaps.csv").write_text("s,y\n" + "u,1\n,2\n" * 10)
    with pytest.raises(ValueError, match="'s' has 10 missing"):
        SphericalGPRegressor().fit(tmp_path / "gaps.csv", target="y")
    (tmp_path / "latin.csv").write_bytes(("s,y\nKöln,1\nUlm,2\n" * 9).encode("latin1"))
    with pytest.raises(TypeError, match="UTF-8"):
        SphericalGPRegressor().fit(tmp_path / "latin.csv", target="y")


def test_the_unreadable_file_is_the_one_named(tmp_path):
    table = frame()[["a", "y"]]
    table[:300].to_parquet(tmp_path / "0.parquet", index=False)
    table[300:].assign(a="x").to_parquet(tmp_path / "1.parquet", index=False)
    with pytest.raises(ValueError, match="same name but different types"):
        SphericalGPRegressor().fit(tmp_path, target="y")


def test_tables_without_rows_raise(tmp_path):
    import pyarrow.compute as pc

    table = frame()[["a", "y", "times"]].assign(times=0)
    table.to_parquet(tmp_path / "t.parquet", index=False)
    path = tmp_path / "t.parquet"
    with pytest.raises(ValueError, match="every weight is zero"):
        SphericalGPRegressor(n_features=20).fit(path, target="y", weight="times")
    empty = Stream.files(path, filter=pc.field("a") > 1e9)
    with pytest.raises(ValueError, match="no rows"):
        SphericalGPRegressor(n_features=20).fit(empty, target="y")
    model = SphericalGPRegressor(n_features=20).fit(table[["a"]][:50], table.y[:50])
    with pytest.raises(ValueError, match="no rows"):
        model.predict(empty)
    gaps = table.assign(kind=np.where(table.a > 0, "p", None))
    with pytest.raises(ValueError, match="is missing; remove or name"):
        SphericalGPClassifier(n_features=20).fit(gaps, target="kind")


def test_lists_of_files(folder):
    paths = sorted((folder / "many").iterdir())
    assert stream_of(paths).n_rows == ROWS
    assert stream_of([[1.0, 2.0], [3.0, 4.0]]) is None


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", ":"])
def test_delimiters_are_detected_from_the_first_line(tmp_path, delimiter):
    path = tmp_path / "rows.csv"
    path.write_text(f"a{delimiter}b{delimiter}c\n1{delimiter}2{delimiter}3\n")
    detected = Stream.files(path)
    assert detected.names == (["a:b:c"] if delimiter == ":" else ["a", "b", "c"])
    assert Stream.files(path, delimiter=delimiter).names == ["a", "b", "c"]


def test_types_are_inferred_from_more_than_the_first_rows(tmp_path):
    path = tmp_path / "late.csv"
    path.write_text("x,y\n" + "1,2\n" * 400_000 + "1.5,2\n")
    total = sum(
        batch.frame.to_pandas().x.sum() for batch in Stream.files(path).batches(["x"])
    )
    assert total == 400_001.5


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_long_file_is_not_held_while_it_is_read(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("zonal.tables.batches.BATCH_ROWS", 65_536)
    column = np.random.default_rng(0).normal(size=1_000_000)
    table = pa.table(dict.fromkeys("abcd", column))
    if kind == "csv":
        table = table.slice(0, 500_000)
        pa.csv.write_csv(table, tmp_path / "long.csv")
    else:
        parquet = {"row_group_size": 50_000, "use_dictionary": False}
        pq.write_table(table, tmp_path / "long.parquet", **parquet)
    size = table.nbytes
    del table
    before, most = pa.total_allocated_bytes(), 0
    for batch in Stream.files(tmp_path / f"long.{kind}").batches():
        time.sleep(0.05 * len(batch.frame) / 65_536)  # as long as learning from it
        most = max(most, pa.total_allocated_bytes() - before)
    # (CSV blocks of a megabyte are dozens ahead, whatever the length.)
    assert most < (size / 3 if kind == "parquet" else 40e6)


def test_datasets_in_memory_and_unions_of_them():
    table = pa.table({"x": [1.0, 2.0], "y": [3.0, 4.0]})
    whole = pa.dataset.dataset(table)
    both = Stream.of(pa.dataset.dataset([whole, whole]))
    assert both.n_rows == 4
    read = [batch.frame["y"].to_pylist() for batch in both.batches(["y"])]
    assert read == [[3.0, 4.0], [3.0, 4.0]]


def test_filters_of_csv_files(tmp_path):
    (tmp_path / "some.csv").write_text("a,b\n1,2\n3,4\n5,6\n")
    stream = Stream.files(tmp_path / "some.csv", filter=pa.compute.field("a") > 1)
    assert stream.n_rows == 2
    assert [one.frame["b"].to_pylist() for one in stream.batches(["b"])] == [[4, 6]]
