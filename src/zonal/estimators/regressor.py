"""Regression of numbers and counts, with predictive distributions."""

from collections.abc import Iterator

import numpy as np
from sklearn.base import RegressorMixin, _fit_context
from sklearn.metrics import r2_score
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
)

from zonal.estimators.base import check_targets
from zonal.estimators.settings import likelihood_of
from zonal.estimators.updating import ChangingGP
from zonal.prediction import Prediction, PredictiveDistribution
from zonal.tables.sources import positive
from zonal.tables.streams import Stream, stream_of
from zonal.tables.target_maps import Log, logit_below
from zonal.tables.targets import Given, exposure_of

__all__ = ["SphericalGPRegressor"]

_COUNTS = ("poisson", "negative-binomial")


class SphericalGPRegressor(RegressorMixin, ChangingGP):
    """Gaussian process regression on tables of a hundred or of millions of rows.

    Parameters
    ----------
    n_features : int, optional
        Number of global features. By default it is chosen by leave-one-out density, and
        0 predicts from neighbours alone. Without neighbours it is the number of
        features to learn the kernel with, 512 by default.
    n_neighbors : int, optional
        Number of nearest rows to predict from, besides the features. By default it is
        chosen by leave-one-out density. The model then stores the rows. 0 uses features
        alone; so do ``solve_features``, likelihoods other than normal noise, layouts
        other than the default, and clusters.
    keep_rows : bool, default=True
        Whether the model may store rows. ``False`` is the same as ``n_neighbors=0``:
        the model has no rows of the table in it, and is less accurate for rough
        functions.
    solve_features : int, optional
        Without neighbours, the number of features of the final model, which may be
        larger. By default up to four times ``n_features``, as long as a pass over the
        rows takes seconds: 2048 for up to a hundred thousand rows, and ``n_features``
        for millions of rows and for likelihoods other than normal noise.
    kernel : {"continuous-depth", "ntk", "arc-cosine"} or a zonal kernel
        The network whose infinitely wide limit is the prior. ``"ntk"`` and
        ``"arc-cosine"`` have ``depth`` hidden layers, or one by default.
    layout : {"banded", "sparse", "harmonics"}
        How features are allotted to frequencies (see `zonal.prior.bands`).
    likelihood : str or a zonal likelihood, default="auto"
        Distribution of targets: ``"gaussian"``, normal noise (the same as ``"auto"``);
        ``"student-t"``, noise with outliers; ``"heteroscedastic"``, noise that varies
        from row to row; ``"poisson"``, counts; ``"negative-binomial"``, counts with
        overdispersion.
    target_transform : {"auto", None, "log", "logit", "yeo-johnson"}, default="auto"
        The scale on which the target is learned, for normal noise. Predictions,
        intervals and scores are in the units of the target. ``"log"`` is for positive
        targets such as prices, ``"logit"`` for targets between 0 and 1 (or 0 and 100)
        such as shares, ``"yeo-johnson"`` for other skewed ones, and None for none.
        ``"auto"`` chooses one of them if leave-one-out densities are clearly higher.
    depth : int, optional
        Number of hidden layers; learned by default. If it is given, the kernel is
        ``"ntk"`` unless it is ``"arc-cosine"``.
    geometry : {"sphere"} or a pair of columns, optional
        ``"sphere"``: rows are latitude and longitude in degrees, or unit vectors. A
        pair names the columns of latitude and longitude among ordinary ones.
    categories : {"auto", "error"} or a list of columns, default="auto"
        Categorical columns: ``"auto"`` are those of strings, a list names further ones,
        and ``"error"`` raises for columns of strings.
    missing : {"error", "indicator"}, default="error"
        ``"error"`` raises for missing values; ``"indicator"`` fills them and adds a
        column that marks them.
    max_time : float, optional
        Seconds after which learning stops; the model is then solved with the
        hyper-parameters reached. A limit below fifty seconds also reduces the default
        of ``solve_features``.
    early_stopping : bool, default=False
        Whether to hold out validation rows while learning, and to stop when their
        predictions no longer improve. With neighbours, learning always does.
    validation_fraction : float, default=0.1
        Fraction of the rows used for validation with ``early_stopping``; not used with
        neighbours.
    warm_start : bool, default=False
        Whether ``fit`` starts from the kernel of the previous fit.
    callbacks : list of functions, optional
        Called with a `Step` after every step; learning stops if one returns true.
        (With scikit-learn 1.9, ``set_callbacks`` takes its own callbacks too.)
    verbose : int, default=0
        Steps to print: 0 for none, 1 for every tenth, 2 for all.
    random_state : int, RandomState or None, default=0
        Seed of all random choices.
    dtype : {"auto", "float32", "float64"}, default="auto"
        Precision of features; ``"auto"`` uses float64 where it takes only seconds.
        With neighbours, features are always float32.

    Attributes
    ----------
    depth_ : Depth
        ``beta``, the decay of the spectrum within bands of levels, and ``layers``, the
        depth of the network whose whole spectrum is nearest to the learned one.
    n_samples_seen_ : float
        Total weight of the rows that the model has seen and not forgotten.
    relevance_ : ndarray of shape (n_features_in_,)
        Share of each column in the distances between rows; the values sum to one.
    level_weights_ : ndarray
        Prior variance of each frequency level, in units of the target's variance.
    noise_ : float, or ndarray of shape (n_outputs,)
        Standard deviation of the noise, in the units of the target. With
        ``target_transform_``, noise is larger for some targets than for others; this is
        the noise of the target at the centre of the scale.
    target_transform_ : TargetMap, or list with one per output
        The scale of the target (`zonal.tables.target_maps`), such as ``Log()``;
        ``Identity()`` if there is none.
    n_features_, n_neighbors_ : int
        Numbers of features and of neighbours of the model; 0 for none.
    bound_ : float
        Lower bound on the log marginal likelihood of all rows. With neighbours, the
        sum of their leave-one-out log densities; NaN after rows were added or
        forgotten.
    n_iter_ : int
        Number of learning steps; with neighbours, of rounds.
    history_ : structured ndarray
        Stage, number, rows, bound per row (with neighbours, leave-one-out log density
        per row) and seconds of every step.
    n_features_in_, feature_names_in_
        Number of columns of the fitted table, and their names if they are strings.

    Examples
    --------
    >>> from zonal import SphericalGPRegressor
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(-2, 2, size=(120, 2))
    >>> y = 10 * np.sin(2 * X[:, 0]) + generator.normal(size=120)
    >>> model = SphericalGPRegressor().fit(X, y)
    >>> mean, std = model.predict([[0.5, 0.0]], return_std=True)
    >>> bool(abs(mean[0] - 10 * np.sin(1.0)) < 1)
    True
    >>> bool(0.5 < model.noise_ < 1.5), bool(model.relevance_[0] > 0.9)
    (True, True)
    """

    _own = ("outputs_shape_",)

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
        target_transform="auto",
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
        super().__init__(
            n_features,
            n_neighbors=n_neighbors,
            keep_rows=keep_rows,
            solve_features=solve_features,
            kernel=kernel,
            layout=layout,
            likelihood=likelihood,
            depth=depth,
            geometry=geometry,
            categories=categories,
            missing=missing,
            max_time=max_time,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            warm_start=warm_start,
            callbacks=callbacks,
            verbose=verbose,
            random_state=random_state,
            dtype=dtype,
        )
        self.target_transform = target_transform

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.likelihood in ("auto", "gaussian")
        tags.target_tags.positive_only = self.likelihood in _COUNTS
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X,
        y=None,
        sample_weight=None,
        *,
        target=None,
        weight=None,
        exposure=None,
        checkpoint=None,
    ):
        """Fit the model to a table.

        Parameters
        ----------
        X : array, frame of pandas, polars or pyarrow, path, dataset or `zonal.Stream`
            The table. Files are read in batches, so that large files need not fit in
            memory (see `zonal.Stream`).
        y : array of shape (rows,) or (rows, outputs)
            The targets. Several outputs share their features; each has its own noise.
        sample_weight : array of shape (rows,), optional
            Weight of each row; a weight of two counts the row twice.
        target : str or list of str, optional
            The column or columns of the table that are the target, instead of ``y``.
        weight : str, optional
            The column of the table that holds the weights.
        exposure : array of shape (rows,), or str with ``target``, optional
            For counts: the factor of each row's rate, such as hours of observation or
            people at risk; or the column of the table that holds it.
        checkpoint : path, optional
            A file that holds the progress of a long fit. If the fit is interrupted,
            even by a kill, the same call resumes from the file and ends with the same
            model. A completed fit removes the file; a fit that was stopped by a limit
            or a callback leaves it, to be continued with more time.

        Examples
        --------
        A table that contains its target, and counts over unequal hours:

        >>> import pyarrow
        >>> from zonal import SphericalGPRegressor
        >>> x = np.linspace(-1, 1, 30)
        >>> table = pyarrow.table({"x": x, "sine": np.sin(3 * x)})
        >>> SphericalGPRegressor().fit(table, target="sine").predict([[0.5]]).round(2)
        array([1.])
        >>> hours = 1 + np.arange(30) % 3
        >>> counts = np.random.default_rng(0).poisson(7 * hours)
        >>> model = SphericalGPRegressor(likelihood="poisson")
        >>> model = model.fit(x[:, None], counts, exposure=hours)
        >>> bool(abs(model.predict([[0.0]])[0] - 7) < 1)
        True
        """
        given = Given(X, y, sample_weight, target, weight, exposure)
        return self._fit(given, checkpoint=checkpoint)

    def _likelihood(self, known):
        return likelihood_of(self.likelihood)

    @property
    def _takes_exposure(self) -> bool:
        return likelihood_of(self.likelihood).takes_exposure

    def _learned_of_targets(self, y):
        y = self._check_numbers(y)
        several = y.ndim == 2 and y.shape[1] > 1
        if several and not likelihood_of(self.likelihood).conjugate:
            raise ValueError(
                f"several targets need likelihood='gaussian', not {self.likelihood!r}; "
                "fit one model per target"
            )
        return {"outputs_shape_": y.shape[1:]}

    def _targets(self, y, known):
        y = self._check_numbers(y)
        if y.shape[1:] != tuple(known["outputs_shape_"]):
            raise ValueError(
                f"y has shape {y.shape}; the model was fitted to targets of shape "
                f"{('rows', *known['outputs_shape_'])}"
            )
        return y[:, 0] if y.shape[1:] == (1,) else y

    def _check_domain(self, y, weight):
        if not likelihood_of(self.likelihood).conjugate:
            return
        for column in y.reshape(len(y), -1).T:
            if self.target_transform == "log":
                check_targets(Log(), column, weight)
            if self.target_transform == "logit":
                check_targets(logit_below(column.max(initial=0.0)), column, weight)

    def _check_numbers(self, y) -> np.ndarray:
        y = check_array(y, ensure_2d=False, dtype="numeric", input_name="y")
        return np.asarray(y, np.float64)

    def _some_targets(self, y):
        # Only the shape matters. A copy, because a view would keep all rows in memory.
        return y[:1].copy()

    def _describe(self):
        super()._describe()
        noise = [model.noise for model in self.models_]
        self.noise_ = np.array(noise) if self.outputs_shape_ else noise[0]
        maps = [model.target_map for model in self.models_]
        self.target_transform_ = maps if self.outputs_shape_ else maps[0]

    def predict(self, X, return_std=False, *, exposure=None):
        """Mean of a new target at each row, and its standard deviation on request.

        The standard deviation includes the noise, and is calibrated on leave-one-out
        residuals of the fitted rows.

        Counts are predicted for an ``exposure`` of one by default; pass one number per
        row, one number for all rows, or the name of a column.

        Returns
        -------
        mean : ndarray of shape (rows,) or (rows, outputs)
        std : ndarray of the same shape, with ``return_std``

        Examples
        --------
        >>> from zonal import SphericalGPRegressor
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> model = SphericalGPRegressor().fit(X, np.sin(3 * X[:, 0]))
        >>> mean, std = model.predict([[0.5], [9.0]], return_std=True)
        >>> bool(abs(mean[0] - np.sin(1.5)) < 0.01), bool(std[1] > 10 * std[0])
        (True, True)
        """
        if not return_std:
            return self._gather(X, lambda prediction: prediction.mean, exposure)
        # Predict once: columns are mean and standard deviation.
        both = self._gather(
            X,
            lambda prediction: np.column_stack(
                [prediction.mean, np.sqrt(prediction.variance_y)]
            ),
            exposure,
        )
        return both[:, 0], both[:, 1]

    def score(self, X, y, sample_weight=None, *, exposure=None):
        """R², the share of the targets' variance that the predicted mean explains.

        Examples
        --------
        >>> from zonal import SphericalGPRegressor
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> model = SphericalGPRegressor().fit(X, np.sin(3 * X[:, 0]))
        >>> bool(model.score(X, np.sin(3 * X[:, 0])) > 0.99)
        True
        """
        mean = self.predict(X, exposure=exposure)
        return r2_score(y, mean, sample_weight=sample_weight)

    def predict_interval(self, X, coverage=0.9, *, exposure=None):
        """Central intervals that contain a new target with probability ``coverage``.

        Returns
        -------
        ndarray of shape (rows, 2) or (rows, 2, outputs)

        Examples
        --------
        >>> from zonal import SphericalGPRegressor
        >>> X = np.linspace(-1, 1, 100)[:, None]
        >>> y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> model = SphericalGPRegressor().fit(X, y)
        >>> low, high = model.predict_interval(X, coverage=0.8).T
        >>> bool(abs(np.mean((low < y) & (y < high)) - 0.8) < 0.1)
        True
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must lie between 0 and 1, not {coverage}")
        levels = [(1 - coverage) / 2, (1 + coverage) / 2]
        return self.predict_quantiles(X, levels, exposure=exposure)

    def predict_quantiles(self, X, alpha, *, exposure=None):
        """Quantiles of a new target at each row; ``alpha`` lists their probabilities.

        Returns
        -------
        ndarray of shape (rows, len(alpha)) or (rows, len(alpha), outputs)

        Examples
        --------
        >>> from zonal import SphericalGPRegressor
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> counts = np.random.default_rng(0).poisson(np.exp(2 + X[:, 0]))
        >>> model = SphericalGPRegressor(likelihood="poisson")
        >>> low, high = model.fit(X, counts).predict_quantiles([[0.0]], [0.05, 0.95])[0]
        >>> bool(low < np.exp(2) < high), bool(low == int(low))
        (True, True)
        """
        levels = np.atleast_1d(np.asarray(alpha, np.float64))
        if not np.all((levels > 0) & (levels < 1)):
            raise ValueError(
                f"probabilities of quantiles must lie between 0 and 1, not {alpha}"
            )
        return self._gather(
            X, lambda prediction: prediction.quantiles(levels), exposure
        )

    def predict_dist(self, X, *, exposure=None):
        """The distribution of a new target at each row.

        Returns
        -------
        PredictiveDistribution, or a list with one per output

        Examples
        --------
        >>> from zonal import SphericalGPRegressor
        >>> X = np.linspace(-1, 1, 100)[:, None]
        >>> y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> model = SphericalGPRegressor().fit(X, y)
        >>> distribution = model.predict_dist([[0.0], [0.5]])
        >>> bool(np.all(np.abs(distribution.mean() - [0.0, 0.5]) < 0.1))
        True
        >>> distribution.cdf(0.25).round(1)      # probability of at most 0.25
        array([1., 0.])
        """
        blocks = [
            self._predictions(*block)
            for block in self._blocks_with_exposure(X, exposure)
        ]
        distributions = [
            PredictiveDistribution(Prediction.joined(parts))
            for parts in map(list, zip(*blocks, strict=True))
        ]
        return distributions if self.outputs_shape_ else distributions[0]

    def sample_y(self, X, n_samples=1, random_state=0, *, exposure=None):
        """Random draws of new targets; each draw is a function plus noise.

        Returns
        -------
        ndarray of shape (rows, n_samples) or (rows, outputs, n_samples)

        Examples
        --------
        >>> from zonal import SphericalGPRegressor
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> counts = np.random.default_rng(0).poisson(np.exp(2 + X[:, 0]))
        >>> model = SphericalGPRegressor(likelihood="poisson")
        >>> draws = model.fit(X, counts).sample_y([[-1.0], [1.0]], n_samples=1000)
        >>> draws.shape, bool(np.all(draws == np.floor(draws)))
        ((2, 1000), True)
        >>> bool(np.mean(draws[1] > draws[0]) > 0.95)
        True
        """
        check_is_fitted(self)
        generator = np.random.default_rng(random_state)
        draws = []
        for model in self.models_:
            draw = model.sample_targets(n_samples, generator)
            blocks = [draw(*block) for block in self._blocks_with_exposure(X, exposure)]
            draws.append(np.concatenate(blocks))
        if not self.outputs_shape_:
            return draws[0]
        return np.stack(draws, axis=1)

    def log_score(self, X, y, sample_weight=None, *, exposure=None):
        """Mean log predictive density per row; higher is better.

        Examples
        --------
        >>> from zonal import SphericalGPRegressor
        >>> X = np.linspace(-1, 1, 100)[:, None]
        >>> y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> model = SphericalGPRegressor().fit(X, y)
        >>> right = model.log_score(X, y)
        >>> bool(right > model.log_score(X, y + 0.2))
        True
        """
        check_is_fitted(self)
        check_consistent_length(X, y, sample_weight)
        y = self._targets(y, self._known)
        columns = y.reshape(len(y), -1).T
        start, densities = 0, []
        for x, block_exposure in self._blocks_with_exposure(X, exposure):
            rows = slice(start, start + len(x))
            start += len(x)
            pairs = zip(self._predictions(x, block_exposure), columns, strict=True)
            densities.append(
                sum(
                    prediction.log_density(column[rows]) for prediction, column in pairs
                )
            )
        return float(np.average(np.concatenate(densities), weights=sample_weight))

    def _blocks_with_exposure(
        self, X, exposure
    ) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Blocks of rows as numbers, each with its exposure."""
        check_is_fitted(self)
        self._check_exposure(exposure)
        if exposure is None:
            yield from ((x, None) for x in self._blocks(X))
            return
        if isinstance(exposure, str):
            stream = stream_of(X)
            X = Stream.of(X) if stream is None else stream
            exposure = exposure_of(X, exposure)
        single = np.ndim(exposure) == 0
        values = np.atleast_1d(np.asarray(exposure, np.float64))
        positive(values, "exposure", len(values), 0)
        start = 0
        for x in self._blocks(X):
            rows = slice(start, start + len(x))
            start += len(x)
            block = np.repeat(values, len(x)) if single else values[rows]
            if len(block) == len(x):
                yield x, block
        if not single and start != len(values):
            raise ValueError(
                f"X has {start} rows and exposure has {len(values)}: give one number "
                "per row"
            )

    def _predictions(
        self, x: np.ndarray, exposure: np.ndarray | None
    ) -> list[Prediction]:
        """The prediction of each output for a block of rows."""
        return [model.predict(x, exposure=exposure) for model in self.models_]

    def _gather(self, X, read, exposure) -> np.ndarray:
        """Concatenate the values that ``read`` takes from the predictions of blocks.

        Several outputs are the last axis.
        """
        blocks = []
        for block in self._blocks_with_exposure(X, exposure):
            outputs = [read(prediction) for prediction in self._predictions(*block)]
            blocks.append(
                np.stack(outputs, axis=-1) if self.outputs_shape_ else outputs[0]
            )
        return np.concatenate(blocks)
