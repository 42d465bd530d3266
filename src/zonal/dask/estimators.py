"""Estimators for Dask: the same models, from rows on many machines.

Statistics and inference are sums over rows. Here every partition of a dask array or
dataframe is one task: its worker turns the rows into features and sums, and sums are
added a few at a time, so a pass sends the model to each worker once and M² numbers (for
each function) from each partition to another. Learning itself runs on a sample of the
rows, where the client is.

    from zonal.dask import DaskSphericalGPRegressor
    model = DaskSphericalGPRegressor().fit(frame[columns], frame["delay"])
    model.predict(frame[columns])      # lazy, as a dask array
    model.to_local().save("model.zonal")
"""

# Dask says little of its types.
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.array as da
import distributed
import numpy as np

from zonal.dask.source import (
    DaskSource,
    LostClusterError,
    gather,
    register,
    send_to_all,
)
from zonal.estimators.base import SphericalGP
from zonal.estimators.classifier import SphericalGPClassifier
from zonal.estimators.regressor import SphericalGPRegressor
from zonal.tables.batches import prefix_errors
from zonal.tables.chunks import Chunk, by_output
from zonal.tables.columns import Columns, ColumnScan
from zonal.tables.sources import Result, Source
from zonal.tables.targets import Given

__all__ = ["DaskSphericalGPClassifier", "DaskSphericalGPRegressor"]


@contextlib.contextmanager
def _resumable(checkpoint: str | os.PathLike | None) -> Iterator[None]:
    """A lost cluster, with a word on the checkpoint that is not lost with it."""
    try:
        yield
    except LostClusterError as error:
        if checkpoint is None or not Path(checkpoint).exists():
            raise
        raise LostClusterError(
            f"{error}; what was learned so far is in {os.fspath(checkpoint)}, and the "
            "same fit with that checkpoint goes on from there"
        ) from error.__cause__


class _OneThreadEach(distributed.WorkerPlugin):
    """XLA keeps to the thread that calls it, on workers that have not started it."""

    name = "zonal-one-thread-each"

    def setup(self, worker: Any) -> None:
        if "jax" not in sys.modules:
            flags = os.environ.get("XLA_FLAGS", "")
            os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false"


class _Piece(NamedTuple):
    """A partition of a table: its number, inputs, targets, weights and exposure."""

    number: int
    inputs: Any
    targets: Any
    weights: Any
    exposure: Any


def _looked(
    look: ColumnScan, some: Callable[[Any], np.ndarray], piece: _Piece
) -> tuple[ColumnScan, np.ndarray] | None:
    """What a partition shows of columns and targets; nothing if it is empty."""
    if len(piece.inputs) == 0:
        return None
    with prefix_errors(f"partition {piece.number}"):
        return look.scan(piece.inputs), some(np.asarray(piece.targets))


def _as_rows(
    local: SphericalGP, columns: Columns, known: dict[str, Any], piece: _Piece
) -> list[Chunk] | None:
    """A partition as numbers, once for each target; nothing if it is empty."""
    if len(piece.inputs) == 0:
        return None
    beside = [
        None if one is None else np.asarray(one)
        for one in (piece.targets, piece.weights, piece.exposure)
    ]
    targets, weights, exposure = beside
    given = Given(piece.inputs, targets, weights, exposure=exposure)
    with prefix_errors(f"partition {piece.number}"):
        return by_output(local._rows(columns, known, given))


def _applied(function: Callable[[Any], Result], value: Any) -> Result:
    return function(value)


def _rows_in(rows: list[Chunk] | None) -> int:
    return 0 if rows is None else len(rows[0])


def _output(rows: list[Chunk] | None, number: int) -> Chunk | None:
    return None if rows is None else rows[number]


def _is_dask(table: Any) -> bool:
    return dask.is_dask_collection(table)


def _pieces(given: Given) -> list[Any]:
    """Partitions of a table and what belongs to them, not yet computed."""
    X, y, sample_weight = given.X, given.y, given.sample_weight
    exposure = given.exposure
    if given.target is not None:
        names = given.columns_beside
        missing = [name for name in names if name not in X.columns]
        if missing:
            raise ValueError(f"column {missing[0]!r} is missing; there is none to take")
        y = X[given.target]
        sample_weight = None if given.weight is None else X[given.weight]
        exposure = None if exposure is None else X[exposure]
        X = X.drop(columns=names)
    if y is None:
        raise ValueError("there is no target: pass y, or target= for a column of X")
    inputs = _delayed(X)
    beside = [
        [None] * len(inputs) if one is None else _delayed(_along(one, X))
        for one in (y, sample_weight, exposure)
    ]
    for name, parts in zip(("y", "sample_weight", "exposure"), beside, strict=True):
        if len(parts) != len(inputs):
            raise ValueError(
                f"X has {len(inputs)} partitions and {name} has {len(parts)}; "
                "repartition one like the other"
            )
    piece = dask.delayed(_Piece, pure=True)
    return [
        piece(number, *parts)
        for number, parts in enumerate(zip(inputs, *beside, strict=True))
    ]


