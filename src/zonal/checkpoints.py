"""Where learning is, and how that is kept in a file."""

import dataclasses
import os

import numpy as np

from zonal.objective import Process
from zonal.storing import FileError, read, write

__all__ = ["Progress", "Step", "load_progress", "save_progress"]


@dataclasses.dataclass(frozen=True)
class Step:
    """What is reported while learning: where it is, and the bound per row there."""

    stage: str
    number: int
    rows: int
    bound: float
    seconds: float


@dataclasses.dataclass(frozen=True, eq=False)
class Progress:
    """Everything there is to know between two rounds of learning.

    ``stage`` counts the samples, ``steps`` the steps on the present one; ``bound`` and
    ``score`` are the bound per row and the held-out log density reached.
    """

    process: Process
    stage: int = 0
    steps: int = 0
    rounds: int = 0
    bound: float = -np.inf
    score: float = -np.inf
    done: bool = False
    history: tuple[Step, ...] = ()


def save_progress(
    path: str | os.PathLike, progress: Progress, fingerprint: str
) -> None:
    """Write a checkpoint, replacing the one before in a single move."""
    write(path, {"fingerprint": fingerprint, "progress": progress}, "checkpoint")


def load_progress(path: str | os.PathLike, fingerprint: str) -> Progress | None:
    """Read a checkpoint of the same run; None where there is none yet."""
    try:
        found = read(path, "checkpoint")
    except FileNotFoundError:
        return None
    except FileError as error:
        raise ValueError(f"{error}; remove it to start afresh") from error
    if found["fingerprint"] != fingerprint:
        raise ValueError(
            f"{os.fspath(path)} is the checkpoint of another recipe or other rows; "
            "remove it to start afresh, or name another file"
        )
    return found["progress"]
