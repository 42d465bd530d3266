"""One core for a script, and functions in new processes.

Threads are counted when libraries are imported, so scripts call `use_one_core` before
all other imports; this module therefore imports the standard library only.
"""

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

__all__ = ["call_in_new_process", "use_empty_cache", "use_one_core"]

_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


def use_one_core() -> None:
    """Pin this process, and those it starts, to the last of the cores it may use."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.environ.update(dict.fromkeys(_THREADS, "1"))


def call_in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function of a module, called in a new Python process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def use_empty_cache() -> tempfile.TemporaryDirectory:
    """Let new processes compile numba's loops anew; the folder lasts as long as this.

    Otherwise they load the loops that earlier processes compiled.
    """
    folder = tempfile.TemporaryDirectory()
    os.environ["NUMBA_CACHE_DIR"] = folder.name
    return folder
