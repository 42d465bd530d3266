"""Scaling: standardises the columns and the target of a table, and converts back.

A scaling is learned in one or two streaming passes with sums that merge, applied chunk
by chunk in float64 before anything is rounded to float32, and inverted in predictions.
"""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from zonal.saving import savable
from zonal.tables.chunks import Chunk
from zonal.tables.rounding import round_bits, round_to_width
from zonal.tables.sources import CHUNK_ROWS, Result, Source
from zonal.tables.target_maps import Identity, TargetMap

__all__ = ["ConstantWarning", "ScaledSource", "Scaling"]

# Rows used for quantiles, and points of a column's quantile map.
_SKETCH_ROWS = 50_000
_KNOTS = 257
_CLIPPED = 1e-3
# A standard deviation this small, relative to the values, is rounding.
_ROUNDING = 1e-13
# Squares of values beyond these are not in the range of float64.
_LARGEST, _SMALLEST = 1e140, 1e-140
# Standardised inputs beyond the range of float64 are clipped to it.
_FARTHEST = float(np.finfo(np.float64).max)
# Sums of weights that learning can work with.
_FEWEST, _MOST = 0.1, 1e30


class ConstantWarning(UserWarning):
    """A column or the target is constant."""


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Scaling:
    """How a table is standardised.

    Parameters
    ----------
    centre, width
        Subtracted from each column, which is then divided by the width.
    target_centre, target_width, target_varies
        The same for the target, and whether it varies.
    precision
        Geometric mean of the known precisions, which are divided by it, so that noise
        is that of a typical row.
    slopes
        Coefficients of a linear mean in the standardised columns, subtracted from the
        standardised target. Zeros if there is none.
    tails
        ``"keep"``; ``"clip"``: values are clipped to the 0.1% and 99.9% quantiles;
        ``"quantile"``: columns are mapped to normal scores by rank.
    knots
        For ``"clip"`` and ``"quantile"``: quantiles of each column, one column each.
    target_map
        Applied to the target before it is standardised.

    Examples
    --------
    >>> from zonal.tables.sources import ArraySource
    >>> x = np.array([[1.0], [3.0], [5.0]])
    >>> scaling = Scaling.learn(ArraySource(x, np.array([10.0, 20.0, 30.0])))
    >>> scaling.inputs(x)[:, 0].round(3)
    array([-1.225,  0.   ,  1.225])
    """

    centre: Float[np.ndarray, " inputs"]
    width: Float[np.ndarray, " inputs"]
    target_centre: float
    target_width: float
    slopes: Float[np.ndarray, " inputs"]
    target_varies: bool = True
    precision: float = 1.0
    tails: str = "keep"
    knots: Float[np.ndarray, "knots inputs"] | None = None
    target_map: TargetMap = Identity()

    @classmethod
    def learn(
        cls,
        source: Source,
        tails: str = "keep",
        linear_mean: bool = False,
        seed: int = 0,
        target_map: TargetMap | None = None,
    ) -> "Scaling":
        """Learn the scaling of a table; warns of constant columns."""
        if tails not in ("keep", "clip", "quantile"):
            raise ValueError(
                f"tails must be 'keep', 'clip' or 'quantile', got {tails!r}"
            )
        n_inputs = source.n_inputs
        start = cls(
            np.zeros(n_inputs),
            np.ones(n_inputs),
            0.0,
            1.0,
            np.zeros(n_inputs),
            tails=tails,
            knots=None if tails == "keep" else _knots(source, tails, seed),
            target_map=Identity() if target_map is None else target_map,
        )
        moments = _Moments.of(start, source)
        if moments.count == 0:
            raise ValueError(
                "every weight is zero, so no row is left to learn from; "
                "give some row a positive weight"
            )
        if not _FEWEST <= moments.count <= _MOST:
            raise ValueError(
                f"the weights sum to {moments.count:.3g}, and count as that many rows; "
                "multiply all of them by one number, so that their mean is about one"
            )
        deviation = np.sqrt(np.diag(moments.products) / moments.count)
        _check_not_tiny(np.hypot(deviation, moments.mean))
        constant = deviation <= _ROUNDING * np.abs(moments.mean)
        _warn_of_constants(constant)
        # Division by infinity makes a constant column zero, even if new values differ.
        width = np.where(constant, np.inf, deviation)
        centre = float(moments.mean[-1])
        slopes, residual = np.zeros(n_inputs), float(deviation[-1])
        if constant[-1]:
            # One row has no information on the spread; many equal rows have a lot.
            residual = max(abs(centre), 1.0) * (1.0 if moments.count <= 1 else 1e-6)
        elif linear_mean:
            moving = np.flatnonzero(~constant[:-1])
            scaled = moments.products / moments.count / np.outer(width, width)
            inner = scaled[np.ix_(moving, moving)]
            ridge = 1e-6 * np.eye(len(inner))
            slopes[moving] = np.linalg.solve(inner + ridge, scaled[moving, -1])
            unexplained = (
                1 - 2 * slopes @ scaled[:-1, -1] + slopes @ scaled[:-1, :-1] @ slopes
            )
            residual *= float(np.sqrt(max(unexplained, 1e-12)))
            slopes *= deviation[-1] / residual
        width, residual = round_bits(width[:-1]), float(round_bits(residual))
        return dataclasses.replace(
            start,
            centre=round_to_width(moments.mean[:-1], width),
            width=width,
            target_centre=float(round_to_width(centre, residual)),
            target_width=residual,
            target_varies=not constant[-1],
            slopes=round_to_width(slopes, 1.0),
            precision=float(round_bits(np.exp(moments.log_precision / moments.count))),
        )

    @property
    def varying(self) -> np.ndarray:
        """Whether each column varies."""
        return np.isfinite(self.width)

    def of_target_only(self) -> "Scaling":
        """The same scaling of the target, with inputs left unchanged."""
        n_inputs = self.n_inputs
        return dataclasses.replace(
            self,
            centre=np.zeros(n_inputs),
            width=np.ones(n_inputs),
            slopes=np.zeros(n_inputs),
            tails="keep",
            knots=None,
        )

    def of_inputs_only(self) -> "Scaling":
        """The same scaling of the inputs, with the target left unchanged."""
        return dataclasses.replace(self, target_centre=0.0, target_width=1.0)

    @property
    def n_inputs(self) -> int:
        return len(self.centre)

    def check_width(self, n_inputs: int) -> None:
        """Raise an error for rows with another number of columns."""
        if n_inputs != self.n_inputs:
            raise ValueError(
                f"the rows have {n_inputs} columns; the model was fitted to "
                f"{self.n_inputs}"
            )

    def inputs(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "rows inputs"]:
        """Standardised columns, in float64."""
        x = np.asarray(x, np.float64)
        self.check_width(x.shape[1])
        if self.knots is not None:
            x = x.copy()
            scores = _scores(len(self.knots))
            for column, knots in enumerate(self.knots.T):
                if self.tails == "clip":
                    x[:, column] = np.clip(x[:, column], knots[0], knots[-1])
                else:
                    x[:, column] = np.interp(x[:, column], knots, scores)
        with np.errstate(over="ignore"):
            return np.clip((x - self.centre) / self.width, -_FARTHEST, _FARTHEST)

    def mapped_targets(
        self, chunk: Chunk, first_row: int = 0
    ) -> Float[np.ndarray, " rows"]:
        """Mapped targets, not yet standardised; an error names one without a value."""
        targets = chunk.targets
        if self.target_map.is_identity:
            return targets
        self.target_map.check(targets, first_row)
        return self.target_map.forward(targets)

    def chunk(self, chunk: Chunk, first_row: int = 0) -> Chunk:
        """The chunk with standardised columns and target."""
        x, y = self.inputs(chunk.x), None
        if chunk.y is not None:
            mapped = self.mapped_targets(chunk, first_row)
            y = (mapped - self.target_centre) / self.target_width
            y = y - x @ self.slopes
        precision = chunk.precision
        if self.precision != 1.0:
            precision = chunk.precisions / self.precision
        return dataclasses.replace(chunk, x=x, y=y, precision=precision)

    def mean(self, x: Float[np.ndarray, "rows inputs"]) -> Float[np.ndarray, " rows"]:
        """The prior mean of the mapped target."""
        return self.target_centre + self.target_width * (self.inputs(x) @ self.slopes)

    def agrees_with(self, other: "Scaling") -> bool:
        """Whether another scaling is equal to this one."""
        return all(
            np.array_equal(getattr(self, field.name), getattr(other, field.name))
            for field in dataclasses.fields(self)
        )