def _along(values: Any, X: Any) -> Any:
    """Targets or weights, in the partitions of the rows where that can be arranged."""
    if isinstance(values, da.Array) and isinstance(X, da.Array):
        rows = X.chunks[0]
        if values.chunks[0] != rows and not np.isnan(rows).any():
            return values.rechunk({0: rows})
    if not _is_dask(values):
        raise TypeError(
            f"X is a dask collection and y, weights or exposure are a "
            f"{type(values).__name__}; give dask collections for all of them"
        )
    return values


def _delayed(table: Any) -> list[Any]:
    """The partitions of a collection, with all columns in each."""
    if isinstance(table, da.Array):
        if table.ndim == 2 and table.numblocks[1] > 1:
            table = table.rechunk({1: -1})
        return table.to_delayed().ravel().tolist()
    return list(table.to_delayed())


def _sizes(table: Any) -> list[Any]:
    if isinstance(table, da.Array):
        return list(table.chunks[0])
    return [np.nan] * table.npartitions


class _OnCluster(SphericalGP):
    """What both estimators share: partitions in, lazy collections out."""

    client: Any
    _kind: type[SphericalGP]

    @property
    def client_(self) -> Any:
        """The client in use: the one that was given, or the current one."""
        return distributed.default_client() if self.client is None else self.client

    def _fit(
        self,
        given: Given,
        *of_targets,
        checkpoint=None,
    ):
        self._check_checkpoint(checkpoint)
        if self.n_neighbors:
            raise ValueError(
                "neighbours need all rows on one machine; on a cluster leave "
                f"n_neighbors at 0, or take {self._kind.__name__}"
            )
        with _resumable(checkpoint):
            pieces = self._computed(given)
            return self._fit_pieces(pieces, of_targets, given.target_name, checkpoint)

    def _fit_pieces(
        self,
        pieces: list[Any],
        of_targets: Sequence[Any],
        name: str | None,
        checkpoint: Any,
    ):
        client, local = self.client_, self._unfitted()
        look = functools.partial(_looked, local._look, local._some_targets)
        seen = gather(client, [self._task(look, piece) for piece in pieces])
        seen = [one for one in seen if one is not None]
        if not seen:
            raise ValueError("the table has no rows; give it at least one")
        columns = functools.reduce(ColumnScan.merge, [one for one, _ in seen]).columns()
        some = np.concatenate([some for _, some in seen])
        known = self._learned_of_targets(some, *of_targets)
        known["target_name_"] = name
        sources = self._encoded(pieces, columns, known)
        recipe = self._recipe(columns)
        start = self.process_ if self._may_start_warm(columns, recipe) else None
        models = self._taught(sources, known, recipe, start, checkpoint)
        self._accept(columns, models, known)
        return self

    def _sources(self, given):
        pieces = self._computed(given)
        return self._encoded(pieces, self.columns_, self._known)

    def _computed(self, given: Given) -> list[Any]:
        """Partitions on their way to the workers."""
        self._check_exposure(given.exposure)
        if not _is_dask(given.X):
            raise TypeError(
                f"X is a {type(given.X).__name__}; give a dask array or dataframe, or "
                f"take {self._kind.__name__} for tables on one machine"
            )
        register(self.client_, _OneThreadEach())
        return self.client_.compute(_pieces(given))

    def _encoded(
        self, pieces: list[Any], columns: Columns, known: dict[str, Any]
    ) -> list[Source]:
        """The rows as numbers, where they are, once for each target."""
        client = self.client_
        encode = functools.partial(_as_rows, self._unfitted(), columns, known)
        told = send_to_all(client, encode)
        rows = [client.submit(_applied, told, one, pure=False) for one in pieces]
        counts = gather(client, [self._task(_rows_in, one) for one in rows])
        outputs = known.get("outputs_shape_") or (1,)
        return [
            DaskSource(
                client,
                [client.submit(_output, one, number, pure=False) for one in rows],
                counts,
                len(columns.outputs),
            )
            for number in range(outputs[0])
        ]

    def _task(self, function: Callable, *values: Any) -> Any:
        return self.client_.submit(function, *values, pure=False)

    def _unfitted(self) -> SphericalGP:
        """The estimator for one machine, which can be sent to others."""
        parameters = self.get_params(deep=False)
        for name in ("client", "callbacks"):
            parameters.pop(name)
        return self._kind(**parameters)

    def _blocks(self, X):
        if _is_dask(X):
            raise TypeError(
                "this is not done on a cluster: take to_local(), and rows that are "
                "computed"
            )
        return super()._blocks(X)

    def __sklearn_clone__(self) -> Any:
        # A client is not copied.
        return type(self)(**self.get_params(deep=False))

    def __getstate__(self) -> Any:
        # Nor can it go anywhere; the current one is taken there.
        return {**super().__getstate__(), "client": None}

    def to_local(self) -> Any:
        """The same fitted model as an estimator for one machine."""
        local = self._unfitted().set_params(callbacks=self.callbacks)
        if hasattr(self, "models_"):
            local._accept(self.columns_, self.models_, self._known)
        return local

    def save(self, path) -> None:
        """Write the fitted model to one file, to be read by `zonal.load`.

        What is read is an estimator for one machine.
        """
        self.to_local().save(path)

    def _lazily(
        self,
        X: Any,
        read: Callable,
        columns: Sequence[int],
        dtype: Any = np.float64,
        exposure: Any = None,
    ) -> Any:
        """What is read off the local model for every row, as a lazy dask array."""
        local = self.to_local()
        if not _is_dask(X):
            return read(local, X, **_beside(exposure))
        if isinstance(exposure, str):
            X, exposure = X.drop(columns=[exposure]), X[exposure]
        parts = _delayed(X)
        several = exposure is not None and (_is_dask(exposure) or np.ndim(exposure))
        exposed = _delayed(_along(exposure, X)) if several else [exposure] * len(parts)
        model = dask.delayed(local)
        call = dask.delayed(functools.partial(_read_off, read, tuple(columns), dtype))
        blocks = [
            da.from_delayed(call(model, part, **_beside(one)), (size, *columns), dtype)
            for part, one, size in zip(parts, exposed, _sizes(X), strict=True)
        ]
        return da.concatenate(blocks, allow_unknown_chunksizes=True)


