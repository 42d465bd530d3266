"""How well classes are predicted: all of it follows from the probabilities of rows."""

import dataclasses

import numpy as np
from jaxtyping import Float

from zonal.scores.held_out import HeldOut

__all__ = ["ClassScores", "Curve", "class_scores"]

_BINS = 15
# Classes with curves of their own, and points that a curve is drawn with.
_MOST_CURVES = 10
_MOST_POINTS = 150


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """One class against all others, as the probability that is enough falls.

    ``area`` is that under the ROC curve, ``precision_mean`` the average precision.
    """

    name: str
    share: float
    false_rate: np.ndarray
    recall: np.ndarray
    precision: np.ndarray
    area: float
    precision_mean: float


@dataclasses.dataclass(frozen=True, eq=False)
class ClassScores:
    """Numbers over all rows.

    Bins are of the predicted class's probability: what is ``stated`` on average, how
    often it is right (``found``), and the ``share`` of rows; ``spread`` has the share
    of empty bins too. ``confusion`` has true classes as rows. ``likely`` is the
    probability given to what each row's class is.
    """

    names: tuple[str, ...]
    accuracy: float
    frequent: float
    log_loss: float
    plain_loss: float
    ece: float
    stated: Float[np.ndarray, " bins"]
    found: Float[np.ndarray, " bins"]
    share: Float[np.ndarray, " bins"]
    spread: Float[np.ndarray, " all_bins"]
    confusion: Float[np.ndarray, "classes classes"]
    curves: tuple[Curve, ...]
    chance: Float[np.ndarray, "rows classes"]
    likely: Float[np.ndarray, " rows"]

    @property
    def area(self) -> float | None:
        """Area under the ROC curve of two classes, if both occur."""
        return self.curves[0].area if len(self.names) == 2 and self.curves else None


def class_scores(
    chance: Float[np.ndarray, "rows classes"], names: tuple[str, ...], rows: HeldOut
) -> ClassScores:
    """Scores of predicted probabilities."""
    codes = rows.y.astype(int)
    share = rows.weight / rows.weight.sum()
    guess, sure = chance.argmax(axis=1), chance.max(axis=1)
    right = guess == codes
    likely = chance[np.arange(len(codes)), codes]
    confusion = np.zeros((len(names), len(names)))
    np.add.at(confusion, (codes, guess), rows.weight)
    frequency = np.bincount(codes, share, len(names))
    occurring = frequency[frequency > 0]

    place = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    filled = np.bincount(place, share, _BINS)
    some = filled > 0
    stated = np.bincount(place, share * sure, _BINS)[some] / filled[some]
    found = np.bincount(place, share * right, _BINS)[some] / filled[some]
    return ClassScores(
        names=names,
        accuracy=min(float(share @ right), 1.0),
        frequent=min(float(frequency.max()), 1.0),
        log_loss=float(-share @ np.log(np.maximum(likely, np.finfo(float).tiny))),
        plain_loss=float(-occurring @ np.log(occurring)),
        ece=float(filled[some] @ np.abs(stated - found)),
        stated=stated,
        found=found,
        share=filled[some],
        spread=filled,
        confusion=confusion,
        curves=_curves(chance, codes, names, share, frequency),
        chance=chance,
        likely=likely,
    )


def _curves(chance, codes, names, share, frequency) -> tuple[Curve, ...]:
    """Curves of the second of two classes, or of the most frequent of several."""
    several = len(names) > 2
    chosen = np.sort(np.argsort(-frequency, kind="stable")[:_MOST_CURVES])
    if not several:
        chosen = [1]
    return tuple(
        _curve(chance[:, code], codes == code, share, names[code])
        for code in chosen
        if 0 < frequency[code] < 1 - 1e-12
    )


def _curve(chance, is_it, share, name) -> Curve:
    order = np.argsort(-chance, kind="stable")
    hits, misses = share * is_it, share * ~is_it
    # Rows of the same probability are taken in together.
    ends = np.append(np.flatnonzero(np.diff(chance[order])), len(order) - 1)
    caught, wrong = np.cumsum(hits[order])[ends], np.cumsum(misses[order])[ends]
    recall = np.append(0.0, caught / hits.sum())
    false_rate = np.append(0.0, wrong / misses.sum())
    precision = caught / (caught + wrong)
    area = float(np.trapezoid(recall, false_rate))
    mean = float(np.diff(recall) @ precision)
    kept = np.unique(np.linspace(0, len(recall) - 1, _MOST_POINTS).astype(int))
    precision = np.append(precision[0], precision)
    return Curve(
        name,
        float(hits.sum()),
        false_rate[kept],
        recall[kept],
        precision[kept],
        area,
        mean,
    )
