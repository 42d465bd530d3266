"""A fitted model, in the units of the table.

`fit` standardises, learns and solves. A `Model` is immutable: adding rows, forgetting
rows and merging return new models, solved at the same hyper-parameters. An operation
that fails leaves the model unchanged.
"""

import dataclasses
import functools
import operator
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from zonal.engine.blas import suited_blas
from zonal.engine.features import quiet_phases
from zonal.engine.passes import chunk_results
from zonal.engine.posterior import Marginals, Posterior
from zonal.engine.resizing import enlarged
from zonal.inference.calibration import calibrate
from zonal.inference.local import LocalSolution
from zonal.inference.natural_gradient import Watch
from zonal.inference.problem import Problem, TargetSums, count_targets
from zonal.inference.solution import Solution
from zonal.inference.solving import (
    add_rows,
    forget_rows,
    merge_rows,
    solve,
    without_rows,
)
from zonal.learning.by_bound import Learner
from zonal.learning.checkpoints import remove_progress
from zonal.learning.learners import learner_for
from zonal.learning.neighbour_run import NeighbourRun
from zonal.learning.recipe import Recipe, scaling_of
from zonal.learning.state import Progress, Step
from zonal.learning.target_maps import choose_target_map
from zonal.likelihoods.base import Likelihood
from zonal.likelihoods.noise import Gaussian
from zonal.likelihoods.quadrature import NORMAL, moments_of
from zonal.prediction import Prediction
from zonal.prior.parameters import Fields, same_values
from zonal.prior.process import Process
from zonal.prior.sphere import ARD
from zonal.saving import savable
from zonal.tables.chunks import Chunk
from zonal.tables.rounding import round_bits
from zonal.tables.scaling import ConstantWarning, ScaledSource, Scaling
from zonal.tables.sources import ArraySource, Source
from zonal.tables.stored import StoredTable
from zonal.tables.target_maps import TargetMap

__all__ = ["Model", "fit", "fit_outputs"]


def fit(
    source: Source,
    recipe: Recipe | None = None,
    likelihood: Likelihood | None = None,
    callback: Callable[[Step], Any] | None = None,
    checkpoint: str | os.PathLike | None = None,
    start: Process | None = None,
) -> "Model":
    """Learn a Gaussian process from a table and solve it on all rows.

    Parameters
    ----------
    source
        The rows; `ArraySource` holds them in memory. Targets are numbers, counts, or
        codes of classes (`zonal.Labels`).
    recipe
        Settings of learning and solving; the defaults if it is not given.
    likelihood
        How targets follow from functions; normal noise by default. Its own parameters
        are learned.
    callback
        Called with a `Step` after every step and every pass. Learning stops if it
        returns true; passes stop too, after the third.
    checkpoint
        A file that holds the progress, updated after every round of learning and every
        pass. The same call resumes from it and ends with the same model; the file is
        then removed.
    start
        A process to start from; by default several are tried.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> x = generator.uniform(size=(200, 1))
    >>> y = 100 * np.sin(6 * x[:, 0]) + generator.normal(size=200)
    >>> recipe = Recipe(n_features=30, most_steps=30)
    >>> model = fit(ArraySource(x, y), recipe)
    >>> prediction = model.predict(np.array([[0.25]]))
    >>> bool(abs(prediction.mean[0] - 100 * np.sin(1.5)) < 2)
    True

    Classes are given by their codes:

    >>> from zonal import Bernoulli
    >>> model = fit(ArraySource(x, y > 0), recipe, Bernoulli())
    >>> prediction = model.predict(np.array([[0.25], [0.75]]))
    >>> probability = prediction.probabilities()[:, 1]
    >>> bool(probability[0] > 0.9 and probability[1] < 0.1)
    True
    """
    (model,) = fit_outputs([source], recipe, likelihood, callback, checkpoint, start)
    return model