def _beside(exposure: Any) -> dict[str, Any]:
    """Exposure as it is passed to what knows of it."""
    return {} if exposure is None else {"exposure": exposure}


def _read_off(
    read: Callable,
    columns: tuple[int, ...],
    dtype: Any,
    model: SphericalGP,
    X: Any,
    **beside: Any,
) -> np.ndarray:
    """What a worker predicts for a partition, which may be empty."""
    return read(model, X, **beside) if len(X) else np.empty((0, *columns), dtype)


def _with_client(kind: type[SphericalGP]) -> Callable:
    """The initialiser of a kind of estimator, with a client beside its parameters."""

    def __init__(self, n_features=512, *, client=None, **parameters):  # noqa: N807
        kind.__init__(self, n_features, **parameters)
        self.client = client

    # scikit-learn reads the names of parameters off the signature.
    known = inspect.signature(kind.__init__)
    client = inspect.Parameter("client", inspect.Parameter.KEYWORD_ONLY, default=None)
    __init__.__signature__ = known.replace(  # pyright: ignore
        parameters=[*known.parameters.values(), client]
    )
    return __init__


class DaskSphericalGPRegressor(_OnCluster, SphericalGPRegressor):
    """`SphericalGPRegressor` for dask arrays and dataframes.

    Parameters
    ----------
    client : distributed.Client, optional
        The cluster; by default the current client.
    n_features, ... : as in `SphericalGPRegressor`.
    """

    _kind = SphericalGPRegressor
    __init__ = _with_client(SphericalGPRegressor)

    def predict(self, X, return_std=False, *, exposure=None):
        """Mean of a new target at each row, and its deviation on request, lazily."""
        outputs = tuple(self.outputs_shape_)
        if not return_std:
            mean = SphericalGPRegressor.predict
            return self._lazily(X, mean, outputs, exposure=exposure)
        columns = (2, *outputs)
        both = self._lazily(X, _mean_and_deviation, columns, exposure=exposure)
        return both[:, 0], both[:, 1]

    def predict_quantiles(self, X, alpha, *, exposure=None):
        """Quantiles of a new target, lazily."""
        read = functools.partial(_quantiles, alpha)
        columns = (len(np.atleast_1d(alpha)), *self.outputs_shape_)
        return self._lazily(X, read, columns, exposure=exposure)


def _mean_and_deviation(
    model: SphericalGPRegressor, X: Any, **beside: Any
) -> np.ndarray:
    return np.stack(model.predict(X, return_std=True, **beside), axis=1)


def _quantiles(
    alpha: Any, model: SphericalGPRegressor, X: Any, **beside: Any
) -> np.ndarray:
    return model.predict_quantiles(X, alpha, **beside)


class DaskSphericalGPClassifier(_OnCluster, SphericalGPClassifier):
    """`SphericalGPClassifier` for dask arrays and dataframes.

    Parameters
    ----------
    client : distributed.Client, optional
        The cluster; by default the current client.
    n_features, ... : as in `SphericalGPClassifier`.
    """

    _kind = SphericalGPClassifier
    __init__ = _with_client(SphericalGPClassifier)

    def predict(self, X):
        """The most probable class of each row, lazily."""
        dtype = self.classes_.dtype
        return self._lazily(X, SphericalGPClassifier.predict, (), dtype)

    def predict_proba(self, X):
        """Probability of each class, lazily."""
        read = SphericalGPClassifier.predict_proba
        return self._lazily(X, read, (len(self.classes_),))
