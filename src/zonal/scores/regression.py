"""Regression scores: errors, densities and coverage of intervals over all rows."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import binom, norm
from sklearn.metrics import root_mean_squared_error

from zonal.likelihoods.counts import CountLikelihood
from zonal.prediction import Prediction
from zonal.scores.held_out import HeldOut

__all__ = [
    "HEADLINE_LEVELS",
    "RegressionScores",
    "Residuals",
    "compute_binomial_range",
    "compute_residuals",
    "score_regression",
]

HEADLINE_LEVELS = (0.5, 0.8, 0.9, 0.95)
# Bins of the PIT histogram: at least, at most, and rows per bin.
_LEAST_BINS, _MOST_BINS, _ROWS_PER_BIN = 5, 20, 15
# Residuals in the figure, and groups of rows whose intervals form its bands.
_MOST_RESIDUALS = 2000
_MOST_GROUPS = 24

Rows = Float[np.ndarray, " rows"]


@dataclasses.dataclass(frozen=True, eq=False)
class RegressionScores:
    """Scores over all rows, weighted.

    ``coverage`` pairs nominal levels of central intervals with the share of targets
    inside; ``levels`` and ``observed_coverage`` are the same on a finer grid.
    ``pit_histogram`` has the shares of rows in equal parts of the predicted
    distribution, ``standardised_error`` the error of each row divided by its predicted
    standard deviation. ``baseline_log_density`` is that of one normal for all rows.
    """

    rmse: float
    target_std: float
    mean_log_density: float
    crps: float | None
    baseline_log_density: float
    coverage: tuple[tuple[float, float], ...]
    levels: Float[np.ndarray, " levels"]
    observed_coverage: Float[np.ndarray, " levels"]
    pit_histogram: Float[np.ndarray, " bins"]
    mean: Rows
    standardised_error: Rows


def score_regression(
    distribution: Any, rows: HeldOut, pit_bins: int | None = None
) -> RegressionScores:
    """Scores of a `PredictiveDistribution` with an entry for each row.

    ``pit_bins`` is the number of bins of the PIT histogram, by default as many as the
    rows allow.
    """
    y, weight = rows.y, rows.weight
    if pit_bins is None:
        most = rows.effective_rows // _ROWS_PER_BIN
        pit_bins = int(np.clip(most, _LEAST_BINS, _MOST_BINS))
    mean, std = distribution.mean(), distribution.std()
    target_std = float(np.sqrt(np.cov(y, aweights=weight, ddof=0)))
    lower, upper = _cdf_limits(distribution, y)

    def covered(level: float) -> float:
        inside = (upper >= (1 - level) / 2) & (lower < (1 + level) / 2)
        return float(np.average(inside, weights=weight))

    levels = np.linspace(0.05, 0.95, 19)
    return RegressionScores(
        rmse=float(root_mean_squared_error(y, mean, sample_weight=weight)),
        target_std=target_std,
        mean_log_density=float(np.average(distribution.logpdf(y), weights=weight)),
        crps=_compute_crps(distribution.prediction, y, weight),
        baseline_log_density=(
            -float(norm.entropy(scale=target_std)) if target_std > 0 else np.nan
        ),
        coverage=tuple((level, covered(level)) for level in HEADLINE_LEVELS),
        levels=levels,
        observed_coverage=np.array([covered(level) for level in levels]),
        pit_histogram=_compute_pit_histogram(lower, upper, weight, pit_bins),
        mean=mean,
        standardised_error=(y - mean) / std,
    )


def compute_binomial_range(
    probability: Float[np.ndarray, " values"] | float, effective_rows: float
) -> tuple[Any, Any]:
    """Central 95 % range of an observed share when its true value is `probability`.

    Examples
    --------
    >>> low, high = compute_binomial_range(0.9, 100.0)
    >>> float(low), float(high)
    (0.84, 0.95)
    """
    count = max(round(effective_rows), 1)
    low, high = binom.interval(0.95, count, probability)
    return low / count, high / count


def _cdf_limits(distribution: Any, y: Rows) -> tuple[Rows, Rows]:
    """Predicted probabilities below each target, without and with the target itself."""
    upper = distribution.cdf(y)
    if not isinstance(distribution.prediction.likelihood, CountLikelihood):
        return upper, upper
    return np.where(y > 0, distribution.cdf(np.maximum(y - 1, 0)), 0.0), upper


def _compute_pit_histogram(
    lower: Rows, upper: Rows, weight: Rows, bins: int
) -> Float[np.ndarray, " bins"]:
    """Histogram of the probability integral transform.

    A count is spread evenly over the probabilities from below it to itself (Czado,
    Gneiting & Held 2009, equation 2), so that the histogram is not random.
    """
    if lower is upper:
        return np.histogram(upper, bins, (0, 1), weights=weight)[0] / weight.sum()
    mass = np.maximum(upper - lower, np.finfo(np.float64).tiny)
    inner = np.arange(1, bins) / bins
    below = [
        np.average(np.clip((edge - lower) / mass, 0, 1), weights=weight)
        for edge in inner
    ]
    return np.diff(below, prepend=0.0, append=1.0)


def _compute_crps(prediction: Prediction, y: Rows, weight: Rows) -> float | None:
    """Continuous ranked probability score, where it has a closed form."""
    crps = prediction.crps(y)
    return None if crps is None else float(np.average(crps, weights=weight))


@dataclasses.dataclass(frozen=True, eq=False)
class Residuals:
    """Errors of some rows against their predictions, with predicted bands.

    ``band_limits`` has a row for each group of rows with similar predictions, centred
    at ``group_centres``: the 5 %, 25 %, 75 % and 95 % quantiles of their errors.
    ``outside`` marks errors outside their own 90 % interval.
    """

    row_numbers: np.ndarray
    predicted: np.ndarray
    error: np.ndarray
    outside: np.ndarray
    group_centres: np.ndarray
    band_limits: Float[np.ndarray, "groups 4"]


def compute_residuals(model: Any, rows: HeldOut) -> Residuals:
    """Residuals of at most 2,000 rows, with bands."""
    chosen = rows.sample(_MOST_RESIDUALS)
    table, exposure = rows.select_rows(chosen), rows.select_exposure(chosen)
    predicted = model.predict(table, **exposure).reshape(-1)
    quantiles = model.predict_quantiles(table, [0.05, 0.25, 0.75, 0.95], **exposure)
    limits = quantiles.reshape(len(predicted), 4) - predicted[:, None]
    error = rows.y[chosen] - predicted
    order = np.argsort(predicted, kind="stable")
    groups = np.array_split(order, min(_MOST_GROUPS, max(len(order) // 4, 1)))
    return Residuals(
        row_numbers=rows.row_numbers[chosen],
        predicted=predicted,
        error=error,
        outside=(error < limits[:, 0]) | (error > limits[:, 3]),
        group_centres=np.array([predicted[group].mean() for group in groups]),
        band_limits=np.array([limits[group].mean(axis=0) for group in groups]),
    )
