"""The width and shape of errors at each row.

Errors of real tables are wider in some places than in others. How wide is visible in
the leave-one-out residuals of the rows nearby, in the spread of their targets about the
prediction, in the predicted standard deviation and in the prediction itself. A row's
width is its predicted standard deviation times

    exp(a + Σ_j b_j x_j),

where x_j are these quantities, limited to the range in which they were seen. The
coefficients maximise Student's t densities of held-out errors. What is left has a shape
(`zonal.likelihoods.shape`): one for all rows, or several for narrow to wide rows.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize
from scipy.special import digamma, gammaln

from zonal.likelihoods.shape import Calibration
from zonal.likelihoods.size_trend import pieces
from zonal.saving import savable

__all__ = ["Errors", "RowLaw"]

# Range of the quantities that is kept: the share of rows beyond each end.
_TAIL = 0.002
# Pieces of the width as a function of the prediction.
_PIECES = 6
_NO_KNOTS = np.zeros(2)
# Weight of the squared coefficients, relative to the mean log density.
_RIDGE = 1e-3
# Added to squared standardised errors, so that errors of zero have a finite width.
_LEAST_SQUARE = 1e-8
# Limits of the degrees of freedom while the coefficients are fitted.
_FREEDOM = (1.2, 50.0)
# The width is at least this share of the distance between values of the target.
_LEAST_STEP = 1 / 64
# Rows per shape, and the largest number of shapes.
_ROWS_PER_SHAPE, _MOST_SHAPES = 400, 5

Rows = Float[np.ndarray, " rows"]


@dataclasses.dataclass(frozen=True, eq=False)
class Errors:
    """Errors of held-out predictions, and what is known at each of their rows.

    Parameters
    ----------
    error
        Targets minus predicted means.
    unit
        Predicted standard deviations of the targets.
    mean
        Predicted means.
    nearby
        Logarithms of sizes of residuals and targets near each row
        (`zonal.engine.nearby`), and as the last column whether it repeats a known row;
        None if nothing is known.
    weight
        Weight of each row.
    step
        Distance between neighbouring values of a target that has few; 0 otherwise.
    """

    error: Rows
    unit: Rows
    mean: Rows
    nearby: Float[np.ndarray, "rows sizes"] | None
    weight: Rows
    step: float = 0.0

    def __getitem__(self, rows: np.ndarray) -> "Errors":
        nearby = None if self.nearby is None else self.nearby[rows]
        return Errors(
            self.error[rows],
            self.unit[rows],
            self.mean[rows],
            nearby,
            self.weight[rows],
            self.step,
        )

    def __len__(self) -> int:
        return len(self.error)

    @property
    def repeats(self) -> Bool[np.ndarray, " rows"]:
        """Whether each row repeats a known one."""
        if self.nearby is None:
            return np.zeros(len(self), bool)
        return self.nearby[:, -1] > 0

    @property
    def known(self) -> tuple[Rows, Rows, np.ndarray | None]:
        """What is known of a row before its target: unit, mean, and nearby."""
        return self.unit, self.mean, self.nearby

    @property
    def standardised(self) -> Rows:
        """Errors in units of their predicted standard deviations."""
        return self.error / self.unit


@savable
@dataclasses.dataclass(frozen=True)
class RowLaw:
    """How the width and the shape of errors depend on what is known at a row.

    Parameters
    ----------
    knots
        Ends of the intervals of the prediction in which the width may have a slope of
        its own.
    coefficients
        a, then the b_j of the quantities.
    low, high
        The range of each quantity.
    least
        The smallest width.
    shapes
        Shapes of standardised errors, from narrow to wide rows.
    limits
        The widths that separate the shapes, in logarithms.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> mean, one = generator.normal(size=4000), np.ones(4000)
    >>> error = np.exp(mean) * generator.normal(size=4000)
    >>> law = RowLaw.of(Errors(error, one, mean, None, one))
    >>> law.width(one[:2], np.array([0.0, 2.0]), None).round()
    array([1., 7.])
    """

    knots: tuple[float, ...]
    coefficients: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    least: float
    shapes: tuple[Calibration, ...]
    limits: tuple[float, ...] = ()

    @classmethod
    def of(cls, errors: Errors, several: bool = False) -> "RowLaw":
        """The law fitted to errors, with ``several`` shapes or one."""
        knots = np.quantile(errors.mean, np.linspace(0, 1, _PIECES + 1))
        known = _known_quantities(knots, errors.unit, errors.mean, errors.nearby)
        low, high = np.quantile(known, [_TAIL, 1 - _TAIL], axis=0)
        coefficients = _fit_coefficients(errors, np.clip(known, low, high))
        law = cls(
            tuple(knots.tolist()),
            tuple(coefficients.tolist()),
            tuple(low.tolist()),
            tuple(high.tolist()),
            _LEAST_STEP * errors.step,
            (Calibration(),),
        )
        width = law.width(errors.unit, errors.mean, errors.nearby)
        z = errors.error / width
        common = Calibration.of(z, errors.weight)
        if not several:
            return dataclasses.replace(law, shapes=(common,))
        count = min(_MOST_SHAPES, max(len(errors) // _ROWS_PER_SHAPE, 1))
        limits = np.quantile(np.log(width), np.arange(1, count) / count)
        law = dataclasses.replace(law, limits=tuple(np.unique(limits).tolist()))
        index = law.shape_index(width)
        shapes = [
            Calibration.of(z[index == group], errors.weight[index == group], common)
            for group in range(len(law.limits) + 1)
        ]
        return dataclasses.replace(law, shapes=tuple(shapes))

    @classmethod
    def of_shape(cls, errors: Errors) -> "RowLaw":
        """Predicted standard deviations as widths, with one shape."""
        shape = Calibration.of(errors.standardised, errors.weight)
        columns = len(_known_quantities(_NO_KNOTS, *errors[np.arange(1)].known)[0])
        none = (0.0,) * columns
        return cls(tuple(_NO_KNOTS), (0.0, *none), none, none, 0.0, (shape,))

    def width(self, unit: Rows, mean: Rows, nearby: np.ndarray | None) -> Rows:
        """The width of errors at rows with these predicted standard deviations."""
        known = _known_quantities(np.array(self.knots), unit, mean, nearby)
        known = np.clip(known, self.low, self.high)
        factor = self.coefficients[0] + known @ np.array(self.coefficients[1:])
        return np.hypot(unit * np.exp(factor), self.least)

    def shape_index(self, width: Rows) -> Int[np.ndarray, " rows"]:
        """The index of each row's shape."""
        return np.searchsorted(np.array(self.limits), np.log(width), side="right")


