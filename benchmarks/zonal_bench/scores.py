"""What predictions of held-out rows are worth, as plain numbers by name."""

from typing import Any

import numpy as np
from jaxtyping import Float

from zonal.likelihoods.noise import Gaussian
from zonal.prediction import Prediction, PredictiveDistribution
from zonal.scores.classes import class_scores
from zonal.scores.held_out import HeldOut
from zonal.scores.numbers import regression_scores
from zonal.tables.chunks import Chunk

__all__ = ["class_numbers", "normal", "number_scores"]


def normal(
    mean: Float[np.ndarray, " rows"], variance: Float[np.ndarray, " rows"] | float
) -> Prediction:
    """Normal predictions; one variance is that of all rows.

    Examples
    --------
    >>> normal(np.zeros(2), 4.0).quantiles(np.array([0.5]))[:, 0]
    array([0., 0.])
    >>> normal(np.zeros(2), np.array([1.0, 4.0])).variance_y
    array([1., 4.])
    """
    mean = np.asarray(mean, np.float64).reshape(-1)
    variance = np.broadcast_to(np.asarray(variance, np.float64), mean.shape)
    # Noise is the same for all rows; the rest of the variance is of the function.
    noise = max(float(variance.min()), np.finfo(np.float64).tiny)
    rest = np.maximum(variance - noise, 0.0)[:, None]
    rows, centre = Chunk(np.empty((len(mean), 0))), np.zeros(len(mean))
    return Prediction(Gaussian(noise), mean[:, None], rest, centre, 1.0, rows)


def number_scores(
    prediction: Prediction, y: Float[np.ndarray, " rows"]
) -> dict[str, Any]:
    """Error, negative log density, CRPS and coverage of central intervals.

    Examples
    --------
    >>> scores = number_scores(normal(np.zeros(3), 1.0), np.array([-1.0, 0.0, 1.0]))
    >>> round(scores["rmse"], 4), round(scores["nll"], 4), scores["coverage"]["50%"]
    (0.8165, 1.2523, 0.333...)
    """
    found = regression_scores(PredictiveDistribution(prediction), _rows(y))
    return {
        "rmse": found.rmse,
        "nll": -found.log_density,
        "crps": found.crps,
        "coverage": {f"{stated:.0%}": share for stated, share in found.headline},
    }


def class_numbers(
    chance: Float[np.ndarray, "rows classes"], codes: Float[np.ndarray, " rows"]
) -> dict[str, Any]:
    """Accuracy, log loss, calibration error and, of two classes, AUC.

    Examples
    --------
    >>> chance = np.array([[0.8, 0.2], [0.3, 0.7]])
    >>> scores = class_numbers(chance, np.array([0.0, 1.0]))
    >>> round(scores["log_loss"], 4), scores["auc"], scores["accuracy"]
    (0.2899, 1.0, 1.0)
    """
    names = tuple(map(str, range(chance.shape[1])))
    found = class_scores(chance, names, _rows(codes))
    scores = {
        "accuracy": found.accuracy,
        "log_loss": found.log_loss,
        "ece": found.ece,
    }
    return scores if found.area is None else scores | {"auc": found.area}


def _rows(y: np.ndarray) -> HeldOut:
    y = np.asarray(y, np.float64)
    return HeldOut(None, y, np.ones(len(y)), np.arange(len(y)), "y")
