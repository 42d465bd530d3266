"""A source of chunks and sums from partitions of rows on a cluster."""

# Dask has few type annotations.
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import contextlib
import functools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import distributed
import numpy as np

from zonal.engine.passes import sharing_cores
from zonal.tables.chunks import Chunk
from zonal.tables.sources import CHUNK_ROWS, Result, Source, source_of

__all__ = ["DaskSource", "LostClusterError", "gather", "register", "send_to_all"]

# Maximum number of partitions, or sums, per task: scheduling a task takes as long as
# thousands of rows take a worker. Partitions share a task only while each thread has at
# least this number of tasks, and only up to this number of rows per task.
_PARTS_PER_TASK = 8
_TASKS_PER_THREAD = 4
_TASK_ROWS = 100_000
# Maximum number of attempts to register a plugin while workers die, and seconds
# between attempts.
_MAX_ATTEMPTS = 20
_SECONDS_BETWEEN_ATTEMPTS = 0.25


class LostClusterError(RuntimeError):
    """The cluster that held the rows was lost."""


class DaskSource(Source):
    """Rows in partitions on a cluster, each a future of encoded rows.

    Parameters
    ----------
    client
        Client of the cluster.
    parts
        Futures of the partitions' rows, in order.
    counts
        Number of rows of each partition.
    n_inputs
        Number of input columns.
    """

    def __init__(
        self,
        client: Any,
        parts: Sequence[Any],
        counts: Sequence[int],
        n_inputs: int,
    ):
        self._client, self._parts = client, list(parts)
        self._counts, self._n_inputs = list(counts), n_inputs

    @property
    def n_inputs(self) -> int:
        return self._n_inputs

    @property
    def n_rows(self) -> int:
        return sum(self._counts)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Chunk]:
        for part, count in zip(self._parts, self._counts, strict=True):
            if count:
                rows = gather(self._client, part)
                yield from source_of(rows).chunks(size)

    def reduced(
        self, function: Callable[[Source], Result], combine: Callable[..., Result]
    ) -> Result:
        client = self._client
        shared_function = send_to_all(client, function)
        starts = np.cumsum([0, *self._counts])
        results = [
            client.submit(
                _apply_to_parts,
                shared_function,
                combine,
                [int(starts[index]) for index in group],
                *(self._parts[index] for index in group),
                pure=False,
            )
            for group in self._groups()
        ]
        if not results:
            raise ValueError("the table has no rows; pass at least one")
        while len(results) > 1:
            groups = [
                results[k : k + _PARTS_PER_TASK]
                for k in range(0, len(results), _PARTS_PER_TASK)
            ]
            results = [
                client.submit(_combine, combine, *group, pure=False) for group in groups
            ]
        return gather(client, results[0])

    def _groups(self) -> list[list[int]]:
        """Indices of partitions by task; small ones on the same worker share a task."""
        client = self._client
        with watch(client):
            threads = sum(client.nthreads().values())
            workers = client.who_has(self._parts)
        max_parts = min(
            _PARTS_PER_TASK, len(self._parts) // max(1, _TASKS_PER_THREAD * threads)
        )
        groups: list[list[int]] = []
        open_groups: dict[Any, list[int]] = {}
        for index, count in enumerate(self._counts):
            if not count:
                continue
            worker = tuple(workers.get(self._parts[index].key, ()))
            group = open_groups.get(worker, [])
            rows = sum(self._counts[other] for other in group) + count
            fits = len(group) < max_parts and rows <= _TASK_ROWS
            if not (worker and group and fits):
                group = open_groups[worker] = []
                groups.append(group)
            group.append(index)
        return groups


def _combine(combine: Callable[..., Result], *parts: Result) -> Result:
    return functools.reduce(combine, parts)


class _Part(Source):
    """The rows of one partition, on its worker."""

    def __init__(self, rows: Chunk, first_row: int):
        self._rows, self._first_row = source_of(rows), first_row

    @property
    def n_inputs(self) -> int:
        return self._rows.n_inputs

    @property
    def n_rows(self) -> int:
        return self._rows.n_rows

    @property
    def first_row(self) -> int:
        return self._first_row

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Chunk]:
        return self._rows.chunks(size)


def _apply_to_parts(
    function: Callable[[Source], Result],
    combine: Callable[..., Result],
    starts: Sequence[int],
    *parts: Chunk,
) -> Result:
    """Apply a function to partitions that start at the given rows, and combine.

    Uses one core, because a worker runs as many tasks in parallel as it has threads.
    """
    with sharing_cores(1):
        results = (
            function(_Part(rows, start))
            for rows, start in zip(parts, starts, strict=True)
        )
        return functools.reduce(combine, results)


def send_to_all(client: Any, value: Any) -> Any:
    """A future of a value, which each worker fetches once.

    It is a task, not data, so that the scheduler can recompute it if workers die.
    """
    with watch(client), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        return client.submit(_identity, value, pure=False)


def _identity(value: Result) -> Result:
    return value


def gather(client: Any, future: Any) -> Any:
    """The result of a future; raises LostClusterError if the cluster is lost."""
    with watch(client):
        return client.gather(future)


def register(client: Any, plugin: distributed.WorkerPlugin) -> None:
    """Register a plugin with every worker, including those that start later.

    A worker that dies meanwhile closes the connection; registration is then retried.
    """
    with watch(client):
        for _ in range(_MAX_ATTEMPTS):
            try:
                client.register_plugin(plugin)
            except distributed.comm.CommClosedError:
                time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
            else:
                return
        client.register_plugin(plugin)


@contextlib.contextmanager
def watch(client: Any) -> Iterator[None]:
    """Raise LostClusterError, with the remedy, for errors of a lost cluster."""
    try:
        yield
    except Exception as error:
        killed = isinstance(error, distributed.scheduler.KilledWorker)
        if client.status == "running" and not killed:
            raise
        raise LostClusterError(
            "the cluster was lost, or a partition killed every worker that ran it "
            f"({type(error).__name__}: {error}); the estimator is unchanged: connect a "
            "new client and fit again, with more memory per worker if workers were "
            "killed"
        ) from error
