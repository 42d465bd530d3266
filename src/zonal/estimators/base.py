"""Base class of regressor and classifier: from a table to a fitted model."""

import abc
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

import narwhals as nw
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from zonal.estimators.settings import recipe_of, sphere_of
from zonal.estimators.summary import Summary, summary_of
from zonal.learning.checkpoints import check_place
from zonal.learning.recipe import Recipe
from zonal.learning.state import Step
from zonal.likelihoods.base import Likelihood
from zonal.model import Model, fit_outputs
from zonal.prior.process import Process
from zonal.prior.sphere import ARD
from zonal.saving import write
from zonal.tables.chunks import Chunk, by_output, joined, merged
from zonal.tables.columns import Columns, ColumnScan
from zonal.tables.frames import as_2d_array
from zonal.tables.sources import Source, checked, source_of
from zonal.tables.streams import stream_of
from zonal.tables.target_maps import TargetMap
from zonal.tables.targets import Given, TargetTable, blocks_of

try:
    from sklearn.callback import CallbackSupportMixin  # pyright: ignore
except ImportError:  # scikit-learn before 1.9
    CallbackSupportMixin = object  # pyright: ignore

__all__ = ["Depth", "SphericalGP", "TableMixin", "check_targets"]

Models = tuple[Model, ...]

# Rows that are encoded and predicted at a time; memory use depends on it.
_BLOCK = 65_536


class Depth(NamedTuple):
    """A learned depth: the spectrum's decay, and the layers of the nearest network."""

    beta: float
    layers: int


