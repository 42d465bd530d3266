"""Models for any likelihood: classes, counts, heavy tails, changing noise.

`fit_likelihood` standardises, learns on a sample with `zonal.learning.by_sites`, and
infers on all rows with `zonal.inference.natural_gradient`, refitting energies between
passes for nothing.
"""

import dataclasses
import functools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.exceptions import ConvergenceWarning

from zonal.engine.features import quiet_phases, whiten
from zonal.engine.passes import chunk_results
from zonal.engine.resizing import enlarged
from zonal.engine.scales import fit_scales
from zonal.engine.statistics import Statistics
from zonal.inference.natural_gradient import Passes, infer
from zonal.inference.sites import Inferred, marginals, proposed_sums
from zonal.learning.by_sites import SiteLearner, refitted
from zonal.learning.checkpoints import remove_progress
from zonal.learning.recipe import Recipe, scaling_of
from zonal.learning.state import Progress, Step
from zonal.likelihoods.base import Likelihood
from zonal.likelihoods.classes import ClassLikelihood
from zonal.likelihoods.counts import CountLikelihood
from zonal.likelihoods.reals import RealLikelihood
from zonal.prior.parameters import Fields, same_values
from zonal.prior.process import Process
from zonal.saving import savable
from zonal.tables.chunks import Chunk
from zonal.tables.sampling import thin
from zonal.tables.scaling import ConstantWarning, ScaledSource, Scaling
from zonal.tables.sources import ArraySource, Source

__all__ = ["GeneralisedModel", "LatentPrediction", "fit_likelihood"]

# Passes are made in float64 where that costs a few seconds at most: rows times squared
# features up to this.
_AFFORDABLE = 1e10
# Passes at most (more where they cost nothing), and the relative change of the bound to
# end with.
_MOST_PASSES = 20
_MANY_PASSES = 60
_TOLERANCE = 1e-5
# Passes at least, however little time is left: the third sees sites of all rows that
# were made by sites of all rows.
_LEAST_PASSES = 3
# Rows that own parameters of a likelihood are fitted to.
_OWN_ROWS = 10_000
# Inference in turns with learning costs more a row, so the sample is half as large as
# for regression, and shared out among the functions, but not below this.
_LEAST_SAMPLE = 6_000


