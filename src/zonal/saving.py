"""Saving and loading of models and checkpoints, without executing code from files.

A file is in the safetensors format: arrays and a text header. The header has the
version of the format, the version of zonal, a digest of all contents, and a description
in JSON: the dataclasses, the values of their fields, and which of these are arrays.
Loading creates instances of classes that are registered as `savable` only.

A file is written under a temporary name and then renamed, so it is complete or absent.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

__all__ = ["FileError", "converts", "part_of", "read", "savable", "write"]

_FORMAT = 2

# Classes that files may contain, by name; `savable` registers them.
_KINDS: dict[str, type] = {}

# Functions that take the fields of a class as an older format has it, by format and
# name of the class, and return today's object.
_CONVERTERS: dict[tuple[int, str], Callable[..., Any]] = {}

Kind = TypeVar("Kind", bound=type)
Converter = TypeVar("Converter", bound=Callable[..., Any])


def savable(kind: Kind) -> Kind:
    """Class decorator that allows instances of a dataclass in files."""
    _KINDS[kind.__name__] = kind
    return kind


def converts(file_format: int, name: str) -> Callable[[Converter], Converter]:
    """Function decorator: make objects from what a class was in an older format."""

    def register(function: Converter) -> Converter:
        _CONVERTERS[file_format, name] = function
        return function

    return register


class FileError(ValueError):
    """A file is not a valid file of zonal."""


def write(path: str | os.PathLike, contents: Mapping[str, Any], kind: str) -> None:
    """Write a dictionary of numbers, strings, arrays and savable objects.

    ``kind`` names the kind of file, such as ``"model"``; `read` checks it.
    """
    from zonal import __version__

    arrays: dict[str, np.ndarray] = {}
    description = json.dumps(_describe(dict(contents), arrays))
    header = {
        "zonal": kind,
        "format": str(_FORMAT),
        "library": __version__,
        "description": description,
        "digest": _compute_digest(description, arrays),
    }
    # safetensors needs at least one array.
    data = save(arrays or {"none": np.zeros(0)}, header)
    temporary = part_of(path)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def part_of(path: str | os.PathLike) -> Path:
    """Temporary path of a file while it is written."""
    return Path(f"{os.fspath(path)}.part")


def read(path: str | os.PathLike, kind: str) -> dict[str, Any]:
    """The dictionary that `write` wrote; other files raise a `FileError`.

    Examples
    --------
    >>> import tempfile
    >>> from zonal import ContinuousDepth
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(f"{folder}/one", {"kernel": ContinuousDepth(0.5)}, "example")
    ...     read(f"{folder}/one", "example")["kernel"].beta
    0.5
    """
    name = os.fspath(path)
    with Path(path).open("rb"):  # errors of the system name the file
        pass
    try:
        with safe_open(name, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise FileError(f"{name} is not a file of zonal, or is truncated") from error
    if header.get("zonal") != kind:
        raise FileError(f"{name} is not a {kind} of zonal")
    if not header.get("format", "").isdigit() or int(header["format"]) > _FORMAT:
        raise FileError(
            f"{name} was written by zonal {header.get('library')}, in a later format "
            "than this version can read; update zonal"
        )
    description = header.get("description", "")
    arrays.pop("none", None)
    if header.get("digest") != _compute_digest(description, arrays):
        raise FileError(f"{name} is damaged or was altered after it was written")
    try:
        return _restore(json.loads(description), arrays, int(header["format"]))
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise FileError(f"{name} does not describe a {kind}: {error}") from error


def _compute_digest(description: str, arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(description.encode())
    for key in sorted(arrays):
        array = np.ascontiguousarray(arrays[key])
        digest.update(f"{key} {array.dtype} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _describe(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A value as JSON; arrays are collected and replaced by their names."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, np.generic):
        return value
    if isinstance(value, np.dtype) or (
        isinstance(value, type) and issubclass(value, np.generic)
    ):
        return {"$dtype": np.dtype(value).name}
    if isinstance(value, np.generic):
        return _describe(value.item(), arrays)
    if isinstance(value, tuple):
        return {"$tuple": [_describe(item, arrays) for item in value]}
    if isinstance(value, list):
        return [_describe(item, arrays) for item in value]
    if isinstance(value, dict):
        pairs = [[_describe(k, arrays), _describe(v, arrays)] for k, v in value.items()]
        return {"$dict": pairs}
    if dataclasses.is_dataclass(value) and type(value).__name__ in _KINDS:
        fields = {
            field.name: _describe(getattr(value, field.name), arrays)
            for field in dataclasses.fields(value)
        }
        return {"$": type(value).__name__, "fields": fields}
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.dtype.kind in "OUS":
            return {"$texts": [_describe(item, arrays) for item in array.tolist()]}
        name = f"{len(arrays):04}"
        # The memory order is kept, so that products are bitwise identical.
        fortran = array.ndim == 2 and not array.flags.c_contiguous
        arrays[name] = np.ascontiguousarray(array.T if fortran else array)
        return {"$array": name, "fortran": fortran}
    raise TypeError(f"cannot save an instance of {type(value).__name__}: {value!r}")


def _restore(value: Any, arrays: Mapping[str, np.ndarray], file_format: int) -> Any:
    """The value that `_describe` described, in a format of files."""

    def restored(part: Any) -> Any:
        return _restore(part, arrays, file_format)

    if isinstance(value, list):
        return [restored(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "$dtype" in value:
        return np.dtype(value["$dtype"]).type
    if "$tuple" in value:
        return tuple(restored(part) for part in value["$tuple"])
    if "$dict" in value:
        return {restored(k): restored(v) for k, v in value["$dict"]}
    if "$texts" in value:
        return np.array(restored(value["$texts"]))
    if "$array" in value:
        array = arrays[value["$array"]]
        return array.T if value["fortran"] else array
    name = value["$"]
    make = _CONVERTERS.get((file_format, name), _KINDS.get(name))
    if make is None:
        raise KeyError(f"{name!r} is not a class that zonal saves")
    return make(**{key: restored(part) for key, part in value["fields"].items()})
