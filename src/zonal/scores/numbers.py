"""How well numbers are predicted: errors, densities and intervals of all rows."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import binom

from zonal.likelihoods.counts import CountLikelihood
from zonal.scores.held_out import HeldOut
from zonal.tables.sampling import row_bits

__all__ = [
    "RegressionScores",
    "Residuals",
    "by_chance",
    "regression_scores",
    "residuals_of",
]

STATED = (0.5, 0.8, 0.9, 0.95)
# Columns of a histogram, at least and at most, and rows that each should have.
_LEAST_BINS, _MOST_BINS, _ROWS_A_BIN = 5, 20, 15
# Residuals that are drawn, and groups of rows that a band is made of.
_MOST_POINTS = 2000
_GROUPS = 24

Rows = Float[np.ndarray, " rows"]


@dataclasses.dataclass(frozen=True, eq=False)
class RegressionScores:
    """Numbers over all rows; ``below`` is the probability below each target.

    ``stated`` and ``found`` are the coverage of central intervals, ``pit`` shares of
    rows in equal parts of the predicted distribution, ``off`` each row's error in
    predicted deviations.
    """

    rmse: float
    deviation: float
    log_density: float
    crps: float | None
    plain_density: float
    headline: tuple[tuple[float, float], ...]
    stated: Float[np.ndarray, " levels"]
    found: Float[np.ndarray, " levels"]
    pit: Float[np.ndarray, " bins"]
    mean: Rows
    off: Rows


def regression_scores(distribution: Any, rows: HeldOut) -> RegressionScores:
    """Scores of a predicted distribution of each row (`PredictiveDistribution`)."""
    y, weight = rows.y, rows.weight
    mean, std = distribution.mean(), distribution.std()
    error = y - mean
    deviation = float(np.sqrt(_average((y - _average(y, weight)) ** 2, weight)))
    upper = distribution.cdf(y)
    lower = upper
    if isinstance(distribution.prediction.likelihood, CountLikelihood):
        # A count has a probability of its own: between those of one less and of it.
        lower = np.where(y > 0, distribution.cdf(np.maximum(y - 1, 0)), 0.0)

    def covered(share: float) -> float:
        low, high = (1 - share) / 2, (1 + share) / 2
        return _average((upper >= low) & (lower < high), weight)

    crps = distribution.prediction.crps(y)
    stated = np.linspace(0.05, 0.95, 19)
    place = lower + np.random.default_rng(row_bits(0)).uniform(size=len(y)) * (
        upper - lower
    )
    bins = int(np.clip(rows.effective // _ROWS_A_BIN, _LEAST_BINS, _MOST_BINS))
    place = np.minimum((place * bins).astype(int), bins - 1)
    return RegressionScores(
        rmse=float(np.sqrt(_average(error**2, weight))),
        deviation=deviation,
        log_density=_average(distribution.logpdf(y), weight),
        crps=None if crps is None else _average(crps, weight),
        plain_density=_plain_density(deviation),
        headline=tuple((share, covered(share)) for share in STATED),
        stated=stated,
        found=np.array([covered(share) for share in stated]),
        pit=np.bincount(place, weight, bins) / weight.sum(),
        mean=mean,
        off=error / std,
    )


def by_chance(share: Any, effective: float) -> tuple[Any, Any]:
    """Where a share is found in 95 of 100 tables of so many rows, if it is right.

    Examples
    --------
    >>> low, high = by_chance(0.9, 100.0)
    >>> float(low), float(high)
    (0.84, 0.95)
    """
    count = max(round(effective), 1)
    low, high = (binom.ppf(level, count, share) / count for level in (0.025, 0.975))
    return np.clip(low, 0, 1), np.clip(high, 0, 1)


def _average(values: np.ndarray, weight: np.ndarray) -> float:
    return float(np.average(values, weights=weight))


def _plain_density(deviation: float) -> float:
    """Mean log density of a normal with the targets' own mean and deviation."""
    if deviation == 0:
        return np.nan
    return -0.5 * float(np.log(2 * np.pi * deviation**2)) - 0.5


@dataclasses.dataclass(frozen=True, eq=False)
class Residuals:
    """Errors of some rows against their predictions, and predicted bands of them.

    ``ends`` has a row for each group of rows with like predictions, at ``centres``,
    and four columns: errors that 90 % and 50 % of targets are predicted to lie within.
    """

    rows: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    outside: np.ndarray
    centres: np.ndarray
    ends: Float[np.ndarray, "groups 4"]


def residuals_of(model: Any, rows: HeldOut) -> Residuals:
    """Residuals of at most 2,000 rows, with bands."""
    chosen = rows.sample(_MOST_POINTS)
    table, exposed = rows.taken(chosen), rows.exposed(chosen)
    mean = model.predict(table, **exposed).reshape(-1)
    quantiles = model.predict_quantiles(table, [0.05, 0.25, 0.75, 0.95], **exposed)
    ends = quantiles.reshape(len(mean), 4) - mean[:, None]
    error = rows.y[chosen] - mean
    order = np.argsort(mean, kind="stable")
    groups = np.array_split(order, min(_GROUPS, max(len(order) // 4, 1)))
    return Residuals(
        rows=rows.numbers[chosen],
        mean=mean,
        error=error,
        outside=(error < ends[:, 0]) | (error > ends[:, 3]),
        centres=np.array([mean[group].mean() for group in groups]),
        ends=np.array([ends[group].mean(axis=0) for group in groups]),
    )
