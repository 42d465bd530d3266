"""Normal noise, and the law of a new target at each row.

A Gaussian process predicts normal targets, with the same noise everywhere. Held-out
predictions reveal how errors differ from that. `Gaussian.calibrate` chooses between
three laws by the log density of errors that took no part in their fit: the plain normal
of the process, one shape for all rows (`zonal.likelihoods.shape`), and a width and a
shape for each row (`zonal.likelihoods.row_law`). The mean does not change.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from zonal.likelihoods.base import Expected
from zonal.likelihoods.reals import RealLikelihood
from zonal.likelihoods.row_law import Errors, RowLaw, for_each_shape
from zonal.likelihoods.shape import Calibration
from zonal.prior.parameters import POSITIVE, Number, check_values, parameter
from zonal.saving import savable
from zonal.tables.chunks import Chunk
from zonal.tables.sampling import row_bits

__all__ = ["Calibration", "Gaussian"]

# A more detailed law has to gain this much density per row on rows that took no part,
# and as many standard errors of the gain.
_LEAST_GAIN, _LEAST_ERRORS = 2e-3, 1.0
# Rows that are needed to compare laws.
_LEAST_ROWS = 40
# A target has few values if a value is shared by two rows or more, on average; the
# distance between its values is a low quantile, because some values are missing.
_FEW_VALUES, _STEP_QUANTILE = 0.5, 0.1


# A function that fits a law to errors.
_Fit = Callable[[Errors], "Gaussian"]


class _Law(NamedTuple):
    """The width at each row, and the index of its shape."""

    width: Float[np.ndarray, " rows"]
    index: Int[np.ndarray, " rows"]


@savable
@dataclasses.dataclass(frozen=True)
class Gaussian(RealLikelihood):
    """Normal noise of constant variance, solved exactly in one pass over the rows.

    Parameters
    ----------
    noise
        Variance of the noise at precision one, in units of the target's variance.
    calibration
        Distribution of a new target about its mean, in units of its predicted standard
        deviation.
    row_law
        Instead of that, the width and shape of a new target at each row.
    repeat_law
        The same for rows that repeat a stored row, where these differ.

    Examples
    --------
    >>> zero, one = np.zeros((1, 1)), np.ones((1, 1))
    >>> rows = Chunk(np.empty((1, 0)), np.zeros(1))
    >>> float(Gaussian(1.0).log_density(rows, zero, 3 * one)[0].round(3))
    -1.612
    """

    conjugate = True
    noise: Number = parameter(POSITIVE, default=0.1)
    calibration: Calibration = Calibration()
    row_law: RowLaw | None = None
    repeat_law: RowLaw | None = None

    def __post_init__(self) -> None:
        check_values(self)

    @property
    def noise_deviation(self):
        return float(np.sqrt(self.noise))

    @property
    def uses_nearby(self):
        return self.row_law is not None or self.repeat_law is not None

    @property
    def described(self):
        if self.row_law is not None:
            return "errors", "per row", "their width follows from residuals nearby"
        tails = float(self.calibration.quantiles(np.array([0.975]))[0])
        return (
            "residuals",
            f"{np.sqrt(self.calibration.spread):.3f}",
            f"predicted standard deviations; 95 % are within {tails:.2f}",
        )

    def calibrate(self, rows, mean, variance):
        errors = self._errors_of(rows, mean, variance)
        plain = dataclasses.replace(
            self, calibration=Calibration(), row_law=None, repeat_law=None
        )
        repeats = errors.repeats
        new = errors[~repeats]
        if len(new) < _LEAST_ROWS:
            return plain._with_one_shape(errors)
        laws: list[_Fit] = [plain._with_one_shape]
        if new.nearby is not None:
            laws.append(_better(plain._with_row_law, plain._with_shapes, new))
        noise = _best(plain, laws, new)
        if repeats.sum() < _LEAST_ROWS:
            return noise
        again = errors[repeats]
        law = _better(noise._with_repeat_law, noise._with_repeat_shapes, again)
        return _best(noise, [noise._with_repeat_shape, law], again)

    def _errors_of(self, rows: Chunk, mean: np.ndarray, variance: np.ndarray) -> Errors:
        return Errors(
            rows.targets - mean[:, 0],
            self._unit(rows, variance),
            mean[:, 0],
            rows.nearby,
            rows.weights,
            _step_of(rows.targets),
        )

    def _with_one_shape(self, errors: Errors) -> "Gaussian":
        shape = Calibration.of(errors.standardised, errors.weight)
        return dataclasses.replace(self, calibration=shape)

    def _with_row_law(self, errors: Errors) -> "Gaussian":
        return dataclasses.replace(self, row_law=RowLaw.of(errors))

    def _with_shapes(self, errors: Errors) -> "Gaussian":
        return dataclasses.replace(self, row_law=RowLaw.of(errors, several=True))

    def _with_repeat_shape(self, errors: Errors) -> "Gaussian":
        return dataclasses.replace(self, repeat_law=RowLaw.of_shape(errors))

    def _with_repeat_law(self, errors: Errors) -> "Gaussian":
        return dataclasses.replace(self, repeat_law=RowLaw.of(errors))

    def _with_repeat_shapes(self, errors: Errors) -> "Gaussian":
        return dataclasses.replace(self, repeat_law=RowLaw.of(errors, several=True))

    def _densities(self, errors: Errors) -> Float[np.ndarray, " rows"]:
        """Log densities of errors under this law."""
        law = self._law_of(errors.unit, errors.mean, errors.nearby)
        z = errors.error / law.width
        return self._by_shape(law, lambda shape, z: shape.log_density(z), z) - np.log(
            law.width
        )

    def expected(self, rows, mean, variance):
        noise = float(self.noise) / rows.precisions
        error = rows.targets - mean[:, 0]
        squares = (error**2 + variance[:, 0]) / noise
        value = -0.5 * (np.log(2 * np.pi * noise) + squares)
        return Expected(value, (error / noise)[:, None], (-0.5 / noise)[:, None])

    def _unit(self, rows: Chunk, variance: np.ndarray) -> np.ndarray:
        """Predicted standard deviation of a new target."""
        return np.sqrt(variance[:, 0] + float(self.noise) / rows.precisions)

    def _law(self, rows: Chunk, mean: np.ndarray, variance: np.ndarray) -> _Law:
        return self._law_of(self._unit(rows, variance), mean[:, 0], rows.nearby)

    def _law_of(
        self, unit: np.ndarray, mean: np.ndarray, nearby: np.ndarray | None
    ) -> _Law:
        """The width and shape of a new target at each row.

        Shapes are numbered: one for all rows, those per row, those of repeats.
        """
        width, index = unit.copy(), np.zeros(len(unit), np.int64)
        if nearby is None or not self.uses_nearby:
            return _Law(width, index)
        repeats, first = nearby[:, -1] > 0, 1
        for law, rows in ((self.row_law, ~repeats), (self.repeat_law, repeats)):
            # Without a law of their own, repeats follow that of other rows.
            chosen = law if law is not None else self.row_law
            start = first if law is not None else 1
            if chosen is not None and rows.any():
                width[rows] = chosen.width(unit[rows], mean[rows], nearby[rows])
                index[rows] = start + chosen.shape_index(width[rows])
            if law is not None:
                first += len(law.shapes)
        return _Law(width, index)

    def _by_shape(
        self,
        law: _Law,
        function: Callable[[Calibration, np.ndarray], np.ndarray],
        values: np.ndarray,
    ) -> np.ndarray:
        """A function of each row's shape and value."""
        shapes = [self.calibration]
        for row_law in (self.row_law, self.repeat_law):
            shapes.extend(() if row_law is None else row_law.shapes)
        return for_each_shape(shapes, law.index, function, values)

    def log_density(self, rows, mean, variance):
        law = self._law(rows, mean, variance)
        z = (rows.targets - mean[:, 0]) / law.width
        density = self._by_shape(law, lambda shape, z: shape.log_density(z), z)
        return density - np.log(law.width)

    def distribution(self, rows, mean, variance):
        law = self._law(rows, mean, variance)
        z = (rows.targets - mean[:, 0]) / law.width
        return self._by_shape(law, lambda shape, z: shape.distribution(z), z)

    def crps(self, rows, mean, variance):
        law = self._law(rows, mean, variance)
        z = (rows.targets - mean[:, 0]) / law.width
        return law.width * self._by_shape(law, lambda shape, z: shape.crps(z), z)

    def spread(self, rows, mean, variance):
        law = self._law(rows, mean, variance)

        def spreads(shape: Calibration, width: np.ndarray) -> np.ndarray:
            return shape.spread * width**2

        return mean[:, 0], self._by_shape(law, spreads, law.width)

    def quantiles(self, levels, rows, mean, variance):
        law = self._law(rows, mean, variance)

        def scaled(shape: Calibration, width: np.ndarray) -> np.ndarray:
            return width[:, None] * shape.quantiles(levels)

        return mean[:, :1] + self._by_shape(law, scaled, law.width)

    def draw(self, rows, f, generator):
        deviation = np.sqrt(float(self.noise) / rows.precisions)
        return generator.normal(f[:, 0], deviation)

    def draw_new(
        self,
        rows: Chunk,
        mean: np.ndarray,
        variance: np.ndarray,
        count: int,
        generator: np.random.Generator,
    ) -> Float[np.ndarray, "rows samples"]:
        normal = generator.normal(size=(len(mean), count))
        law = self._law(rows, mean, variance)
        shaped = self._by_shape(law, lambda shape, z: shape.of_normal(z), normal)
        return mean[:, :1] + law.width[:, None] * shaped

    def sampler(self, count, generator):
        def draw(
            rows: Chunk, mean: np.ndarray, variance: np.ndarray, f: np.ndarray
        ) -> np.ndarray:
            unit = self._unit(rows, variance)[:, None]
            noise = np.sqrt(float(self.noise) / rows.precisions)[:, None]
            residual = f[:, :, 0] - mean[:, :1]
            residual = residual + noise * generator.normal(size=residual.shape)
            # The normals of a function keep their correlations between rows.
            law = self._law(rows, mean, variance)
            shaped = self._by_shape(
                law, lambda shape, z: shape.of_normal(z), residual / unit
            )
            return mean[:, :1] + law.width[:, None] * shaped

        return draw


