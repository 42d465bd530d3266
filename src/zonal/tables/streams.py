"""Streams: tables that are read in batches, as often as needed."""

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from zonal.tables import batches
from zonal.tables.batches import (
    Batch,
    BatchReader,
    import_pyarrow,
    prefix_errors,
    read_ahead,
    table_of,
)
from zonal.tables.chunks import Chunk, joined
from zonal.tables.files import DatasetReader, open_dataset
from zonal.tables.frames import check_not_lazy
from zonal.tables.sources import CHUNK_ROWS, Source

__all__ = ["Stream", "StreamSource", "stream_of"]


class Stream(BatchReader):
    """A table that is read in batches, always in the same order.

    Examples
    --------
    >>> import pyarrow
    >>> table = pyarrow.table({"x": [1.0, 2.0, 3.0], "y": [0.0, 1.0, 0.0]})
    >>> stream = Stream.of(table)
    >>> stream.names, stream.n_rows
    (['x', 'y'], 3)
    """

    def __init__(self, reader: BatchReader):
        self._reader = reader

    @property
    def names(self) -> list[str]:
        return self._reader.names

    @property
    def n_rows(self) -> int | None:
        return self._reader.n_rows

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        """All rows in order; of the columns, all or those named.

        Examples
        --------
        >>> import pyarrow
        >>> table = pyarrow.table({"x": [1.0, 2.0], "y": [0.0, 1.0]})
        >>> for frame, origin, first_row in Stream.of(table).batches(["x"]):
        ...     frame.column_names, origin, first_row
        (['x'], 'the table', 0)
        """
        return self._reader.batches(columns)

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
            A path or a list of paths, each of a file, a folder or a pattern.
        filter
            A pyarrow expression; rows for which it is false are left out.
        format
            ``"parquet"``, ``"csv"`` or ``"ipc"``; by default from the extension.
        delimiter
            CSV delimiter; by default detected from the first line (comma, semicolon,
            tab or bar).

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
        return Stream(DatasetReader(open_dataset(paths, format, delimiter), filter))

    @staticmethod
    def of(table: Any, spool: bool = False) -> "Stream":
        """A pyarrow dataset or table, a frame, or an iterable of frames.

        Fitting reads a table several times. A source that can be read only once (a
        generator, a record-batch reader) therefore raises ValueError, unless ``spool``
        is true: then its rows are written to a temporary Parquet file, which is removed
        with the stream.

        Examples
        --------
        >>> import pyarrow
        >>> days = (pyarrow.table({"x": [float(day)]}) for day in range(7))
        >>> Stream.of(days, spool=True).n_rows
        7
        """
        check_not_lazy(table)
        module = type(table).__module__.split(".")[0]
        if module == "pyarrow" and hasattr(table, "get_fragments"):
            return Stream(DatasetReader(table, None))
        if hasattr(table, "__narwhals_dataframe__") or hasattr(table, "shape"):
            return Stream(_FrameReader([table]))
        if isinstance(table, (list, tuple)):
            return Stream(_FrameReader(list(table)))
        if not spool:
            raise ValueError(
                f"a {type(table).__name__} can be read only once, and fitting reads a "
                "table several times; pass Stream.of(..., spool=True) to keep the rows "
                "in a temporary file"
            )
        return Stream(_SpooledReader(table))


def stream_of(table: Any) -> BatchReader | None:
    """Files or datasets as a stream; None for tables in memory."""
    if isinstance(table, BatchReader):
        return table
    if isinstance(table, (str, os.PathLike)):
        return Stream.files(table)
    if isinstance(table, (list, tuple)) and table:
        if all(isinstance(path, (str, os.PathLike)) for path in table):
            return Stream.files(table)
        return None
    module = type(table).__module__.split(".")[0]
    if module == "pyarrow" and hasattr(table, "get_fragments"):
        return Stream.of(table)
    if module == "pyarrow" and hasattr(table, "read_next_batch"):
        return Stream.of(table)
    return None


class _FrameReader(BatchReader):
    """Frames in memory, concatenated by rows."""

    def __init__(self, frames: list[Any]):
        import narwhals as nw

        if not frames:
            raise ValueError("there is no frame to read; pass at least one")
        self._frames = [nw.from_native(frame, eager_only=True) for frame in frames]

    @property
    def names(self) -> list[str]:
        return list(self._frames[0].columns)

    @property
    def n_rows(self) -> int:
        return sum(map(len, self._frames))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        for number, frame in enumerate(self._frames):
            origin = f"frame {number}" if len(self._frames) > 1 else "the table"
            selected = frame if columns is None else frame.select(list(columns))
            for start in range(0, len(frame), batches.BATCH_ROWS):
                rows = selected[start : start + batches.BATCH_ROWS]
                yield Batch(rows.to_native(), origin, start)


class _SpooledReader(BatchReader):
    """Frames that can be read only once, stored in a file until the stream ends."""

    def __init__(self, frames: Iterable[Any]):
        import narwhals as nw

        parquet = import_pyarrow("parquet")
        folder = tempfile.mkdtemp(prefix="zonal-")
        # Removed when the stream is garbage-collected.
        remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = Path(folder) / "rows.parquet"
        writer = None
        try:
            for frame in frames:
                eager = nw.from_native(_as_frame(frame), eager_only=True)
                # Without the index of pandas frames.
                table = eager.to_arrow().select(eager.columns).replace_schema_metadata()
                if writer is None:
                    writer = parquet.ParquetWriter(path, table.schema)
                writer.write_table(table)
        except BaseException:
            remove()
            raise
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            remove()
            raise ValueError("there is no frame to read; pass at least one")
        self._reader = DatasetReader(open_dataset(path), None)

    @property
    def names(self) -> list[str]:
        return self._reader.names

    @property
    def n_rows(self) -> int | None:
        return self._reader.n_rows

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        return self._reader.batches(columns)


def _as_frame(frame: Any) -> Any:
    """A record batch as a pyarrow table; other frames unchanged."""
    if type(frame).__module__.startswith("pyarrow") and hasattr(frame, "to_pandas"):
        return frame if hasattr(frame, "combine_chunks") else table_of(frame)
    return frame


class StreamSource(Source):
    """The rows of a stream, encoded as chunks of numbers.

    Parameters
    ----------
    stream
        The table.
    columns
        Names of the columns to read.
    encode
        Function from a frame and the number of its first row to a chunk.
    n_inputs
        Number of encoded input columns.
    """

    def __init__(
        self,
        stream: BatchReader,
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
        with contextlib.closing(read_ahead(self._encode_batches())) as encoded:
            yield from _rechunk(encoded, size)

    def _encode_batches(self) -> Iterator[Chunk]:
        for frame, origin, row in self._stream.batches(self._columns):
            with prefix_errors(origin):
                yield self._encode(frame, row)


def _rechunk(chunks: Iterable[Chunk], size: int) -> Iterator[Chunk]:
    """The same rows in chunks of equal size, but for the last."""
    waiting: list[Chunk] = []
    count = 0
    for chunk in chunks:
        waiting.append(chunk)
        count += len(chunk)
        if count < size:
            continue
        rows = joined(waiting) if len(waiting) > 1 else chunk
        stop = count - count % size
        for start in range(0, stop, size):
            yield rows[start : start + size]
        waiting, count = ([rows[stop:]], count - stop) if stop < count else ([], 0)
    if count:
        yield joined(waiting) if len(waiting) > 1 else waiting[0]
