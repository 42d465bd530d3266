"""Where learning is, and how that is kept in a file.

A checkpoint is an ``.npz`` of plain arrays with a JSON header: reading it runs no code.
It is written beside its place and moved there, so a file is whole or not there at all.
"""

import dataclasses
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from zonal.bands import Band, CompleteLevel
from zonal.basis import Basis
from zonal.kernels import Kernel
from zonal.objective import Process
from zonal.parameters import named, with_values
from zonal.sphere import Sphere

_COUNTS = ("stage", "steps", "rounds", "bound", "score", "done")

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
    header = {
        "fingerprint": fingerprint,
        "bands": [
            [band.first, band.last, band.complete]
            for band in progress.process.basis.bands
        ],
        "max_level": progress.process.basis.kernel.last_level,
        **{name: getattr(progress, name) for name in _COUNTS},
        "history": [dataclasses.astuple(step) for step in progress.history],
    }
    beside = Path(f"{os.fspath(path)}.part")
    with beside.open("wb") as file:
        values: dict[str, Any] = named(progress.process)
        np.savez(file, header=np.array(json.dumps(header)), **values)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def load_progress(
    path: str | os.PathLike, fingerprint: str, sphere: Sphere, kernel: Kernel
) -> Progress | None:
    """Read a checkpoint of the same run; None where there is none yet.

    ``sphere`` and ``kernel`` are of the kinds that the run learns.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            header = json.loads(str(arrays["header"]))
            values = {name: arrays[name] for name in arrays.files if name != "header"}
        found = header["fingerprint"]
    except FileNotFoundError:
        return None
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, EOFError) as error:
        raise ValueError(
            f"{os.fspath(path)} is not a checkpoint; remove it to start afresh"
        ) from error
    if found != fingerprint:
        raise ValueError(
            f"{os.fspath(path)} is the checkpoint of another recipe or other rows; "
            "remove it to start afresh, or name another file"
        )
    if kernel.last_level not in (None, header["max_level"]):
        kernel = dataclasses.replace(kernel, max_level=header["max_level"])  # pyright: ignore
    bands = tuple(
        CompleteLevel(first)
        if complete
        else Band(first, last, values[f"basis.bands.{_name(first, last)}.phases"])
        for first, last, complete in header["bands"]
    )
    energies = values.get("basis.free_energies")
    basis = Basis(sphere, kernel, bands, free_energies=energies)
    return Progress(
        with_values(Process(basis), values),
        history=tuple(Step(*step) for step in header["history"]),
        **{key: header[key] for key in _COUNTS},
    )


def _name(first: int, last: int | None) -> str:
    return Band(first, last, np.eye(2)[:1]).name
