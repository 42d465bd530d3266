"""One pass over the rows: chunks side by side, sums in order.

Statistics and pullback are the only two places where data is touched, and both are a
function of a chunk whose results add up. Here that function runs on one machine: a
thread a core, each with its own chunk, and BLAS on one thread meanwhile. (BLAS's own
threads spin while they wait; NumPy's, SciPy's and XLA's pools on the same cores then
block each other, which costs more than the threads bring.)
The results are added in the order of the rows, so the same rows give the same sums (on
as many cores: a table smaller than a chunk a core is shared out evenly).
"""

import collections
import contextlib
import contextvars
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from zonal.engine.blas import single_threaded_blas
from zonal.tables.sources import CHUNK_ROWS, Source

__all__ = ["chunk_results", "sharing_cores"]

Result = TypeVar("Result")

# So few rows are done sooner than threads are started.
_FEW_ROWS = 512


_share: contextvars.ContextVar[int | None] = contextvars.ContextVar(
    "share", default=None
)


@contextlib.contextmanager
def sharing_cores(count: int) -> Iterator[None]:
    """A context in which passes take no more than so many cores."""
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
    """``function`` of every chunk of a source, computed side by side, in order.

    Several sources of the same rows are read in step, and the function is given a chunk
    of each.
    """
    rows = sources[0].n_rows
    if rows is not None and rows <= _FEW_ROWS:
        with single_threaded_blas():
            yield from map(function, *(one.chunks(_FEW_ROWS) for one in sources))
        return
    workers = core_count()
    # A few rows are shared out evenly, so that no core is idle.
    size = CHUNK_ROWS if rows is None else min(CHUNK_ROWS, -(-rows // workers))
    in_step = zip(*(one.chunks(max(1, size)) for one in sources), strict=True)
    waiting: collections.deque[Future[Result]] = collections.deque()
    with single_threaded_blas(), ThreadPoolExecutor(workers) as pool:
        for chunks in in_step:
            waiting.append(pool.submit(function, *chunks))
            # One chunk ahead of the workers: enough to keep them busy.
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