def _known_quantities(
    knots: np.ndarray, unit: Rows, mean: Rows, nearby: np.ndarray | None
) -> Float[np.ndarray, "rows quantities"]:
    """What a row's width depends on, a column for each quantity."""
    columns = [np.log(unit), pieces(mean[:, None], knots[:, None])]
    return np.column_stack(columns if nearby is None else [*columns, nearby[:, :-1]])


def _fit_coefficients(
    errors: Errors, known: np.ndarray
) -> Float[np.ndarray, " coefficients"]:
    """The coefficients that maximise Student's t densities of standardised errors."""
    centre, width = known.mean(axis=0), known.std(axis=0)
    width = np.where(width > 1e-9, width, np.inf)
    columns = np.column_stack([np.ones(len(known)), (known - centre) / width])
    squares = errors.standardised**2 + _LEAST_SQUARE
    weight = errors.weight / errors.weight.sum()
    start = np.zeros(columns.shape[1] + 1)
    start[0] = 0.5 * np.log(np.median(squares))
    start[-1] = np.log(4.0)
    fit = minimize(
        functools.partial(_loss, columns, squares, weight),
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-25.0, 25.0)] * columns.shape[1] + [tuple(np.log(_FREEDOM))],
    )
    slopes = fit.x[1:-1] / width
    return np.concatenate([[fit.x[0] - slopes @ centre], slopes])


def _loss(
    columns: np.ndarray, squares: np.ndarray, weight: np.ndarray, vector: np.ndarray
) -> tuple[float, np.ndarray]:
    """Mean negative log density plus the ridge, and its gradient."""
    slopes, freedom = vector[:-1], np.exp(vector[-1])
    factor = columns @ slopes
    ratio = squares * np.exp(-2 * factor) / freedom
    constant = gammaln((freedom + 1) / 2) - gammaln(freedom / 2)
    constant -= 0.5 * np.log(freedom * np.pi)
    density = constant - factor - (freedom + 1) / 2 * np.log1p(ratio)
    pull = (freedom + 1) * ratio / (1 + ratio)
    by_factor = columns.T @ (weight * (pull - 1))
    by_freedom = digamma((freedom + 1) / 2) - digamma(freedom / 2) - 1 / freedom
    by_freedom = 0.5 * (by_freedom - weight @ np.log1p(ratio) + weight @ pull / freedom)
    ridge = _RIDGE * np.concatenate([[0.0], slopes[1:]])
    loss = -weight @ density + 0.5 * ridge @ slopes
    return loss, np.append(ridge - by_factor, -freedom * by_freedom)


def for_each_shape(
    shapes: Sequence[Calibration],
    index: Int[np.ndarray, " rows"],
    function: Callable[[Calibration, np.ndarray], np.ndarray],
    values: np.ndarray,
) -> np.ndarray:
    """A function of shape and values, for rows whose shapes have these indices."""
    used = np.unique(index).tolist() if len(shapes) > 1 else [0]
    if len(used) <= 1:
        return function(shapes[used[0] if used else 0], values)
    found = [(index == one, shapes[one]) for one in used]
    parts = [function(shape, values[rows]) for rows, shape in found]
    result = np.empty((len(values), *parts[0].shape[1:]))
    for (rows, _), part in zip(found, parts, strict=True):
        result[rows] = part
    return result
