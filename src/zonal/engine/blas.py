"""Triangular products that release the interpreter's lock, and limits on BLAS threads.

NumPy releases the interpreter's lock while BLAS works, but has no triangular product.
SciPy has one, but it holds the lock, copies its argument and requires it to be
contiguous. This module therefore calls SciPy's own BLAS directly.
"""

import ctypes
import functools
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from scipy.linalg import cython_blas  # pyright: ignore[reportAttributeAccessIssue]
from threadpoolctl import ThreadpoolController

__all__ = ["single_threaded_blas", "suited_blas", "triangular_product"]

_MANY_FEATURES = 1500


class _BlasLimit:
    """One limit for the whole process: the first to enter sets it, the last lifts it.

    Streams of chunks that are read concurrently leave it in any order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._active_limit: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._active_limit = _controller().limit(limits=1, user_api="blas")
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._active_limit.restore_original_limits()


@functools.lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


_limit = _BlasLimit()


def single_threaded_blas() -> AbstractContextManager:
    """Return a context in which BLAS uses only the calling thread."""
    return _limit()


def suited_blas(features: int) -> AbstractContextManager:
    """Return a context for work on square matrices with ``features`` columns.

    BLAS uses all cores for large matrices only: for small ones, waiting for the cores
    of a busy machine costs more than it saves.
    """
    return _limit() if features <= _MANY_FEATURES else nullcontext()


def triangular_product(
    rows: np.ndarray, columns: slice, factor: np.ndarray, transposed: bool = False
) -> None:
    """Multiply some columns of a table of rows by a triangular matrix, in place.

    ``rows[:, columns]`` becomes itself times ``factor.T``, or times ``factor`` if
    transposed. The factor is lower triangular; entries above its diagonal are ignored.

    Examples
    --------
    >>> rows = np.ones((1, 3))
    >>> triangular_product(rows, slice(1, 3), np.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> rows
    array([[1., 1., 5.]])
    """
    size = columns.stop - columns.start
    if rows.dtype != factor.dtype or factor.shape != (size, size):
        raise ValueError(
            f"{size} columns of {rows.dtype} cannot be multiplied by a "
            f"{factor.shape} matrix of {factor.dtype}"
        )
    if not (rows.flags.c_contiguous and factor.flags.c_contiguous):
        raise ValueError("rows and factor must be contiguous")
    if len(rows) == 0 or size == 0:
        return
    routine, integer = _trmm(rows.dtype)
    scalar = ctypes.c_float if rows.dtype == np.float32 else ctypes.c_double
    # BLAS stores columns, so it sees both arrays transposed: rowsᵀ ← op(factor) rowsᵀ.
    routine(
        b"L",
        b"U",
        b"N" if transposed else b"T",
        b"N",
        ctypes.byref(integer(size)),
        ctypes.byref(integer(len(rows))),
        ctypes.byref(scalar(1.0)),
        factor.ctypes.data_as(ctypes.c_void_p),
        ctypes.byref(integer(size)),
        rows[:, columns].ctypes.data_as(ctypes.c_void_p),
        ctypes.byref(integer(rows.shape[1])),
    )


@functools.lru_cache(maxsize=2)
def _trmm(dtype: np.dtype) -> tuple[Any, Any]:
    """BLAS's strmm or dtrmm as a C function, and the type of its integers."""
    capsule = cython_blas.__pyx_capi__["strmm" if dtype == np.float32 else "dtrmm"]
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    signature = get_name(capsule)
    address = get_pointer(capsule, signature)
    string = ctypes.c_char_p
    pointer = ctypes.c_void_p
    routine = ctypes.CFUNCTYPE(None, string, string, string, string, *([pointer] * 7))(
        address
    )
    wide = b"long" in signature or b"64" in signature
    return routine, ctypes.c_int64 if wide else ctypes.c_int
