"""Encodings of every kind of column in every kind of frame."""

import datetime

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from scipy.sparse import csr_matrix

from zonal.tables.columns import Columns

DAYS = [datetime.datetime(2024, 1, 1) + datetime.timedelta(days=n) for n in range(4)]
PARTS = {
    "age": [30.0, 40.0, 50.0, 20.0],
    "town": ["Ulm", "Bonn", "Ulm", "Kiel"],
    "yes": [True, False, True, True],
    "when": DAYS,
    "count": [1, 2, 3, 4],
}
SECONDS = [(day - datetime.datetime(1970, 1, 1)).total_seconds() for day in DAYS]
EXPECTED = np.column_stack(
    [
        PARTS["age"],
        [0, 1, 0, 0],
        [0, 0, 0, 1],
        [1, 0, 1, 0],
        PARTS["yes"],
        SECONDS,
        PARTS["count"],
    ]
).astype(np.float64)
FRAMES = {
    "pandas": pandas.DataFrame,
    "polars": polars.DataFrame,
    "pyarrow": pyarrow.table,
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_every_kind_of_column_in_every_kind_of_frame(frame):
    table = frame(PARTS)
    columns = Columns.learn(table)
    assert columns.outputs == [
        "age",
        "town=Bonn",
        "town=Kiel",
        "town=Ulm",
        "yes",
        "when",
        "count",
    ]
    np.testing.assert_array_equal(columns.matrix(table), EXPECTED)


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_the_order_of_columns_does_not_matter(frame):
    columns = Columns.learn(frame(PARTS))
    turned = frame(dict(reversed(PARTS.items())))
    np.testing.assert_array_equal(columns.matrix(turned), EXPECTED)


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_missing_values_are_errors_or_indicated(frame):
    table = frame({"a": [1.0, None, 3.0], "b": ["x", None, "y"], "c": [1, 2, None]})
    with pytest.raises(
        ValueError, match=r"column 'a' has 1 missing .*rows 1\).*impute"
    ):
        Columns.learn(table).matrix(table)
    columns = Columns.learn(table, missing="indicator")
    assert columns.outputs == [
        "a",
        "a:missing",
        "b=x",
        "b=y",
        "b:missing",
        "c",
        "c:missing",
    ]
    np.testing.assert_array_equal(
        columns.matrix(table),
        [[1, 0, 1, 0, 0, 1, 0], [2, 1, 0, 0, 1, 2, 0], [3, 0, 0, 1, 0, 1.5, 1]],
    )


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_columns_that_are_not_those_fitted_to(frame):
    columns = Columns.learn(frame({"a": [1.0, 2.0], "b": [3.0, 4.0]}))
    with pytest.raises(ValueError, match="column 'b' is missing"):
        columns.matrix(frame({"a": [1.0]}))
    with pytest.raises(ValueError, match="fitted without column 'c'"):
        columns.matrix(frame({"a": [1.0], "b": [1.0], "c": [1.0]}))
    with pytest.raises(ValueError, match=r"column 'a' was a number .* row 0 has 'one'"):
        columns.matrix(frame({"a": ["one"], "b": [1.0]}))
    with pytest.raises(ValueError, match=r"column 'a' was a number .* is a time now"):
        columns.matrix(frame({"a": DAYS[:1], "b": [1.0]}))


def test_an_unseen_category_is_all_zeros():
    columns = Columns.learn(pandas.DataFrame({"town": ["Ulm", "Bonn", "Kiel"]}))
    np.testing.assert_array_equal(
        columns.matrix(pandas.DataFrame({"town": ["Rom"]})), [[0, 0, 0]]
    )


@pytest.mark.parametrize("names", [[1, 2, 3], [2, 0, 1], [1.5, "a", ("b", 1)]])
def test_names_that_are_not_strings_are_matched_by_position(names):
    array = np.arange(6.0).reshape(2, 3)
    frame = pandas.DataFrame(array, columns=pandas.Index(names, dtype=object))
    columns = Columns.learn(frame)
    np.testing.assert_array_equal(columns.matrix(frame), array)
    np.testing.assert_array_equal(columns.matrix(array), array)


def test_a_single_row_of_missing_values():
    frame = pandas.DataFrame({"age": [30.0, None, 50.0], "town": ["Ulm", "Bonn", None]})
    columns = Columns.learn(frame, missing="indicator")
    single = pandas.DataFrame([{"age": None, "town": None}])
    np.testing.assert_array_equal(columns.matrix(single), [[40, 1, 0, 0, 1]])


@pytest.mark.parametrize("dtype", ["string", "string[pyarrow]", object])
def test_missing_values_in_pandas_types(dtype):
    strings = pandas.Series(["a", None, "b"], dtype="string").astype(dtype)
    whole = pandas.array([1, None, 3], dtype="Int64")
    frame = pandas.DataFrame({"text": strings, "whole": whole})
    columns = Columns.learn(frame, missing="indicator")
    expected = [[1, 0, 0, 1, 0], [0, 0, 1, 2, 1], [0, 1, 0, 3, 0]]
    np.testing.assert_array_equal(columns.matrix(frame), expected)
    np.testing.assert_array_equal(columns.matrix(frame.to_numpy()), expected)


def test_all_types_of_times_agree():
    stamps = pandas.Series(np.array(["1600-01-01", "2024-02-29T12:00:00.5"], "M8[us]"))
    expected = [-11676096000.0, 1709208000.5]
    columns = Columns.learn(stamps.to_frame("t"))
    for table in (
        stamps.to_frame("t"),
        stamps.astype(object).to_frame("t"),
        pyarrow.table({"t": [stamp.to_pydatetime() for stamp in stamps]}),
    ):
        np.testing.assert_allclose(columns.matrix(table)[:, 0], expected, atol=1e-5)
    far = pandas.DataFrame({"t": np.array(["9999-12-31"], "M8[s]")})
    assert columns.matrix(far)[0, 0] == 253402214400.0
    aware = stamps[1:].dt.tz_localize("UTC").to_frame("t")
    np.testing.assert_allclose(columns.matrix(aware)[0, 0], expected[1], atol=1e-5)
    days = pandas.DataFrame({"t": [datetime.date(2024, 2, 29)]}, dtype=object)
    assert columns.matrix(days)[0, 0] == 1709164800.0


def test_categories_that_are_intervals():
    ages = pandas.cut(pandas.Series([1, 5, 9]), [0, 3, 6, 10])
    frame = pandas.DataFrame({"age": ages})
    columns = Columns.learn(frame)
    assert columns.outputs == ["age=(0, 3]", "age=(3, 6]", "age=(6, 10]"]
    np.testing.assert_array_equal(columns.matrix(frame), np.eye(3))


def test_numbers_where_strings_were_fitted():
    columns = Columns.learn(pandas.DataFrame({"code": ["01", "02", "03"]}))
    with pytest.raises(ValueError, match=r"column 'code' was a category .* number now"):
        columns.matrix(pandas.DataFrame({"code": [1, 2]}))


def test_only_frequent_categories_have_a_column():
    names = [f"town {number:03}" for number in range(200) for _ in range(number + 1)]
    columns = Columns.learn(pandas.DataFrame({"town": names}))
    assert len(columns.outputs) == 50
    assert columns.outputs[-1] == "town=town 199"


def test_numbers_can_be_categories():
    array = np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]])
    columns = Columns.learn(array, categories=[0])
    assert columns.outputs == ["0=1.0", "0=2.0", "0=3.0", "1"]
    with pytest.raises(ValueError, match="names column 9"):
        Columns.learn(array, categories=[9])


