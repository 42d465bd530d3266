"""Held-out rows: the table, targets and weights that a model is scored on, checked."""

import dataclasses
from typing import Any

import narwhals as nw
import numpy as np
from jaxtyping import Float, Int
from sklearn.utils.validation import check_is_fitted

from zonal.estimators.classifier import SphericalGPClassifier
from zonal.estimators.regressor import SphericalGPRegressor
from zonal.tables.chunks import Chunk
from zonal.tables.frames import as_2d_array
from zonal.tables.sampling import row_bits

__all__ = ["HeldOut", "check_held_out"]


@dataclasses.dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows with targets, which are numbers or codes of classes.

    ``row_numbers`` are the indices of the rows in the table that was given, ``target``
    is the name of the target, and ``exposure`` multiplies the rates of counts.
    """

    table: Any
    y: Float[np.ndarray, " rows"]
    weight: Float[np.ndarray, " rows"]
    row_numbers: Int[np.ndarray, " rows"]
    target: str
    exposure: Float[np.ndarray, " rows"] | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def effective_rows(self) -> float:
        """Effective sample size of the weights (Kish, 1965)."""
        return float(self.weight.sum() ** 2 / np.sum(self.weight**2))

    def sample(self, count: int) -> Int[np.ndarray, " chosen"]:
        """Indices of at most `count` random rows, sorted; the same at every call."""
        if len(self) <= count:
            return np.arange(len(self))
        chosen = np.random.default_rng(row_bits(0)).choice(
            len(self), count, replace=False
        )
        return np.sort(chosen)

    def select_rows(self, indices: Int[np.ndarray, " chosen"]) -> Any:
        """Some rows of the table."""
        return _select_rows(self.table, indices)

    def select_exposure(
        self, indices: Int[np.ndarray, " chosen"]
    ) -> dict[str, np.ndarray]:
        """Keyword arguments for predictions of some rows: their exposure, if any."""
        return {} if self.exposure is None else {"exposure": self.exposure[indices]}


def check_held_out(
    model: Any, table: Any, y: Any, sample_weight: Any, exposure: Any = None
) -> HeldOut:
    """Held-out rows of positive weight, once model, table and targets are checked."""
    if not isinstance(model, (SphericalGPRegressor, SphericalGPClassifier)):
        raise TypeError(
            "a report needs a SphericalGPRegressor or a SphericalGPClassifier, not a "
            f"{type(model).__name__}; for a pipeline, pass its last step and the rows "
            "as that step receives them"
        )
    check_is_fitted(model)
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame) and not hasattr(table, "shape"):
        table = as_2d_array(table)
    count = (frame if isinstance(frame, nw.DataFrame) else table).shape[0]
    if count == 0:
        raise ValueError("X has no rows; a report needs at least one held-out row")
    targets = _check_targets(model, y)
    if len(targets) != count:
        raise ValueError(
            f"X has {count} rows and y has {len(targets)}; give one target per row"
        )
    weight = _check_weights(sample_weight, count)
    used = np.flatnonzero(weight > 0)
    if len(used) < count:
        table = _select_rows(table, used)
    name = getattr(y, "name", None) or model.target_name_
    target = name if isinstance(name, str) and name else "target"
    if exposure is not None:
        exposure = _check_exposure(model, exposure, count)[used]
    return HeldOut(table, targets[used], weight[used], used, target, exposure)


def _check_targets(model: Any, y: Any) -> np.ndarray:
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    several = isinstance(model, SphericalGPRegressor) and len(model.models_) > 1
    if y.ndim != 1 or several:
        raise ValueError(
            f"a report covers one target; y has shape {y.shape} and the model "
            f"{len(model.models_)} outputs: fit one model per target and write one "
            "report for each"
        )
    if isinstance(model, SphericalGPClassifier):
        try:
            return model.labels_.codes(y)
        except ValueError as error:
            raise ValueError(
                f"{error}; remove such rows, or fit on rows that include the class"
            ) from error
    y = y.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(y))
    if len(bad):
        raise ValueError(
            f"the target of row {bad[0]} is {y[bad[0]]} ({len(bad)} such rows); "
            "remove rows without a target"
        )
    likelihood = next(iter(model.models_)).likelihood
    likelihood.check(Chunk(np.empty((len(y), 0)), y))
    return y


def _check_exposure(model: Any, exposure: Any, count: int) -> np.ndarray:
    if not model.models_[0].likelihood.takes_exposure:
        raise ValueError("exposure is only for models of counts; remove it")
    exposure = np.asarray(exposure, np.float64)
    if exposure.ndim == 0:
        exposure = np.full(count, exposure)
    if exposure.shape != (count,):
        raise ValueError(
            f"exposure has shape {exposure.shape}; give one value per row ({count})"
        )
    return exposure


def _check_weights(weight: Any, count: int) -> np.ndarray:
    if weight is None:
        return np.ones(count)
    weight = np.asarray(weight, np.float64)
    if weight.shape != (count,):
        raise ValueError(
            f"sample_weight has shape {weight.shape}; give one value per row ({count})"
        )
    if not np.all(np.isfinite(weight) & (weight >= 0)) or not weight.sum() > 0:
        raise ValueError(
            "sample_weight must be finite and not negative, with at least one value "
            "above zero"
        )
    return weight


def _select_rows(table: Any, indices: np.ndarray) -> Any:
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return nw.to_native(frame[indices.tolist()])
    return table[indices]
