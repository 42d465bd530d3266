"""The posterior: what is known of the function and of new targets, row by row.

With A = I + S from the statistics, the weights of the scaled features are normal with
mean μ = A⁻¹m and covariance A⁻¹. At a row with features φ and prior variance k

    mean f = φᵀμ,    var f = k - φᵀ(I - A⁻¹)φ,    var y = var f + σ²/a.

I - A⁻¹ = R Rᵀ is folded with the scales and the whitening of every band into one
matrix, so a variance is one product with the raw kernel values, k - |Rᵀφ|², and the
mean is one more column.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import block_diag, cho_solve, solve_triangular
from scipy.special import ndtri

from zonal.engine.blas import single_threaded_blas
from zonal.engine.features import Frame, quiet_phases, whiten
from zonal.engine.linalg import factorise, robust_cholesky
from zonal.engine.passes import chunk_results
from zonal.engine.statistics import Statistics
from zonal.likelihoods.noise import Calibration
from zonal.prior.basis import feature_scales
from zonal.prior.parameters import Fields
from zonal.prior.process import Process
from zonal.tables.chunks import Chunk
from zonal.tables.sources import ArraySource, Source

__all__ = ["Posterior", "Prediction"]

# A model of so little, rows times squared features, is predicted from in float64.
_SMALL = 5e9
# Rounding of a variance in float32, relative to the prior's, and how much of a typical
# posterior variance it may be.
_ROUNDING = 2e-6
_RESOLVED = 0.05


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """What is known at some rows: of the function f, and of a new target y.

    The function is normal. A target has the ``shape`` that was learned from residuals
    (`zonal.likelihoods.noise`), by default a normal too.
    """

    mean: Float[np.ndarray, " rows"]
    variance_f: Float[np.ndarray, " rows"]
    variance_y: Float[np.ndarray, " rows"]
    shape: Calibration = Calibration()

    @classmethod
    def joined(cls, parts: Iterable["Prediction"]) -> "Prediction":
        """Predictions of chunks, one below the other."""
        every = list(parts)
        return cls(
            np.concatenate([part.mean for part in every]),
            np.concatenate([part.variance_f for part in every]),
            np.concatenate([part.variance_y for part in every]),
            every[0].shape,
        )

    @property
    def _unit(self) -> np.ndarray:
        """The deviation that the shape is in units of."""
        return np.sqrt(self.variance_y / self.shape.spread)

    def quantiles(
        self, levels: Float[np.ndarray, " levels"]
    ) -> Float[np.ndarray, "rows levels"]:
        """Quantiles of a new target."""
        return self.mean[:, None] + self._unit[:, None] * self.shape.quantiles(levels)

    def distribution(self, y: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
        """Probability that a new target is at most y."""
        return self.shape.distribution((y - self.mean) / self._unit)

    def draw(
        self, count: int, generator: np.random.Generator
    ) -> Float[np.ndarray, "rows samples"]:
        """New targets at random, every row for itself."""
        shape = len(self.mean), count
        standard = generator.normal(size=shape)
        standard *= self.shape.drawn_widths(shape, generator)
        return self.mean[:, None] + self._unit[:, None] * standard

    def log_density(self, y: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
        """Log predictive density of targets."""
        unit = self._unit
        return self.shape.log_density((y - self.mean) / unit) - np.log(unit)


@dataclasses.dataclass(frozen=True, eq=False)
class Posterior(Fields):
    """A process and the statistics of its data, solved.

    ``dtype`` is what variances are computed in. By default that is float32 where the
    table was large and float32 resolves the variance of the function, a small
    difference of large numbers when the prior is wide and the data many.

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

        Whitening would blow up what float32 leaves of kernel values near one.
        """
        with quiet_phases():
            return whiten(self.process.basis, np.float64)

    def split_variance(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> tuple[Float[np.ndarray, "rows features"], Float[np.ndarray, " rows"]]:
        """Features of some rows, and the prior variance that they do not capture."""
        basis = self.process.basis
        unit, radial = self.frame.unit_features(x)
        features = unit * radial[:, None] * feature_scales(basis)[None, :]
        prior = float(basis.variance) * basis.total_energy * radial**2
        return features, np.maximum(prior - np.sum(features**2, axis=1), 0.0)

    @property
    def factor(self) -> Float[np.ndarray, "features features"]:
        """Cholesky factor of A = I + S."""
        return self._factorised[0]

    @property
    def lift(self) -> float:
        """What was added to A: above zero where rounding of the statistics shows."""
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
        """tr(A⁻¹S): how many parameters the data have determined."""
        return float(len(self.factor) - np.sum(self.inverse_factor**2))

    def predict(
        self,
        x: Float[np.ndarray, "rows inputs"],
        precision: Float[np.ndarray, " rows"] | None = None,
    ) -> Prediction:
        """Mean and variances at new rows; the answer does not depend on how many."""
        source = ArraySource(x, np.zeros(len(x)), precision=precision)
        return Prediction.joined(self.predict_chunks(source))

    def predict_chunks(self, source: Source) -> Iterator[Prediction]:
        """Predictions for a stream of rows, a chunk at a time."""
        return chunk_results(self.predictor(), source)

    @functools.cached_property
    def _resolving(self) -> Any:
        """The precision that variances are computed in."""
        rows, basis = self.statistics.rows, self.process.basis
        if self.dtype is not None:
            return self.dtype
        if rows * basis.n_features**2 <= _SMALL:
            return np.float64
        typical = float(self.process.noise) * self.effective_parameters / rows
        rounding = _ROUNDING * float(basis.variance) * basis.total_energy
        return np.float32 if rounding < _RESOLVED * typical else np.float64

    def predictor(self) -> Callable[[Chunk], Prediction]:
        """The function that predicts a chunk, its matrices made ready for threads."""
        _ = self._folded
        return self._predict_chunk

    @functools.cached_property
    def _folded(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Raw kernel values to ψ, their weights in the mean, and the jitter in ψ."""
        size = len(self.factor)
        inverse = self.inverse_factor.T @ self.inverse_factor
        # Directions that the data say nothing about are zero in I - A⁻¹ up to rounding
        # of the statistics; the jitter that makes a root of them is taken out of the
        # variance again.
        root, jitter = robust_cholesky(np.eye(size) - inverse)
        scales = feature_scales(self.process.basis)
        whitening = block_diag(*(band.whitening for band in self.frame.bands))
        scaled = scales[:, None] * whitening
        folded = (root.T @ scaled).T.astype(self._resolving)
        return folded, self.weights @ scaled, jitter

    def _predict_chunk(self, chunk: Chunk) -> Prediction:
        matrix, mean_weights, jitter = self._folded
        # The variance is most of the work, and may be float32; the rest is float64.
        values, radial = self.frame.kernel_values(chunk.x)
        projected = values.astype(matrix.dtype, copy=False) @ matrix
        basis, noise = self.process.basis, float(self.process.noise)
        removed = np.einsum("ij,ij->i", projected, projected, dtype=np.float64)
        prior = float(basis.variance) * basis.total_energy
        left = (1 + jitter) * prior - removed
        variance = radial**2 * np.maximum(left, 1e-9 * prior)
        precision = chunk.precisions
        mean = radial * (values @ mean_weights)
        return Prediction(mean, variance, variance + noise / precision)

    def covariance(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "rows rows"]:
        """Joint posterior covariance of f at a few rows, in float64."""
        features = self.frame.features(x)
        with single_threaded_blas():
            kept = solve_triangular(self.factor, features.T, lower=True)
            prior = self.process.basis.covariance(x)
            return prior - features @ features.T + kept.T @ kept

    def sample_functions(self, count: int, seed: int = 0) -> "FunctionSamples":
        """Draw functions from the posterior, to be evaluated anywhere at O(M) a row."""
        normal = np.random.default_rng(seed).normal(size=(len(self.factor), count))
        noise = solve_triangular(self.factor, normal, lower=True, trans=1)
        return FunctionSamples(self, self.weights[:, None] + noise, seed)

    def leave_one_out(self, source: Source) -> Iterator[Prediction]:
        """Each row's prediction from all the others, in one more pass.

        The posterior of the features' weights without a row is a rank-one change of
        the one with it, so its leverage tells what the row would be predicted as.
        """
        return chunk_results(self.left_out, source)

    def left_out(self, chunk: Chunk) -> Prediction:
        """As `leave_one_out`, for one chunk."""
        noise = float(self.process.noise)
        features, rest = self.split_variance(chunk.x)
        kept = solve_triangular(self.factor, features.T, lower=True)
        weight, precision = chunk.weights, chunk.precisions
        known = np.sum(kept**2, axis=0)
        leverage = np.minimum(weight * precision * known / noise, 1 - 1e-9)
        mean = features @ self.weights
        left_out = (mean - leverage * chunk.y) / (1 - leverage)
        variance = known / (1 - leverage) + rest
        return Prediction(left_out, variance, variance + noise / precision)


