"""Classification with two or more classes and their probabilities."""

import numpy as np
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

from zonal.estimators.updating import ChangingGP
from zonal.likelihoods.classes import Bernoulli, ClassLikelihood, Labels, Softmax
from zonal.tables.targets import Given

__all__ = ["SphericalGPClassifier"]


class SphericalGPClassifier(ClassifierMixin, ChangingGP):
    """Gaussian process classification on tables of a hundred or of millions of rows.

    Parameters
    ----------
    likelihood : {"auto", "logit", "probit", "softmax"}, default="auto"
        ``"auto"`` is ``"logit"`` for two classes and ``"softmax"`` for more.
    n_features, n_neighbors, keep_rows, solve_features, kernel, layout, depth, \
geometry, categories, missing, max_time, early_stopping, validation_fraction, \
warm_start, callbacks, verbose, random_state, dtype
        As in `SphericalGPRegressor`.

    Attributes
    ----------
    classes_ : ndarray
        The classes, sorted.
    depth_, n_samples_seen_, relevance_, level_weights_, bound_, n_iter_, history_, \
n_features_in_, feature_names_in_
        As in `SphericalGPRegressor`.

    Examples
    --------
    >>> from zonal import SphericalGPClassifier
    >>> generator = np.random.default_rng(0)
    >>> X = generator.normal(size=(120, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    >>> model = SphericalGPClassifier().fit(X, y)
    >>> model.predict([[1.0, 1.0], [1.0, -1.0]])
    array(['same', 'other'], dtype='<U5')
    >>> bool(model.predict_proba([[1.0, 1.0]])[0, 1] > 0.9)
    True
    """

    _own = ("labels_",)
    labels_: Labels

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X,
        y=None,
        sample_weight=None,
        *,
        target=None,
        weight=None,
        checkpoint=None,
    ):
        """Fit the model to a table.

        Parameters
        ----------
        X : array, frame of pandas, polars or pyarrow, path, dataset or `zonal.Stream`
            The table. Files are read in batches, so that large files need not fit in
            memory (see `zonal.Stream`).
        y : array of shape (rows,)
            The classes: strings, numbers or booleans.
        sample_weight : array of shape (rows,), optional
            Weight of each row; a weight of two counts the row twice.
        target : str, optional
            The column of the table that is the target, instead of ``y``.
        weight : str, optional
            The column of the table that holds the weights.
        checkpoint : path, optional
            A file that holds the progress of a long fit. If the fit is interrupted,
            even by a kill, the same call resumes from the file and ends with the same
            model. A completed fit removes the file; a fit that was stopped by a limit
            or a callback leaves it, to be continued with more time.

        Examples
        --------
        >>> import pyarrow
        >>> from zonal import SphericalGPClassifier
        >>> x = np.linspace(-1, 1, 30)
        >>> table = pyarrow.table({"x": x, "sign": np.where(x > 0, "plus", "minus")})
        >>> model = SphericalGPClassifier().fit(table, target="sign")
        >>> model.classes_
        array(['minus', 'plus'], dtype='<U5')
        """
        given = Given(X, y, sample_weight, target, weight)
        return self._fit(given, checkpoint=checkpoint)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X,
        y=None,
        classes=None,
        sample_weight=None,
        *,
        target=None,
        weight=None,
    ):
        """Add rows at the same hyper-parameters; the first call fits.

        ``classes`` lists all classes, for first rows that lack some of them. Earlier
        rows keep their sites (see `zonal.inference.natural_gradient`), which is close
        to exact if new rows change the posterior little; ``refresh`` with all rows is
        exact again.

        Examples
        --------
        >>> from zonal import SphericalGPClassifier
        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> y = np.where(X[:, 0] > 0, "up", "down")
        >>> model = SphericalGPClassifier()
        >>> model = model.partial_fit(X[::2], y[::2], classes=["up", "down"])
        >>> model.partial_fit(X[1::2], y[1::2]).predict([[-0.9], [0.9]])
        array(['down', 'up'], dtype='<U4')
        """
        given = Given(X, y, sample_weight, target, weight)
        if hasattr(self, "models_"):
            return self._changed("add", self._sources(given))
        return self._fit(given, classes)

    def _learned_of_targets(self, y, classes=None):
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        all_labels = y if classes is None else np.concatenate([np.asarray(classes), y])
        labels = Labels.of(all_labels)
        if classes is not None and len(labels) > len(np.unique(classes)):
            raise ValueError(
                f"y has classes that are not among {list(classes)}; pass all classes"
            )
        return {"labels_": labels}

    def _targets(self, y, known):
        return known["labels_"].codes(column_or_1d(y))

    def _some_targets(self, y):
        missing = [
            row for row, label in enumerate(y) if label is None or label != label
        ]
        if missing:
            raise ValueError(
                f"the class of row {missing[0]} of these is missing; remove or name it"
            )
        return np.unique(y)

    def _describe(self):
        super()._describe()
        self.classes_ = self.labels_.names

    def predict_proba(self, X):
        """Probability of each class, in the order of ``classes_``.

        Returns
        -------
        ndarray of shape (rows, classes)

        Examples
        --------
        >>> from zonal import SphericalGPClassifier
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> model = SphericalGPClassifier().fit(X, X[:, 0] > 0)
        >>> model.predict_proba([[-1.0], [0.0], [1.0]]).round(1)
        array([[1. , 0. ],
               [0.5, 0.5],
               [0. , 1. ]])
        """
        return self._gather(X, lambda prediction: prediction.probabilities())

    def predict_log_proba(self, X):
        """Log probability of each class, in the order of ``classes_``.

        Examples
        --------
        >>> from zonal import SphericalGPClassifier
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> model = SphericalGPClassifier().fit(X, X[:, 0] > 0)
        >>> odds = np.exp(np.diff(model.predict_log_proba([[1.0]])))
        >>> bool(odds[0, 0] > 20)
        True
        """
        tiny = np.finfo(np.float64).tiny
        return np.log(np.maximum(self.predict_proba(X), tiny))

    def predict(self, X):
        """The most probable class of each row.

        Examples
        --------
        >>> from zonal import SphericalGPClassifier
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> model = SphericalGPClassifier().fit(X, np.where(X[:, 0] > 0, "up", "down"))
        >>> model.predict([[-0.9], [0.9]])
        array(['down', 'up'], dtype='<U4')
        """
        return self._labels_of(self.predict_proba(X))

    def decision_function(self, X):
        """Log odds of the second of two classes, or log probability of each class.

        Returns
        -------
        ndarray of shape (rows,) for two classes, else (rows, classes)

        Examples
        --------
        >>> from zonal import SphericalGPClassifier
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> model = SphericalGPClassifier().fit(X, X[:, 0] > 0)
        >>> model.decision_function([[-1.0], [1.0]]) > 0
        array([False,  True])
        """
        logs = self.predict_log_proba(X)
        return logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs

    def log_score(self, X, y, sample_weight=None):
        """Mean log probability of the true classes; higher is better.

        Examples
        --------
        >>> from zonal import SphericalGPClassifier
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> model = SphericalGPClassifier().fit(X, X[:, 0] > 0)
        >>> bool(model.log_score(X, X[:, 0] > 0) > np.log(0.5))     # better than a coin
        True
        """
        check_is_fitted(self)
        check_consistent_length(X, y, sample_weight)
        codes = self._targets(y, self._known).astype(int)
        chosen = self.predict_log_proba(X)[np.arange(len(codes)), codes]
        return float(np.average(chosen, weights=sample_weight))

    def _labels_of(self, probabilities: np.ndarray) -> np.ndarray:
        return self.classes_[probabilities.argmax(axis=1)]

    def _likelihood(self, known):
        n_classes, chosen = len(known["labels_"]), self.likelihood
        if isinstance(chosen, ClassLikelihood):
            return chosen
        if chosen == "auto":
            chosen = "logit" if n_classes == 2 else "softmax"
        if chosen == "softmax":
            return Softmax(n_classes)
        if chosen not in ("logit", "probit"):
            raise ValueError(
                "likelihood must be 'auto', 'logit', 'probit' or 'softmax', "
                f"not {self.likelihood!r}"
            )
        if n_classes > 2:
            raise ValueError(
                f"there are {n_classes} classes, but {chosen!r} is for two; use "
                "'softmax' or 'auto'"
            )
        return Bernoulli(chosen)

    def _gather(self, X, read) -> np.ndarray:
        """Concatenate the values that ``read`` takes from the predictions of blocks."""
        parts = [read(self.models_[0].predict(x)) for x in self._blocks(X)]
        return np.concatenate(parts)