class TableMixin:
    """An estimator that takes arrays and data frames with columns of mixed types."""

    geometry: Any
    categories: Any
    missing: str
    columns_: Columns
    n_features_in_: int
    #: Empty, because parameters are checked where they are used.
    _parameter_constraints: ClassVar[dict] = {}

    @property
    def _look(self) -> ColumnScan:
        """The scan of columns, before it has seen any rows."""
        coordinates = None
        if self.geometry is not None and not isinstance(self.geometry, str):
            coordinates = tuple(self.geometry)
        return ColumnScan(self.categories, self.missing, coordinates)

    def _learned_columns(self, tables: Iterable[Any]) -> Columns:
        """The encoding of a table's columns, learned from its parts."""
        scan = self._look
        for table in tables:
            scan = scan.merge(scan.scan(table))
        return scan.columns()

    def _take_columns(self, columns: Columns) -> None:
        """Set the attributes that scikit-learn expects for the fitted columns."""
        self.columns_ = columns
        self.n_features_in_ = len(columns.columns)
        if columns.named:
            self.feature_names_in_ = np.array(columns.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()  # pyright: ignore
        tags.input_tags.allow_nan = self.missing == "indicator"
        tags.input_tags.string = self.categories != "error"
        tags.input_tags.categorical = self.categories != "error"
        return tags

    def _blocks(self, X) -> Iterator[np.ndarray]:
        """A table as numbers, one block of rows at a time."""
        check_is_fitted(self)  # pyright: ignore
        stream = stream_of(X)
        if stream is not None:
            names = self.columns_.names if self.columns_.named else stream.names
            yield from blocks_of(stream, self.columns_, list(map(str, names)))
            return
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        if not isinstance(frame, nw.DataFrame):
            # Convert lists once, so that their numbers keep their types.
            frame = X if hasattr(X, "shape") else as_2d_array(X)
        n_rows = frame.shape[0] if len(frame.shape) else 0
        for start in range(0, max(n_rows, 1), _BLOCK):
            block = frame[start : start + _BLOCK] if n_rows > _BLOCK else frame
            native = nw.to_native(block, pass_through=True)
            yield self.columns_.matrix(native, start)


class SphericalGP(
    TableMixin,
    CallbackSupportMixin,  # pyright: ignore
    BaseEstimator,
    metaclass=abc.ABCMeta,
):
    """A Gaussian process on tabular data, with the interface of scikit-learn.

    Subclasses define the encoding of targets, the likelihood, and the predictions.
    """

    models_: Models
    columns_: Columns
    target_name_: str | None
    #: Names of further fitted attributes that determine the model.
    _own: tuple[str, ...] = ()

    def __init__(
        self,
        n_features=None,
        *,
        n_neighbors=None,
        keep_rows=True,
        solve_features=None,
        kernel="continuous-depth",
        layout="banded",
        likelihood="auto",
        depth=None,
        geometry=None,
        categories="auto",
        missing="error",
        max_time=None,
        early_stopping=False,
        validation_fraction=0.1,
        warm_start=False,
        callbacks=None,
        verbose=0,
        random_state=0,
        dtype="auto",
    ):
        self.n_features = n_features
        self.n_neighbors = n_neighbors
        self.keep_rows = keep_rows
        self.solve_features = solve_features
        self.kernel = kernel
        self.layout = layout
        self.likelihood = likelihood
        self.depth = depth
        self.geometry = geometry
        self.categories = categories
        self.missing = missing
        self.max_time = max_time
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.verbose = verbose
        self.random_state = random_state
        self.dtype = dtype

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _fit(
        self,
        given: Given,
        *of_targets,
        checkpoint=None,
    ):
        """Learn from a table; a fit that fails leaves the estimator unchanged."""
        self._check_exposure(given.exposure)
        self._check_checkpoint(checkpoint)
        table = given.table()
        if table is not None:
            columns, sample = table.learn(self._learned_columns, self._some_targets)
            known = self._learned_of_targets(sample, *of_targets)
            sources = table.sources(columns, self._target_encoder(known))
            if self._fits_memory(table):
                rows = _read_rows(sources)
                # Once rows are sorted, errors cannot name them.
                self._check_domain(rows.targets, rows.weights)
                sources = self._sources_of(rows)
        else:
            if given.y is None:
                raise ValueError(
                    f"This {type(self).__name__} estimator requires y to be passed, "
                    "but the target y is None."
                )
            columns = self._learned_columns([given.X])
            known = self._learned_of_targets(given.y, *of_targets)
            rows = self._rows(columns, known, given, self._check_domain)
            sources = self._sources_of(rows)
        known["target_name_"] = given.target_name
        recipe = self._recipe(columns)
        start = self.process_ if self._may_start_warm(columns, recipe) else None
        models = self._taught(sources, known, recipe, start, checkpoint)
        self._accept(columns, models, known)
        return self

    def _check_checkpoint(self, checkpoint) -> None:
        """Raise before reading rows if a fit could not be resumed from a checkpoint."""
        if checkpoint is None:
            return
        if self.random_state is None:
            raise ValueError(
                "a fit with a checkpoint must repeat its random choices when it is "
                "resumed; set random_state to an integer"
            )
        check_place(checkpoint)

    def _fits_memory(self, table: TargetTable) -> bool:
        """Whether a table is so small that all of its rows are learned from."""
        n_rows = table.n_rows
        return n_rows is not None and n_rows <= recipe_of(self, None).sample_rows

    #: Whether an exposure multiplies the rates of the targets, which are then counts.
    _takes_exposure = False

    def _check_exposure(self, exposure) -> None:
        if exposure is not None and not self._takes_exposure:
            raise ValueError(
                "an exposure is for counts: use SphericalGPRegressor with likelihood "
                f"'poisson' or 'negative-binomial', not {self.likelihood!r}"
            )

    def _target_encoder(
        self, known: dict[str, Any]
    ) -> Callable[[np.ndarray], np.ndarray]:
        return lambda y: self._targets(y, known)

    def _sources_of(self, rows: Chunk) -> list[Source]:
        """Rows in memory, one source per target; small tables are sorted and merged.

        The fit of a small table then depends neither on the order of its rows nor on
        whether a row occurs twice or with twice the weight.
        """
        if len(rows) == 0:
            raise ValueError(
                "every weight is zero, so there are no rows to learn from; give at "
                "least one row a positive weight"
            )
        if len(rows) <= recipe_of(self, None).sample_rows:
            rows = merged(rows)
        return [source_of(output) for output in by_output(rows)]

    def _check_domain(self, y: np.ndarray, weight: np.ndarray | None) -> None:
        """Raise for targets of positive weight that a fit does not take."""

    def _check_fitted_domain(self, y: np.ndarray, weight: np.ndarray | None) -> None:
        """Raise for targets of positive weight outside the scale of the fit."""
        columns = y.reshape(len(y), -1).T
        for model, column in zip(self.models_, columns, strict=True):
            check_targets(model.target_map, column, weight)

    def _sources(self, given: Given, refit: bool = False) -> list[Source]:
        """Further rows of the fitted table, one source per target.

        ``refit`` says that a new model is learned from them.
        """
        self._check_exposure(given.exposure)
        table = given.table()
        if table is not None:
            return table.sources(self.columns_, self._target_encoder(self._known))
        check = self._check_domain if refit else self._check_fitted_domain
        rows = self._rows(self.columns_, self._known, given, check)
        if self.models_[0].stores_rows and len(rows):
            # In their order, so that errors tell the right row.
            return [source_of(output) for output in by_output(rows)]
        return self._sources_of(rows)

    def _may_start_warm(self, columns: Columns, recipe: Recipe) -> bool:
        """Whether an earlier fit has the same number of columns and kind of sphere."""
        if not (self.warm_start and hasattr(self, "models_")):
            return False
        sphere = self.process_.basis.sphere
        expected = ARD if recipe.sphere is None else type(recipe.sphere)
        return type(sphere) is expected and sphere.n_inputs == len(columns.outputs)

    def _taught(
        self,
        sources: list[Source],
        known: dict[str, Any],
        recipe: Recipe,
        start: Process | None,
        checkpoint: str | os.PathLike | None = None,
    ) -> Models:
        """Models learned from rows, with all callbacks called."""
        notify = self._make_callback()
        models = self._learned(sources, known, recipe, start, notify, checkpoint)
        if hasattr(self, "_callback_fit_ctx"):
            self._callback_fit_ctx.call_on_fit_task_end(estimator=self)
        return models

    def _recipe(self, columns: Columns) -> Recipe:
        return recipe_of(self, sphere_of(self.geometry, len(columns.outputs)))

    def _learned(
        self,
        sources: list[Source],
        known: dict[str, Any],
        recipe: Recipe,
        start: Process | None,
        callback: Callable[[Step], bool],
        checkpoint: str | os.PathLike | None = None,
    ) -> Models:
        """The fitted models, one per output."""
        likelihood = self._likelihood(known)
        return fit_outputs(sources, recipe, likelihood, callback, checkpoint, start)

    @abc.abstractmethod
    def _likelihood(self, known: dict[str, Any]) -> Likelihood:
        """The likelihood: how targets follow from functions."""

    @abc.abstractmethod
    def _learned_of_targets(self, y, *more) -> dict[str, Any]:
        """Fitted attributes that describe the targets, by name."""

    @abc.abstractmethod
    def _some_targets(self, y: np.ndarray) -> np.ndarray:
        """The targets that `_learned_of_targets` needs from a batch of rows."""

    @abc.abstractmethod
    def _targets(self, y, known: dict[str, Any]) -> np.ndarray:
        """Targets as numbers, checked against the fitted attributes."""

    def _rows(
        self,
        columns: Columns,
        known: dict[str, Any],
        given: Given,
        check: Callable[[np.ndarray, np.ndarray | None], None] | None = None,
    ) -> Chunk:
        """A table's rows as numbers, with targets that have passed a check."""
        x = columns.matrix(given.X)
        targets = self._targets(given.y, known)
        if len(targets) != len(x):
            raise ValueError(
                f"X has {len(x)} rows and y has {len(targets)}: inconsistent numbers "
                "of samples; give one target per row"
            )
        weight = _check_per_row(given.sample_weight, len(x), "sample_weight")
        exposure = _check_per_row(given.exposure, len(x), "exposure")
        rows = Chunk(x, targets, weight, exposure=exposure)
        for output in by_output(rows):
            checked(output.x, output.y, output.weight, exposure=exposure)
        if check is not None:
            check(targets, weight)
        # Rows of weight zero are left out.
        return rows if weight is None else rows[weight > 0]

    def _accept(self, columns: Columns, models: Models, known: dict[str, Any]) -> None:
        """Set all fitted attributes, or none of them if that fails."""
        before = dict(self.__dict__)
        try:
            self._take_columns(columns)
            self.models_ = models
            # Metrics were measured on another model.
            self.__dict__.pop("metrics_", None)
            for name, value in known.items():
                setattr(self, name, value)
            self._describe()
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _describe(self) -> None:
        """Set the fitted attributes that describe the model."""
        first, basis = self.models_[0], self.process_.basis
        self.level_weights_ = first.level_variances
        self.bound_ = float(sum(model.bound for model in self.models_))
        self.n_iter_ = sum(
            step.stage.startswith(("learn", "widen", "round")) for step in first.history
        )
        self.history_ = np.array(
            [(s.stage, s.number, s.rows, s.bound, s.seconds) for s in first.history],
            dtype=[
                ("stage", "U16"),
                ("number", np.int64),
                ("rows", np.int64),
                ("bound", np.float64),
                ("seconds", np.float64),
            ],
        )
        if isinstance(basis.sphere, ARD):
            varying = first.scaling.varying
            shares = np.where(varying, basis.sphere.relevance, 0.0)
            by_column = self.columns_.shares(shares)
            self.relevance_ = by_column / max(by_column.sum(), 1e-300)
        elif hasattr(self, "relevance_"):
            del self.relevance_

    @property
    def depth_(self) -> Depth:
        """The learned depth: ``beta``, and the hidden layers of the nearest network."""
        basis = self.process_.basis
        return Depth(float(getattr(basis.kernel, "beta", np.nan)), basis.depth)

    @property
    def n_features_(self) -> int:
        """Number of features of the model."""
        return self.models_[0].n_features

    @property
    def n_neighbors_(self) -> int:
        """Number of nearest rows that predictions use besides the features."""
        return self.models_[0].n_neighbors

    @property
    def n_samples_seen_(self) -> float:
        """Total weight of the rows that the model has seen and not forgotten."""
        return self.models_[0].statistics.rows

    @property
    def process_(self) -> Process:
        """The learned prior process of the first output."""
        return self.models_[0].process

    def _make_callback(self) -> Callable[[Step], bool]:
        """The function called after every step; learning stops if it returns true."""
        context = None
        if hasattr(self, "_init_callback_context"):
            context = self._init_callback_context(max_subtasks=None)
            context.call_on_fit_task_begin(estimator=self)
        callbacks = list(self.callbacks or [])

        def notify(step: Step) -> bool:
            if self.verbose and (step.number % 10 == 1 or self.verbose > 1):
                print(
                    f"[{step.seconds:7.1f} s] {step.stage:8} step {step.number:4} "
                    f"rows {step.rows:10,} {step.measure} per row {step.bound:10.5f}",
                    flush=True,
                )
            stop = [bool(callback(step)) for callback in callbacks]
            if context is not None:
                inner = context.subcontext(task_name=step.stage)
                inner.call_on_fit_task_begin(estimator=self)
                stop.append(bool(inner.call_on_fit_task_end(estimator=self)))
            return any(stop)

        return notify

    @property
    def _known(self) -> dict[str, Any]:
        """Fitted attributes that describe the targets."""
        return {name: getattr(self, name) for name in ("target_name_", *self._own)}

    def summary(self) -> Summary:
        """A table of the fitted model, to print or to show in a notebook.

        Examples
        --------
        >>> from zonal import SphericalGPRegressor
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> model = SphericalGPRegressor().fit(X, np.sin(3 * X[:, 0]))
        >>> print(model.summary())
        SphericalGPRegressor
        ====================
        rows                     30  counted by weight
        columns                   1
        features ...
        neighbors ...
        depth ...
        density ...
        steps ...
        noise ...
        residuals ...
        level 0 ...
        level 1 ...
        ...
        column 0             100.0%  relevance
        """
        check_is_fitted(self)
        return summary_of(self)

    def save(self, path, metrics=None) -> None:
        """Write the fitted model to one file, to be read by `zonal.load`.

        The file holds plain numbers and strings, and reading it runs no code.
        ``metrics``, a dictionary of numbers such as scores on held-out rows, are saved
        with the model and restored as ``metrics_``.

        Examples
        --------
        >>> import tempfile
        >>> from zonal import SphericalGPRegressor, load
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> model = SphericalGPRegressor().fit(X, np.sin(3 * X[:, 0]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/sine.zonal")
        ...     load(f"{folder}/sine.zonal").predict([[0.5]]).round(2)
        array([1.])
        """
        check_is_fitted(self)
        parameters = self.get_params(deep=False)
        # Functions and the states of generators are not saved.
        parameters["callbacks"] = None
        if not isinstance(parameters["random_state"], (int, np.integer)):
            parameters["random_state"] = None
        contents = {
            "estimator": type(self).__name__,
            "parameters": parameters,
            "columns": self.columns_,
            "models": self.models_,
            "known": self._known,
            "metrics": getattr(self, "metrics_", {}) if metrics is None else metrics,
        }
        write(path, contents, "model")


def _read_rows(sources: list[Source]) -> Chunk:
    """The rows of a small table, with all of their targets, in memory."""
    outputs = [joined(list(source.chunks())) for source in sources]
    if len(outputs) == 1:
        return outputs[0]
    return dataclasses.replace(
        outputs[0], y=np.column_stack([output.targets for output in outputs])
    )


def check_targets(
    target_map: TargetMap, y: np.ndarray, weight: np.ndarray | None
) -> None:
    """Raise if a target of positive weight is outside the bounds of a map."""
    if weight is not None:
        y = np.where(weight > 0, y, target_map.backward(np.zeros(len(y))))
    target_map.check(y)


def _check_per_row(values, n_rows: int, name: str) -> np.ndarray | None:
    """Numbers with one value per row, from an array or a single number."""
    if values is None:
        return None
    values = np.asarray(values, np.float64)
    if values.ndim == 0:
        return np.full(n_rows, float(values))
    if values.shape != (n_rows,):
        raise ValueError(
            f"{name}.shape == {values.shape}, expected {(n_rows,)}: one for each row"
        )
    return values
