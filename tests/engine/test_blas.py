"""BLAS called directly, against NumPy."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonal.engine.blas import single_threaded_blas, triangular_product


@given(
    st.integers(0, 20),
    st.integers(0, 8),
    st.integers(0, 5),
    st.integers(0, 5),
    st.booleans(),
    st.sampled_from([np.float32, np.float64]),
)
def test_triangular_product(rows, size, before, after, transposed, dtype):
    generator = np.random.default_rng(0)
    table = generator.normal(size=(rows, before + size + after)).astype(dtype)
    factor = generator.normal(size=(size, size)).astype(dtype)
    columns = slice(before, before + size)
    lower = np.tril(factor)
    expected = table.copy()
    expected[:, columns] = table[:, columns] @ (lower if transposed else lower.T)
    triangular_product(table, columns, factor, transposed)
    np.testing.assert_allclose(table, expected, rtol=1e-4, atol=1e-5)


def test_threads_do_not_disturb_each_other():
    generator = np.random.default_rng(1)
    factor = np.tril(generator.normal(size=(60, 60)))
    tables = [generator.normal(size=(500, 70)) for _ in range(16)]
    expected = [table[:, 5:65] @ factor.T for table in tables]
    with single_threaded_blas(), ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda t: triangular_product(t, slice(5, 65), factor), tables))
    for table, truth in zip(tables, expected, strict=True):
        np.testing.assert_allclose(table[:, 5:65], truth, atol=1e-12)


@pytest.mark.parametrize(
    ("rows", "factor", "message"),
    [
        (np.ones((3, 4)), np.ones((3, 3)), "cannot be multiplied"),
        (np.ones((3, 4)), np.ones((2, 2), np.float32), "cannot be multiplied"),
        (np.ones((4, 3)).T, np.ones((2, 2)), "contiguous"),
    ],
)
def test_what_does_not_fit_is_refused(rows, factor, message):
    with pytest.raises(ValueError, match=message):
        triangular_product(rows, slice(0, 2), factor)
