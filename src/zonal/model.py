"""A fitted regression model, in the units of the table.

`fit` standardises, learns and solves. A `Model` never changes: adding rows, forgetting
rows and merging return new models, solved exactly at the same hyper-parameters, so a
step that fails leaves everything as it was.
"""

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from zonal.engine.blas import suited_blas
from zonal.engine.bound import evaluate
from zonal.engine.features import quiet_phases, whiten
from zonal.engine.passes import chunk_results
from zonal.engine.posterior import FunctionSamples, Posterior, Prediction
from zonal.engine.resizing import enlarged
from zonal.engine.scales import fit_scales
from zonal.engine.statistics import Statistics, collect
from zonal.learning.by_bound import learn
from zonal.learning.checkpoints import remove_progress
from zonal.learning.recipe import Recipe, scaling_of
from zonal.learning.state import Step
from zonal.likelihoods.noise import Calibration
from zonal.prior.parameters import Fields, same_values
from zonal.prior.process import Process
from zonal.prior.sphere import ARD
from zonal.saving import savable
from zonal.tables.chunks import Chunk
from zonal.tables.scaling import ScaledSource, Scaling
from zonal.tables.sources import ArraySource, Source, source_of

__all__ = ["Model", "fit", "fit_outputs"]

# Sums are taken in float64 where that costs a few seconds at most: rows times squared
# features up to this.
_AFFORDABLE = 5e10
# Rows to calibrate on: as many as cost a second or two, rows times squared features.
_MOST_RESIDUALS = 20_000
_LEAST_RESIDUALS = 2_000
_CALIBRATION_WORK = 1e10


def fit(
    source: Source,
    recipe: Recipe | None = None,
    callback: Callable[[Step], Any] | None = None,
    checkpoint: str | os.PathLike | None = None,
    start: Process | None = None,
) -> "Model":
    """Learn a Gaussian process from a table and solve it on all rows.

    Parameters
    ----------
    source
        The rows; `ArraySource` holds them in memory.
    recipe
        What differs from the defaults.
    callback
        Called with a `Step` after every step; learning stops where it returns true.
    checkpoint
        A file to keep the progress in, after every round of learning. The same call
        finds it there, goes on, and ends with the same model; the file is then removed.
    start
        A process to start from, instead of a choice of several.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> x = generator.uniform(size=(200, 1))
    >>> y = 100 * np.sin(6 * x[:, 0]) + generator.normal(size=200)
    >>> model = fit(ArraySource(x, y), Recipe(n_features=30, most_steps=30))
    >>> prediction = model.predict(np.array([[0.25]]))
    >>> bool(abs(prediction.mean[0] - 100 * np.sin(1.5)) < 2)
    True
    """
    (model,) = fit_outputs([source], recipe, callback, checkpoint, start)
    return model


def fit_outputs(
    sources: Sequence[Source],
    recipe: Recipe | None = None,
    callback: Callable[[Step], Any] | None = None,
    checkpoint: str | os.PathLike | None = None,
    start: Process | None = None,
) -> "tuple[Model, ...]":
    """Learn several targets of the same rows together: shared features, own noise.

    ``sources`` have the same inputs, and one target each. Sphere, depth and phases are
    learned from all of them; each is then solved with energies and noise of its own.
    """
    recipe = Recipe() if recipe is None else recipe
    scalings = [scaling_of(source, recipe) for source in sources]
    every = list(map(ScaledSource, sources, scalings))
    told = [
        rows
        for rows, scaling in zip(every, scalings, strict=True)
        if scaling.target_varies
    ]
    if not told:
        recipe = dataclasses.replace(recipe, most_steps=0)
        told = every[:1]
    progress = learn(told, recipe, callback, checkpoint, start)
    spent = progress.history[-1].seconds if progress.history else 0.0
    begin = time.monotonic() - spent
    process = progress.process
    features = recipe.features_to_solve(told[0].n_rows)
    if features > process.basis.n_features:
        sample = told[0].sample(recipe.sample_rows, recipe.seed)
        process = enlarged(process, features, sample, recipe.seed)
    models = []
    for rows, scaling in zip(every, scalings, strict=True):
        with suited_blas(process.basis.n_features):
            statistics, own, value = _solved(process, rows, recipe, scaling)
        seconds = time.monotonic() - begin
        rate = value / statistics.rows
        solved = Step("solve", 1, int(statistics.rows), rate, seconds)
        if callback is not None:
            callback(solved)
        history = (*progress.history, solved)
        dtype = None if recipe.dtype == "auto" else np.dtype(recipe.dtype).type
        model = Model(scaling, own, statistics, recipe.tightened, history, dtype)
        if recipe.calibrated and scaling.target_varies:
            model = model.calibrated_on(rows.sample(_residual_rows(own), recipe.seed))
        models.append(model)
    if checkpoint is not None and progress.done:
        remove_progress(checkpoint)
    return tuple(models)


