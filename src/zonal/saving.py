"""Storing: models and progress as files of plain numbers, from which no code is run.

A file is in the safetensors format: arrays, and a header of text. The header holds the
format's version, the library's, a digest of everything, and a description of the model
in JSON: which dataclasses it is made of, which fields have which values, and which of
them are arrays. Only classes that are registered as `savable` are ever made from it.

It is written beside its place and moved there, so a file is whole or not there at all.
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

# Classes that a file may hold, by name. They register themselves with `savable`.
_KINDS: dict[str, type] = {}

# Functions that take the fields of a class as an older format has it, by format and
# name of the class, and return today's object.
_CONVERTERS: dict[tuple[int, str], Callable[..., Any]] = {}

Kind = TypeVar("Kind", bound=type)
Converter = TypeVar("Converter", bound=Callable[..., Any])


def savable(kind: Kind) -> Kind:
    """Class decorator: let files hold instances of a dataclass."""
    _KINDS[kind.__name__] = kind
    return kind


def converts(file_format: int, name: str) -> Callable[[Converter], Converter]:
    """Function decorator: make objects from what a class was in an older format."""

    def register(function: Converter) -> Converter:
        _CONVERTERS[file_format, name] = function
        return function

    return register


class FileError(ValueError):
    """A file is not what it should be."""


def write(path: str | os.PathLike, contents: Mapping[str, Any], kind: str) -> None:
    """Write a dictionary of numbers, texts, arrays and zonal's own objects.

    ``kind`` says what the file is, such as ``"model"``; `read` asks for the same.
    """
    from zonal import __version__

    arrays: dict[str, np.ndarray] = {}
    description = json.dumps(_described(dict(contents), arrays))
    header = {
        "zonal": kind,
        "format": str(_FORMAT),
        "library": __version__,
        "description": description,
        "digest": _digest(description, arrays),
    }
    # A file has at least one array.
    data = save(arrays or {"none": np.zeros(0)}, header)
    beside = part_of(path)
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def part_of(path: str | os.PathLike) -> Path:
    """Where a file is while it is being written."""
    return Path(f"{os.fspath(path)}.part")


def read(path: str | os.PathLike, kind: str) -> dict[str, Any]:
    """Read what `write` wrote; anything else is refused with a word on why.

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
    with Path(path).open("rb"):  # a missing or forbidden file says so itself
        pass
    try:
        with safe_open(name, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise FileError(
            f"{name} is not a file of zonal, or not the whole of one"
        ) from error
    if header.get("zonal") != kind:
        raise FileError(f"{name} is not a {kind} of zonal")
    if not header.get("format", "").isdigit() or int(header["format"]) > _FORMAT:
        raise FileError(
            f"{name} was written by zonal {header.get('library')}, in a later format "
            "than this version reads; update zonal"
        )
    description = header.get("description", "")
    arrays.pop("none", None)
    if header.get("digest") != _digest(description, arrays):
        raise FileError(f"{name} has been altered or damaged since it was written")
    try:
        return _restored(json.loads(description), arrays, int(header["format"]))
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise FileError(f"{name} does not describe a {kind}: {error}") from error


def _digest(description: str, arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(description.encode())
    for key in sorted(arrays):
        array = np.ascontiguousarray(arrays[key])
        digest.update(f"{key} {array.dtype} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _described(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A value as JSON; arrays are put aside and stand there by their names."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, np.generic):
        return value
    if isinstance(value, np.dtype) or (
        isinstance(value, type) and issubclass(value, np.generic)
    ):
        return {"$dtype": np.dtype(value).name}
    if isinstance(value, np.generic):
        return _described(value.item(), arrays)
    if isinstance(value, tuple):
        return {"$tuple": [_described(one, arrays) for one in value]}
    if isinstance(value, list):
        return [_described(one, arrays) for one in value]
    if isinstance(value, dict):
        pairs = [
            [_described(k, arrays), _described(v, arrays)] for k, v in value.items()
        ]
        return {"$dict": pairs}
    if dataclasses.is_dataclass(value) and type(value).__name__ in _KINDS:
        fields = {
            field.name: _described(getattr(value, field.name), arrays)
            for field in dataclasses.fields(value)
        }
        return {"$": type(value).__name__, "fields": fields}
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.dtype.kind in "OUS":
            return {"$texts": [_described(one, arrays) for one in array.tolist()]}
        name = f"{len(arrays):04}"
        # A memory order of its own keeps products the same to the last bit.
        fortran = array.ndim == 2 and not array.flags.c_contiguous
        arrays[name] = np.ascontiguousarray(array.T if fortran else array)
        return {"$array": name, "fortran": fortran}
    raise TypeError(f"a {type(value).__name__} cannot be stored: {value!r}")


def _restored(value: Any, arrays: Mapping[str, np.ndarray], file_format: int) -> Any:
    def restored(part: Any) -> Any:
        return _restored(part, arrays, file_format)

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
        raise KeyError(f"{name!r} is not a class that zonal stores")
    return make(**{key: restored(part) for key, part in value["fields"].items()})
