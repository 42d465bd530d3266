"""Streams: tables that are read a batch of rows at a time, again and again."""

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
    naming,
    pyarrow_part,
    read_ahead,
    table_of,
)
from zonal.tables.chunks import Chunk, joined
from zonal.tables.files import DatasetReader, dataset_of
from zonal.tables.frames import refuse_lazy
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
        """All rows in order, with some of the columns.

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
        return Stream(DatasetReader(dataset_of(paths, format, delimiter), filter))

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
            return Stream(DatasetReader(table, None))
        if hasattr(table, "__narwhals_dataframe__") or hasattr(table, "shape"):
            return Stream(_FrameReader([table]))
        if isinstance(table, (list, tuple)):
            return Stream(_FrameReader(list(table)))
        if not spool:
            raise ValueError(
                f"a {type(table).__name__} can be read only once, and fitting takes "
                "several readings; pass Stream.of(..., spool=True) to keep the rows in "
                "a temporary file"
            )
        return Stream(_SpooledReader(table))


def stream_of(table: Any) -> BatchReader | None:
    """A table that is to be read as a stream, or None for what lies in memory."""
    if isinstance(table, BatchReader):
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


class _FrameReader(BatchReader):
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
            for start in range(0, len(frame), batches.BATCH_ROWS):
                part = chosen[start : start + batches.BATCH_ROWS]
                yield Batch(part.to_native(), origin, start)


class _SpooledReader(BatchReader):
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
        self._reader = DatasetReader(dataset_of(path), None)

    @property
    def names(self) -> list[str]:
        return self._reader.names

    @property
    def n_rows(self) -> int | None:
        return self._reader.n_rows

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        return self._reader.batches(columns)


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
        with contextlib.closing(read_ahead(self._encoded())) as encoded:
            yield from _cut(encoded, size)

    def _encoded(self) -> Iterator[Chunk]:
        for frame, origin, row in self._stream.batches(self._columns):
            with naming(origin):
                yield self._encode(frame, row)


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
