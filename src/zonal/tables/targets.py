"""Tables with their target in them: files, datasets and frames, read in batches."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import narwhals as nw
import numpy as np

from zonal.tables.batches import (
    BatchReader,
    StreamError,
    check_columns,
    naming,
    read_ahead,
    values_of,
)
from zonal.tables.chunks import Chunk
from zonal.tables.columns import Columns
from zonal.tables.sources import Source, checked, positive
from zonal.tables.streams import Stream, StreamSource, stream_of

__all__ = [
    "Given",
    "TargetTable",
    "blocks_of",
    "exposure_of",
]


@dataclasses.dataclass(frozen=True, eq=False)
class Given:
    """Rows as a person gives them: a table, its targets beside it or in a column.

    Parameters
    ----------
    X
        The table: an array, a frame, files, or on a cluster a Dask collection.
    y, sample_weight
        Targets and weights beside the table.
    target, weight
        Instead: the columns of the table that are the target, and the weight.
    exposure
        Exposure of counts: numbers with ``y``, the name of a column with ``target``.
    """

    X: Any
    y: Any = None
    sample_weight: Any = None
    target: Any = None
    weight: str | None = None
    exposure: Any = None

    def __post_init__(self) -> None:
        if self.target is None:
            if self.weight is not None:
                raise ValueError(
                    "weight= goes with target=; with y, pass sample_weight"
                )
            if isinstance(self.exposure, str):
                raise ValueError(
                    f"exposure={self.exposure!r} names a column, which goes with "
                    "target=; with y, pass one number for each row"
                )
            return
        if self.y is not None:
            raise ValueError("give y, or target= for a column of the table, not both")
        if self.sample_weight is not None:
            raise ValueError("with target=, pass weight=, the name of a column")
        if not isinstance(self.exposure, str | None):
            raise ValueError("with target=, exposure is the name of a column")

    @property
    def target_name(self) -> str | None:
        """The name of the target, if there is one target and it has a name."""
        name = getattr(self.y, "name", None) if self.target is None else self.target
        return name if isinstance(name, str) else None

    @property
    def targets(self) -> list[str]:
        """The columns that are targets."""
        return [self.target] if isinstance(self.target, str) else list(self.target)

    @property
    def columns_beside(self) -> list[str]:
        """The columns of the table that are no inputs."""
        names = (self.weight, self.exposure)
        return [*self.targets, *(name for name in names if name is not None)]

    def table(self) -> "TargetTable | None":
        """The table whose target is one of its columns, or None where y is given."""
        stream = stream_of(self.X)
        if self.target is None:
            if stream is not None:
                raise ValueError(
                    "rows in files have their target beside them: pass target=, the "
                    "name of its column"
                )
            return None
        stream = Stream.of(self.X) if stream is None else stream
        check_columns(stream, self.columns_beside)
        inputs = [name for name in stream.names if name not in self.columns_beside]
        if not inputs:
            raise ValueError("the table has no column beside its target to learn from")
        single = isinstance(self.target, str)
        return TargetTable(
            stream, inputs, self.targets, self.weight, self.exposure, single
        )


@dataclasses.dataclass(frozen=True, eq=False)
class TargetTable:
    """A stream, and which of its columns are inputs, targets, weights and exposure."""

    stream: BatchReader
    inputs: list[str]
    targets: list[str]
    weight: str | None
    exposure: str | None
    single: bool

    @property
    def n_rows(self) -> int | None:
        return self.stream.n_rows

    def learned(
        self, learn: Callable[[Iterator[Any]], Columns], some: Callable[[Any], Any]
    ) -> tuple[Columns, np.ndarray]:
        """One reading: what columns hold, and some targets that stand for all."""
        seen, origin = [], "the table"

        def frames() -> Generator[Any, None, None]:
            nonlocal origin
            with contextlib.closing(
                read_ahead(self.stream.batches(self._read))
            ) as all_of:
                for frame, place, _ in all_of:
                    origin = place
                    seen.append(some(self._targets_of(frame)))
                    yield nw.from_native(frame).select(self.inputs).to_native()

        with contextlib.closing(frames()) as parts:
            try:
                columns = learn(parts)
            except StreamError:
                raise
            except (ValueError, TypeError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"{origin}: {error}") from error
        if not seen:
            raise ValueError("the table has no rows; give it at least one")
        return columns, np.concatenate(seen)

    def sources(
        self, columns: Columns, coded: Callable[[np.ndarray], np.ndarray]
    ) -> list[Source]:
        """The rows as numbers, once for each target."""
        every = range(len(self.targets))
        return [
            StreamSource(
                self.stream,
                self._read,
                functools.partial(self._chunk, columns, coded, number),
                len(columns.outputs),
            )
            for number in every
        ]

    @property
    def _read(self) -> list[str]:
        more = [one for one in (self.weight, self.exposure) if one is not None]
        return list(dict.fromkeys([*self.inputs, *self.targets, *more]))

    def _targets_of(self, frame: Any) -> np.ndarray:
        every = [values_of(frame, name) for name in self.targets]
        return every[0] if self.single else np.column_stack(every)

    def _chunk(
        self,
        columns: Columns,
        coded: Callable[[np.ndarray], np.ndarray],
        number: int,
        frame: Any,
        first_row: int,
    ) -> Chunk:
        inputs = nw.from_native(frame).select(self.inputs).to_native()
        x = columns.matrix(inputs, first_row)
        y = coded(self._targets_of(frame))
        y = y if y.ndim == 1 else y[:, number]
        weight, exposure = (
            None if name is None else np.asarray(values_of(frame, name), np.float64)
            for name in (self.weight, self.exposure)
        )
        rows = checked(x, y, weight, exposure=exposure, first_row=first_row)
        # A row that counts for nothing is no row.
        return rows if weight is None else rows[weight > 0]


def exposure_of(stream: BatchReader, name: str) -> np.ndarray:
    """The column of a stream that says what each row's rate is multiplied by."""
    check_columns(stream, [name])
    parts = [np.empty(0)]
    for frame, origin, row in stream.batches([name]):
        with naming(origin):
            values = np.asarray(values_of(frame, name), np.float64)
            positive(values, "exposure", len(values), row)
            parts.append(values)
    return np.concatenate(parts)


def blocks_of(
    stream: BatchReader, columns: Columns, names: Sequence[str]
) -> Iterator[np.ndarray]:
    """The inputs of a stream as numbers, a batch at a time."""
    check_columns(stream, names)

    def encoded() -> Iterator[np.ndarray]:
        none = True
        for frame, origin, row in stream.batches(names):
            none = False
            with naming(origin):
                yield columns.matrix(frame, row)
        if none:
            raise ValueError("the table has no rows; give it at least one")

    return read_ahead(encoded())
