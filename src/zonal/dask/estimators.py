"""Estimators for Dask: models of features alone, fitted to rows on several machines.

Statistics and inference are sums over rows. Each partition of a dask array or dataframe
is one task: its worker computes features and sums, and the sums are added in a tree. A
pass sends the model to each worker once, and M² numbers per function and partition
between workers. Learning runs on a sample of the rows, on the machine of the client.

    from zonal.dask import DaskSphericalGPRegressor
    model = DaskSphericalGPRegressor().fit(frame[columns], frame["delay"])
    model.predict(frame[columns])      # lazy, as a dask array
    model.to_local().save("model.zonal")
"""

# Dask has few type annotations.
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import contextlib
import dataclasses
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
from zonal.learning.recipe import Recipe
from zonal.tables.batches import prefix_errors
from zonal.tables.chunks import Chunk, by_output
from zonal.tables.columns import Columns, ColumnScan
from zonal.tables.sources import Result, Source
from zonal.tables.targets import Given

__all__ = ["DaskSphericalGPClassifier", "DaskSphericalGPRegressor"]


@contextlib.contextmanager
def _mention_checkpoint(checkpoint: str | os.PathLike | None) -> Iterator[None]:
    """Mention the checkpoint in the error if the cluster is lost."""
    try:
        yield
    except LostClusterError as error:
        if checkpoint is None or not Path(checkpoint).exists():
            raise
        raise LostClusterError(
            f"{error}; the progress so far is in {os.fspath(checkpoint)}, and the same "
            "fit with that checkpoint resumes from it"
        ) from error.__cause__


class _OneThreadEach(distributed.WorkerPlugin):
    """Restricts XLA to one thread per task, on workers that have not started it."""

    name = "zonal-one-thread-each"

    def setup(self, worker: Any) -> None:
        if "jax" not in sys.modules:
            flags = os.environ.get("XLA_FLAGS", "")
            os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false"


class _Piece(NamedTuple):
    """A partition of a table: its index, inputs, targets, weights and exposure."""

    number: int
    inputs: Any
    targets: Any
    weights: Any
    exposure: Any


def _scan(
    scan: ColumnScan, sample: Callable[[Any], np.ndarray], piece: _Piece
) -> tuple[ColumnScan, np.ndarray] | None:
    """A scan of a partition's columns and a sample of its targets; None if empty."""
    if len(piece.inputs) == 0:
        return None
    with prefix_errors(f"partition {piece.number}"):
        return scan.scan(piece.inputs), sample(np.asarray(piece.targets))


def _encode(
    local: SphericalGP, columns: Columns, known: dict[str, Any], piece: _Piece
) -> list[Chunk] | None:
    """A partition as numbers, one chunk per target; None if it is empty."""
    if len(piece.inputs) == 0:
        return None
    targets, weights, exposure = (
        None if values is None else np.asarray(values)
        for values in (piece.targets, piece.weights, piece.exposure)
    )
    given = Given(piece.inputs, targets, weights, exposure=exposure)
    with prefix_errors(f"partition {piece.number}"):
        return by_output(local._rows(columns, known, given))


def _apply(function: Callable[[Any], Result], value: Any) -> Result:
    return function(value)


def _count_rows(rows: list[Chunk] | None) -> int:
    return 0 if rows is None else len(rows[0])


def _select_output(rows: list[Chunk] | None, index: int) -> Chunk | None:
    return None if rows is None else rows[index]


def _is_dask(table: Any) -> bool:
    return dask.is_dask_collection(table)


def _split(given: Given) -> list[Any]:
    """Partitions of a table with their targets and weights, not yet computed."""
    X, y, sample_weight = given.X, given.y, given.sample_weight
    exposure = given.exposure
    if given.target is not None:
        names = given.columns_beside
        missing = [name for name in names if name not in X.columns]
        if missing:
            raise ValueError(
                f"column {missing[0]!r} is missing; X has the columns "
                f"{', '.join(map(str, X.columns))}"
            )
        y = X[given.target]
        sample_weight = None if given.weight is None else X[given.weight]
        exposure = None if exposure is None else X[exposure]
        X = X.drop(columns=names)
    if y is None:
        raise ValueError(
            "there is no target: pass y, or target=, the name of a column of X"
        )
    inputs = _partitions(X)
    others = [
        [None] * len(inputs) if values is None else _partitions(_align(values, X))
        for values in (y, sample_weight, exposure)
    ]
    for name, parts in zip(("y", "sample_weight", "exposure"), others, strict=True):
        if len(parts) != len(inputs):
            raise ValueError(
                f"X has {len(inputs)} partitions and {name} has {len(parts)}; "
                "repartition one of them to match the other"
            )
    piece = dask.delayed(_Piece, pure=True)
    return [
        piece(index, *parts)
        for index, parts in enumerate(zip(inputs, *others, strict=True))
    ]


