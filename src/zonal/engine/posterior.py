"""The posterior distribution of functions at a row.

With A = I + S from the statistics, the weights of the scaled features are normal with
mean μ = A⁻¹m and covariance A⁻¹ = (LLᵀ)⁻¹. At a row with features φ, which leave the
part u = k - |φ|² of the prior variance uncaptured,

    mean f = φᵀμ,    var f = |L⁻¹φ|² + u.

The variance is a sum of squares in which nothing cancels, so float32 resolves it
however large the prior variance is.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import ndtri

from zonal.engine.blas import single_threaded_blas, triangular_product
from zonal.engine.features import Frame, quiet_phases, whiten
from zonal.engine.linalg import factorise
from zonal.engine.passes import chunk_results
from zonal.engine.precision import suited_dtype
from zonal.engine.statistics import Statistics, uncaptured_of
from zonal.prior.basis import feature_scales
from zonal.prior.parameters import Fields
from zonal.prior.process import Process
from zonal.tables.chunks import Chunk
from zonal.tables.sources import ArraySource, Source

__all__ = ["Marginals", "Posterior", "Predictor", "marginals"]

# Variances are float64 where rows times squared features is at most this.
_SMALL = 5e9


class Marginals(NamedTuple):
    """Normal marginals at some rows, of one function or one column per function.

    ``nearby`` are sizes of residuals near each row, for noise that varies.
    """

    mean: np.ndarray
    variance: np.ndarray
    nearby: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Posterior(Fields):
    """The posterior of a process, given the statistics of its data.

    ``dtype`` is the precision of variances; by default float64 where the table is
    small, and float32 otherwise.

    Examples
    --------
    >>> from zonal import ARD, Basis, ContinuousDepth, whiten
    >>> from zonal.prior.process import Process
    >>> from zonal.engine.statistics import collect
    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> process = Process(Basis.build(ARD.isotropic(1), ContinuousDepth(), 30), 0.01)
    >>> source = ArraySource(x, np.sin(3 * x[:, 0]))
    >>> posterior = Posterior(process, collect(whiten(process.basis), source))
    >>> bool(abs(posterior.predict(x).mean - np.sin(3 * x[:, 0])).max() < 0.1)
    True
    """

    process: Process
    statistics: Statistics
    dtype: Any = None

    @functools.cached_property
    def frame(self) -> Frame:
        """The whitened basis that maps rows to features, in float64.

        Whitening would amplify the rounding of float32 kernel values near one.
        """
        with quiet_phases():
            return whiten(self.process.basis, np.float64)

    @property
    def factor(self) -> Float[np.ndarray, "features features"]:
        """Cholesky factor of A = I + S."""
        return self._factorised[0]

    @property
    def lift(self) -> float:
        """The amount added to A: positive where rounding of the statistics matters."""
        return self._factorised[1]

    @functools.cached_property
    def _factorised(self) -> tuple[np.ndarray, float]:
        scales = feature_scales(self.process.basis)
        gram = self.statistics.gram
        return factorise(np.outer(scales, scales) * gram / float(self.process.noise))

    @functools.cached_property
    def inverse_factor(self) -> Float[np.ndarray, "features features"]:
        """Inverse of the Cholesky factor."""
        return solve_triangular(self.factor, np.eye(len(self.factor)), lower=True)

    @functools.cached_property
    def weights(self) -> Float[np.ndarray, " features"]:
        """Posterior mean μ of the scaled features' weights."""
        scales = feature_scales(self.process.basis)
        moment = scales * self.statistics.moment / float(self.process.noise)
        return cho_solve((self.factor, True), moment)

    @property
    def effective_parameters(self) -> float:
        """tr(A⁻¹S): the number of parameters that the data determine."""
        return float(len(self.factor) - np.sum(self.inverse_factor**2))

    @property
    def precision(self) -> Any:
        """The precision that variances are computed in."""
        if self.dtype is not None:
            return self.dtype
        return suited_dtype(self.statistics.rows, len(self.statistics.moment), _SMALL)

    def predict(self, x: Float[np.ndarray, "rows inputs"]) -> Marginals:
        """Mean and variance of f at new rows, each independent of the others."""
        parts = list(self.predict_chunks(ArraySource(x)))
        return Marginals(
            np.concatenate([part.mean for part in parts]),
            np.concatenate([part.variance for part in parts]),
        )

    def predict_chunks(self, source: Source) -> Iterator[Marginals]:
        """Marginals of a stream of rows, a chunk at a time."""
        at = marginals([self], np.zeros(1), self.frame, self.precision)

        def predict(chunk: Chunk) -> Marginals:
            found = at(chunk)
            return Marginals(found.mean[:, 0], found.variance[:, 0])

        return chunk_results(predict, source)

    def covariance(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "rows rows"]:
        """Joint posterior covariance of f at a few rows, in float64."""
        features = self.frame.features(x)
        with single_threaded_blas():
            whitened = solve_triangular(self.factor, features.T, lower=True)
            prior = self.process.basis.covariance(x)
            return prior - features @ features.T + whitened.T @ whitened

    def sample_functions(self, count: int, seed: int = 0) -> "FunctionSamples":
        """Draw functions from the posterior; each row then costs O(features)."""
        normal = np.random.default_rng(seed).normal(size=(len(self.factor), count))
        noise = solve_triangular(self.factor, normal, lower=True, trans=1)
        return FunctionSamples(self, self.weights[:, None] + noise, seed)

    def leave_one_out(self, source: Source) -> Iterator[Marginals]:
        """Marginals of each row given all the others, in one more pass.

        The posterior of the features' weights without a row is a rank-one change of
        the one with it, so the row's leverage gives its leave-one-out prediction.
        """
        return chunk_results(self.left_out, source)

    def left_out(self, chunk: Chunk) -> Marginals:
        """Leave-one-out marginals of one chunk (see `leave_one_out`)."""
        noise = float(self.process.noise)
        features, rest = self.features_and_rest(chunk.x)
        whitened = solve_triangular(self.factor, features.T, lower=True)
        known = np.sum(whitened**2, axis=0)
        leverage = chunk.weights * chunk.precisions * known / noise
        leverage = np.minimum(leverage, 1 - 1e-9)
        mean = features @ self.weights
        left_out = (mean - leverage * chunk.targets) / (1 - leverage)
        return Marginals(left_out, known / (1 - leverage) + rest)

    def features_and_rest(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> tuple[Float[np.ndarray, "rows features"], Float[np.ndarray, " rows"]]:
        """Features of some rows, and the prior variance that they do not capture."""
        basis = self.process.basis
        unit, radial = self.frame.unit_features(x)
        features = unit * radial[:, None] * feature_scales(basis)[None, :]
        prior = float(basis.variance) * basis.total_energy * radial**2
        return features, np.maximum(prior - np.sum(features**2, axis=1), 0.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Predictor:
    """Maps unit features to the marginals of one function.

    It holds the weights of the mean and a triangular root of their covariance.
    """

    weights: np.ndarray
    root: np.ndarray
    energies: np.ndarray
    missing: float

    @classmethod
    def of(cls, posterior: Posterior, dtype: Any, factor: float = 1.0) -> "Predictor":
        """The predictor of a posterior; ``factor`` multiplies uncaptured variance."""
        basis = posterior.process.basis
        scales = feature_scales(basis)
        variance = factor * float(basis.variance)
        return cls(
            scales * posterior.weights,
            np.ascontiguousarray(posterior.inverse_factor * scales, dtype),
            variance * basis.energies[list(basis.incomplete)],
            variance * basis.uncovered_energy,
        )

    def at(
        self, unit: np.ndarray, radial: np.ndarray, parts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean, and the variance left in the weights plus the uncaptured variance."""
        mean = radial * (unit @ self.weights.astype(unit.dtype))
        whitened = unit.astype(self.root.dtype, order="C")
        triangular_product(whitened, slice(0, len(self.root)), self.root)
        squares = np.einsum("ij,ij->i", whitened, whitened, dtype=np.float64)
        known = radial**2 * squares
        return mean, known + parts @ self.energies + radial**2 * self.missing


def marginals(
    posteriors: Sequence[Posterior],
    offsets: np.ndarray,
    frame: Frame,
    dtype: Any = np.float32,
    factors: Sequence[float] | None = None,
    sizes: np.ndarray | None = None,
) -> Callable[[Chunk], Marginals]:
    """Return a function that maps a chunk to the marginals of several functions.

    The functions share their features. Means have the frame's precision, variances
    ``dtype``. ``factors`` shrink the uncaptured variance, as a tightened bound does;
    predictions keep all of it. ``sizes`` are weights of unit features that predict the
    sizes of residuals.
    """
    factors = factors or (1.0,) * len(posteriors)
    predictors = [
        Predictor.of(posterior, dtype, factor)
        for posterior, factor in zip(posteriors, factors, strict=True)
    ]

    def at(chunk: Chunk) -> Marginals:
        unit, radial = frame.unit_features(chunk.x)
        found = marginals_of(predictors, offsets, frame, unit, radial)
        if sizes is None:
            return found
        nearby = radial * (unit @ sizes.astype(unit.dtype))
        return found._replace(nearby=nearby[:, None].astype(np.float64))

    return at


def marginals_of(
    predictors: Sequence[Predictor],
    offsets: np.ndarray,
    frame: Frame,
    unit: np.ndarray,
    radial: np.ndarray,
) -> Marginals:
    """Marginals of several functions at rows whose unit features are known."""
    ones = np.ones(len(unit))
    radial = radial.astype(np.float64)
    parts = uncaptured_of(frame.basis, unit, radial, ones, ones).parts
    columns = [predictor.at(unit, radial, parts) for predictor in predictors]
    mean = np.column_stack([mean for mean, _ in columns]) + offsets
    return Marginals(mean, np.column_stack([variance for _, variance in columns]))


@dataclasses.dataclass(frozen=True, eq=False)
class FunctionSamples:
    """Functions drawn from a posterior: the same function at every call.

    The uncaptured part is drawn independently per row, from a seed derived from the
    row itself, so that a function has the same value whenever it meets that row.
    """

    posterior: Posterior
    weights: Float[np.ndarray, "features samples"]
    seed: int

    def __call__(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "rows samples"]:
        """The sampled functions at some rows."""
        return np.concatenate(list(chunk_results(self._chunk, ArraySource(x))))

    def _chunk(self, chunk: Chunk) -> np.ndarray:
        features, rest = self.posterior.features_and_rest(chunk.x)
        own = normals_of_rows(chunk.x, self.weights.shape[1], self.seed)
        return features @ self.weights + np.sqrt(rest)[:, None] * own


def normals_of_rows(x: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Standard normals that depend on the row, the column and the seed only."""
    # Adding zero makes -0.0 the same row as 0.0.
    words = np.ascontiguousarray(x + 0.0, np.float64).view(np.uint64)
    state = _mix(np.full(len(x), np.uint64(seed)))
    for column in range(words.shape[1]):
        state = _mix(state ^ words[:, column])
    draws = _mix(state[:, None] ^ _mix(np.arange(count, dtype=np.uint64))[None, :])
    return ndtri((draws >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54)


def _mix(words: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64: every bit of the input changes every bit."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