def fit_outputs(
    sources: Sequence[Source],
    recipe: Recipe | None = None,
    likelihood: Likelihood | None = None,
    callback: Callable[[Step], Any] | None = None,
    checkpoint: str | os.PathLike | None = None,
    start: Process | None = None,
) -> "tuple[Model, ...]":
    """Learn several targets of the same rows together, with shared features.

    ``sources`` have the same inputs and one target each. Sphere, depth and phases are
    learned from all targets; each target then has its own energies and noise.
    """
    recipe = Recipe() if recipe is None else recipe
    likelihood = Gaussian() if likelihood is None else likelihood
    tasks = [
        _Task.of(source, likelihood, recipe, index)
        for index, source in enumerate(sources)
    ]
    if recipe.stores_rows(likelihood):
        return _fit_by_neighbours(tasks, recipe, callback, checkpoint, start)
    recipe = recipe.for_features_alone()
    varying = [task for task in tasks if task.varies]
    if not varying:
        recipe, varying = dataclasses.replace(recipe, most_steps=0), tasks[:1]
    problems = [task.problem for task in varying]
    learner = learner_for(problems, recipe, callback, checkpoint, start)
    progress = learner.run()
    process = _process_to_solve(progress, learner, problems[0])
    models, stops = [], []
    for task in tasks:
        model, stopped = task.solved(process, learner, progress)
        models.append(model)
        stops.append(stopped)
    if checkpoint is not None and progress.done and not any(stops):
        remove_progress(checkpoint)
    return tuple(models)


def _fit_by_neighbours(
    tasks: "Sequence[_Task]",
    recipe: Recipe,
    callback: Callable[[Step], Any] | None,
    checkpoint: str | os.PathLike | None,
    start: Process | None,
) -> "tuple[Model, ...]":
    """Store the rows; learn one kernel from nearest rows for all targets."""
    tables = [StoredTable.of(task.problem.source) for task in tasks]
    learned = [index for index, task in enumerate(tasks) if task.varies]
    if not learned:
        recipe, learned = dataclasses.replace(recipe, most_steps=0), [0]
    rows = StoredTable.side_by_side([tables[index] for index in learned])
    run = NeighbourRun(rows, recipe, callback, checkpoint, start)
    of_outputs = dict(zip(learned, run.learn(), strict=True))
    models = []
    for index, (task, table) in enumerate(zip(tasks, tables, strict=True)):
        sizes = of_outputs.get(index, of_outputs[learned[0]])
        solution = LocalSolution.solve(
            sizes.features,
            Gaussian(sizes.features.process.noise),
            table,
            sizes.n_neighbors,
            sizes.density * table.rows,
        )
        if recipe.calibrated and task.varies:
            solution = calibrate(solution, task.problem.source, recipe.seed)
        history = tuple(run.history)
        models.append(Model(task.scaling, solution, history, task.log_slope))
    if checkpoint is not None and not run.stopped:
        remove_progress(checkpoint)
    return tuple(models)


def _process_to_solve(
    progress: Progress, learner: Learner, problem: Problem
) -> Process:
    """The learned process with the number of features of the solution."""
    if progress.passes is not None:
        return progress.passes.processes[0]
    features = learner.recipe.features_to_solve(
        problem.source.n_rows, problem.likelihood.conjugate
    )
    return enlarged(progress.process, features, learner.sample, learner.recipe.seed)