class ScaledSource(Source):
    """A source whose chunks are standardised by a scaling."""

    def __init__(self, source: Source, scaling: Scaling):
        scaling.check_width(source.n_inputs)
        self._source = source
        self._scaling = scaling

    @property
    def n_inputs(self) -> int:
        return self._source.n_inputs

    @property
    def n_rows(self) -> int | None:
        return self._source.n_rows

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Chunk]:
        first_row = self._source.first_row
        for chunk in self._source.chunks(size):
            yield self._scaling.chunk(chunk, first_row)
            first_row += len(chunk)

    @property
    def first_row(self) -> int:
        return self._source.first_row

    def sample(self, count: int, seed: int = 0) -> Chunk:
        return self._scaling.chunk(self._source.sample(count, seed))

    def reduced(self, function, combine):
        scaled = functools.partial(_apply_scaled, function, self._scaling)
        return self._source.reduced(scaled, combine)


def _apply_scaled(
    function: Callable[[Source], Result], scaling: Scaling, source: Source
) -> Result:
    return function(ScaledSource(source, scaling))


@dataclasses.dataclass(frozen=True, eq=False)
class _Moments:
    """Weighted mean and centred products of columns and target; instances merge."""

    count: float
    mean: np.ndarray
    products: np.ndarray
    log_precision: float = 0.0

    @classmethod
    def of(cls, scaling: Scaling, source: Source) -> "_Moments":
        return source.reduced(functools.partial(cls._collect, scaling), cls.merged)

    @classmethod
    def _collect(cls, scaling: Scaling, source: Source) -> "_Moments":
        size = source.n_inputs + 1
        total = cls(0.0, np.zeros(size), np.zeros((size, size)))
        first_row = source.first_row
        for chunk in source.chunks():
            targets = scaling.mapped_targets(chunk, first_row)
            first_row += len(chunk)
            table = np.column_stack([scaling.inputs(chunk.x), targets])
            _check_not_huge(table)
            total = total.merged(cls._of_table(table, chunk.weights, chunk.precisions))
        return total

    @classmethod
    def _of_table(
        cls, table: np.ndarray, weight: np.ndarray, precision: np.ndarray
    ) -> "_Moments":
        count = float(weight.sum())
        mean = weight @ table / max(count, np.finfo(np.float64).tiny)
        centred = table - mean
        products = (centred * weight[:, None]).T @ centred
        return cls(count, mean, products, float(weight @ np.log(precision)))

    def merged(self, other: "_Moments") -> "_Moments":
        if other.count == 0:
            return self
        count = self.count + other.count
        difference = other.mean - self.mean
        return _Moments(
            count,
            self.mean + difference * (other.count / count),
            self.products
            + other.products
            + np.outer(difference, difference) * (self.count * other.count / count),
            self.log_precision + other.log_precision,
        )


