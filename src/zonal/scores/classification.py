"""Classification scores, computed from the predicted probabilities of all rows."""

import dataclasses

import numpy as np
from jaxtyping import Float
from scipy.stats import entropy
from sklearn import metrics

from zonal.scores.held_out import HeldOut

__all__ = ["ClassCurves", "ClassificationScores", "score_classification"]

_BINS = 15
_MOST_CURVES = 10
_MOST_CURVE_POINTS = 150


@dataclasses.dataclass(frozen=True, eq=False)
class ClassCurves:
    """ROC and precision-recall curves of one class against all others.

    ``prevalence`` is the share of rows in the class, ``auc`` the area under the ROC
    curve.
    """

    name: str
    prevalence: float
    false_positive_rate: Float[np.ndarray, " roc_points"]
    true_positive_rate: Float[np.ndarray, " roc_points"]
    recall: Float[np.ndarray, " points"]
    precision: Float[np.ndarray, " points"]
    auc: float
    average_precision: float


@dataclasses.dataclass(frozen=True, eq=False)
class ClassificationScores:
    """Scores over all rows, weighted.

    Bins divide the probability of the predicted class: ``bin_confidence`` is its mean,
    ``bin_accuracy`` the share of correct rows and ``bin_share`` the share of all rows,
    for bins that are not empty; ``confidence_histogram`` has the shares of all bins.
    ``confusion`` has the true classes as rows. ``true_class_probability`` is the
    probability predicted for the true class of each row.
    """

    names: tuple[str, ...]
    accuracy: float
    majority_share: float
    log_loss: float
    baseline_log_loss: float
    ece: float
    bin_confidence: Float[np.ndarray, " bins"]
    bin_accuracy: Float[np.ndarray, " bins"]
    bin_share: Float[np.ndarray, " bins"]
    confidence_histogram: Float[np.ndarray, " all_bins"]
    confusion: Float[np.ndarray, "classes classes"]
    curves: tuple[ClassCurves, ...]
    probabilities: Float[np.ndarray, "rows classes"]
    true_class_probability: Float[np.ndarray, " rows"]

    @property
    def auc(self) -> float | None:
        """Area under the ROC curve of two classes, if both occur."""
        return self.curves[0].auc if len(self.names) == 2 and self.curves else None


def score_classification(
    probabilities: Float[np.ndarray, "rows classes"],
    names: tuple[str, ...],
    rows: HeldOut,
) -> ClassificationScores:
    """Scores of predicted class probabilities."""
    codes, weight = rows.y.astype(int), rows.weight
    labels = np.arange(len(names))
    share = weight / weight.sum()
    predicted = probabilities.argmax(axis=1)
    confidence = probabilities.max(axis=1)
    prevalence = np.bincount(codes, share, len(names))

    def histogram(values: np.ndarray) -> np.ndarray:
        return np.histogram(confidence, _BINS, (0, 1), weights=values)[0]

    all_shares = histogram(share)
    filled = all_shares > 0
    bin_share = all_shares[filled]
    bin_confidence = histogram(share * confidence)[filled] / bin_share
    bin_accuracy = histogram(share * (predicted == codes))[filled] / bin_share
    return ClassificationScores(
        names=names,
        accuracy=float(metrics.accuracy_score(codes, predicted, sample_weight=weight)),
        majority_share=min(float(prevalence.max()), 1.0),
        log_loss=float(
            metrics.log_loss(codes, probabilities, sample_weight=weight, labels=labels)
        ),
        baseline_log_loss=float(entropy(prevalence)),
        ece=float(bin_share @ np.abs(bin_confidence - bin_accuracy)),
        bin_confidence=bin_confidence,
        bin_accuracy=bin_accuracy,
        bin_share=bin_share,
        confidence_histogram=all_shares,
        confusion=metrics.confusion_matrix(
            codes, predicted, labels=labels, sample_weight=weight
        ),
        curves=_compute_curves(probabilities, codes, names, weight, prevalence),
        probabilities=probabilities,
        true_class_probability=probabilities[np.arange(len(codes)), codes],
    )


def _compute_curves(
    probabilities: np.ndarray,
    codes: np.ndarray,
    names: tuple[str, ...],
    weight: np.ndarray,
    prevalence: np.ndarray,
) -> tuple[ClassCurves, ...]:
    """Curves of the second of two classes, or of the most frequent of several."""
    if len(names) == 2:
        chosen = np.array([1])
    else:
        chosen = np.sort(np.argsort(-prevalence, kind="stable")[:_MOST_CURVES])
    present = np.unique(codes)
    return tuple(
        _compute_class_curves(
            names[code], codes == code, probabilities[:, code], weight
        )
        for code in chosen
        if code in present and len(present) > 1
    )


def _compute_class_curves(
    name: str, is_class: np.ndarray, probability: np.ndarray, weight: np.ndarray
) -> ClassCurves:
    false_positives, true_positives, _ = metrics.roc_curve(
        is_class, probability, sample_weight=weight
    )
    precision, recall, _ = metrics.precision_recall_curve(
        is_class, probability, sample_weight=weight
    )
    return ClassCurves(
        name=name,
        prevalence=float(np.average(is_class, weights=weight)),
        false_positive_rate=_thin(false_positives),
        true_positive_rate=_thin(true_positives),
        recall=_thin(recall),
        precision=_thin(precision),
        auc=float(metrics.auc(false_positives, true_positives)),
        average_precision=float(
            metrics.average_precision_score(is_class, probability, sample_weight=weight)
        ),
    )


def _thin(curve: np.ndarray) -> np.ndarray:
    """Evenly chosen points of a curve, as many as a figure can show."""
    chosen = np.linspace(0, len(curve) - 1, _MOST_CURVE_POINTS).astype(int)
    return curve[np.unique(chosen)]