def fit_likelihood(
    source: Source,
    likelihood: Likelihood,
    recipe: Recipe | None = None,
    callback: Callable[[Step], Any] | None = None,
    checkpoint: str | os.PathLike | None = None,
    start: Process | None = None,
) -> "GeneralisedModel":
    """Learn a Gaussian process with any likelihood from a table.

    Parameters
    ----------
    source
        The rows; targets are codes of classes (`zonal.Labels`), counts or numbers.
    likelihood
        How a target follows from functions; its own parameters are learned.
    recipe
        What differs from the defaults.
    callback
        Called with a `Step` after every step and every pass. Learning stops where it
        returns true; passes too, after the third.
    checkpoint
        A file to keep the progress in, after every round of learning and every pass.
        The same call finds it there, goes on, and ends with the same model; the file is
        then removed.
    start
        A process to start from, instead of a choice of several.

    Examples
    --------
    >>> from zonal import Bernoulli
    >>> generator = np.random.default_rng(0)
    >>> x = generator.normal(size=(300, 2))
    >>> y = x[:, 0] + 0.3 * generator.normal(size=300) > 0
    >>> recipe = Recipe(n_features=30, most_steps=15)
    >>> model = fit_likelihood(ArraySource(x, y), Bernoulli(), recipe)
    >>> sure = model.predict(np.array([[-2.0, 0.0], [2.0, 0.0]])).probabilities()[:, 1]
    >>> bool(sure[0] < 0.1 and sure[1] > 0.9)
    True
    """
    recipe = Recipe() if recipe is None else recipe
    moments, weight, count = _counted(source, likelihood)
    offsets = likelihood.offsets(moments)
    scaling = _scaling(source, likelihood, recipe)
    rows = ScaledSource(source, scaling)
    if recipe.most_rows is None:
        few = max(_LEAST_SAMPLE, recipe.sample_rows // (2 * likelihood.n_latents))
        recipe = dataclasses.replace(recipe, most_rows=few)
    if likelihood.real and not scaling.target_varies:
        recipe = dataclasses.replace(recipe, most_steps=0)
    learner = SiteLearner(
        rows, recipe, likelihood, offsets, callback, checkpoint, start
    )
    progress = learner.run()
    with quiet_phases():
        state, cut = _solved(progress, rows, learner, count, weight)
    if not state.converged:
        passes = len(state.bounds)
        warnings.warn(
            f"inference was stopped by {cut} after {passes} passes, before it had "
            "converged; the best of them is kept"
            if cut
            else f"inference had not converged after {passes} passes; the best of them "
            "is kept",
            ConvergenceWarning,
            stacklevel=2,
        )
    if checkpoint is not None and progress.done and cut is None:
        remove_progress(checkpoint)
    # The sums of sites that would have come next are done with.
    state = dataclasses.replace(state, proposed=())
    return GeneralisedModel(scaling, state, tuple(learner.history))


def _counted(
    source: Source, likelihood: Likelihood, some: bool = False
) -> tuple[np.ndarray, float, int]:
    """Check every target; sums that tell where to start, total weight, and rows.

    ``some`` rows of a table may all be of one class.
    """
    count = functools.partial(_counted_here, likelihood)
    moments, total, rows = source.reduced(count, _counts_added)
    if total == 0:
        raise ValueError("every weight is zero: no row is left to learn from")
    one_class = isinstance(likelihood, ClassLikelihood) and np.sum(moments > 0) < 2
    if one_class and not some:
        raise ValueError(
            "every row has the same class; there is nothing to tell apart: "
            "give rows of at least two classes"
        )
    return np.asarray(moments), total, rows


Counts = tuple[np.ndarray, float, int]


def _counted_here(likelihood: Likelihood, source: Source) -> Counts:
    moments: Any = 0.0
    total, rows = 0.0, source.first_row
    counts = isinstance(likelihood, CountLikelihood)
    for chunk in source.chunks():
        name = type(likelihood).__name__
        if chunk.precision is not None:
            raise ValueError(
                f"{name} has no use for known precisions; give weights, or zonal.fit"
            )
        if chunk.exposure is not None and not counts:
            raise ValueError(f"{name} has no use for an exposure; counts have")
        y = np.asarray(chunk.y, np.float64)
        likelihood.check(y, rows)
        weight = chunk.weights
        moments = moments + likelihood.moments(y, weight, chunk.exposure)
        total += float(weight.sum())
        rows += len(chunk)
    return np.asarray(moments), total, rows - source.first_row


def _counts_added(one: Counts, other: Counts) -> Counts:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _scaling(source: Source, likelihood: Likelihood, recipe: Recipe) -> Scaling:
    if recipe.linear_mean and not likelihood.real:
        raise ValueError(
            "linear_mean is for targets that are real numbers; leave it out for "
            f"{type(likelihood).__name__}"
        )
    with warnings.catch_warnings():
        if not likelihood.real:
            # Equal counts may still differ in exposure.
            warnings.filterwarnings("ignore", "the target is constant", ConstantWarning)
        scaling = scaling_of(source, recipe)
    return scaling if likelihood.real else scaling.of_inputs_only()


def _solved(
    progress: Progress,
    rows: Source,
    learner: SiteLearner,
    count: int,
    weight: float,
) -> tuple[Inferred, str | None]:
    """Passes over all rows; energies and own parameters are refitted between them.

    They start from what the sample says. (Its sums scaled up to all rows would be as
    certain as these and not as right.) With the last state comes what cut them short,
    if anything did.
    """
    sample, recipe = learner.sample, learner.recipe
    if progress.passes is not None:
        process = progress.passes.processes[0]
    else:
        # More features than were learned with gain next to nothing, and every pass and
        # every prediction would be slower by their square.
        process, features = progress.process, recipe.solve_features
        if recipe.layout == "banded" and features is not None:
            process = enlarged(process, features, sample, recipe.seed)
    few = learner.on_sample(process)
    work = count * process.basis.n_features**2
    dtype: Any = np.float64 if work <= _AFFORDABLE else np.float32
    if recipe.dtype != "auto":
        dtype = np.dtype(recipe.dtype).type
    reached, cut = progress.passes, None

    def keep(at: Passes) -> None:
        nonlocal reached
        reached = at
        learner.save(dataclasses.replace(progress, passes=at))

    def told(passes: int, bound: float) -> bool:
        nonlocal cut
        # Passes may have begun anew in float64; those before were made all the same.
        number = sum(step.stage == "infer" for step in learner.history) + 1
        over = learner.report("infer", number, count, bound / weight)
        if over and passes >= _LEAST_PASSES:
            cut = learner.stopped
        return cut is not None

    try:
        state = infer(
            few.processes,
            rows,
            few.likelihood,
            learner.offsets,
            few.statistics,
            tightened=recipe.tightened,
            dtype=dtype,
            tolerance=_TOLERANCE,
            most_passes=_MOST_PASSES if work > _AFFORDABLE else _MANY_PASSES,
            refit=functools.partial(_refitted, sample, recipe.tightened),
            callback=told,
            resumed=progress.passes,
            keep=keep,
        )
    except KeyboardInterrupt:
        if reached is None or len(reached.bounds) < _LEAST_PASSES:
            raise
        assert reached.best is not None, "passes were made"
        cut, state = "an interrupt", reached.best
        state = dataclasses.replace(state, bounds=reached.bounds)
    return state, cut


def _refitted(
    sample: Chunk, tightened: bool, state: Inferred
) -> tuple[tuple[Process, ...], Likelihood]:
    """Energies fitted to the sums, and the likelihood's own parameters to a sample."""
    fitted = functools.partial(
        fit_scales,
        names=("basis.free_energies",),
        tightened="common" if tightened else False,
    )
    if state.likelihood.exchangeable:
        shared = fitted(state.statistics, state.processes[0])
        processes = (shared,) * len(state.processes)
    else:
        processes = tuple(map(fitted, state.statistics, state.processes))
    few = thin(sample, _OWN_ROWS, 0)
    frame = whiten(state.processes[0].basis)
    at = marginals(state.posteriors, state.offsets, frame, factors=state.factors)
    return processes, refitted(state.likelihood, few, *at(few))


@dataclasses.dataclass(frozen=True, eq=False)
class LatentPrediction:
    """What is known at some rows: the functions' marginals, and targets through them.

    ``mean_f`` and ``variance_f`` are those of the functions, one column each, in the
    scale that the likelihood has them. Everything else is of a new target, in the
    units of the table.
    """

    likelihood: Likelihood
    mean_f: Float[np.ndarray, "rows latents"]
    variance_f: Float[np.ndarray, "rows latents"]
    centre: Float[np.ndarray, " rows"]
    width: float = 1.0
    exposure: Float[np.ndarray, " rows"] | None = None

    @classmethod
    def joined(cls, parts: Iterable["LatentPrediction"]) -> "LatentPrediction":
        """Predictions of chunks, one below the other."""
        every = list(parts)
        exposure = None
        if every[0].exposure is not None:
            exposure = np.concatenate([one.exposure for one in every])  # pyright: ignore
        return cls(
            every[0].likelihood,
            np.concatenate([one.mean_f for one in every]),
            np.concatenate([one.variance_f for one in every]),
            np.concatenate([one.centre for one in every]),
            every[0].width,
            exposure,
        )

    def probabilities(self) -> Float[np.ndarray, "rows classes"]:
        """Probability of each class."""
        likelihood = self._kind(ClassLikelihood, "probabilities of classes")
        return likelihood.probabilities(self.mean_f, self.variance_f)

    @functools.cached_property
    def _spread(self) -> tuple[np.ndarray, np.ndarray]:
        kinds = (RealLikelihood, CountLikelihood)
        likelihood = self._kind(kinds, "mean and variance")
        if isinstance(likelihood, CountLikelihood):
            return likelihood.spread(self.mean_f, self.variance_f, self.exposure)
        mean, variance = likelihood.spread(self.mean_f, self.variance_f)
        return self.centre + self.width * mean, self.width**2 * variance

    @property
    def mean(self) -> Float[np.ndarray, " rows"]:
        """Mean of a new target."""
        return self._spread[0]

    @property
    def variance_y(self) -> Float[np.ndarray, " rows"]:
        """Variance of a new target."""
        return self._spread[1]

    def quantiles(
        self, levels: Float[np.ndarray, " levels"]
    ) -> Float[np.ndarray, "rows levels"]:
        """Quantiles of a new target; for counts the least that are reached."""
        likelihood = self._kind((RealLikelihood, CountLikelihood), "quantiles")
        levels = np.asarray(levels, np.float64)
        if isinstance(likelihood, CountLikelihood):
            return likelihood.quantiles(
                levels, self.mean_f, self.variance_f, self.exposure
            )
        found = likelihood.quantiles(levels, self.mean_f, self.variance_f)
        return self.centre[:, None] + self.width * found

    def distribution(self, y: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
        """Probability that a new target is at most y."""
        kinds = (RealLikelihood, CountLikelihood)
        likelihood = self._kind(kinds, "distribution function")
        y = np.asarray(y, np.float64)
        if isinstance(likelihood, CountLikelihood):
            return likelihood.distribution(
                y, self.mean_f, self.variance_f, self.exposure
            )
        y = (y - self.centre) / self.width
        return likelihood.distribution(y, self.mean_f, self.variance_f)

    def draw(
        self, count: int, generator: np.random.Generator
    ) -> Float[np.ndarray, "rows samples"]:
        """New targets at random, every row for itself."""
        deviation = np.sqrt(self.variance_f)
        columns = []
        for _ in range(count):
            f = self.mean_f + deviation * generator.normal(size=self.mean_f.shape)
            columns.append(self.likelihood.draw(f, generator, self.exposure))
        return self.centre[:, None] + self.width * np.column_stack(columns)

    def log_density(self, y: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
        """Log predictive density, or probability, of targets."""
        y = np.asarray(y, np.float64)
        self.likelihood.check(y)
        density = self.likelihood.log_density(
            (y - self.centre) / self.width, self.mean_f, self.variance_f, self.exposure
        )
        return density - np.log(self.width)

    def _kind(self, kind: Any, what: str) -> Any:
        if not isinstance(self.likelihood, kind):
            raise TypeError(f"{type(self.likelihood).__name__} has no {what}")
        return self.likelihood


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class GeneralisedModel(Fields):
    """A Gaussian process with any likelihood, inferred on a table.

    ``bound`` bounds the log probability of all targets from below.
    """

    scaling: Scaling
    inferred: Inferred
    history: tuple[Step, ...] = ()

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood, its own parameters learned."""
        return self.inferred.likelihood

    @property
    def bound(self) -> float:
        """Lower bound on the log probability of all targets, in their own units.

        It is not known of a model that rows were added to or taken out of.
        """
        rows = self.inferred.statistics[0].rows
        width = float(np.log(self.scaling.target_width))
        return float(self.inferred.bound - rows * width)

    @property
    def depth(self) -> int:
        """Depth of the network whose kernel has the nearest spectrum."""
        return self.inferred.processes[0].basis.depth

    def predict(
        self,
        x: Float[np.ndarray, "rows inputs"],
        exposure: Float[np.ndarray, " rows"] | None = None,
    ) -> LatentPrediction:
        """What is known at new rows; the answer does not depend on how many."""
        source = ArraySource(x, np.zeros(len(x)), exposure=exposure)
        return LatentPrediction.joined(self.predict_chunks(source))

    def predict_chunks(self, source: Source) -> Iterator[LatentPrediction]:
        """Predictions for a stream of rows, a chunk at a time."""
        self.scaling.check_width(source.n_inputs)
        at = self._marginals

        def predict(chunk: Chunk) -> LatentPrediction:
            mean, variance = at(self.scaling.chunk(chunk))
            return LatentPrediction(
                self.likelihood,
                mean,
                variance,
                self.scaling.mean(chunk.x),
                self.scaling.target_width,
                chunk.exposure,
            )

        return chunk_results(predict, source)

    def sample_functions(
        self, count: int, seed: int = 0
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Draw functions from the posterior; call the result with rows.

        What it returns has shape (rows, samples, functions), in the scale that the
        likelihood has them.
        """
        state = self.inferred
        functions = [
            posterior.sample_functions(count, seed + 7919 * number)
            for number, posterior in enumerate(state.posteriors)
        ]

        def at(x: np.ndarray) -> np.ndarray:
            scaled = self.scaling.inputs(x)
            values = [function(scaled) for function in functions]
            return np.stack(values, axis=2) + state.offsets

        return at

    def add(self, source: Source) -> "GeneralisedModel":
        """The model of all rows so far and these, at the same parameters.

        Sites of the new rows are inferred; those of the rows before stay as they were,
        which is what they would be if the new rows did not change the posterior much.
        """
        state = self.inferred
        _counted(source, self.likelihood, some=True)
        rows = ScaledSource(source, self.scaling)
        with quiet_phases():
            found = infer(
                state.processes,
                rows,
                self.likelihood,
                state.offsets,
                given=state.statistics,
                tightened=state.tightened,
                dtype=np.float64,
                tolerance=_TOLERANCE,
                most_passes=_MOST_PASSES,
            )
        return self._with(found.statistics)

    def forget(self, source: Source) -> "GeneralisedModel":
        """The model without these rows: their sites are taken out of the sums."""
        state = self.inferred
        _counted(source, self.likelihood, some=True)
        rows = ScaledSource(source, self.scaling)
        with quiet_phases():
            sites = proposed_sums(state, rows)
        if sites[0].rows > state.statistics[0].rows * (1 + 1e-12):
            raise ValueError(
                f"{sites[0].rows:g} rows cannot be taken out of a model of "
                f"{state.statistics[0].rows:g}"
            )
        pairs = zip(state.statistics, sites, strict=True)
        return self._with(tuple(all_of - some for all_of, some in pairs))

    def merge(self, other: "GeneralisedModel") -> "GeneralisedModel":
        """The model of both models' rows; both must have the same parameters."""
        pairs = zip(self.inferred.processes, other.inferred.processes, strict=False)
        if (
            not self.scaling.agrees_with(other.scaling)
            or self.likelihood != other.likelihood
            or not all(same_values(one, two) for one, two in pairs)
        ):
            raise ValueError(
                "the models have different parameters; merge models that come from the "
                "same fit, such as model.add(...)"
            )
        mine, theirs = self.inferred.statistics, other.inferred.statistics
        return self._with(tuple(a + b for a, b in zip(mine, theirs, strict=True)))

    def emptied(self) -> "GeneralisedModel":
        """The same model before it has seen a row, for others to add to and merge."""
        processes = self.inferred.processes
        return self._with(tuple(Statistics.zero(one.basis) for one in processes))

    def _with(self, statistics: tuple[Statistics, ...]) -> "GeneralisedModel":
        state = dataclasses.replace(self.inferred, statistics=statistics, bound=np.nan)
        return dataclasses.replace(self, inferred=state)

    @functools.cached_property
    def _marginals(self) -> Callable[[Chunk], tuple[np.ndarray, np.ndarray]]:
        state = self.inferred
        with quiet_phases():
            frame = whiten(state.processes[0].basis, np.float64)
        return marginals(state.posteriors, state.offsets, frame)