def _align(values: Any, X: Any) -> Any:
    """Targets or weights in the partitions of X, rechunked if both are arrays."""
    if isinstance(values, da.Array) and isinstance(X, da.Array):
        rows = X.chunks[0]
        if values.chunks[0] != rows and not np.isnan(rows).any():
            return values.rechunk({0: rows})
    if not _is_dask(values):
        raise TypeError(
            "X is a dask collection, but y, weights or exposure has type "
            f"{type(values).__name__}; pass dask collections for all of them"
        )
    return values


def _partitions(table: Any) -> list[Any]:
    """The partitions of a collection, as delayed values with all columns in each."""
    if isinstance(table, da.Array):
        if table.ndim == 2 and table.numblocks[1] > 1:
            table = table.rechunk({1: -1})
        return table.to_delayed().ravel().tolist()
    return list(table.to_delayed())


def _partition_sizes(table: Any) -> list[Any]:
    if isinstance(table, da.Array):
        return list(table.chunks[0])
    return [np.nan] * table.npartitions


class _OnCluster(SphericalGP):
    """Base class of both estimators: fits partitions, predicts lazy collections."""

    client: Any
    _kind: type[SphericalGP]

    @property
    def client_(self) -> Any:
        """The client in use: the parameter, or the current client by default."""
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
                f"n_neighbors out, or use {self._kind.__name__}"
            )
        with _mention_checkpoint(checkpoint):
            pieces = self._compute(given)
            return self._fit_pieces(pieces, of_targets, given.target_name, checkpoint)

    def _recipe(self, columns: Columns) -> Recipe:
        return dataclasses.replace(super()._recipe(columns), n_neighbors=0)

    def _fit_pieces(
        self,
        pieces: list[Any],
        of_targets: Sequence[Any],
        name: str | None,
        checkpoint: Any,
    ):
        client, local = self.client_, self._unfitted()
        scan = functools.partial(_scan, local._look, local._some_targets)
        results = gather(client, [self._task(scan, piece) for piece in pieces])
        results = [result for result in results if result is not None]
        if not results:
            raise ValueError("the table has no rows; pass at least one")
        scans, samples = zip(*results, strict=True)
        columns = functools.reduce(ColumnScan.merge, scans).columns()
        known = self._learned_of_targets(np.concatenate(samples), *of_targets)
        known["target_name_"] = name
        sources = self._encode_rows(pieces, columns, known)
        recipe = self._recipe(columns)
        start = self.process_ if self._may_start_warm(columns, recipe) else None
        models = self._taught(sources, known, recipe, start, checkpoint)
        self._accept(columns, models, known)
        return self

    def _sources(self, given, refit=False):
        pieces = self._compute(given)
        return self._encode_rows(pieces, self.columns_, self._known)

    def _compute(self, given: Given) -> list[Any]:
        """Futures of the partitions, computed by the workers."""
        self._check_exposure(given.exposure)
        if not _is_dask(given.X):
            raise TypeError(
                f"X has type {type(given.X).__name__}; pass a dask array or dataframe, "
                f"or use {self._kind.__name__} for tables on one machine"
            )
        register(self.client_, _OneThreadEach())
        return self.client_.compute(_split(given))

    def _encode_rows(
        self, pieces: list[Any], columns: Columns, known: dict[str, Any]
    ) -> list[Source]:
        """The rows as numbers on their workers, one source per target."""
        client = self.client_
        encode = functools.partial(_encode, self._unfitted(), columns, known)
        shared_encode = send_to_all(client, encode)
        rows = [
            client.submit(_apply, shared_encode, piece, pure=False) for piece in pieces
        ]
        counts = gather(client, [self._task(_count_rows, part) for part in rows])
        outputs = known.get("outputs_shape_") or (1,)
        return [
            DaskSource(
                client,
                [
                    client.submit(_select_output, part, index, pure=False)
                    for part in rows
                ],
                counts,
                len(columns.outputs),
            )
            for index in range(outputs[0])
        ]

    def _task(self, function: Callable, *values: Any) -> Any:
        return self.client_.submit(function, *values, pure=False)

    def _unfitted(self) -> SphericalGP:
        """An unfitted estimator for one machine, which can be sent to workers."""
        parameters = self.get_params(deep=False)
        for name in ("client", "callbacks"):
            parameters.pop(name)
        return self._kind(**parameters)

    def _blocks(self, X):
        if _is_dask(X):
            raise TypeError(
                "this method does not run on a cluster; call it on to_local(), with "
                "X.compute()"
            )
        return super()._blocks(X)

    def __sklearn_clone__(self) -> Any:
        # The clone uses the same client.
        return type(self)(**self.get_params(deep=False))

    def __getstate__(self) -> Any:
        # A client cannot be pickled; the copy uses the client that is current there.
        return {**super().__getstate__(), "client": None}

    def to_local(self) -> Any:
        """The same fitted model as an estimator for one machine."""
        local = self._unfitted().set_params(callbacks=self.callbacks)
        if hasattr(self, "models_"):
            local._accept(self.columns_, self.models_, self._known)
        return local

    def save(self, path) -> None:
        """Write the fitted model to one file, to be read by `zonal.load`.

        `zonal.load` returns an estimator for one machine.
        """
        self.to_local().save(path)

    def _predict_lazily(
        self,
        X: Any,
        read: Callable,
        columns: Sequence[int],
        dtype: Any = np.float64,
        exposure: Any = None,
    ) -> Any:
        """Predictions of the local model for all rows, as a lazy dask array."""
        local = self.to_local()
        if not _is_dask(X):
            return read(local, X, **_exposure_arguments(exposure))
        if isinstance(exposure, str):
            X, exposure = X.drop(columns=[exposure]), X[exposure]
        parts = _partitions(X)
        per_row = exposure is not None and (_is_dask(exposure) or np.ndim(exposure))
        exposures = (
            _partitions(_align(exposure, X)) if per_row else [exposure] * len(parts)
        )
        model = dask.delayed(local)
        call = dask.delayed(
            functools.partial(_predict_partition, read, tuple(columns), dtype)
        )
        blocks = [
            da.from_delayed(
                call(model, part, **_exposure_arguments(part_exposure)),
                (size, *columns),
                dtype,
            )
            for part, part_exposure, size in zip(
                parts, exposures, _partition_sizes(X), strict=True
            )
        ]
        return da.concatenate(blocks, allow_unknown_chunksizes=True)


