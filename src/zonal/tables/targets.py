"""Tables that contain their target: files, datasets and frames, read in batches."""

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
    prefix_errors,
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
    """Arguments of a fit: a table, with its targets in separate arrays or in columns.

    Parameters
    ----------
    X
        The table: an array, a data frame, files, or on a cluster a Dask collection.
    y, sample_weight
        Targets and weights in separate arrays.
    target, weight
        Names of the columns that hold the targets and the weights, instead.
    exposure
        Exposure of counts: numbers with ``y``, or the name of a column with ``target``.
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
                    "weight= goes with target=; with y, pass sample_weight="
                )
            if isinstance(self.exposure, str):
                raise ValueError(
                    f"exposure={self.exposure!r} names a column, which goes with "
                    "target=; with y, pass one number per row"
                )
            return
        if self.y is not None:
            raise ValueError("pass y, or target= for a column of the table, not both")
        if self.sample_weight is not None:
            raise ValueError("with target=, pass weight=, the name of a column")
        if not isinstance(self.exposure, str | None):
            raise ValueError("with target=, exposure must be the name of a column")

    @property
    def target_name(self) -> str | None:
        """The name of the target, or None for unnamed or several targets."""
        name = getattr(self.y, "name", None) if self.target is None else self.target
        return name if isinstance(name, str) else None

    @property
    def targets(self) -> list[str]:
        """Names of the target columns."""
        return [self.target] if isinstance(self.target, str) else list(self.target)

    @property
    def columns_beside(self) -> list[str]:
        """Names of the columns that are not inputs."""
        names = (self.weight, self.exposure)
        return [*self.targets, *(name for name in names if name is not None)]

    def table(self) -> "TargetTable | None":
        """The table with its target columns, or None if ``y`` is passed."""
        stream = stream_of(self.X)
        if self.target is None:
            if stream is not None:
                raise ValueError(
                    "files and datasets must contain their target: pass target=, the "
                    "name of its column"
                )
            return None
        stream = Stream.of(self.X) if stream is None else stream
        check_columns(stream, self.columns_beside)
        inputs = [name for name in stream.names if name not in self.columns_beside]
        if not inputs:
            raise ValueError(
                "the table has no input columns besides its target; add at least one"
            )
        single = isinstance(self.target, str)
        return TargetTable(
            stream, inputs, self.targets, self.weight, self.exposure, single
        )


@dataclasses.dataclass(frozen=True, eq=False)
class TargetTable:
    """A stream, with the names of its input, target, weight and exposure columns.

    ``single`` says whether targets are one-dimensional.
    """

    stream: BatchReader
    inputs: list[str]
    targets: list[str]
    weight: str | None
    exposure: str | None
    single: bool

    @property
    def n_rows(self) -> int | None:
        return self.stream.n_rows

    def learn(
        self,
        learn_columns: Callable[[Iterator[Any]], Columns],
        sample: Callable[[Any], np.ndarray],
    ) -> tuple[Columns, np.ndarray]:
        """The encoding of the inputs and a sample of the targets, from one reading."""
        samples: list[np.ndarray] = []
        origin = "the table"

        def input_frames() -> Generator[Any, None, None]:
            nonlocal origin
            with contextlib.closing(
                read_ahead(self.stream.batches(self._columns))
            ) as batches:
                for frame, batch_origin, _ in batches:
                    origin = batch_origin
                    samples.append(sample(self._targets_of(frame)))
                    yield nw.from_native(frame).select(self.inputs).to_native()

        with contextlib.closing(input_frames()) as frames:
            try:
                columns = learn_columns(frames)
            except StreamError:
                raise
            except (ValueError, TypeError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"{origin}: {error}") from error
        if not samples:
            raise ValueError("the table has no rows; pass at least one")
        return columns, np.concatenate(samples)

    def sources(
        self, columns: Columns, encode_target: Callable[[np.ndarray], np.ndarray]
    ) -> list[Source]:
        """The encoded rows, one source per target."""
        return [
            StreamSource(
                self.stream,
                self._columns,
                functools.partial(self._chunk, columns, encode_target, index),
                len(columns.outputs),
            )
            for index in range(len(self.targets))
        ]

    @property
    def _columns(self) -> list[str]:
        """Names of the columns to read."""
        optional = [name for name in (self.weight, self.exposure) if name is not None]
        return list(dict.fromkeys([*self.inputs, *self.targets, *optional]))

    def _targets_of(self, frame: Any) -> np.ndarray:
        targets = [values_of(frame, name) for name in self.targets]
        return targets[0] if self.single else np.column_stack(targets)

    def _chunk(
        self,
        columns: Columns,
        encode_target: Callable[[np.ndarray], np.ndarray],
        target_index: int,
        frame: Any,
        first_row: int,
    ) -> Chunk:
        inputs = nw.from_native(frame).select(self.inputs).to_native()
        x = columns.matrix(inputs, first_row)
        y = encode_target(self._targets_of(frame))
        y = y if y.ndim == 1 else y[:, target_index]
        weight, exposure = (
            None if name is None else np.asarray(values_of(frame, name), np.float64)
            for name in (self.weight, self.exposure)
        )
        rows = checked(x, y, weight, exposure=exposure, first_row=first_row)
        # Rows of weight zero are left out.
        return rows if weight is None else rows[weight > 0]


def exposure_of(stream: BatchReader, name: str) -> np.ndarray:
    """The exposure per row: the factor of its rate."""
    check_columns(stream, [name])
    parts = [np.empty(0)]
    for frame, origin, row in stream.batches([name]):
        with prefix_errors(origin):
            values = np.asarray(values_of(frame, name), np.float64)
            positive(values, "exposure", len(values), row)
            parts.append(values)
    return np.concatenate(parts)


def blocks_of(
    stream: BatchReader, columns: Columns, names: Sequence[str]
) -> Iterator[np.ndarray]:
    """The encoded inputs of a stream, batch by batch."""
    check_columns(stream, names)

    def encoded() -> Iterator[np.ndarray]:
        empty = True
        for frame, origin, row in stream.batches(names):
            empty = False
            with prefix_errors(origin):
                yield columns.matrix(frame, row)
        if empty:
            raise ValueError("the table has no rows; pass at least one")

    return read_ahead(encoded())
