"""One named layout for everything that is learned.

Kernels, spheres, bands and bases are small frozen dataclasses. A field made with
:func:`learned` is a parameter: it always holds a valid value (a positive number, unit
rows, a simplex), and its constraint says how that value is written as free numbers that
an optimiser may move anywhere. Saving, gradients and reports all use the same dotted
names, such as ``kernel.beta`` or ``bands.tail.phases``, in the same order.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Array, Float

__all__ = [
    "POSITIVE",
    "REAL",
    "SIMPLEX",
    "UNIT_ROWS",
    "Constraint",
    "free",
    "free_gradient",
    "learned",
    "named",
    "with_free",
    "with_values",
]

Tree = TypeVar("Tree")

# A learned number: plain when a person holds it, an array under JAX's transformations.
Number = float | int | Float[np.ndarray | Array, ""]


@dataclasses.dataclass(frozen=True)
class Constraint:
    """A set of valid values and its description by free numbers.

    ``pull(value, gradient)`` turns a gradient in the value into one in free numbers.
    """

    name: str
    to_free: Callable[[np.ndarray], np.ndarray]
    from_free: Callable[[np.ndarray], np.ndarray]
    pull: Callable[[np.ndarray, np.ndarray], np.ndarray]


# exp(±50) is far beyond any scale that standardised data can ask for, and keeps every
# product of a few parameters finite in float32.
_LOG_LIMIT = 50.0


def _exp(free: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(np.clip(free, -_LOG_LIMIT, _LOG_LIMIT)))


def _unit_rows(value: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm(value, axis=-1, keepdims=True)
    if not np.all(norm > 0):
        raise ValueError(
            f"row {int(np.argmin(norm > 0))} has no direction: its norm is zero"
        )
    return value / norm


def _tangent(value: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    return gradient - np.sum(gradient * value, axis=-1, keepdims=True) * value


def _softmax(free: np.ndarray) -> np.ndarray:
    logits = np.append(free, 0.0)
    shares = np.exp(logits - logits.max())
    return shares / shares.sum()


REAL = Constraint("real", np.array, np.array, lambda value, gradient: gradient)
POSITIVE = Constraint(
    "positive", np.log, _exp, lambda value, gradient: value * gradient
)
UNIT_ROWS = Constraint("unit rows", np.array, _unit_rows, _tangent)
# Log-ratios to the last share: one number fewer than shares, so no direction is idle.
SIMPLEX = Constraint(
    "simplex",
    lambda value: np.log(value[:-1] / value[-1]),
    _softmax,
    lambda value, gradient: (value * (gradient - value @ gradient))[:-1],
)


def learned(constraint: Constraint, **options: Any) -> Any:
    """Declare a dataclass field as a learned parameter."""
    return dataclasses.field(metadata={"constraint": constraint}, **options)


def named(tree: Any, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Every learned parameter below ``tree`` by its dotted name, in a stable order.

    Examples
    --------
    >>> from zonal import ContinuousDepth
    >>> named(ContinuousDepth(beta=1.5))
    {'beta': array(1.5)}
    """
    wanted = None if names is None else set(names)
    return {
        name: value
        for name, _, value in _walk(tree)
        if wanted is None or name in wanted
    }


def with_values(tree: Tree, values: Mapping[str, Any]) -> Tree:
    """The same tree with some of its learned parameters replaced."""
    known = {name for name, _, _ in _walk(tree)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"no parameter is called {unknown}; there are {sorted(known)}")
    return _replace(tree, values, "")


def free(
    tree: Any, names: Iterable[str] | None = None
) -> Float[np.ndarray, " numbers"]:
    """The learned parameters as one vector of unconstrained numbers."""
    chosen = named(tree, names)
    parts = [
        np.ravel(constraint.to_free(value))
        for name, constraint, value in _walk(tree)
        if name in chosen
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def with_free(
    tree: Tree,
    vector: Float[np.ndarray, " numbers"],
    names: Iterable[str] | None = None,
) -> Tree:
    """The tree that a vector of free numbers describes: the inverse of :func:`free`."""
    chosen = named(tree, names)
    needed = len(free(tree, names))
    if needed != len(vector):
        raise ValueError(f"{needed} free numbers are needed, got {len(vector)}")
    values, start = {}, 0
    for name, constraint, value in _walk(tree):
        if name not in chosen:
            continue
        shape = np.shape(constraint.to_free(value))
        stop = start + int(np.prod(shape))
        value = constraint.from_free(np.reshape(vector[start:stop], shape))
        values[name] = value if shape else float(value)
        start = stop
    return with_values(tree, values)


def free_gradient(
    tree: Any,
    gradients: Mapping[str, np.ndarray],
    names: Iterable[str] | None = None,
) -> Float[np.ndarray, " numbers"]:
    """Gradients by name, in the parameters' own values, as one free vector."""
    chosen = named(tree, names)
    parts = [
        np.ravel(constraint.pull(value, np.asarray(gradients[name], np.float64)))
        for name, constraint, value in _walk(tree)
        if name in chosen
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _walk(tree: Any, prefix: str = "") -> Iterator[tuple[str, Constraint, np.ndarray]]:
    for field in dataclasses.fields(tree):
        value = getattr(tree, field.name)
        name = f"{prefix}{field.name}"
        if "constraint" in field.metadata:
            yield name, field.metadata["constraint"], np.asarray(value, np.float64)
        elif dataclasses.is_dataclass(value):
            yield from _walk(value, f"{name}.")
        elif isinstance(value, tuple):
            for item in value:
                yield from _walk(item, f"{name}.{item.name}.")


def _replace(tree: Any, values: Mapping[str, Any], prefix: str) -> Any:
    changed = {}
    for field in dataclasses.fields(tree):
        value = getattr(tree, field.name)
        name = f"{prefix}{field.name}"
        if name in values:
            changed[field.name] = values[name]
        elif dataclasses.is_dataclass(value):
            changed[field.name] = _replace(value, values, f"{name}.")
        elif isinstance(value, tuple):
            changed[field.name] = tuple(
                _replace(item, values, f"{name}.{item.name}.") for item in value
            )
    return dataclasses.replace(tree, **changed)