def _held_out_densities(law: _Fit, errors: Errors) -> Float[np.ndarray, " rows"]:
    """Log densities of errors; each half is judged by a law fitted to the other."""
    densities = np.empty(len(errors))
    halves = _halves(len(errors))
    for own, other in (halves, halves[::-1]):
        densities[other] = law(errors[own])._densities(errors[other])
    return densities


def _better(law: _Fit, other: _Fit, errors: Errors) -> _Fit:
    """The law of the higher held-out density."""
    first, second = (_held_out_densities(one, errors) for one in (law, other))
    return law if errors.weight @ (first - second) > 0 else other


def _best(plain: Gaussian, laws: list[_Fit], errors: Errors) -> Gaussian:
    """The best law; a more detailed one has to be clearly better."""
    weight = errors.weight / errors.weight.sum()
    best, highest = None, plain._densities(errors)
    for law in laws:
        candidate = _held_out_densities(law, errors)
        gain = candidate - highest
        mean_gain = weight @ gain
        error = np.sqrt(weight**2 @ (gain - mean_gain) ** 2)
        if mean_gain > max(_LEAST_GAIN, _LEAST_ERRORS * error):
            best, highest = law, candidate
    return plain if best is None else best(errors)


def _halves(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Two random halves of the rows."""
    order = np.random.default_rng(row_bits(0)).permutation(count)
    return order[: count // 2], order[count // 2 :]


def _step_of(targets: Float[np.ndarray, " rows"]) -> float:
    """The distance between values of a target that has few; 0 for other targets."""
    values = np.unique(targets)
    if len(values) < 2 or len(values) > _FEW_VALUES * len(targets):
        return 0.0
    return float(np.quantile(np.diff(values), _STEP_QUANTILE))