@dataclasses.dataclass(frozen=True, eq=False)
class FunctionSamples:
    """Functions drawn from a posterior: the same function at every call.

    What the features do not capture is drawn independently at each row, from a seed
    made of the row itself, so that a function keeps its value at a row seen again.
    """

    posterior: Posterior
    weights: Float[np.ndarray, "features samples"]
    seed: int

    def __call__(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "rows samples"]:
        """The sampled functions at some rows."""
        source = ArraySource(x, np.zeros(len(x)))
        return np.concatenate(list(chunk_results(self._chunk, source)))

    def _chunk(self, chunk: Chunk) -> np.ndarray:
        features, rest = self.posterior.split_variance(chunk.x)
        own = _normal_of_rows(chunk.x, self.weights.shape[1], self.seed)
        return features @ self.weights + np.sqrt(rest)[:, None] * own


def _normal_of_rows(x: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Standard normals that depend on nothing but the row, the column and the seed."""
    # Adding zero makes -0.0 the same row as 0.0.
    words = np.ascontiguousarray(x + 0.0, np.float64).view(np.uint64)
    state = _mixed(np.full(len(x), np.uint64(seed)))
    for column in range(words.shape[1]):
        state = _mixed(state ^ words[:, column])
    draws = _mixed(state[:, None] ^ _mixed(np.arange(count, dtype=np.uint64))[None, :])
    return ndtri((draws >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54)


def _mixed(words: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64: every bit of the input stirs every bit."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
