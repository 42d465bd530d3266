"""Regression: numbers and counts, with all that is known of a new target."""

from collections.abc import Iterator

import numpy as np
from sklearn.base import RegressorMixin, _fit_context
from sklearn.metrics import r2_score
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
)

from zonal.estimators.settings import likelihood_of
from zonal.estimators.updating import ChangingGP
from zonal.prediction import Prediction, PredictiveDistribution
from zonal.tables.sources import positive
from zonal.tables.streams import Stream, stream_of
from zonal.tables.targets import Given, exposure_of

__all__ = ["SphericalGPRegressor"]

_COUNTS = ("poisson", "negative-binomial")


class SphericalGPRegressor(RegressorMixin, ChangingGP):
    """Gaussian process regression on tables of a hundred or of millions of rows.

    Parameters
    ----------
    n_features : int, default=512
        Features to learn with.
    solve_features : int, optional
        Features to solve with: the kernel is learned with few and solved with many. By
        default up to four times as many, as long as a pass with them takes seconds:
        2048 for up to a hundred thousand rows, as many as learned with for millions,
        and for likelihoods other than normal noise.
    n_neighbors : int, default=0
        Nearest rows to predict from, instead of features; 0 for features. Rough
        functions gain most, and fits are many times faster; 64 to 256 are good choices.
        The rows are then stored in the model. With normal noise only, and not on
        clusters.
    kernel : {"continuous-depth", "ntk", "arc-cosine"} or a zonal kernel
        The network whose infinitely wide limit is the prior. All but
        ``"continuous-depth"`` have as many layers as ``depth`` says, or one.
    layout : {"banded", "sparse", "harmonics"}
        How features are spent on frequencies (see `zonal.prior.bands`).
    likelihood : str or a zonal likelihood, default="auto"
        How targets scatter: ``"gaussian"`` (what ``"auto"`` is here), normally;
        ``"student-t"``, with outliers; ``"heteroscedastic"``, with noise that changes
        from row to row; ``"poisson"``, as counts; ``"negative-binomial"``, as counts
        that scatter more.
    depth : int, optional
        Number of hidden layers, if it is not to be learned; the kernel is then
        ``"ntk"`` unless it is ``"arc-cosine"``.
    geometry : {"sphere"} or a pair of columns, optional
        ``"sphere"``: rows are latitude and longitude in degrees, or unit vectors. A
        pair names the columns of latitude and longitude beside ordinary ones.
    categories : {"auto", "error"} or a list of columns, default="auto"
        Which columns are categories: those of texts, none, or further ones by name.
    missing : {"error", "indicator"}, default="error"
        Whether missing values are refused, or filled and told of by a column.
    max_time : float, optional
        Seconds after which learning stops; the model is then solved with what has
        been reached. A limit below fifty also means fewer features to solve with.
    early_stopping : bool, default=False
        Whether to keep ``validation_fraction`` of the rows aside while learning and to
        stop where they are not predicted better any more.
    validation_fraction : float, default=0.1
        Rows to keep aside with ``early_stopping``.
    warm_start : bool, default=False
        Whether ``fit`` starts from the kernel of the fit before.
    callbacks : list of functions, optional
        Called with a `Step` after every step; one that returns true stops learning.
        (With scikit-learn 1.9, ``set_callbacks`` takes its own callbacks too.)
    verbose : int, default=0
        Whether to print steps: 1 for some, 2 for all.
    random_state : int, RandomState or None, default=0
        Every random choice follows from it.
    dtype : {"auto", "float32", "float64"}, default="auto"
        Precision of features; ``"auto"`` takes float64 where it costs seconds.

    Attributes
    ----------
    depth_ : Depth
        ``beta``, the decay of the spectrum within bands of levels, and ``layers``, the
        depth of the network whose whole spectrum is nearest to the learned one.
    n_samples_seen_ : float
        Rows that the model has seen and not forgotten, counted by their weight.
    relevance_ : ndarray of shape (n_features_in_,)
        Each column's share in telling rows apart; they sum to one.
    level_weights_ : ndarray
        Prior variance of each frequency level, in units of the target's variance.
    noise_ : float, or ndarray of shape (n_outputs,)
        Standard deviation of the noise, in the units of the target.
    bound_ : float
        Lower bound on the log marginal likelihood of all rows.
    n_iter_ : int
        Steps of learning.
    history_ : structured ndarray
        Stage, number, rows, bound and seconds of every step.
    n_features_in_, feature_names_in_
        Columns of the table that was fitted to, and their names if they are texts.

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
        """Learn from a table.

        Parameters
        ----------
        X : array, frame of pandas, polars or pyarrow, path, dataset or `zonal.Stream`
            The table. Files are read in batches, and never as a whole if they are
            large (see `zonal.Stream`).
        y : array of shape (rows,) or (rows, outputs)
            The targets. Several outputs share features and have noise of their own.
        sample_weight : array of shape (rows,), optional
            How often each row counts: weight two is the row twice.
        target : str or list of str, optional
            Instead of y: the column, or columns, of the table that are the target.
        weight : str, optional
            The column of the table that says how often each row counts.
        exposure : array of shape (rows,), or str with ``target``, optional
            For counts: what each row's rate is multiplied by, such as hours watched or
            people at risk; or the column of the table that says so.
        checkpoint : path, optional
            A file to keep the progress of a long fit in. If the fit is cut off, even by
            a kill, the same call finds the file, goes on, and ends with the same model.
            A fit that is done removes it; one that a limit or a callback stopped leaves
            it, to go on with more time.

        Examples
        --------
        A table with its target in it, and counts over unequal hours:

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
        y = self._numbers(y)
        several = y.ndim == 2 and y.shape[1] > 1
        if several and not likelihood_of(self.likelihood).conjugate:
            raise ValueError(
                f"several targets need likelihood='gaussian', not {self.likelihood!r}; "
                "fit one model for each"
            )
        return {"outputs_shape_": y.shape[1:]}

    def _targets(self, y, known):
        y = self._numbers(y)
        if y.shape[1:] != tuple(known["outputs_shape_"]):
            raise ValueError(
                f"y has shape {y.shape}; the model was fitted to targets of shape "
                f"{('rows', *known['outputs_shape_'])}"
            )
        return y[:, 0] if y.shape[1:] == (1,) else y

    def _numbers(self, y) -> np.ndarray:
        y = check_array(y, ensure_2d=False, dtype="numeric", input_name="y")
        return np.asarray(y, np.float64)

    def _some_targets(self, y):
        # Their shape is all there is to know. A copy: a view would keep all of them.
        return y[:1].copy()

    def _describe(self):
        super()._describe()
        noise = [model.noise for model in self.models_]
        self.noise_ = np.array(noise) if self.outputs_shape_ else noise[0]

    def predict(self, X, return_std=False, *, exposure=None):
        """Mean of a new target at each row, and its standard deviation on request.

        The deviation is that of a new target, noise included, and calibrated: each
        row of the table, predicted from all the others, has told how wide it must be.

        Counts are those of an ``exposure`` of one, unless it is given: one number for
        each row, one for all of them, or the name of a column.

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
            return self._gathered(X, lambda one: one.mean, exposure)
        # Both from one prediction: columns of mean and deviation.
        both = self._gathered(
            X,
            lambda one: np.column_stack([one.mean, np.sqrt(one.variance_y)]),
            exposure,
        )
        return both[:, 0], both[:, 1]

    def score(self, X, y, sample_weight=None, *, exposure=None):
        """Share of the targets' variance that the mean explains, R².

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
        """Central intervals that hold a new target with a probability of ``coverage``.

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
            raise ValueError(f"coverage lies between 0 and 1; {coverage} does not")
        ends = [(1 - coverage) / 2, (1 + coverage) / 2]
        return self.predict_quantiles(X, ends, exposure=exposure)

    def predict_quantiles(self, X, alpha, *, exposure=None):
        """Quantiles of a new target.

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
            raise ValueError(f"quantiles lie between 0 and 1; {alpha} do not")
        return self._gathered(X, lambda one: one.quantiles(levels), exposure)

    def predict_dist(self, X, *, exposure=None):
        """The distribution of a new target at each row.

        Returns
        -------
        PredictiveDistribution, or a list of them, one for each output

        Examples
        --------
        >>> from zonal import SphericalGPRegressor
        >>> X = np.linspace(-1, 1, 100)[:, None]
        >>> y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> model = SphericalGPRegressor().fit(X, y)
        >>> distribution = model.predict_dist([[0.0], [0.5]])
        >>> distribution.mean().round(1)
        array([0. , 0.5])
        >>> distribution.cdf(0.25).round(2)      # the chance of less than that
        array([0.99, 0.  ])
        """
        blocks = [self._predictions(*block) for block in self._exposed(X, exposure)]
        found = [
            PredictiveDistribution(Prediction.joined(parts))
            for parts in map(list, zip(*blocks, strict=True))
        ]
        return found if self.outputs_shape_ else found[0]

    def sample_y(self, X, n_samples=1, random_state=0, *, exposure=None):
        """New targets drawn at random, a function and its noise each.

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
            blocks = [draw(*block) for block in self._exposed(X, exposure)]
            draws.append(np.concatenate(blocks))
        if not self.outputs_shape_:
            return draws[0]
        return np.stack(draws, axis=1)

    def log_score(self, X, y, sample_weight=None, *, exposure=None):
        """Mean log predictive density of targets; higher is better.

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
        start, density = 0, []
        for x, exposed in self._exposed(X, exposure):
            rows = slice(start, start + len(x))
            start += len(x)
            pairs = zip(self._predictions(x, exposed), columns, strict=True)
            density.append(sum(one.log_density(c[rows]) for one, c in pairs))
        return float(np.average(np.concatenate(density), weights=sample_weight))

    def _exposed(self, X, exposure) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """A table as numbers, some rows at a time, each with its exposure."""
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
        every = np.atleast_1d(np.asarray(exposure, np.float64))
        positive(every, "exposure", len(every), 0)
        start = 0
        for x in self._blocks(X):
            rows = slice(start, start + len(x))
            start += len(x)
            part = np.repeat(every, len(x)) if single else every[rows]
            if len(part) == len(x):
                yield x, part
        if not single and start != len(every):
            raise ValueError(
                f"X has {start} rows and exposure has {len(every)}: give one for each "
                "row"
            )

    def _predictions(
        self, x: np.ndarray, exposure: np.ndarray | None
    ) -> list[Prediction]:
        """Predictions of each output's model at some rows."""
        return [model.predict(x, exposure=exposure) for model in self.models_]

    def _gathered(self, X, read, exposure) -> np.ndarray:
        """Something of the predictions of all rows; outputs are the last axis."""
        blocks = []
        for block in self._exposed(X, exposure):
            parts = [read(one) for one in self._predictions(*block)]
            blocks.append(np.stack(parts, axis=-1) if self.outputs_shape_ else parts[0])
        return np.concatenate(blocks)
