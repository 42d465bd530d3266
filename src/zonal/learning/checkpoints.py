"""Checkpoints: files that hold the progress of learning."""

import dataclasses
import hashlib
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zonal.learning.recipe import Recipe
from zonal.prior.parameters import named
from zonal.saving import FileError, part_of, read, write

__all__ = [
    "CheckpointWarning",
    "check_place",
    "fingerprint_of",
    "load_progress",
    "remove_progress",
    "save_progress",
    "warn_unwritten",
]


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written or removed; the fit itself goes on."""


def check_place(path: str | os.PathLike) -> None:
    """Raise an error early if a checkpoint could not be written to ``path``."""
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise ValueError(
            f"there is no folder {folder} for the checkpoint; create it first"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(
            f"{folder} cannot be written to; choose another folder for the checkpoint"
        )


def fingerprint_of(
    recipe: Recipe,
    given: Sequence[Any],
    columns: Iterable[tuple[str, np.ndarray | None]],
) -> str:
    """A digest of a recipe and of rows, which a checkpoint must match.

    ``given`` are all other arguments of the run, such as kernel, sphere and start. The
    time limit may change.
    """
    recipe = dataclasses.replace(recipe, max_seconds=None, kernel=None, sphere=None)
    digest = hashlib.blake2b(repr(recipe).encode(), digest_size=16)
    for part in given:
        # The representation shows kind and levels; values are hashed exactly.
        digest.update(repr(part).encode())
        values = named(part) if dataclasses.is_dataclass(part) else {}
        for name, value in values.items():
            digest.update(name.encode() + value.tobytes())
    for name, column in columns:
        if column is not None:
            digest.update(name.encode() + np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def save_progress(path: str | os.PathLike, progress: Any, fingerprint: str) -> None:
    """Write a checkpoint, replacing the previous one atomically."""
    write(path, {"fingerprint": fingerprint, "progress": progress}, "checkpoint")


def warn_unwritten(path: str | os.PathLike, error: OSError) -> None:
    """Warn that a checkpoint could not be written."""
    warnings.warn(
        f"the checkpoint {os.fspath(path)} could not be written ({error}); the fit "
        "goes on, and if interrupted it resumes from the last one written: make room "
        "there, or name a file elsewhere",
        CheckpointWarning,
        stacklevel=3,
    )


def load_progress(path: str | os.PathLike, fingerprint: str) -> Any:
    """Read a checkpoint of the same run; None if there is none yet."""
    try:
        content = read(path, "checkpoint")
    except FileNotFoundError:
        return None
    except FileError as error:
        raise ValueError(
            f"{error}; remove it to start afresh if it is a checkpoint, or name "
            "another file"
        ) from error
    except OSError as error:
        raise ValueError(
            f"the checkpoint {os.fspath(path)} cannot be read ({error}); make it "
            "readable, remove it to start afresh, or name another file"
        ) from error
    if content["fingerprint"] != fingerprint:
        raise ValueError(
            f"{os.fspath(path)} is the checkpoint of another recipe or other rows; "
            "remove it to start afresh, or name another file"
        )
    return content["progress"]


def remove_progress(path: str | os.PathLike) -> None:
    """Remove a finished checkpoint, and any partial file left by a killed write."""
    try:
        for file in (Path(path), part_of(path)):
            file.unlink(missing_ok=True)
    except OSError as error:
        warnings.warn(
            f"the fit is done, but its checkpoint could not be removed ({error}); "
            "remove it before other rows are fitted with the same file",
            CheckpointWarning,
            stacklevel=3,
        )