@dataclasses.dataclass(frozen=True, eq=False)
class _Task:
    """One standardised target of a table, with its problem to learn and solve."""

    scaling: Scaling
    problem: Problem
    recipe: Recipe
    sums: TargetSums | None
    log_slope: float = 0.0

    @classmethod
    def of(
        cls, source: Source, likelihood: Likelihood, recipe: Recipe, output: int = 0
    ) -> "_Task":
        offsets, sums = np.zeros(likelihood.n_latents), None
        if not likelihood.conjugate:
            sums = count_targets(source, likelihood)
            offsets = likelihood.offsets(sums.moments)
        target_map = choose_target_map(source, likelihood, recipe, output)
        scaling = _scaling(source, likelihood, recipe, target_map)
        rows = ScaledSource(source, scaling)
        problem = Problem(rows, likelihood, offsets, recipe.tightened)
        log_slope = _sum_log_slopes(source, target_map)
        return cls(scaling, problem, recipe, sums, log_slope)

    @property
    def varies(self) -> bool:
        """Whether the target varies, so that there is something to learn."""
        return self.scaling.target_varies or not self.problem.likelihood.real

    def solved(
        self, process: Process, learner: Learner, progress: Progress
    ) -> "tuple[Model, str | None]":
        """The model of all rows, and the reason for an early stop or None."""
        stage = "solve" if self.sums is None else "infer"
        before = len(learner.history)
        preparation = learner.preparation(process, fits_scales=self.varies)
        watch = Watch(
            lambda number, solution: learner.report_pass(stage, solution),
            lambda passes: learner.save(dataclasses.replace(progress, passes=passes)),
            progress.passes,
        )
        count = None if self.sums is None else self.sums.count
        with suited_blas(process.basis.n_features), quiet_phases():
            solution, stopped = solve(self.problem, preparation, watch, count)
        if self.recipe.calibrated and self.varies:
            solution = calibrate(solution, self.problem.source, self.recipe.seed)
        history = (*progress.history, *learner.history[before:])
        return Model(self.scaling, solution, history, self.log_slope), stopped


def _sum_log_slopes(source: Source, target_map: TargetMap) -> float:
    """Sum over rows of the logarithm of the slope of a target's map."""
    if target_map.is_identity:
        return 0.0
    add = functools.partial(_add_log_slopes, target_map)
    return float(round_bits(source.reduced(add, operator.add)))


def _add_log_slopes(target_map: TargetMap, source: Source) -> float:
    return sum(
        float(chunk.weights @ target_map.log_slope(chunk.targets))
        for chunk in source.chunks()
    )