def _solved(
    process: Process, rows: Source, recipe: Recipe, scaling: Scaling
) -> tuple[Statistics, Process, float]:
    """One pass over all rows, energies and noise fitted on it, and the bound.

    Where rounding of float32 products shows (little noise in many rows), the pass is
    made again in float64: an optimiser would live off it.
    """
    dtype = _affordable_dtype(process, rows)
    if recipe.dtype != "auto":
        dtype = np.dtype(recipe.dtype).type
    while True:
        statistics = _collected(process, rows, dtype)
        fitted = process
        if scaling.target_varies:
            fitted = fit_scales(statistics, process, tightened=recipe.tightened)
        result = evaluate(statistics, fitted, recipe.tightened)
        if result.lift == 0 or dtype == np.float64:
            return statistics, fitted, result.value
        dtype = np.float64


def _residual_rows(process: Process) -> int:
    """Rows to calibrate on: what is affordable, but enough to tell tails."""
    affordable = int(_CALIBRATION_WORK / process.basis.n_features**2)
    return min(max(affordable, _LEAST_RESIDUALS), _MOST_RESIDUALS)


def _affordable_dtype(process: Process, rows: Source) -> Any:
    count = np.inf if rows.n_rows is None else rows.n_rows
    work = count * process.basis.n_features**2
    return np.float64 if work <= _AFFORDABLE else np.float32


