"""Streams: tables that are read a batch of rows at a time, again and again.

Files are read with pyarrow, only the columns that are asked for, while the batch before
is being worked on. A stream knows where each batch comes from, so that an error names
the file and the rows.
"""

import abc
import contextlib
import difflib
import importlib
import os
import queue
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from zonal.chunks import Chunk, joined
from zonal.frames import refuse_lazy
from zonal.sources import CHUNK_ROWS, Source

__all__ = ["Batch", "Stream", "StreamSource", "stream_of"]

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


class Stream(abc.ABC):
    """A table that is read in batches, always in the same order.

    Examples
    --------
    >>> import pyarrow
    >>> table = pyarrow.table({"x": [1.0, 2.0, 3.0], "y": [0.0, 1.0, 0.0]})
    >>> stream = Stream.of(table)
    >>> stream.names, stream.n_rows
    (['x', 'y'], 3)
    """

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
        """All rows in order, with some of the columns.

        Examples
        --------
        >>> import pyarrow
        >>> table = pyarrow.table({"x": [1.0, 2.0], "y": [0.0, 1.0]})
        >>> for frame, origin, first_row in Stream.of(table).batches(["x"]):
        ...     frame.column_names, origin, first_row
        (['x'], 'the table', 0)
        """

    @staticmethod
    def files(
        paths: str | os.PathLike | Sequence[str | os.PathLike],
        filter: Any = None,  # noqa: A002
        format: str | None = None,  # noqa: A002
        delimiter: str | None = None,
    ) -> "Stream":
        """Parquet, CSV or Feather files: one, several, a folder, or a pattern with *.

        Parameters
        ----------
        paths
            Where they are.
        filter
            A pyarrow expression; rows that do not fulfil it are not read.
        format
            ``"parquet"``, ``"csv"`` or ``"ipc"``, if names do not tell.
        delimiter
            What stands between two values of a CSV file; by default a comma, a
            semicolon, a tab or a bar, as the first line has it.

        Examples
        --------
        >>> import tempfile
        >>> import pyarrow.compute as pc
        >>> from pyarrow import csv, table
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     csv.write_csv(table({"x": [1.0, 2.0, 3.0]}), f"{folder}/some.csv")
        ...     Stream.files(f"{folder}/*.csv", filter=pc.field("x") > 1).n_rows
        2
        """
        from zonal.files import DatasetStream, dataset_of

        return DatasetStream(dataset_of(paths, format, delimiter), filter)

    @staticmethod
    def of(table: Any, spool: bool = False) -> "Stream":
        """A pyarrow dataset or table, a frame, or something that yields frames.

        What can be read only once (a generator, a record-batch reader) is refused,
        because fitting takes several readings; with ``spool`` it is written to a
        temporary Parquet file first, which is removed with the stream.

        Examples
        --------
        >>> import pyarrow
        >>> days = (pyarrow.table({"x": [float(day)]}) for day in range(7))
        >>> Stream.of(days, spool=True).n_rows
        7
        """
        refuse_lazy(table)
        module = type(table).__module__.split(".")[0]
        if module == "pyarrow" and hasattr(table, "get_fragments"):
            from zonal.files import DatasetStream

            return DatasetStream(table, None)
        if hasattr(table, "__narwhals_dataframe__") or hasattr(table, "shape"):
            return _FrameStream([table])
        if isinstance(table, (list, tuple)):
            return _FrameStream(list(table))
        if not spool:
            raise ValueError(
                f"a {type(table).__name__} can be read only once, and fitting takes "
                "several readings; pass Stream.of(..., spool=True) to keep the rows in "
                "a temporary file"
            )
        return _SpooledStream(table)


def stream_of(table: Any) -> Stream | None:
    """A table that is to be read as a stream, or None for what lies in memory."""
    if isinstance(table, Stream):
        return table
    if isinstance(table, (str, os.PathLike)):
        return Stream.files(table)
    if isinstance(table, (list, tuple)) and table:
        if all(isinstance(one, (str, os.PathLike)) for one in table):
            return Stream.files(table)
        return None
    module = type(table).__module__.split(".")[0]
    if module == "pyarrow" and hasattr(table, "get_fragments"):
        return Stream.of(table)
    if module == "pyarrow" and hasattr(table, "read_next_batch"):
        return Stream.of(table)
    return None


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


