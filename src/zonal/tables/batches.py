"""Batches: some rows of a table as a frame, and where they come from.

A reader knows where each batch comes from, so that an error names the file and the
rows. Batches are read while the one before is being worked on.
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
    "naming",
    "read_ahead",
    "values_of",
]

# Rows of a batch: enough for pyarrow to be quick, little enough to hold several.
BATCH_ROWS = 65_536
# Batches that are ready before they are asked for.
AHEAD = 2

Item = TypeVar("Item")


class StreamError(ValueError):
    """A file could not be read; the message names it."""


class Batch(NamedTuple):
    """Some rows of a table: a frame, where it comes from, and its first row there."""

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
        """How many rows there are, or None where only reading tells."""

    @abc.abstractmethod
    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        """All rows in order, with some of the columns."""


def pyarrow_part(part: str) -> Any:
    try:
        return importlib.import_module(f"pyarrow.{part}")
    except ImportError as error:
        raise ImportError(
            'files are read with pyarrow: pip install "zonal[parquet]"'
        ) from error


def table_of(batch: Any) -> Any:
    import pyarrow

    return pyarrow.Table.from_batches([batch])


@contextlib.contextmanager
def naming(origin: str) -> Iterator[None]:
    """Errors about rows name where the rows come from."""
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
    """The same items, made by a thread of their own a little before they are needed."""
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
        except BaseException as error:  # handed to the reader, who raises it
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
        # A producer that is slow to notice is left to itself.
        thread.join(timeout=1.0)


def check_columns(stream: BatchReader, names: Sequence[str]) -> None:
    """Refuse a stream that lacks some columns."""
    lost = [name for name in names if name not in stream.names]
    if lost:
        known = ", ".join(map(str, stream.names[:8]))
        more = ", ..." if len(stream.names) > 8 else ""
        near = difflib.get_close_matches(lost[0], list(map(str, stream.names)), 1)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(
            f"column {lost[0]!r} is missing{meant}; the table has {known}{more}"
        )


def values_of(frame: Any, name: str) -> np.ndarray:
    """One column of a frame."""
    import narwhals as nw

    return nw.from_native(frame, eager_only=True).get_column(name).to_numpy()
