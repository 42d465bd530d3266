"""Learned parameters of a model: their names, constraints and free vectors.

Kernels, spheres, bands and bases are small frozen dataclasses. A field declared with
:func:`parameter` is learned. Its constraint (positive numbers, unit rows, a simplex) is
checked when the object is made, and maps its value to free numbers, which an optimiser
may move anywhere. Gradients and reports use the same dotted names, such as
``kernel.beta`` or ``bands.levels_2_20.phases``, in the same order.
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
    "Fields",
    "check_values",
    "free",
    "free_gradient",
    "named",
    "parameter",
    "same_values",
    "with_free",
    "with_values",
]

Tree = TypeVar("Tree")

# A scalar parameter: a Python number, or an array under JAX's transformations.
Number = float | int | Float[np.ndarray | Array, ""]


@dataclasses.dataclass(frozen=True)
class Constraint:
    """A set of valid values, and maps between it and unconstrained numbers.

    ``pull(numbers, gradient)`` is the gradient in the free numbers, given the gradient
    in the value that they describe.
    """

    name: str
    valid: Callable[[np.ndarray], bool]
    to_free: Callable[[np.ndarray], np.ndarray]
    from_free: Callable[[np.ndarray], np.ndarray]
    pull: Callable[[np.ndarray, np.ndarray], np.ndarray]


# exp(±40) is far beyond any scale that standardised data needs, and keeps every
# product of a few parameters finite in float32.
_LOG_LIMIT = 40.0


def _exp(numbers: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(np.clip(numbers, -_LOG_LIMIT, _LOG_LIMIT)))


def _pull_exp(numbers: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    return np.where(np.abs(numbers) < _LOG_LIMIT, _exp(numbers) * gradient, 0.0)


def _row_norms(value: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm(value, axis=-1, keepdims=True)
    if not np.all(norm > 0):
        raise ValueError(
            f"row {int(np.argmin(norm > 0))} has no direction: its norm is zero"
        )
    return norm


def _unit_rows(numbers: np.ndarray) -> np.ndarray:
    return numbers / _row_norms(numbers)


def _pull_unit_rows(numbers: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    norm = _row_norms(numbers)
    value = numbers / norm
    inward = np.sum(gradient * value, axis=-1, keepdims=True)
    return (gradient - inward * value) / norm


def _softmax(numbers: np.ndarray) -> np.ndarray:
    # Log-ratios to the last share: one number fewer than shares, so no direction is
    # idle. The clip keeps every share above zero.
    logits = np.append(np.clip(numbers, -_LOG_LIMIT, _LOG_LIMIT), 0.0)
    shares = np.exp(logits - logits.max())
    return shares / shares.sum()


def _pull_softmax(numbers: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    value = _softmax(numbers)
    pulled = (value * (gradient - value @ gradient))[:-1]
    return np.where(np.abs(numbers) < _LOG_LIMIT, pulled, 0.0)


REAL = Constraint(
    "finite",
    lambda value: bool(np.all(np.isfinite(value))),
    np.array,
    np.array,
    lambda numbers, gradient: gradient,
)
POSITIVE = Constraint(
    "positive and finite",
    lambda value: bool(np.all((value > 0) & np.isfinite(value))),
    np.log,
    _exp,
    _pull_exp,
)
UNIT_ROWS = Constraint(
    "rows of norm one",
    lambda value: bool(np.all(np.abs(np.linalg.norm(value, axis=-1) - 1) < 1e-6)),
    np.array,
    _unit_rows,
    _pull_unit_rows,
)
SIMPLEX = Constraint(
    "positive and sum to one",
    lambda value: bool(np.all(value > 0) and abs(np.sum(value) - 1) < 1e-6),
    lambda value: np.log(value[:-1] / value[-1]),
    _softmax,
    _pull_softmax,
)


def parameter(constraint: Constraint, **options: Any) -> Any:
    """Declare a dataclass field as a learned parameter."""
    return dataclasses.field(metadata={"constraint": constraint}, **options)


class Fields:
    """A dataclass of which only the fields are pickled, not cached values."""

    def __getstate__(self) -> dict[str, Any]:
        fields = dataclasses.fields(self)  # pyright: ignore
        return {field.name: getattr(self, field.name) for field in fields}


def check_values(tree: Any) -> None:
    """Raise ValueError for invalid values; for use in ``__post_init__``.

    Values that JAX is tracing are not checked.
    """
    for field in dataclasses.fields(tree):
        constraint = field.metadata.get("constraint")
        value = getattr(tree, field.name)
        if constraint is None or value is None or isinstance(value, Array):
            continue
        if not constraint.valid(np.asarray(value)):
            raise ValueError(f"{field.name} must be {constraint.name}, got {value}")


def named(tree: Any, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """All parameters of a tree by dotted name, in a stable order.

    Examples
    --------
    >>> from zonal import ARD
    >>> named(ARD.isotropic(4))
    {'scales': array([0.5, 0.5, 0.5, 0.5]), 'radial_order': array(0.)}
    """
    return {name: value for name, _, value in _select(tree, names)}


def same_values(first: Any, second: Any) -> bool:
    """Whether two trees have the same parameters with the same values."""
    values, other = named(first), named(second)
    return values.keys() == other.keys() and all(
        np.array_equal(values[name], other[name]) for name in values
    )


def with_values(tree: Tree, values: Mapping[str, Any]) -> Tree:
    """The same tree with some of its parameters replaced.

    Examples
    --------
    >>> from zonal import ContinuousDepth
    >>> with_values(ContinuousDepth(), {"beta": 2.0}).beta
    2.0
    """
    _select(tree, values)
    return _replace(tree, values, "")


def free(
    tree: Any, names: Iterable[str] | None = None
) -> Float[np.ndarray, " numbers"]:
    """The parameters as one vector of unconstrained numbers.

    Examples
    --------
    >>> from zonal import ContinuousDepth
    >>> free(ContinuousDepth(beta=1.0), ["beta"])
    array([0.])
    """
    parts = [
        np.ravel(constraint.to_free(value))
        for _, constraint, value in _select(tree, names)
    ]
    return np.concatenate([np.zeros(0), *parts])


def with_free(
    tree: Tree,
    vector: Float[np.ndarray, " numbers"],
    names: Iterable[str] | None = None,
) -> Tree:
    """The tree whose parameters a free vector describes: the inverse of :func:`free`.

    Examples
    --------
    >>> from zonal import ContinuousDepth
    >>> with_free(ContinuousDepth(), np.array([0.0]), ["beta"]).beta
    1.0
    """
    values = {}
    for name, constraint, numbers in _split(tree, vector, names):
        value = constraint.from_free(numbers)
        values[name] = value if np.ndim(value) else float(value)
    return with_values(tree, values)


def free_gradient(
    tree: Any,
    gradients: Mapping[str, np.ndarray],
    vector: Float[np.ndarray, " numbers"] | None = None,
    names: Iterable[str] | None = None,
) -> Float[np.ndarray, " numbers"]:
    """The gradient in the free vector, from gradients in the parameters by name.

    ``vector`` is the free vector from which the tree was made, if it is not
    ``free(tree)``: unit rows, for instance, have lost the length of their free numbers.

    Examples
    --------
    >>> from zonal import ContinuousDepth
    >>> free_gradient(ContinuousDepth(2.0), {"beta": np.array(3.0)}, names=["beta"])
    array([6.])
    """
    chosen = None if names is None else list(names)
    numbers = free(tree, chosen) if vector is None else vector
    parts = [
        np.ravel(constraint.pull(part, np.asarray(gradients[name], np.float64)))
        for name, constraint, part in _split(tree, numbers, chosen)
    ]
    return np.concatenate([np.zeros(0), *parts])


def _split(tree: Any, vector: np.ndarray, names: Iterable[str] | None):
    """The part of a free vector that belongs to each parameter."""
    chosen = [
        (name, constraint, np.shape(constraint.to_free(value)))
        for name, constraint, value in _select(tree, names)
    ]
    ends = np.cumsum([0] + [int(np.prod(shape)) for _, _, shape in chosen])
    if ends[-1] != len(vector):
        raise ValueError(f"{ends[-1]} free numbers are needed, got {len(vector)}")
    return [
        (name, constraint, np.reshape(vector[start:stop], shape))
        for (name, constraint, shape), start, stop in zip(
            chosen, ends[:-1], ends[1:], strict=True
        )
    ]


def _select(
    tree: Any, names: Iterable[str] | None
) -> list[tuple[str, Constraint, np.ndarray]]:
    everything = list(_walk(tree))
    if names is None:
        return everything
    wanted = set(names)
    known = [name for name, _, _ in everything]
    unknown = sorted(wanted - set(known))
    if unknown:
        raise ValueError(f"no parameter is called {unknown}; choose from {known}")
    return [item for item in everything if item[0] in wanted]


def _walk(tree: Any, prefix: str = "") -> Iterator[tuple[str, Constraint, np.ndarray]]:
    for field in dataclasses.fields(tree):
        value = getattr(tree, field.name)
        name = f"{prefix}{field.name}"
        if value is None:
            continue
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
