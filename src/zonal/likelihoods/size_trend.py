"""How the size of residuals depends on each column.

Noise may vary along columns that the function hardly depends on, and that are therefore
left out of the learned metric. So the logarithm of the size of residuals is regressed
on the columns themselves: a sum of piecewise linear functions, one per column, with a
ridge penalty on their slopes. Its strength is that of the best leave-one-out
predictions.
"""

import dataclasses

import numpy as np
from jaxtyping import Float

from zonal.saving import savable

__all__ = ["SizeTrend", "fit_ridge", "log_sizes", "pieces"]

# Pieces per column, and of all columns together.
_PIECES, _MOST_PIECES = 8, 320
_PENALTIES = np.geomspace(0.1, 1e5, 13)
# Added to squares, so that residuals of zero have a finite logarithm.
_PSEUDO_SQUARE = 0.1


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class SizeTrend:
    """A sum of piecewise linear functions of the columns, constant at both ends.

    Parameters
    ----------
    knots, values
        Ends of the pieces of each column, in ascending order, and the values there.
    level
        Subtracted from the sum, so that its mean over the fitted rows is zero.

    Examples
    --------
    >>> x = np.random.default_rng(0).uniform(-1, 1, size=(5000, 2))
    >>> squares = np.exp(2 * np.abs(x[:, 1]))
    >>> trend, _ = SizeTrend.fit(x, squares, np.ones(5000))
    >>> at = trend.at(np.array([[0.0, 1.0], [0.0, 0.0]]))
    >>> bool(0.6 < at[0] - at[1] < 1.1)
    True
    """

    knots: Float[np.ndarray, "knots columns"]
    values: Float[np.ndarray, "knots columns"]
    level: float = 0.0

    @classmethod
    def fit(
        cls,
        x: Float[np.ndarray, "rows columns"],
        squares: Float[np.ndarray, " rows"],
        weight: Float[np.ndarray, " rows"],
    ) -> "tuple[SizeTrend, Float[np.ndarray, ' rows']]":
        """The trend of squared residuals, and its leave-one-out values at the rows."""
        knots = cls.knots_of(x)
        along = pieces(x, knots)
        slopes, left_out = fit_ridge(along, log_sizes(squares), weight)
        level = float(np.average(along @ slopes, weights=weight))
        return cls.of_slopes(knots, slopes, level), left_out

    @staticmethod
    def knots_of(
        x: Float[np.ndarray, "rows columns"],
    ) -> Float[np.ndarray, "k columns"]:
        """Quantiles of each column."""
        count = min(_PIECES, max(_MOST_PIECES // max(x.shape[1], 1), 1))
        return np.quantile(x.astype(np.float64), np.linspace(0, 1, count + 1), axis=0)

    @classmethod
    def of_slopes(
        cls, knots: Float[np.ndarray, "knots columns"], slopes: np.ndarray, level: float
    ) -> "SizeTrend":
        """The trend with these differences between the values at successive knots."""
        steps = slopes.reshape(knots.shape[1], -1).T
        zero = np.zeros((1, knots.shape[1]))
        return cls(knots, np.concatenate([zero, np.cumsum(steps, axis=0)]), level)

    def at(self, x: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, " rows"]:
        """The trend at some rows."""
        total = np.full(len(x), -self.level)
        for column, (knots, values) in enumerate(
            zip(self.knots.T, self.values.T, strict=True)
        ):
            if values.any():
                total += np.interp(x[:, column], knots, values)
        return total


def pieces(
    x: Float[np.ndarray, "rows columns"], knots: Float[np.ndarray, "knots columns"]
) -> Float[np.ndarray, "rows pieces"]:
    """How far a row is along each piece, from 0 to 1."""
    parts = []
    for column, ends in enumerate(knots.T):
        width = np.diff(ends)
        # A piece without width is a step, which is the end of the piece before it.
        along = x[:, [column]] - ends[:-1]
        width = np.where(width > 0, width, np.inf)
        parts.append(np.clip(along / width, 0.0, 1.0))
    return np.concatenate(parts, axis=1)


def log_sizes(squares: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
    """Logarithms of the sizes of residuals."""
    return 0.5 * np.log(squares + _PSEUDO_SQUARE)


def fit_ridge(
    columns: Float[np.ndarray, "rows columns"],
    target: Float[np.ndarray, " rows"],
    weight: Float[np.ndarray, " rows"],
) -> tuple[Float[np.ndarray, " columns"], Float[np.ndarray, " rows"]]:
    """Coefficients of a ridge regression, and its leave-one-out predictions.

    Columns and target are centred. The penalty is the one whose leave-one-out
    predictions are best.
    """
    columns = columns - np.average(columns, axis=0, weights=weight)
    target = target - np.average(target, weights=weight)
    root = np.sqrt(weight)
    scaled = columns * root[:, None]
    energies, axes = np.linalg.eigh(scaled.T @ scaled)
    energies, projected = np.maximum(energies, 0.0), scaled @ axes
    moment = projected.T @ (root * target)
    best: tuple[float, np.ndarray, np.ndarray] | None = None
    for penalty in _PENALTIES:
        leverage = projected**2 @ (1 / (energies + penalty))
        coefficients = axes @ (moment / (energies + penalty))
        error = (target - columns @ coefficients) / np.maximum(1 - leverage, 1e-6)
        loss = float(weight @ error**2)
        if best is None or loss < best[0]:
            best = loss, coefficients, target - error
    assert best is not None, "there are penalties to choose from"
    return best[1], best[2]
