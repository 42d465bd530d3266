"""Checkpoints: the progress of learning, kept in a file."""

import os
import warnings
from pathlib import Path
from typing import Any

from zonal.saving import FileError, part_of, read, write

__all__ = [
    "CheckpointWarning",
    "check_place",
    "load_progress",
    "remove_progress",
    "save_progress",
]


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written or removed; the fit itself goes on."""


def check_place(path: str | os.PathLike) -> None:
    """Refuse a checkpoint that could never be written, before anything is learned."""
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise ValueError(f"there is no folder to keep {path} in; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(
            f"{folder} cannot be written to; keep the checkpoint in another folder"
        )


def save_progress(path: str | os.PathLike, progress: Any, fingerprint: str) -> None:
    """Write a checkpoint, replacing the one before in a single move."""
    write(path, {"fingerprint": fingerprint, "progress": progress}, "checkpoint")


def load_progress(path: str | os.PathLike, fingerprint: str) -> Any:
    """Read a checkpoint of the same run; None where there is none yet."""
    try:
        found = read(path, "checkpoint")
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
    if found["fingerprint"] != fingerprint:
        raise ValueError(
            f"{os.fspath(path)} is the checkpoint of another recipe or other rows; "
            "remove it to start afresh, or name another file"
        )
    return found["progress"]


def remove_progress(path: str | os.PathLike) -> None:
    """Remove a checkpoint that is done with, and what a killed write may have left."""
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
