"""Scores of predictions on test rows, as plain numbers by name."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from zonal.likelihoods.noise import Calibration, Gaussian
from zonal.prediction import Prediction, PredictiveDistribution
from zonal.scores.classification import score_classification
from zonal.scores.held_out import HeldOut
from zonal.scores.regression import score_regression
from zonal.tables.chunks import Chunk

__all__ = ["drop_calibration", "make_normal", "score_classes", "score_numbers"]


def make_normal(
    mean: Float[np.ndarray, " rows"], variance: Float[np.ndarray, " rows"] | float
) -> Prediction:
    """Normal predictions; a scalar variance applies to all rows.

    Examples
    --------
    >>> make_normal(np.zeros(2), 4.0).quantiles(np.array([0.5]))[:, 0]
    array([0., 0.])
    >>> make_normal(np.zeros(2), np.array([1.0, 4.0])).variance_y
    array([1., 4.])
    """
    mean = np.asarray(mean, np.float64).reshape(-1)
    variance = np.broadcast_to(np.asarray(variance, np.float64), mean.shape)
    # Noise is the same for all rows; the rest of the variance is of the function.
    noise = max(float(variance.min()), np.finfo(np.float64).tiny)
    rest = np.maximum(variance - noise, 0.0)[:, None]
    rows, centre = Chunk(np.empty((len(mean), 0))), np.zeros(len(mean))
    return Prediction(Gaussian(noise), mean[:, None], rest, centre, 1.0, rows)


def drop_calibration(prediction: Prediction) -> Prediction:
    """The plain normals that a process predicts, before their calibration.

    Examples
    --------
    >>> wide = Gaussian(1.0, Calibration((2.0,), (1.0,)))
    >>> prediction = dataclasses.replace(make_normal(np.zeros(1), 1.0), likelihood=wide)
    >>> prediction.variance_y, drop_calibration(prediction).variance_y
    (array([4.]), array([1.]))
    """
    likelihood: Any = prediction.likelihood
    laws: dict[str, Any] = {"row_law": None, "repeat_law": None}
    plain = dataclasses.replace(likelihood, calibration=Calibration(), **laws)
    return dataclasses.replace(prediction, likelihood=plain)


def score_numbers(
    prediction: Prediction, y: Float[np.ndarray, " rows"]
) -> dict[str, Any]:
    """Error, negative log density, CRPS and coverage of central intervals.

    Examples
    --------
    >>> prediction = make_normal(np.zeros(3), 1.0)
    >>> scores = score_numbers(prediction, np.array([-1.0, 0.0, 1.0]))
    >>> round(scores["rmse"], 4), round(scores["nll"], 4), scores["coverage"]["50%"]
    (0.8165, 1.2523, 0.333...)
    """
    scores = score_regression(PredictiveDistribution(prediction), _make_rows(y))
    return {
        "rmse": scores.rmse,
        "nll": -scores.mean_log_density,
        "crps": scores.crps,
        "coverage": {f"{level:.0%}": share for level, share in scores.coverage},
    }


def score_classes(
    probabilities: Float[np.ndarray, "rows classes"], codes: Float[np.ndarray, " rows"]
) -> dict[str, Any]:
    """Accuracy, log loss, calibration error and, for two classes, AUC.

    Examples
    --------
    >>> probabilities = np.array([[0.8, 0.2], [0.3, 0.7]])
    >>> scores = score_classes(probabilities, np.array([0.0, 1.0]))
    >>> round(scores["log_loss"], 4), scores["auc"], scores["accuracy"]
    (0.2899, 1.0, 1.0)
    """
    names = tuple(map(str, range(probabilities.shape[1])))
    scores = score_classification(probabilities, names, _make_rows(codes))
    numbers = {
        "accuracy": scores.accuracy,
        "log_loss": scores.log_loss,
        "ece": scores.ece,
    }
    return numbers if scores.auc is None else numbers | {"auc": scores.auc}


def _make_rows(y: np.ndarray) -> HeldOut:
    y = np.asarray(y, np.float64)
    return HeldOut(None, y, np.ones(len(y)), np.arange(len(y)), "y")