def _knots(source: Source, tails: str, seed: int) -> np.ndarray:
    rows = source.sample(_SKETCH_ROWS, seed).x.astype(np.float64)
    if tails == "clip":
        return np.quantile(rows, [_CLIPPED, 1 - _CLIPPED], axis=0)
    return np.quantile(rows, np.linspace(0, 1, _KNOTS), axis=0)


def _scores(count: int) -> np.ndarray:
    """Normal scores of evenly spaced ranks, the outermost half a rank inside."""
    rank = np.linspace(0, 1, count)
    return ndtri(np.clip(rank, 0.5 / count, 1 - 0.5 / count))


def _check_not_huge(table: np.ndarray) -> None:
    huge = np.argwhere(np.abs(table) > _LARGEST)
    if len(huge):
        row, column = huge[0]
        raise ValueError(
            f"{_name(int(column), table)} has the value {table[row, column]:g}, whose "
            "square is beyond the range of numbers; correct it, or divide the column "
            "by a large number"
        )


def _check_not_tiny(size: np.ndarray) -> None:
    """Raise an error for columns whose squares are zero, although they are not."""
    tiny = np.flatnonzero((size > 0) & (size < _SMALLEST))
    if len(tiny):
        column = int(tiny[0])
        raise ValueError(
            f"{_name(column, size[None])} has values of about {size[column]:.0e} "
            "only, whose squares are beyond the range of numbers; multiply the column "
            "by a large number"
        )


def _name(column: int, table: np.ndarray) -> str:
    """The name of a column of a table, whose last one is the target."""
    return "the target" if column == table.shape[1] - 1 else f"column {column}"


def _warn_of_constants(constant: np.ndarray) -> None:
    columns = ", ".join(str(column) for column in np.flatnonzero(constant[:-1]))
    if columns:
        warnings.warn(
            f"constant columns carry no information and are ignored: {columns}",
            ConstantWarning,
            stacklevel=4,
        )
    if constant[-1]:
        warnings.warn(
            "the target is constant; the model predicts that constant",
            ConstantWarning,
            stacklevel=4,
        )
