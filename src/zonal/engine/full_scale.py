"""Features and neighbours together: the full-scale approximation.

Features φ (`zonal.engine.inducing`) carry what is global, and the k nearest rows what
the features leave, k̃(x, x') = k(x, x') - φ(x)·φ(x'). The weights of the features have
the posterior N(m, S) of FITC,

    ω_i = 1 / (σ_i² + k̃_ii),   G = Σ ω φφᵀ,   h = Σ ω y φ,   S = (I + G)⁻¹,   m = Sh,

and a new row with neighbours n is predicted given both:

    a = (K̃_nn + Σ_n)⁻¹ k̃_n*,    ψ = φ* - Φ_nᵀ a,
    mean = aᵀy_n + ψᵀm,    var f = k̃** - aᵀk̃_n* + ψᵀSψ.

Without features this is kriging from the nearest rows, without neighbours it is FITC,
and where the features capture all of the kernel it is the sparse process. G and h are
sums over rows, so rows can be added and taken out.

References: Snelson & Ghahramani (2005) for FITC; Sang & Huang (2012) for the
combination, there with tapers instead of neighbours; Gyger, Furrer & Sigrist (2024).
"""

import dataclasses
import functools

import numpy as np
from jaxtyping import Float, Integer
from scipy.linalg import cho_solve, solve_triangular

from zonal.engine.blas import single_threaded_blas, triangular_product
from zonal.engine.inducing import GlobalFeatures, combined
from zonal.engine.linalg import factorise
from zonal.engine.local import Conditionals, Queries, StoredRows, conditionals
from zonal.engine.passes import block_results
from zonal.engine.posterior import Marginals
from zonal.saving import savable

__all__ = ["FeatureSums", "FullScale"]

# Rows per product: their features fit in the cache.
_BLOCK = 2048
# Leverages are below one; rounding must not take them there.
_LEAST_REST = 1e-6

Lists = Integer[np.ndarray, "queries neighbours"]


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class FeatureSums:
    """Sums over rows: G = Σ ω φφᵀ, and h = Σ ω y φ with a column per output."""

    gram: Float[np.ndarray, "features features"]
    moment: Float[np.ndarray, "features outputs"]

    @classmethod
    def collect(
        cls, features: GlobalFeatures, rows: StoredRows, dtype: type = np.float64
    ) -> "FeatureSums":
        """The sums of rows, with products in ``dtype``."""
        phi = rows.known_features
        rate = _rates(features, rows)

        def block(part: slice) -> tuple[np.ndarray, np.ndarray]:
            scaled = phi[part].astype(dtype)
            moment = scaled.T @ (rate[part, None] * rows.targets[part]).astype(dtype)
            scaled *= np.sqrt(rate[part, None]).astype(dtype)
            return scaled.T @ scaled, moment

        size, outputs = phi.shape[1], rows.targets.shape[1]
        total = cls(np.zeros((size, size)), np.zeros((size, outputs)))
        with single_threaded_blas():
            for gram, moment in block_results(block, len(rate), _BLOCK):
                np.add(total.gram, gram, out=total.gram)
                np.add(total.moment, moment, out=total.moment)
        return total

    def __add__(self, other: "FeatureSums") -> "FeatureSums":
        return FeatureSums(self.gram + other.gram, self.moment + other.moment)

    def __sub__(self, other: "FeatureSums") -> "FeatureSums":
        return FeatureSums(self.gram - other.gram, self.moment - other.moment)


def _rates(
    features: GlobalFeatures, rows: StoredRows | Queries
) -> Float[np.ndarray, " rows"]:
    """ω: the precision of each row's target given the features alone."""
    phi = rows.known_features[:, : len(features.phases)]
    captured = np.einsum("ij,ij->i", phi, phi, dtype=np.float64)
    prior = features.rest_variance * rows.radial.astype(np.float64) ** 2
    return 1 / (rows.noise + np.maximum(prior - captured, 0.0))


