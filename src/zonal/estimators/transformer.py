"""Features for other models: a table's rows as spherical harmonics."""

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.utils.validation import check_is_fitted

from zonal.engine.features import quiet_phases, whiten
from zonal.engine.passes import chunk_results
from zonal.estimators.base import TableMixin
from zonal.estimators.settings import kernel_of, seed_of, sphere_of
from zonal.prior.basis import Basis
from zonal.prior.kernels import ContinuousDepth
from zonal.prior.sphere import ARD
from zonal.tables.scaling import Scaling
from zonal.tables.sources import ArraySource

__all__ = ["SphericalHarmonicFeatures"]


class SphericalHarmonicFeatures(
    TableMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Features whose inner products are the kernel of an infinitely wide network.

    For linear models and other estimators that take features. Columns are standardised
    and have equal scales; nothing is learned from a target.

    Parameters
    ----------
    n_features : int, default=256
        Maximum number of columns of the result.
    scale : float, default=1.0
        Scale of the standardised columns on the sphere; smaller values give smoother
        features.
    kernel : {"continuous-depth", "ntk", "arc-cosine"} or a zonal kernel
        The kernel that inner products of features approximate.
    layout : {"banded", "sparse", "harmonics"}
        How features are allotted to frequencies (see `zonal.prior.bands`).
    depth : int, optional
        Number of hidden layers of a network, instead of ``"continuous-depth"``.
    geometry, categories, missing, random_state
        As in `SphericalGPRegressor`.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from zonal import SphericalHarmonicFeatures
    >>> generator = np.random.default_rng(0)
    >>> X = generator.normal(size=(300, 2))
    >>> y = np.sin(2 * X[:, 0])
    >>> model = make_pipeline(SphericalHarmonicFeatures(100), Ridge(1e-3)).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    def __init__(
        self,
        n_features=256,
        *,
        scale=1.0,
        kernel="continuous-depth",
        layout="banded",
        depth=None,
        geometry=None,
        categories="auto",
        missing="error",
        random_state=0,
    ):
        self.n_features = n_features
        self.scale = scale
        self.kernel = kernel
        self.layout = layout
        self.depth = depth
        self.geometry = geometry
        self.categories = categories
        self.missing = missing
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Standardise a table and choose phases from its rows.

        Examples
        --------
        >>> from zonal import SphericalHarmonicFeatures
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> len(SphericalHarmonicFeatures(20).fit(X).get_feature_names_out())
        20
        """
        if not self.scale > 0:
            raise ValueError(f"scale must be positive, got {self.scale}")
        columns = self._learned_columns([X])
        x = columns.matrix(X)
        sphere = sphere_of(self.geometry, x.shape[1])
        # Scaling needs a target that varies; any will do, as only inputs are scaled.
        placeholder = np.arange(len(x), dtype=np.float64)
        scaling = Scaling.learn(ArraySource(x, placeholder))
        if sphere is None:
            isotropic = ARD.isotropic(x.shape[1])
            sphere = ARD(np.asarray(isotropic.scales) * float(self.scale))
        else:
            scaling = scaling.of_target_only()
        kernel = kernel_of(self.kernel, self.depth) or ContinuousDepth()
        basis = Basis.build(
            sphere,
            kernel,
            self.n_features,
            self.layout,
            rows=scaling.inputs(x),
            seed=seed_of(self.random_state),
        )
        self.scaling_, self.basis_ = scaling, basis
        self._take_columns(columns)
        self._n_features_out = basis.n_features
        return self

    def transform(self, X):
        """Features of rows, of shape (rows, at most ``n_features``).

        Examples
        --------
        >>> from zonal import SphericalHarmonicFeatures
        >>> X = np.random.default_rng(0).normal(size=(50, 2))
        >>> transformer = SphericalHarmonicFeatures(200).fit(X)
        >>> features = transformer.transform(X)
        >>> kernel = transformer.basis_.covariance(transformer.scaling_.inputs(X))
        >>> bool(np.abs(features @ features.T - kernel).max() < 0.1 * kernel.max())
        True
        """
        check_is_fitted(self)
        with quiet_phases():
            frame = whiten(self.basis_, np.float64)
        features = []
        for x in self._blocks(X):
            scaled = ArraySource(self.scaling_.inputs(x), np.zeros(len(x)))
            features += chunk_results(lambda chunk: frame.features(chunk.x), scaled)
        return np.concatenate(features)