def _exposure_arguments(exposure: Any) -> dict[str, Any]:
    """Keyword arguments that pass an exposure to methods that may not take one."""
    return {} if exposure is None else {"exposure": exposure}


def _predict_partition(
    read: Callable,
    columns: tuple[int, ...],
    dtype: Any,
    model: SphericalGP,
    X: Any,
    **exposure: Any,
) -> np.ndarray:
    """Predictions for a partition, which may be empty."""
    return read(model, X, **exposure) if len(X) else np.empty((0, *columns), dtype)


def _make_init(kind: type[SphericalGP]) -> Callable:
    """An ``__init__`` with the parameters of an estimator and a client."""

    def __init__(self, n_features=None, *, client=None, **parameters):  # noqa: N807
        kind.__init__(self, n_features, **parameters)
        self.client = client

    # scikit-learn reads the names of parameters from the signature.
    signature = inspect.signature(kind.__init__)
    client = inspect.Parameter("client", inspect.Parameter.KEYWORD_ONLY, default=None)
    __init__.__signature__ = signature.replace(  # pyright: ignore
        parameters=[*signature.parameters.values(), client]
    )
    return __init__


class DaskSphericalGPRegressor(_OnCluster, SphericalGPRegressor):
    """`SphericalGPRegressor` for dask arrays and dataframes.

    Parameters
    ----------
    client : distributed.Client, optional
        Client of the cluster; the current client by default.
    n_features, ... : as in `SphericalGPRegressor`.
    """

    _kind = SphericalGPRegressor
    __init__ = _make_init(SphericalGPRegressor)

    def predict(self, X, return_std=False, *, exposure=None):
        """Lazy mean of a new target at each row, and standard deviation on request."""
        outputs = tuple(self.outputs_shape_)
        if not return_std:
            mean = SphericalGPRegressor.predict
            return self._predict_lazily(X, mean, outputs, exposure=exposure)
        columns = (2, *outputs)
        both = self._predict_lazily(
            X, _predict_mean_and_std, columns, exposure=exposure
        )
        return both[:, 0], both[:, 1]

    def predict_quantiles(self, X, alpha, *, exposure=None):
        """Lazy quantiles of a new target at each row."""
        read = functools.partial(_predict_quantiles, alpha)
        columns = (len(np.atleast_1d(alpha)), *self.outputs_shape_)
        return self._predict_lazily(X, read, columns, exposure=exposure)


def _predict_mean_and_std(
    model: SphericalGPRegressor, X: Any, **exposure: Any
) -> np.ndarray:
    return np.stack(model.predict(X, return_std=True, **exposure), axis=1)


def _predict_quantiles(
    alpha: Any, model: SphericalGPRegressor, X: Any, **exposure: Any
) -> np.ndarray:
    return model.predict_quantiles(X, alpha, **exposure)


class DaskSphericalGPClassifier(_OnCluster, SphericalGPClassifier):
    """`SphericalGPClassifier` for dask arrays and dataframes.

    Parameters
    ----------
    client : distributed.Client, optional
        Client of the cluster; the current client by default.
    n_features, ... : as in `SphericalGPClassifier`.
    """

    _kind = SphericalGPClassifier
    __init__ = _make_init(SphericalGPClassifier)

    def predict(self, X):
        """Lazy array of the most probable class of each row."""
        dtype = self.classes_.dtype
        return self._predict_lazily(X, SphericalGPClassifier.predict, (), dtype)

    def predict_proba(self, X):
        """Lazy array of the probability of each class, in the order of ``classes_``."""
        read = SphericalGPClassifier.predict_proba
        return self._predict_lazily(X, read, (len(self.classes_),))
