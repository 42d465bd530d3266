"""Batches: frames of consecutive rows, with the file and row they start at.

Errors can therefore name the file and the row. While one batch is processed, a thread
reads the next ones.
"""

import abc
import contextlib
import difflib
import importlib
import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

__all__ = [
    "Batch",
    "BatchReader",
    "StreamError",
    "check_columns",
    "prefix_errors",
    "read_ahead",
    "values_of",
]

# Rows per batch: enough for pyarrow to be fast, few enough to hold several batches.
BATCH_ROWS = 65_536
# Batches that are read in advance.
AHEAD = 2

Item = TypeVar("Item")


class StreamError(ValueError):
    """Raised when a file cannot be read; the message names the file."""


class Batch(NamedTuple):
    """Consecutive rows of a table: a frame, its origin, and its first row there."""

    frame: Any
    origin: str
    first_row: int


class BatchReader(abc.ABC):
    """A table that is read in batches, always in the same order."""

    @property
    @abc.abstractmethod
    def names(self) -> list[str]:
        """Names of the columns."""

    @property
    @abc.abstractmethod
    def n_rows(self) -> int | None:
        """Number of rows, or None if it is unknown before all rows are read."""

    @abc.abstractmethod
    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        """All rows in order; of the columns, all or those named."""


def import_pyarrow(module: str) -> Any:
    """A module of pyarrow; if it is missing, the error says how to install it."""
    try:
        return importlib.import_module(f"pyarrow.{module}")
    except ImportError as error:
        raise ImportError(
            'reading files needs pyarrow: pip install "zonal[parquet]"'
        ) from error


def table_of(batch: Any) -> Any:
    """A pyarrow table of one record batch."""
    import pyarrow

    return pyarrow.Table.from_batches([batch])


@contextlib.contextmanager
def prefix_errors(origin: str) -> Iterator[None]:
    """Prefix errors about rows with the file or table that the rows come from."""
    try:
        yield
    except StreamError:
        raise
    except (ValueError, TypeError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{origin}: {error}") from error


def read_ahead(
    items: Iterator[Item], ahead: int = AHEAD
) -> Generator[Item, None, None]:
    """The same items, computed in advance by a thread."""
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(ahead)
    stopped = threading.Event()

    def put(kind: str, item: Any) -> bool:
        while not stopped.is_set():
            try:
                ready.put((kind, item), timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put("item", item):
                    return
        except BaseException as error:  # raised again in the thread that reads
            put("error", error)
        else:
            put("end", None)

    thread = threading.Thread(target=work, daemon=True, name="zonal-read-ahead")
    thread.start()
    try:
        while True:
            kind, item = ready.get()
            if kind == "end":
                return
            if kind == "error":
                raise item
            yield item
    finally:
        stopped.set()
        # The thread is a daemon: if it is busy longer than this, it ends by itself.
        thread.join(timeout=1.0)


def check_columns(stream: BatchReader, names: Sequence[str]) -> None:
    """Raise ValueError if a stream lacks one of the columns."""
    absent = [name for name in names if name not in stream.names]
    if absent:
        listed = ", ".join(map(str, stream.names[:8]))
        more = ", ..." if len(stream.names) > 8 else ""
        near = difflib.get_close_matches(absent[0], list(map(str, stream.names)), 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(
            f"column {absent[0]!r} is missing{hint}; the table has {listed}{more}"
        )


def values_of(frame: Any, name: str) -> np.ndarray:
    """The values of one column of a frame."""
    import narwhals as nw

    return nw.from_native(frame, eager_only=True).get_column(name).to_numpy()