def test_strings_can_be_made_an_error():
    with pytest.raises(ValueError, match="column 'town' holds strings"):
        Columns.learn(pandas.DataFrame({"town": ["Ulm"]}), categories="error")


def test_times_show_their_cycles():
    hours = pandas.date_range("2024-01-01", periods=24 * 20, freq="h")
    columns = Columns.learn(pandas.DataFrame({"when": hours}))
    assert columns.outputs == [
        "when",
        "when:sin_day",
        "when:cos_day",
        "when:sin_week",
        "when:cos_week",
    ]
    matrix = columns.matrix(pandas.DataFrame({"when": hours}))
    np.testing.assert_allclose(matrix[:24, 1:3], matrix[24:48, 1:3], atol=1e-9)
    np.testing.assert_allclose(matrix[6, 1:3], [1, 0], atol=1e-9)


def test_latitude_and_longitude_become_a_unit_vector():
    table = pandas.DataFrame({"lat": [90.0, 0.0], "t": [1.0, 2.0], "lon": [0.0, 90.0]})
    columns = Columns.learn(table, place=("lat", "lon"))
    assert columns.outputs == ["lat:x", "lat:y", "lat:z", "t"]
    np.testing.assert_allclose(
        columns.matrix(table), [[0, 0, 1, 1], [0, 1, 0, 2]], atol=1e-12
    )
    np.testing.assert_allclose(columns.shares(np.array([1.0, 2, 3, 4])), [6, 4, 0])
    with pytest.raises(ValueError, match="latitude in row 0 is 91"):
        columns.matrix(table.assign(lat=91.0))
    with pytest.raises(ValueError, match="a place must name"):
        Columns.learn(table, place=("lat", "nowhere"))


def test_plain_arrays_are_not_copied():
    array = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    assert Columns.learn(array).matrix(array) is array


def test_lists_and_object_arrays():
    rows = [[1, "a"], [2, "b"], [3, "c"]]
    columns = Columns.learn(rows)
    assert columns.outputs == ["0", "1=a", "1=b", "1=c"]
    assert columns.matrix(np.array(rows, object)).shape == (3, 4)
    with pytest.raises(TypeError, match="must be a string or a number"):
        Columns.learn(np.array([[{}], [1]], object))


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (csr_matrix(np.eye(3)), TypeError, "TruncatedSVD"),
        (np.zeros(3), ValueError, "Reshape your data"),
        (np.zeros((0, 3)), ValueError, "0 sample"),
        (np.zeros((3, 0)), ValueError, "0 feature"),
        (np.array([[1.0], [np.inf]]), ValueError, r"column 0 has 1 infinite.*rows 1"),
        (np.array([[1.0], [np.nan]]), ValueError, r"column 0 has 1 missing.*rows 1"),
        (np.array([[1.0 + 2j]]), ValueError, "Complex"),
    ],
)
def test_bad_tables_raise(table, error, message):
    with pytest.raises(error, match=message):
        Columns.learn(table).matrix(table)


@pytest.mark.parametrize("choice", [{"missing": "drop"}, {"categories": "all"}])
def test_unknown_settings_raise(choice):
    with pytest.raises(ValueError, match="not '"):
        Columns.learn(np.zeros((3, 1)), **choice)


def test_two_columns_of_one_name():
    table = pandas.DataFrame(np.zeros((3, 2)), columns=["a", "a"])
    with pytest.raises(ValueError, match="unique"):
        Columns.learn(table)