@dataclasses.dataclass(frozen=True, eq=False)
class FullScale:
    """Stored rows with their features, and the posterior of the features' weights.

    Examples
    --------
    >>> from zonal import ARD, ContinuousDepth
    >>> from zonal.prior.process import LocalProcess
    >>> process = LocalProcess(ARD.isotropic(1), ContinuousDepth(beta=2.0))
    >>> features = GlobalFeatures(process, 2, np.zeros((0, 2)))   # levels 0 and 1
    >>> rows = features.stored(np.eye(2), np.ones(2), np.ones((2, 1)), np.full(2, 0.1))
    >>> given = FullScale.of(features, rows)
    >>> queries = given.queries(np.eye(2), np.ones(2))
    >>> given.predict(queries, np.array([[0], [1]])).mean.round(2)
    array([[0.94],
           [0.94]])
    """

    features: GlobalFeatures
    rows: StoredRows
    sums: FeatureSums

    @classmethod
    def of(
        cls, features: GlobalFeatures, rows: StoredRows, dtype: type = np.float64
    ) -> "FullScale":
        """The posterior given some rows."""
        return cls(features, rows, FeatureSums.collect(features, rows, dtype))

    @functools.cached_property
    def _factor(self) -> Float[np.ndarray, "features features"]:
        """L with L Lᵀ = I + G."""
        return factorise(self.sums.gram)[0]

    @functools.cached_property
    def weights(self) -> Float[np.ndarray, "features outputs"]:
        """m, the mean of the features' weights."""
        if len(self.features) == 0:
            return np.zeros_like(self.sums.moment)
        return cho_solve((self._factor, True), self.sums.moment)

    @functools.cached_property
    def root(self) -> Float[np.ndarray, "features features"]:
        """R = L⁻¹ in float32, so that S = RᵀR."""
        identity = np.eye(len(self.features))
        if len(identity) == 0:
            return identity.astype(np.float32)
        inverse = solve_triangular(self._factor, identity, lower=True)
        return np.ascontiguousarray(inverse, np.float32)

    def queries(
        self,
        directions: Float[np.ndarray, "rows d"],
        radial: Float[np.ndarray, " rows"],
    ) -> Queries:
        """Points to predict at, with their features."""
        return Queries(directions, radial, None, self.features.at(directions, radial))

    def predict(self, queries: Queries, lists: Lists) -> Marginals:
        """Means (a column per output) and variances of the function at queries."""
        found, psi = self._local(queries, lists)
        if psi is None:
            return Marginals(found.mean, found.variance)
        squares = np.sum(self._whitened(psi) ** 2, axis=1, dtype=np.float64)
        return Marginals(found.mean + psi @ self.weights, found.variance + squares)

    def leave_out(
        self, indices: Integer[np.ndarray, " queries"], lists: Lists
    ) -> Marginals:
        """Leave-one-out marginals of stored rows, whose lists do not contain them.

        A row is also taken out of m and S, by a change of rank one.
        """
        queries = self.rows.queries(indices)
        found, psi = self._local(queries, lists)
        if psi is None:
            return Marginals(found.mean, found.variance)
        own = queries.known_features
        whitened = self._whitened(psi).astype(np.float64)
        own_whitened = self._whitened(own).astype(np.float64)
        rate = _rates(self.features, queries)
        leverage = rate * np.sum(own_whitened**2, axis=1)
        ratio = rate / np.maximum(1 - leverage, _LEAST_REST)
        cross = np.sum(whitened * own_whitened, axis=1)
        residual = self.rows.targets[indices] - own @ self.weights
        mean = found.mean + psi @ self.weights - (ratio * cross)[:, None] * residual
        squares = np.sum(whitened**2, axis=1) + ratio * cross**2
        return Marginals(mean, found.variance + squares)

    def _local(
        self, queries: Queries, lists: Lists
    ) -> tuple[Conditionals, np.ndarray | None]:
        """The conditionals given neighbours, and ψ (None without features)."""
        if self.features.rest_variance == 0:
            # The features capture all of the prior: neighbours add nothing.
            outputs = self.rows.targets.shape[1]
            none = np.zeros(len(lists))
            found = Conditionals(np.zeros((len(lists), outputs)), none, None, 0, 0)
            return found, queries.known_features
        found = conditionals(
            self.rows,
            queries,
            lists,
            self.features.rest,
            self.features.rest_variance,
            weights=len(self.features) > 0,
        )
        if found.weights is None:
            return found, None
        psi = combined(
            self.rows.known_features, lists, found.weights, queries.known_features
        )
        return found, psi

    def _whitened(
        self, psi: Float[np.ndarray, "rows features"]
    ) -> Float[np.ndarray, "rows features"]:
        """R ψ of each row, whose squares sum to ψᵀSψ."""
        product = np.array(psi, np.float32, order="C")

        def block(part: slice) -> None:
            triangular_product(product[part], slice(0, len(self.root)), self.root)

        with single_threaded_blas():
            for _ in block_results(block, len(product), _BLOCK):
                pass
        return product
