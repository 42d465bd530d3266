"""Rows in partitions on a cluster, as a source of chunks and sums."""

# Dask says little of its types.
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

# Partitions, or sums, that are taken by one task: a task takes the scheduler as long as
# thousands of rows take a worker. So many tasks each thread has at least, and no more
# rows than this are taken together.
_TOGETHER = 8
_TASKS_A_THREAD = 4
_TASK_ROWS = 100_000
# Attempts to register a plugin while workers die, and seconds between them.
_TRIES = 20
_PAUSE = 0.25


class LostClusterError(RuntimeError):
    """The cluster that rows were on is gone."""


class DaskSource(Source):
    """Rows in partitions on a cluster, each of which a worker turns into numbers.

    Parameters
    ----------
    client
        The cluster.
    parts
        Futures of the partitions' rows, in order.
    counts
        How many rows each has.
    n_inputs
        Columns of the inputs.
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
        told = send_to_all(client, function)
        starts = np.cumsum([0, *self._counts])
        results = [
            client.submit(
                _of_parts,
                told,
                combine,
                [int(starts[number]) for number in group],
                *(self._parts[number] for number in group),
                pure=False,
            )
            for group in self._groups()
        ]
        if not results:
            raise ValueError("the table has no rows; give it at least one")
        while len(results) > 1:
            groups = [
                results[k : k + _TOGETHER] for k in range(0, len(results), _TOGETHER)
            ]
            results = [
                client.submit(_combined, combine, *group, pure=False)
                for group in groups
            ]
        return gather(client, results[0])

    def _groups(self) -> list[list[int]]:
        """Partitions by task: small ones that lie on the same worker go together."""
        client = self._client
        with watch(client):
            threads = sum(client.nthreads().values())
            places = client.who_has(self._parts)
        most = min(_TOGETHER, len(self._parts) // max(1, _TASKS_A_THREAD * threads))
        groups: list[list[int]] = []
        filling: dict[Any, list[int]] = {}
        for number, count in enumerate(self._counts):
            if not count:
                continue
            place = tuple(places.get(self._parts[number].key, ()))
            group = filling.get(place, [])
            rows = sum(self._counts[one] for one in group) + count
            if not (place and group and len(group) < most and rows <= _TASK_ROWS):
                group = filling[place] = []
                groups.append(group)
            group.append(number)
        return groups


def _combined(combine: Callable[..., Result], *parts: Result) -> Result:
    return functools.reduce(combine, parts)


class _Part(Source):
    """The rows of one partition, where they are."""

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


def _of_parts(
    function: Callable[[Source], Result],
    combine: Callable[..., Result],
    starts: Sequence[int],
    *parts: Chunk,
) -> Result:
    """What a worker does with some partitions, each of which has a first row.

    On one core: a worker runs as many tasks side by side as it has threads.
    """
    with sharing_cores(1):
        results = (
            function(_Part(rows, start))
            for rows, start in zip(parts, starts, strict=True)
        )
        return functools.reduce(combine, results)


def send_to_all(client: Any, value: Any) -> Any:
    """A value for all workers, each of which asks for it once.

    As a task, not as data: the scheduler makes it again if those who have it die.
    """
    with watch(client), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        return client.submit(_same, value, pure=False)


def _same(value: Result) -> Result:
    return value


def gather(client: Any, future: Any) -> Any:
    """The result of a future, with an error of our own if the cluster is lost."""
    with watch(client):
        return client.gather(future)


def register(client: Any, plugin: distributed.WorkerPlugin) -> None:
    """Register a plugin with every worker, also with those that start later.

    A worker that dies meanwhile closes the connection; the others are asked again.
    """
    with watch(client):
        for _ in range(_TRIES):
            try:
                client.register_plugin(plugin)
            except distributed.comm.CommClosedError:
                time.sleep(_PAUSE)
            else:
                return
        client.register_plugin(plugin)


@contextlib.contextmanager
def watch(client: Any) -> Iterator[None]:
    """Errors of a cluster that is gone, in words that tell what to do."""
    try:
        yield
    except Exception as error:
        killed = isinstance(error, distributed.scheduler.KilledWorker)
        if client.status == "running" and not killed:
            raise
        raise LostClusterError(
            "the cluster was lost, or a partition killed every worker that took it "
            f"({type(error).__name__}: {error}); the estimator is as it was before: "
            "connect a new client and fit again, with more memory for each worker if "
            "they were killed"
        ) from error
