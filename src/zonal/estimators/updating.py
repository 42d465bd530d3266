"""Update a fitted model: add rows, forget rows, merge models."""

import dataclasses
from typing import Any

from sklearn.base import _fit_context, clone
from sklearn.utils.validation import check_is_fitted

from zonal.engine.resizing import reduced
from zonal.estimators.base import Models, SphericalGP
from zonal.tables.sources import Source
from zonal.tables.targets import Given

__all__ = ["ChangingGP"]


class ChangingGP(SphericalGP):
    """A Gaussian process that can add, forget and merge rows after its fit."""

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X,
        y=None,
        sample_weight=None,
        *,
        target=None,
        weight=None,
        exposure=None,
    ):
        """Add rows at the same hyper-parameters; the first call fits.

        With normal noise the result is exact, whatever the order of the rows. With
        other likelihoods, earlier rows keep their sites (see
        `zonal.inference.natural_gradient`); ``refresh`` with all rows is exact again.

        Examples
        --------
        >>> import numpy as np
        >>> from zonal import SphericalGPRegressor
        >>> X = np.linspace(-1, 1, 100)[:, None]
        >>> y = np.sin(3 * X[:, 0])
        >>> model = SphericalGPRegressor()
        >>> for day in range(4):
        ...     model = model.partial_fit(X[day::4], y[day::4])
        >>> bool(model.score(X, y) > 0.99)
        True
        """
        given = Given(X, y, sample_weight, target, weight, exposure)
        if not hasattr(self, "models_"):
            return self._fit(given)
        sources = self._sources(given)
        return self._changed("add", sources)

    def forget(
        self,
        X,
        y=None,
        sample_weight=None,
        *,
        target=None,
        weight=None,
        exposure=None,
    ):
        """Remove rows from the model, as if it had never seen them.

        Hyper-parameters stay the same. With normal noise the result is exact.

        Examples
        --------
        >>> import numpy as np
        >>> from zonal import SphericalGPRegressor
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> model = SphericalGPRegressor().fit(X, np.sin(3 * X[:, 0]))
        >>> before = model.predict(X)
        >>> model = model.partial_fit([[0.0]], [50.0]).forget([[0.0]], [50.0])
        >>> bool(np.allclose(model.predict(X), before))
        True
        """
        check_is_fitted(self)
        given = Given(X, y, sample_weight, target, weight, exposure)
        sources = self._sources(given)
        return self._changed("forget", sources)

    def _changed(self, change: str, sources: list[Source]):
        pairs = zip(self.models_, sources, strict=True)
        models = tuple(getattr(model, change)(source) for model, source in pairs)
        self._accept(self.columns_, models, self._known)
        return self

    def merge(self, other: "ChangingGP"):
        """Add the rows of another model that comes from the same fit.

        ``emptied`` makes empty models that other processes fill with ``partial_fit``.

        Examples
        --------
        >>> import numpy as np
        >>> from zonal import SphericalGPRegressor
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> model = SphericalGPRegressor().fit(X, np.sin(3 * X[:, 0]))
        >>> shard = model.emptied().partial_fit([[-0.5], [0.5]], np.sin([-1.5, 1.5]))
        >>> model = model.merge(shard)
        >>> model.models_[0].statistics.rows
        32.0
        """
        check_is_fitted(self)
        check_is_fitted(other)
        if type(self) is not type(other) or len(self.models_) != len(other.models_):
            raise ValueError(
                "only models of the same kind and number of targets can be merged; "
                "merge models that come from the same fit"
            )
        pairs = zip(self.models_, other.models_, strict=True)
        models = tuple(ours.merge(theirs) for ours, theirs in pairs)
        self._accept(self.columns_, models, self._known)
        return self

    def emptied(self):
        """A model with the same hyper-parameters and no rows.

        Examples
        --------
        >>> import numpy as np
        >>> from zonal import SphericalGPRegressor
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> model = SphericalGPRegressor().fit(X, np.sin(3 * X[:, 0]))
        >>> empty = model.emptied()
        >>> bool(np.allclose(empty.predict(X), 0))      # the mean of the prior
        True
        >>> empty.relevance_ == model.relevance_
        array([ True])
        """
        check_is_fitted(self)
        models = tuple(model.emptied() for model in self.models_)
        return self._clone_fitted({}, models)

    def copy_with(
        self,
        X,
        y=None,
        sample_weight=None,
        *,
        n_features,
        target=None,
        weight=None,
        exposure=None,
    ):
        """A model with the same kernel and neighbours, and more or fewer features.

        It has at most one feature per distinct row. Models without neighbours store no
        rows, so pass them again. Hyper-parameters stay the same; with neighbours, noise
        and variance are fitted again.

        Examples
        --------
        >>> import numpy as np
        >>> from zonal import SphericalGPRegressor
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> model = SphericalGPRegressor(n_features=10).fit(X, np.sin(3 * X[:, 0]))
        >>> larger = model.copy_with(X, np.sin(3 * X[:, 0]), n_features=20)
        >>> larger.n_features_, larger.depth_ == model.depth_
        (20, True)
        """
        check_is_fitted(self)
        given = Given(X, y, sample_weight, target, weight, exposure)
        sources = self._sources(given)
        recipe, start = self._recipe(self.columns_), self.process_
        maps = tuple(model.target_map for model in self.models_)
        name, neighbors = "n_features", self.n_neighbors_ or None
        if not self.models_[0].stores_rows:
            name, neighbors = "solve_features", 0
            if recipe.layout == "banded":
                start = reduced(start, n_features)
        sizes = {"n_neighbors": neighbors, name: n_features}
        recipe = dataclasses.replace(
            recipe, most_steps=0, target_transform=maps, **sizes
        )
        models = self._learned(sources, self._known, recipe, start, lambda step: False)
        return self._clone_fitted({name: n_features}, models)

    @_fit_context(prefer_skip_nested_validation=True)
    def refresh(
        self,
        X,
        y=None,
        sample_weight=None,
        *,
        target=None,
        weight=None,
        exposure=None,
    ):
        """Learn hyper-parameters again from rows, starting from the current ones.

        Examples
        --------
        >>> import numpy as np
        >>> from zonal import SphericalGPRegressor
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> model = SphericalGPRegressor().fit(X, np.sin(3 * X[:, 0]))
        >>> model = model.refresh(X, np.cos(3 * X[:, 0]))        # the world has changed
        >>> bool(abs(model.predict([[0.0]])[0] - 1) < 0.01)
        True
        """
        check_is_fitted(self)
        given = Given(X, y, sample_weight, target, weight, exposure)
        sources = self._sources(given, refit=True)
        recipe = self._recipe(self.columns_)
        models = self._taught(sources, self._known, recipe, self.process_)
        self._accept(self.columns_, models, self._known)
        return self

    def _clone_fitted(self, changes: dict[str, Any], models: Models):
        """An estimator with the same parameters but these changes, and other models."""
        estimator: Any = clone(self)
        estimator.set_params(**changes)
        estimator._accept(self.columns_, models, self._known)
        return estimator
