"""Files: what is written is read, to the last bit, and nothing else is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import zonal.saving
from zonal import ARD, Basis, ContinuousDepth, FreeSpectrum, Softmax
from zonal.prior.parameters import named
from zonal.prior.process import Process
from zonal.saving import FileError, read, write

SIMPLE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner)
    ),
    max_leaves=8,
)


@given(value=SIMPLE)
def test_plain_values_come_back(value, tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "file"
    write(path, {"value": value}, "test")
    found = read(path, "test")["value"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.float32([1.5, np.nan, np.inf]),
        np.array(["a", "ö"]),
        np.array(7.0),
        np.zeros((0, 3)),
        np.array([True, False]),
    ],
)
def test_arrays_come_back_as_they_were(array, tmp_path):
    write(tmp_path / "file", {"array": array}, "test")
    found = read(tmp_path / "file", "test")["array"]
    np.testing.assert_array_equal(found, array)
    if array.dtype.kind != "U":
        assert found.dtype == array.dtype
    assert found.flags.c_contiguous == array.flags.c_contiguous or array.ndim != 2


@pytest.mark.parametrize(
    "kernel", [ContinuousDepth(0.3, 12), FreeSpectrum(np.full(5, 0.2))]
)
def test_a_process_comes_back(kernel, tmp_path):
    process = Process(Basis.build(ARD.isotropic(3), kernel, 30), 0.1)
    write(tmp_path / "file", {"process": process, "kind": Softmax(3)}, "test")
    found = read(tmp_path / "file", "test")
    assert found["kind"] == Softmax(3)
    before, after = named(process), named(found["process"])
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_what_cannot_be_stored_is_refused_and_leaves_no_file(tmp_path):
    with pytest.raises(TypeError, match="cannot save an instance of object"):
        write(tmp_path / "file", {"value": object()}, "test")
    assert list(tmp_path.iterdir()) == []


def test_a_failing_write_leaves_the_file_before(tmp_path):
    path = tmp_path / "file"
    write(path, {"value": 1}, "test")
    with pytest.raises(TypeError):
        write(path, {"value": object()}, "test")
    assert read(path, "test") == {"value": 1}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "not a file of zonal"),
        (lambda data: b"not a file", "not a file of zonal"),
        (lambda data: data[: len(data) // 2], "is truncated"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "damaged or was altered"),
        (lambda data: data.replace(b'\\"$dict\\"', b'\\"$dic1\\"'), "altered"),
        (lambda data: data.replace(b'"format":"2"', b'"format":"9"'), "update zonal"),
        (lambda data: data.replace(b'"zonal":"test"', b'"zonal":"tent"'), "not a test"),
    ],
)
def test_damage_is_noticed(damage, message, tmp_path):
    path = tmp_path / "file"
    write(path, {"array": np.arange(5.0)}, "test")
    whole = path.read_bytes()
    damaged = damage(whole)
    assert damaged != whole
    path.write_bytes(damaged)
    with pytest.raises(FileError, match=message):
        read(path, "test")


def test_a_stranger_is_never_made(tmp_path, monkeypatch):
    """A file that names a class of its own choosing runs nothing."""
    path = tmp_path / "file"
    process = Process(Basis.build(ARD.isotropic(1), ContinuousDepth(), 9), 0.1)
    write(path, {"value": process}, "test")
    monkeypatch.delitem(zonal.saving._KINDS, "Process")
    with pytest.raises(FileError, match="not a class that zonal saves"):
        read(path, "test")


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nowhere", "test")