def _collected(process: Process, rows: Source, dtype: Any) -> Statistics:
    with quiet_phases():
        return collect(whiten(process.basis, dtype), rows)


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Model(Fields):
    """A Gaussian process solved on a table.

    ``bound`` bounds the log marginal likelihood of the target in its own units from
    below. Rows are given as they are in the table; predictions are in its units.
    """

    scaling: Scaling
    process: Process
    statistics: Statistics
    tightened: bool = True
    history: tuple[Step, ...] = ()
    dtype: Any = None
    calibration: Calibration = Calibration()

    @functools.cached_property
    def posterior(self) -> Posterior:
        """The posterior in standardised units."""
        return Posterior(self.process, self.statistics, self.dtype)

    @property
    def bound(self) -> float:
        """Lower bound on the log marginal likelihood of all rows."""
        value = evaluate(self.statistics, self.process, self.tightened).value
        return value - self.statistics.rows * float(np.log(self.scaling.target_width))

    @property
    def noise(self) -> float:
        """Standard deviation of the noise at precision one, in the target's units."""
        variance = float(self.process.noise) * self.scaling.precision
        return self.scaling.target_width * float(np.sqrt(variance))

    @property
    def relevance(self) -> Float[np.ndarray, " inputs"]:
        """Each column's share in telling rows apart; they sum to one.

        With a sphere that has no scales, such as `UnitVectors`, there is no such thing.
        """
        sphere = self.process.basis.sphere
        if not isinstance(sphere, ARD):
            raise ValueError(f"{type(sphere).__name__} has no relevance of columns")
        shares = np.where(self.scaling.varying, sphere.relevance, 0.0)
        return shares / max(shares.sum(), np.finfo(np.float64).tiny)

    @property
    def depth(self) -> int:
        """Depth of the network whose kernel has the nearest spectrum."""
        return self.process.basis.depth

    @property
    def effective_parameters(self) -> float:
        """How many parameters the data have determined."""
        return self.posterior.effective_parameters

    def predict(
        self,
        x: Float[np.ndarray, "rows inputs"],
        precision: Float[np.ndarray, " rows"] | None = None,
    ) -> Prediction:
        """Mean and variances at new rows; the answer does not depend on how many."""
        source = ArraySource(x, np.zeros(len(x)), precision=precision)
        return Prediction.joined(self.predict_chunks(source))

    def predict_chunks(self, source: Source) -> Iterator[Prediction]:
        """Predictions for a stream of rows, a chunk at a time."""
        return self._in_units(self.posterior.predictor(), source)

    def leave_one_out(self, source: Source) -> Iterator[Prediction]:
        """Each row's prediction from all the others; the rows are those fitted to."""
        return self._in_units(self.posterior.left_out, source)

    def _in_units(
        self, standardised: Callable[[Chunk], Prediction], source: Source
    ) -> Iterator[Prediction]:
        """Predictions of standardised chunks, in the units of the table."""
        self.scaling.check_width(source.n_inputs)
        width = self.scaling.target_width

        def predict(chunk: Chunk) -> Prediction:
            inner = standardised(self.scaling.chunk(chunk))
            return Prediction(
                self.scaling.mean(chunk.x) + width * inner.mean,
                width**2 * inner.variance_f,
                width**2 * self.calibration.spread * inner.variance_y,
                self.calibration,
            )

        return chunk_results(predict, source)

    def calibrated_on(self, rows: Chunk) -> "Model":
        """The same model, new targets predicted with the shape of some residuals.

        The rows are standardised, and among those fitted to; each is predicted from
        all the others.
        """
        left_out = Prediction.joined(self.posterior.leave_one_out(source_of(rows)))
        error = np.asarray(rows.y, np.float64) - left_out.mean
        residuals = error / np.sqrt(left_out.variance_y)
        calibration = Calibration.of(residuals, rows.weights)
        return dataclasses.replace(self, calibration=calibration)

    def covariance(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "rows rows"]:
        """Joint posterior covariance of the function at a few rows."""
        inner = self.posterior.covariance(self.scaling.inputs(x))
        return self.scaling.target_width**2 * inner

    def sample_functions(
        self, count: int, seed: int = 0
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Draw functions from the posterior; call the result with rows."""
        functions: FunctionSamples = self.posterior.sample_functions(count, seed)

        def at(x: np.ndarray) -> np.ndarray:
            values = functions(self.scaling.inputs(x))
            return self.scaling.mean(x)[:, None] + self.scaling.target_width * values

        return at

    def add(self, source: Source) -> "Model":
        """The model of all rows so far and these, exactly, at the same parameters."""
        return self._with(self.statistics + self._collect(source))

    def forget(self, source: Source) -> "Model":
        """The model without these rows, as if they had never been in the sums."""
        new = self._collect(source)
        if new.rows > self.statistics.rows * (1 + 1e-12):
            raise ValueError(
                f"{new.rows:g} rows cannot be taken out of a model of "
                f"{self.statistics.rows:g}"
            )
        return self._with(self.statistics - new)

    def merge(self, other: "Model") -> "Model":
        """The model of both models' rows; both must have the same parameters."""
        if not self.scaling.agrees_with(other.scaling):
            raise ValueError(
                "the models standardise their tables differently; merge models that "
                "come from the same fit, such as fit(...).add(...)"
            )
        if not same_values(self.process, other.process):
            raise ValueError(
                "the models have different parameters; merge models that come from the "
                "same fit, such as fit(...).add(...)"
            )
        return self._with(self.statistics + other.statistics)

    def emptied(self) -> "Model":
        """The same model before it has seen a row, for others to add to and merge."""
        return self._with(Statistics.zero(self.process.basis))

    def _collect(self, source: Source) -> Statistics:
        rows = ScaledSource(source, self.scaling)
        return _collected(self.process, rows, _affordable_dtype(self.process, rows))

    def _with(self, statistics: Statistics) -> "Model":
        return dataclasses.replace(self, statistics=statistics)
