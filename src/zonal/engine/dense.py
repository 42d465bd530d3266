"""The exact log marginal likelihood of a few rows, and its gradient.

With a phase at every row, the features capture all of the prior: the bound is then the
log marginal likelihood of a dense Gaussian process, and phases need no learning. With K
the prior covariance of the rows, D the diagonal of their precisions w a/σ² and
B = I + √D K √D,

    log p(y) = -½ [ n log 2πσ² - Σ w log a + log|B| + zᵀB⁻¹z ],    z = √D y.

Whatever its bands, the kernel is one Chebyshev series in t = s·s'. So the value and the
gradient in all parameters cost three sweeps over half of the pairs of rows.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_solve, get_lapack_funcs

from zonal.engine.blas import single_threaded_blas
from zonal.engine.linalg import factorise
from zonal.prior.backend_numpy import series, series_slope
from zonal.prior.bands import (
    Band,
    CompleteLevel,
    LevelSum,
    SingleLevel,
    band_kernel,
    pull_band,
)
from zonal.prior.basis import Basis, pull_energies
from zonal.prior.process import Process
from zonal.tables.sources import Source

__all__ = ["at_rows", "exact_value_and_gradient", "is_series"]


def is_series(basis: Basis) -> bool:
    """Whether the bands of a basis are all polynomials and cover its whole prior."""
    dimension = basis.sphere.dimension
    shapes = [band_kernel(band, basis.kernel, dimension) for band in basis.bands]
    polynomial = all(isinstance(shape, (SingleLevel, LevelSum)) for shape in shapes)
    return polynomial and basis.uncovered_energy == 0


def at_rows(process: Process, x: Float[np.ndarray, "rows inputs"]) -> Process:
    """The same process with a phase at every row."""
    basis = process.basis
    points = np.unique(basis.sphere.points(x)[0], axis=0)
    bands = tuple(
        dataclasses.replace(band, phases=points) if isinstance(band, Band) else band
        for band in basis.bands
    )
    return dataclasses.replace(process, basis=dataclasses.replace(basis, bands=bands))


def exact_value_and_gradient(
    process: Process, sources: Sequence[Source]
) -> tuple[float, dict[str, np.ndarray]]:
    """The log marginal likelihood and its gradient in all but the phases (zero there).

    Several sources are the same inputs with several targets, as in
    `zonal.engine.gradient.value_and_gradient`.
    """
    noise = float(process.noise)
    chunks = [next(source.chunks(source.n_rows or 1)) for source in sources]
    with single_threaded_blas():
        pairs = _Pairs.of(process.basis, np.asarray(chunks[0].x, np.float64))
        value, covariance_bar, noise_bar = 0.0, np.zeros_like(pairs.covariance), 0.0
        for chunk in chunks:
            weight, precision = chunk.weights, chunk.precisions
            spread, y = weight * precision / noise, chunk.targets
            inner, bar, freedom, squares = _likelihood(pairs.covariance, spread, y)
            rows = weight.sum()
            constants = rows * np.log(2 * np.pi * noise) - weight @ np.log(precision)
            value += inner - 0.5 * constants
            covariance_bar += bar
            noise_bar -= 0.5 * (rows - freedom - squares) / noise
        gradients = pairs.pull(covariance_bar)
    for band in process.basis.bands:
        if isinstance(band, Band):
            gradients[f"bands.{band.name}.phases"] = np.zeros_like(band.phases)
    gradients = {f"basis.{name}": value_bar for name, value_bar in gradients.items()}
    return float(value), gradients | {"noise": np.asarray(noise_bar)}


def _likelihood(
    covariance: np.ndarray, spread: np.ndarray, y: np.ndarray
) -> tuple[float, np.ndarray, float, float]:
    """-½ (log|B| + zᵀB⁻¹z), its cotangent in K, tr(I - B⁻¹) and |B⁻¹z|².

    Only the entries on and below the diagonal of the cotangent are used.
    """
    root = np.sqrt(spread)
    factor, _ = factorise(covariance * root[:, None] * root)
    z = root * y
    solution = cho_solve((factor, True), z, check_finite=False)
    value = -np.sum(np.log(np.diag(factor))) - 0.5 * z @ solution
    (invert,) = get_lapack_funcs(("potri",), (factor,))
    inverse, _ = invert(factor, lower=1, overwrite_c=1)
    freedom = len(y) - np.trace(inverse)
    # Fortran order avoids a copy.
    bar = np.multiply.outer(solution, 0.5 * solution).T - 0.5 * inverse
    bar *= root[:, None]
    bar *= root
    return float(value), bar, float(freedom), float(solution @ solution)


@dataclasses.dataclass(frozen=True, eq=False)
class _Pairs:
    """The prior covariance of some rows, pair by pair, and its pullback."""

    basis: Basis
    x: np.ndarray
    s: np.ndarray
    radial: np.ndarray
    t: np.ndarray
    shapes: list[SingleLevel | LevelSum]
    coefficients: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(cls, basis: Basis, x: np.ndarray) -> "_Pairs":
        s, radial = basis.sphere.points(x)
        below = _pair_indices(len(x))
        t = np.clip((s @ s.T).ravel()[below], -1.0, 1.0)
        shapes = [_polynomial(basis, band) for band in basis.bands]
        coefficients = np.zeros(max(len(shape.coefficients) for shape in shapes))
        for energy, shape in zip(basis.energies, shapes, strict=True):
            own = np.asarray(shape.coefficients)
            coefficients[: len(own)] += float(basis.variance) * energy * own
        covariance = np.zeros((len(x), len(x)))
        covariance.ravel()[below] = series(t, coefficients)
        covariance += covariance.T
        covariance[np.diag_indices_from(covariance)] = coefficients.sum()
        covariance *= radial[:, None]
        covariance *= radial
        return cls(basis, x, s, radial, t, shapes, coefficients, covariance)

    def pull(self, covariance_bar: np.ndarray) -> dict[str, np.ndarray]:
        """Pull a cotangent of the covariance back to gradients in sphere and kernel."""
        basis, below = self.basis, _pair_indices(len(self.x))
        # Each pair (i, j) with i > j counts twice.
        twice = 2 * covariance_bar.ravel()[below]
        weighted = np.zeros_like(self.covariance)
        weighted.ravel()[below] = twice * self.covariance.ravel()[below]
        own = np.diag(covariance_bar) * np.diag(self.covariance)
        radial_bar = weighted.sum(axis=0) + weighted.sum(axis=1) + 2 * own
        scale = np.outer(self.radial, self.radial).ravel()[below]
        twice *= scale
        sums = _chebyshev_sums(self.t, twice, len(self.coefficients))
        sums += np.diag(covariance_bar) @ self.radial**2  # where every T_k is 1
        twice *= series(self.t, series_slope(self.coefficients))
        weighted.ravel()[below] = twice
        s_bar = weighted @ self.s + weighted.T @ self.s
        moved = basis.sphere.pull(self.x, s_bar, radial_bar / self.radial)
        gradients = self._pull_kernel(sums)
        return gradients | {f"sphere.{name}": value for name, value in moved.items()}

    def _pull_kernel(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """Turn the gradient in the whole series into those in energies and depth."""
        basis, variance = self.basis, float(self.basis.variance)
        inner = np.array(
            [
                shape.coefficients @ sums[: len(shape.coefficients)]
                for shape in self.shapes
            ]
        )
        of_variance = float(basis.energies @ inner)
        gradients = pull_energies(basis, variance * inner, of_variance)
        bands = zip(basis.bands, self.shapes, basis.energies, strict=True)
        for band, shape, energy in bands:
            if isinstance(shape, SingleLevel):
                continue
            along = variance * energy * sums[: len(shape.coefficients)]
            if shape.tangents is not None:
                along = np.asarray(shape.tangents) @ along
            pulled = pull_band(band, basis.kernel, basis.sphere.dimension, along)
            for name, value in pulled.items():
                name = f"kernel.{name}"
                gradients[name] = np.asarray(gradients[name] + value)
        return gradients


def _polynomial(basis: Basis, band: Band | CompleteLevel) -> SingleLevel | LevelSum:
    shape = band_kernel(band, basis.kernel, basis.sphere.dimension)
    assert isinstance(shape, (SingleLevel, LevelSum)), (
        "only polynomial bands have an exact likelihood"
    )
    return shape


@functools.lru_cache(maxsize=4)
def _pair_indices(size: int) -> np.ndarray:
    """Indices below the diagonal of a flattened matrix: each pair of rows once."""
    return np.ravel_multi_index(np.tril_indices(size, -1), (size, size))


def _chebyshev_sums(t: np.ndarray, weight: np.ndarray, length: int) -> np.ndarray:
    """Σ weight T_k(t) for every k below ``length``."""
    sums, spare = np.empty(length), np.empty_like(t)
    twice, now, after = 2 * t, np.ones_like(t), t.copy()
    for k in range(length):
        sums[k] = now @ weight
        np.multiply(twice, after, out=spare)
        spare -= now
        now, after, spare = after, spare, now
    return sums