def _scaling(
    source: Source, likelihood: Likelihood, recipe: Recipe, target_map: TargetMap
) -> Scaling:
    if recipe.linear_mean and not likelihood.real:
        raise ValueError(
            "linear_mean is for targets that are real numbers; leave it out for "
            f"{type(likelihood).__name__}"
        )
    with warnings.catch_warnings():
        if not likelihood.real:
            # Constant counts are informative if their exposures differ.
            warnings.filterwarnings("ignore", "the target is constant", ConstantWarning)
        scaling = scaling_of(source, recipe, target_map)
    return scaling if likelihood.real else scaling.of_inputs_only()


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Model(Fields):
    """A Gaussian process with any likelihood, solved on a table.

    Inputs and predictions are in the units of the table. ``log_slope`` is the sum over
    rows of the logarithm of the slope of the target's map, for the bound.
    """

    scaling: Scaling
    solution: Solution | LocalSolution
    history: tuple[Step, ...] = ()
    log_slope: float = 0.0

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood with its learned parameters."""
        return self.solution.likelihood

    @property
    def process(self) -> Process:
        """The learned prior of the first function."""
        return self.solution.processes[0]

    @property
    def statistics(self) -> Any:
        """The sums over rows of the first function, or the stored rows."""
        return self.solution.statistics[0]

    @property
    def posterior(self) -> Posterior:
        """The posterior of the first function's features, in standardised units."""
        return self.solution.posteriors[0]  # pyright: ignore

    @property
    def bound(self) -> float:
        """Lower bound on the log evidence of all targets, in their own units.

        With neighbours it is the sum of leave-one-out log densities, estimated on some
        rows. NaN after rows were added or forgotten, unless noise is normal and there
        are no neighbours.
        """
        rows = self.statistics.rows
        bound = self.solution.bound - rows * float(np.log(self.scaling.target_width))
        return bound + self.log_slope

    @property
    def noise(self) -> float:
        """Standard deviation of the noise at precision one, in the target's units.

        NaN if noise is not constant. If the target is mapped, noise grows with the
        slope of the scale; this is the noise of the target at the centre of the scale.
        """
        unit = self.scaling.target_width * float(np.sqrt(self.scaling.precision))
        deviation = unit * self.likelihood.noise_deviation
        if self.target_map.is_identity:
            return deviation
        values = self.scaling.target_centre + deviation * NORMAL
        return float(np.sqrt(moments_of(self.target_map.backward(values)[None])[1][0]))

    @property
    def target_map(self) -> TargetMap:
        """The map of the target, such as its logarithm; the identity if there is none.

        The process, its noise and its levels belong to the mapped target.
        """
        return self.scaling.target_map

    @property
    def relevance(self) -> Float[np.ndarray, " inputs"]:
        """Share of each column in the distances between rows; they sum to one.

        Raises ValueError for a sphere without scales, such as `UnitVectors`.
        """
        sphere = self.process.basis.sphere
        if not isinstance(sphere, ARD):
            raise ValueError(
                f"{type(sphere).__name__} has no relevance of columns; only ARD has"
            )
        shares = np.where(self.scaling.varying, sphere.relevance, 0.0)
        return shares / max(shares.sum(), np.finfo(np.float64).tiny)

    @property
    def stores_rows(self) -> bool:
        """Whether the model contains its rows, to predict from the nearest."""
        return isinstance(self.solution, LocalSolution)

    @property
    def n_features(self) -> int:
        """Number of features of each function."""
        return self.solution.n_features

    @property
    def n_neighbors(self) -> int:
        """Number of nearest rows that predictions use besides the features."""
        return self.solution.n_neighbors

    @property
    def level_variances(self) -> Float[np.ndarray, " levels"]:
        """Prior variance of the first function's levels, in standardised units."""
        return self.solution.level_variances

    @property
    def depth(self) -> int:
        """Hidden layers of the network whose kernel has the nearest spectrum."""
        return self.process.basis.depth

    @property
    def effective_parameters(self) -> float:
        """Number of parameters that the data determine."""
        return self.solution.effective_parameters

    def predict(
        self,
        x: Float[np.ndarray, "rows inputs"],
        precision: Float[np.ndarray, " rows"] | None = None,
        exposure: Float[np.ndarray, " rows"] | None = None,
    ) -> Prediction:
        """Predictions of functions and targets at new rows, each row by itself."""
        source = ArraySource(x, precision=precision, exposure=exposure)
        return Prediction.joined(list(self.predict_chunks(source)))

    def predict_chunks(self, source: Source) -> Iterator[Prediction]:
        """Predictions for a stream of rows, chunk by chunk."""
        return self._in_units(self.solution.marginals, source)

    def leave_one_out(self, source: Source) -> Iterator[Prediction]:
        """Leave-one-out predictions of the fitted rows, chunk by chunk."""
        return self._in_units(self.solution.left_out, source)

    def _in_units(
        self, marginals: Callable[[Chunk], Marginals], source: Source
    ) -> Iterator[Prediction]:
        """Predictions of standardised chunks, in the units of the table."""
        self.scaling.check_width(source.n_inputs)

        def predict(chunk: Chunk) -> Prediction:
            rows = self.scaling.chunk(chunk)
            found = marginals(rows)
            return Prediction(
                self.likelihood,
                found.mean,
                found.variance,
                self.scaling.mean(chunk.x),
                self.scaling.target_width,
                dataclasses.replace(rows.conditions, nearby=found.nearby),
                self.target_map,
            )

        return chunk_results(predict, source)

    def covariance(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "rows rows"]:
        """Joint posterior covariance of the first function at a few rows.

        It is that of the mapped target's mean: for a logarithm, a covariance of logs.
        """
        inner = self.solution.covariance(self.scaling.inputs(x))
        return self.scaling.target_width**2 * inner

    def sample_functions(
        self, count: int, seed: int = 0
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Draw functions from the posterior; call the result with rows.

        It returns the mean of a new target under each function, of shape (rows,
        samples), or probabilities of classes, of shape (rows, samples, classes).
        """
        draw = self.solution.sample_functions(count, seed)

        def at(x: np.ndarray) -> np.ndarray:
            f = draw(self.scaling.inputs(x))
            centre, width = self.scaling.mean(x), self.scaling.target_width
            rows, variance = Chunk(np.empty((len(x), 0))), np.zeros_like(f[:, 0])
            samples = [
                Prediction(
                    self.likelihood,
                    f[:, index],
                    variance,
                    centre,
                    width,
                    rows,
                    self.target_map,
                )
                for index in range(count)
            ]
            outcomes = np.stack([sample.outcome() for sample in samples], axis=1)
            return outcomes if self.likelihood.classifies else outcomes[:, :, 0]

        return at

    def sample_targets(
        self, count: int, generator: np.random.Generator
    ) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
        """Draw functions and noise; call the result with rows and their exposure.

        It returns new targets of shape (rows, samples).
        """
        functions = self.solution.sample_functions(
            count, int(generator.integers(2**31))
        )
        draw = self.likelihood.sampler(count, generator)

        def at(x: np.ndarray, exposure: np.ndarray | None = None) -> np.ndarray:
            prediction = self.predict(x, exposure=exposure)
            f = functions(self.scaling.inputs(x))
            samples = draw(
                prediction.rows,
                prediction.latent_mean,
                prediction.latent_variance,
                f,
            )
            mapped = prediction.centre[:, None] + prediction.width * samples
            return self.target_map.backward(mapped)

        return at

    def add(self, source: Source) -> "Model":
        """The model of earlier and new rows, at the same parameters.

        Exact for normal noise. With other likelihoods, the sites of earlier rows stay
        the same (`zonal.inference.solving.add_rows`).
        """
        solution = add_rows(self.solution, self._standardised(source))
        return self._with(solution, self._log_slope(source))

    def forget(self, source: Source) -> "Model":
        """The model without these rows, as if it had never seen them."""
        solution = forget_rows(self.solution, self._standardised(source))
        return self._with(solution, -self._log_slope(source))

    def merge(self, other: "Model") -> "Model":
        """The model of the rows of both models, which must have the same parameters."""
        if not self.scaling.agrees_with(other.scaling):
            raise ValueError(
                "the models standardise their tables differently; merge models that "
                "come from the same fit, such as fit(...).add(...)"
            )
        pairs = zip(self.solution.processes, other.solution.processes, strict=False)
        same = all(same_values(ours, theirs) for ours, theirs in pairs)
        for name in ("stores_rows", "n_features", "n_neighbors"):
            same = same and getattr(self, name) == getattr(other, name)
        if not same or self.likelihood != other.likelihood:
            raise ValueError(
                "the models have different parameters; merge models that come from the "
                "same fit, such as fit(...).add(...)"
            )
        solution = merge_rows(self.solution, other.solution)
        return self._with(solution, other.log_slope)

    def emptied(self) -> "Model":
        """The model with the same parameters and no rows, to add rows to and merge."""
        return self._with(without_rows(self.solution), -self.log_slope)

    def _standardised(self, source: Source) -> Source:
        """Further rows of the fitted table, standardised and with checked targets."""
        if not self.likelihood.conjugate:
            count_targets(source, self.likelihood, part=True)
        return ScaledSource(source, self.scaling)

    def _log_slope(self, source: Source) -> float:
        return _sum_log_slopes(source, self.target_map)

    def _with(self, solution: Solution | LocalSolution, log_slope: float) -> "Model":
        """The model with another solution, whose rows add to the sum of slopes."""
        log_slope = self.log_slope + log_slope
        return dataclasses.replace(self, solution=solution, log_slope=log_slope)
