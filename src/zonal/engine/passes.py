"""One pass over the rows: chunks in parallel, sums in order.

Statistics and pullback read the data, and both are functions of a chunk whose results
add up. This module runs such a function on one machine: one thread per core,
each with its own chunk, while BLAS uses a single thread. (BLAS's own threads spin while
they wait; the pools of NumPy, SciPy and XLA on the same cores then block each other,
which costs more than the threads gain.)
The results are added in the order of the rows, so the same rows give the same sums on
the same number of cores (a table smaller than one chunk per core is split evenly).
"""

import collections
import contextlib
import contextvars
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from zonal.engine.blas import single_threaded_blas
from zonal.tables.sources import CHUNK_ROWS, Source

__all__ = ["block_results", "chunk_results", "core_count", "sharing_cores"]

Result = TypeVar("Result")

# A single thread finishes this many rows before a pool would start.
_FEW_ROWS = 512


_share: contextvars.ContextVar[int | None] = contextvars.ContextVar(
    "share", default=None
)


@contextlib.contextmanager
def sharing_cores(count: int) -> Iterator[None]:
    """Return a context in which passes use at most ``count`` cores."""
    token = _share.set(count)
    try:
        yield
    finally:
        _share.reset(token)


def core_count() -> int:
    """Cores that a pass may use."""
    share = _share.get()
    if share is not None:
        return share
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def chunk_results(
    function: Callable[..., Result], *sources: Source
) -> Iterator[Result]:
    """``function`` of every chunk of a source, computed in parallel, returned in order.

    Several sources of the same rows are read in step; the function receives one chunk
    of each.
    """
    rows = sources[0].n_rows
    if rows is not None and rows <= _FEW_ROWS:
        with single_threaded_blas():
            yield from map(function, *(source.chunks(_FEW_ROWS) for source in sources))
        return
    workers = core_count()
    # Small tables are split evenly, so that no core is idle.
    size = CHUNK_ROWS if rows is None else min(CHUNK_ROWS, -(-rows // workers))
    in_step = zip(*(source.chunks(max(1, size)) for source in sources), strict=True)
    with single_threaded_blas():
        yield from _in_order(function, in_step, workers)


def block_results(
    function: Callable[[slice], Result], n_rows: int, size: int
) -> Iterator[Result]:
    """``function`` of every block of an array's rows, in parallel, returned in order.

    The bounds of blocks do not depend on the number of cores, so results do not either.

    Examples
    --------
    >>> list(block_results(lambda block: (block.start, block.stop), 5, 2))
    [(0, 2), (2, 4), (4, 5)]
    """
    blocks = [slice(i, min(i + size, n_rows)) for i in range(0, n_rows, size)]
    workers = min(core_count(), len(blocks))
    if workers <= 1:
        yield from map(function, blocks)
        return
    yield from _in_order(function, ((block,) for block in blocks), workers)


def _in_order(
    function: Callable[..., Result], calls: Iterable[tuple], workers: int
) -> Iterator[Result]:
    """Results of calls with these arguments, computed by threads."""
    waiting: collections.deque[Future[Result]] = collections.deque()
    with ThreadPoolExecutor(workers) as pool:
        for arguments in calls:
            waiting.append(pool.submit(function, *arguments))
            # One call ahead of the workers: enough to keep them busy.
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