class _FrameStream(Stream):
    """Frames in memory, one below the other."""

    def __init__(self, frames: list[Any]):
        import narwhals as nw

        if not frames:
            raise ValueError("there is no frame to read; give at least one")
        self._frames = [nw.from_native(one, eager_only=True) for one in frames]

    @property
    def names(self) -> list[str]:
        return list(self._frames[0].columns)

    @property
    def n_rows(self) -> int:
        return sum(len(one) for one in self._frames)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        for number, frame in enumerate(self._frames):
            origin = f"frame {number}" if len(self._frames) > 1 else "the table"
            chosen = frame if columns is None else frame.select(list(columns))
            for start in range(0, len(frame), BATCH_ROWS):
                part = chosen[start : start + BATCH_ROWS]
                yield Batch(part.to_native(), origin, start)


class _SpooledStream(Stream):
    """Frames that come once, kept in a file for as long as the stream lives."""

    def __init__(self, frames: Iterable[Any]):
        import narwhals as nw

        parquet = pyarrow_part("parquet")
        folder = tempfile.mkdtemp(prefix="zonal-")
        # It goes when the stream does.
        remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = Path(folder) / "rows.parquet"
        writer = None
        try:
            for frame in frames:
                known = nw.from_native(_batch_table(frame), eager_only=True)
                # Without the numbers that pandas gives to rows.
                part = known.to_arrow().select(known.columns).replace_schema_metadata()
                if writer is None:
                    writer = parquet.ParquetWriter(path, part.schema)
                writer.write_table(part)
        except BaseException:
            remove()
            raise
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            remove()
            raise ValueError("there is no frame to read; give at least one")
        self._stream = Stream.files(path)

    @property
    def names(self) -> list[str]:
        return self._stream.names

    @property
    def n_rows(self) -> int | None:
        return self._stream.n_rows

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        return self._stream.batches(columns)


def _batch_table(frame: Any) -> Any:
    """A frame as it is; a record batch as a table of it."""
    if type(frame).__module__.startswith("pyarrow") and hasattr(frame, "to_pandas"):
        return frame if hasattr(frame, "combine_chunks") else table_of(frame)
    return frame


class StreamSource(Source):
    """The rows of a stream, as the numbers that an engine learns from.

    Parameters
    ----------
    stream
        The table.
    columns
        Those of its columns that are read.
    encode
        Turns a frame and the number of its first row into a chunk.
    n_inputs
        Columns of the inputs that it makes.
    """

    def __init__(
        self,
        stream: Stream,
        columns: Sequence[str],
        encode: Callable[[Any, int], Chunk],
        n_inputs: int,
    ):
        self._stream, self._columns = stream, list(columns)
        self._encode, self._n_inputs = encode, n_inputs

    @property
    def n_inputs(self) -> int:
        return self._n_inputs

    @property
    def n_rows(self) -> int | None:
        return self._stream.n_rows

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Chunk]:
        with contextlib.closing(read_ahead(self._encoded())) as encoded:
            yield from _cut(encoded, size)

    def _encoded(self) -> Iterator[Chunk]:
        for frame, origin, row in self._stream.batches(self._columns):
            with naming(origin):
                yield self._encode(frame, row)


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


def _cut(chunks: Iterable[Chunk], size: int) -> Iterator[Chunk]:
    """The same rows in chunks of one size, whatever they came in."""
    waiting: list[Chunk] = []
    have = 0
    for chunk in chunks:
        waiting.append(chunk)
        have += len(chunk)
        if have < size:
            continue
        rows = joined(waiting) if len(waiting) > 1 else chunk
        whole = have - have % size
        for start in range(0, whole, size):
            yield rows[start : start + size]
        waiting, have = ([rows[whole:]], have - whole) if whole < have else ([], 0)
    if have:
        yield joined(waiting) if len(waiting) > 1 else waiting[0]


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


def check_columns(stream: Stream, names: Sequence[str]) -> None:
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
