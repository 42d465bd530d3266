"""Held-out rows: what is given, checked, and taken apart where figures need it."""

import dataclasses
from typing import Any

import narwhals as nw
import numpy as np
from jaxtyping import Float, Int
from sklearn.utils.validation import check_is_fitted

from zonal.estimators.classifier import SphericalGPClassifier
from zonal.estimators.regressor import SphericalGPRegressor
from zonal.likelihoods.counts import CountLikelihood
from zonal.tables.frames import as_2d_array
from zonal.tables.sampling import row_bits

__all__ = ["HeldOut", "held_out"]


@dataclasses.dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows with targets: numbers, or codes of classes.

    ``numbers`` are the places of the rows in the table that was given, ``target`` is
    what the target is called, and ``exposure`` what rates of counts are multiplied by.
    """

    table: Any
    y: Float[np.ndarray, " rows"]
    weight: Float[np.ndarray, " rows"]
    numbers: Int[np.ndarray, " rows"]
    target: str
    exposure: Float[np.ndarray, " rows"] | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def effective(self) -> float:
        """How many rows of equal weight tell as much as these do."""
        return float(self.weight.sum() ** 2 / np.sum(self.weight**2))

    def sample(self, count: int) -> Int[np.ndarray, " chosen"]:
        """Some rows at random, in order; always the same ones."""
        if len(self) <= count:
            return np.arange(len(self))
        chosen = np.random.default_rng(row_bits(0)).choice(
            len(self), count, replace=False
        )
        return np.sort(chosen)

    def taken(self, rows: Int[np.ndarray, " chosen"]) -> Any:
        """Some rows of the table."""
        return _taken(self.table, rows)

    def exposed(self, rows: Int[np.ndarray, " chosen"]) -> dict[str, np.ndarray]:
        """What predictions of some rows are asked with beside them."""
        return {} if self.exposure is None else {"exposure": self.exposure[rows]}


def held_out(
    model: Any, table: Any, y: Any, sample_weight: Any, exposure: Any = None
) -> HeldOut:
    """Check a model and rows for it, with errors that say what to do."""
    if not isinstance(model, (SphericalGPRegressor, SphericalGPClassifier)):
        raise TypeError(
            "a report is of a SphericalGPRegressor or a SphericalGPClassifier, not of "
            f"a {type(model).__name__}; of a pipeline give the last step and rows as "
            "that step sees them"
        )
    check_is_fitted(model)
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame) and not hasattr(table, "shape"):
        table = as_2d_array(table)
    count = (frame if isinstance(frame, nw.DataFrame) else table).shape[0]
    if count == 0:
        raise ValueError("X has no rows; a report needs at least one held-out row")
    targets = _targets(model, y)
    if len(targets) != count:
        raise ValueError(
            f"X has {count} rows and y has {len(targets)}; give one target for each row"
        )
    weight = _weights(sample_weight, count)
    kept = np.flatnonzero(weight > 0)
    if len(kept) < count:  # a row that counts for nothing is no row
        table = _taken(table, kept)
    name = getattr(y, "name", None) or model.target_name_
    target = name if isinstance(name, str) and name else "target"
    if exposure is not None:
        exposure = _exposures(model, exposure, count)[kept]
    return HeldOut(table, targets[kept], weight[kept], kept, target, exposure)


def _targets(model: Any, y: Any) -> np.ndarray:
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    several = isinstance(model, SphericalGPRegressor) and len(model.models_) > 1
    if y.ndim != 1 or several:
        raise ValueError(
            f"a report is of one target; y has shape {y.shape} and the model "
            f"{len(model.models_)} outputs: fit a model to each target and write a "
            "report of each"
        )
    if isinstance(model, SphericalGPClassifier):
        try:
            return model.labels_.codes(y)
        except ValueError as error:
            raise ValueError(
                f"{error}; leave such rows out, or fit to rows that have the class"
            ) from error
    y = y.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(y))
    if len(bad):
        raise ValueError(
            f"the target of row {bad[0]} is {y[bad[0]]} ({len(bad)} such rows); "
            "leave rows without a target out"
        )
    likelihood = getattr(next(iter(model.models_)), "likelihood", None)
    if likelihood is not None:
        likelihood.check(y)
    return y


def _exposures(model: Any, exposure: Any, count: int) -> np.ndarray:
    likelihood = getattr(model.models_[0], "likelihood", None)
    if not isinstance(likelihood, CountLikelihood):
        raise ValueError("an exposure is for models of counts; leave it out")
    exposure = np.asarray(exposure, np.float64)
    if exposure.ndim == 0:
        exposure = np.full(count, exposure)
    if exposure.shape != (count,):
        raise ValueError(
            f"exposure has shape {exposure.shape}; give one for each of {count} rows"
        )
    return exposure


def _weights(weight: Any, count: int) -> np.ndarray:
    if weight is None:
        return np.ones(count)
    weight = np.asarray(weight, np.float64)
    if weight.shape != (count,):
        raise ValueError(
            f"sample_weight has shape {weight.shape}; give one for each of {count} rows"
        )
    if not np.all(np.isfinite(weight) & (weight >= 0)) or not weight.sum() > 0:
        raise ValueError(
            "sample_weight says how often each row counts: numbers that are not "
            "negative, and not all zero"
        )
    return weight


def _taken(table: Any, rows: np.ndarray) -> Any:
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return nw.to_native(frame[rows.tolist()])
    return table[rows]
