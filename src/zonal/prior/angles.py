"""The kernel as a function of the distance between two points on the sphere.

Neighbours are close, and what a kernel does at small angles depends on its highest
levels: κ of `ContinuousDepth` with all its levels is 1 - c θ^(β-1) near θ = 0, and no
finite number of levels reproduces that. Here κ is tabulated once for all levels, as a
function of the squared chord u = |s - s'|² = 2 - 2 cos θ, which is exact in float32 for
points that are close when it is taken from their difference.

**All levels at once.** For r < 1, the normalised Gegenbauer polynomials satisfy

    Σ_l r^l P_l(cos θ) = H(q) / (1 - r cos θ),    q = (r sin θ / (1 - r cos θ))²,
    H(q) = 2F1(1/2, 1; (d-1)/2; -q),

(DLMF 18.12.7 with γ = 1). With (1+l)^-β = ∫ t^(β-1) e^(-(1+l)t) dt / Γ(β), r = e^-t
and t = e^x, the sum over all levels is an integral along x that the trapezoidal rule
finds to rounding from some 300 nodes. The nodes do not depend on β: a matrix of the
generating function is made once per dimension, and a new β is one product with it.

**Lookup without logarithms.** The grid has 32 points per octave of u + 2^-56, so the
leading bits of a floating-point number are the interval and the rest the place in it;
cubic Hermite interpolation gives κ, its slope in u and its derivative in β. Beyond
u = 2 the grid runs in 4 - u, because networks have a kink at the antipode too.

References: NIST Digital Library of Mathematical Functions, 18.12; Trefethen & Weideman
(2014), "The exponentially convergent trapezoidal rule".
"""

import dataclasses
import functools
import threading

import numpy as np
from jaxtyping import Float
from numpy.polynomial import chebyshev
from scipy.special import digamma, gamma

from zonal.prior.kernels import NTK, ArcCosine, ContinuousDepth, FreeSpectrum, Kernel
from zonal.prior.polynomials import check_dimension, gegenbauer

__all__ = ["LARGEST_BETA", "SMALLEST_BETA", "AngleTable"]

# As β falls to 1 the variance moves to infinitely high levels, and the kernel becomes
# white noise, which the noise variance stands for already. At 1.05 half of the variance
# lies at angles below 1e-6, where float32 can no longer tell points apart.
SMALLEST_BETA = 1.05
# Here levels 1 and up carry 1.5e-5 of the variance: the kernel is a constant.
LARGEST_BETA = 16.0

# u + OFFSET runs through whole octaves from OFFSET to 2. Float32 sets equal points
# apart by 1e-16 and more, and the first interval has to end below that: with a cubic in
# place of the power law of a rough kernel, matrices of such points are indefinite.
OFFSET = 2.0**-56
OCTAVES = 57
POINTS_BITS = 5
_POINTS = 2**POINTS_BITS
# One interval more, for u = 2 itself.
INTERVALS = OCTAVES * _POINTS + 1

# A smaller share of the variance is the rounding of the sums over all levels.
_LEAST_SHARE = 1e-9

# The trapezoidal rule in x = log t. Its error is |Γ(β + 2πi/step)| / Γ(β), 1e-15 at the
# largest β; below the first node the integrand is at most e^(βx) / θ.
_STEP, _FIRST, _LAST = 0.15, -37.0, 4.6

# The last tables, by kernel, dimension and first level: while the noise is fitted, one
# table is asked for again and again.
_MOST_RECENT = 8
_recent: "dict[tuple, AngleTable]" = {}
_lock = threading.Lock()


@dataclasses.dataclass(frozen=True, eq=False)
class AngleTable:
    """A zonal kernel as piecewise cubics in the squared chord between two points.

    Parameters
    ----------
    values
        Coefficients of κ in each interval: first those of u below 2, then of 4 - u.
    beta_slopes
        Coefficients of ∂κ/∂β; zero for a kernel without β, and for a table that does
        not start at level 0.
    share
        The share of the variance that lies in the tabulated levels.
    low
        The weights of the levels below them.

    Examples
    --------
    >>> table = AngleTable.build(ContinuousDepth(beta=2.0), dimension=3)
    >>> table.kernel(np.array([0.0, 2.0, 4.0])).round(4)
    array([1.    , 0.5807, 0.5   ])
    """

    values: Float[np.ndarray, "intervals 4"]
    beta_slopes: Float[np.ndarray, "intervals 4"]
    share: float = 1.0
    low: tuple[float, ...] = ()

    @classmethod
    def build(cls, kernel: Kernel, dimension: int, first: int = 0) -> "AngleTable":
        """The table of a kernel on the sphere in R^d, of levels from ``first`` up.

        It is scaled to κ(1) = 1. For `ContinuousDepth` it holds all levels, whatever
        its ``max_level``, unless the kernel has a cut or its decay is on the
        eigenvalues.
        """
        check_dimension(dimension)
        fields = dataclasses.fields(kernel)  # pyright: ignore[reportArgumentType]
        values = tuple(np.asarray(getattr(kernel, f.name)).tobytes() for f in fields)
        key = type(kernel), values, dimension, first
        with _lock:
            table = _recent.get(key)
        if table is None:
            table = cls._make(kernel, dimension, first)
            with _lock:
                _recent[key] = table
                if len(_recent) > _MOST_RECENT:
                    del _recent[next(iter(_recent))]
        return table

    @classmethod
    def _make(cls, kernel: Kernel, dimension: int, first: int) -> "AngleTable":
        value, slope, beta_value, beta_slope = _node_values(kernel, dimension)
        if first == 0:
            return cls(_cubics(value, slope), _cubics(beta_value, beta_slope))
        # The tail is what the low levels leave. If that is only rounding, it is zero.
        low = _low_weights(kernel, dimension, first)
        cosine = 1 - _chords() / 2
        value = value - np.asarray(gegenbauer(cosine, first - 1, dimension)) @ low
        slope = slope + _gegenbauer_slopes(cosine, first - 1, dimension) @ low / 2
        share = float(value[0])
        if share < _LEAST_SHARE:
            none = np.zeros((2 * INTERVALS, 4))
            return cls(none, none, 0.0, tuple(low.tolist()))
        scaled = _cubics(value / share, slope / share)
        return cls(scaled, np.zeros_like(scaled), share, tuple(low.tolist()))

    @functools.cached_property
    def single(self) -> tuple[np.ndarray, np.ndarray]:
        """Both tables of coefficients in float32, flat."""
        return (
            self.values.astype(np.float32).ravel(),
            self.beta_slopes.astype(np.float32).ravel(),
        )

    @functools.cached_property
    def double(self) -> tuple[np.ndarray, np.ndarray]:
        """Both tables of coefficients in float64, flat."""
        return self.values.ravel(), self.beta_slopes.ravel()

    def kernel(self, chord: Float[np.ndarray, "*points"]) -> Float[np.ndarray, "..."]:
        """κ at squared chords."""
        interval, place, _, _ = _locate(chord)
        return _cubic(self.values[interval], place)

    def slope(self, chord: Float[np.ndarray, "*points"]) -> Float[np.ndarray, "..."]:
        """dκ/du at squared chords u."""
        interval, place, width, sign = _locate(chord)
        _, c1, c2, c3 = np.moveaxis(self.values[interval], -1, 0)
        return sign * (c1 + place * (2 * c2 + place * 3 * c3)) / width

    def beta_slope(
        self, chord: Float[np.ndarray, "*points"]
    ) -> Float[np.ndarray, "..."]:
        """∂κ/∂β at squared chords."""
        interval, place, _, _ = _locate(chord)
        return _cubic(self.beta_slopes[interval], place)


def _locate(chord: np.ndarray) -> tuple[np.ndarray, ...]:
    """Intervals, the places in them, their widths, and the direction they run in."""
    chord = np.asarray(chord, np.float64)
    mirrored = chord > 2
    mantissa, exponent = np.frexp(
        np.maximum(np.where(mirrored, 4 - chord, chord), 0.0) + OFFSET
    )
    steps, octave = (2 * mantissa - 1) * _POINTS, exponent - 1
    whole = np.floor(steps)
    interval = (octave + OCTAVES - 1) * _POINTS + whole.astype(np.int64)
    width = np.ldexp(1.0 / _POINTS, octave)
    return (
        interval + INTERVALS * mirrored,
        steps - whole,
        width,
        np.where(mirrored, -1.0, 1.0),
    )


def _cubic(coefficients: np.ndarray, place: np.ndarray) -> np.ndarray:
    c0, c1, c2, c3 = np.moveaxis(coefficients, -1, 0)
    return c0 + place * (c1 + place * (c2 + place * c3))


def _grid() -> np.ndarray:
    """The ends of all intervals, as u + OFFSET."""
    octave, point = np.divmod(np.arange(INTERVALS + 1), _POINTS)
    return OFFSET * np.exp2(octave) * (1 + point / _POINTS)


def _chords() -> np.ndarray:
    """Squared chords at the ends of all intervals, those of 4 - u last."""
    below = _grid() - OFFSET
    return np.concatenate([below, 4 - below])


def _cubics(value: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Hermite coefficients from values and slopes in u at the ends of intervals."""
    width = np.diff(_grid())
    parts = []
    for half, sign in (
        (slice(None, INTERVALS + 1), 1),
        (slice(INTERVALS + 1, None), -1),
    ):
        start, rise = value[half][:-1], np.diff(value[half])
        left, right = sign * slope[half][:-1] * width, sign * slope[half][1:] * width
        # At angle zero the slope may be infinite; the interval has a parabola instead.
        left[0] = (3 * rise[0] - right[0]) / 2
        parts.append(
            [start, left, 3 * rise - 2 * left - right, left + right - 2 * rise]
        )
    return np.ascontiguousarray(np.concatenate(parts, axis=1).T)


def _node_values(kernel: Kernel, dimension: int) -> tuple[np.ndarray, ...]:
    """κ, dκ/du, ∂κ/∂β and its slope in u at the ends of intervals."""
    cosine = 1 - _chords() / 2
    if isinstance(kernel, ArcCosine | NTK):
        none = np.zeros_like(cosine)
        value, slope = np.asarray(kernel._value(cosine)), kernel._slope(cosine)
        return value, np.asarray(slope) / -2, none, none
    if isinstance(kernel, ContinuousDepth) and _is_endless(kernel):
        return _endless(float(kernel.beta), dimension)
    if isinstance(kernel, ContinuousDepth | FreeSpectrum):
        weights = kernel.level_weights(dimension)
        beta_weights = (
            kernel.proportion_slopes(dimension, 0, len(weights) - 1)[0]
            if isinstance(kernel, ContinuousDepth)
            else np.zeros_like(weights)
        )
        pair = np.stack([weights, beta_weights], axis=1)
        last = len(weights) - 1
        value = np.asarray(gegenbauer(cosine, last, dimension)) @ pair
        slope = _gegenbauer_slopes(cosine, last, dimension) @ pair / -2
        return value[:, 0], slope[:, 0], value[:, 1], slope[:, 1]
    raise TypeError(f"there is no angle table for {type(kernel).__name__} kernels")


def _low_weights(
    kernel: Kernel, dimension: int, count: int
) -> Float[np.ndarray, " levels"]:
    """Weights of the lowest levels, zero beyond the last level of the kernel."""
    weights = np.zeros(count)
    if isinstance(kernel, ContinuousDepth) and _is_endless(kernel):
        beta = float(kernel.beta)
        return (1.0 + np.arange(count)) ** -beta / _zeta(beta)[0]
    last = count - 1
    if kernel.last_level is not None:
        last = min(last, kernel.last_level)
    weights[: last + 1] = kernel.level_weights(dimension, last)
    return weights


def _gegenbauer_slopes(
    t: np.ndarray, last: int, dimension: int
) -> Float[np.ndarray, "points levels"]:
    """P_0'(t), ..., P_L'(t): P_l' = l(l+d-2)/(d-1) · P_{l-1} of dimension d + 2."""
    level = np.arange(1, last + 1)
    at_pole = level * (level + dimension - 2) / (dimension - 1)
    slopes = np.zeros((len(t), last + 1))
    if last > 0:
        raised = gegenbauer(t, last - 1, dimension + 2)
        slopes[:, 1:] = at_pole * np.asarray(raised)
    return slopes


def _is_endless(kernel: ContinuousDepth) -> bool:
    return kernel.decay == "energy" and kernel.scalar_parameters == ("beta",)


def _endless(beta: float, dimension: int) -> tuple[np.ndarray, ...]:
    """`_node_values` of (1+l)^-β, all levels, scaled to κ(1) = 1."""
    if not SMALLEST_BETA <= beta <= LARGEST_BETA:
        raise ValueError(
            f"a kernel with all its levels has beta between {SMALLEST_BETA} and "
            f"{LARGEST_BETA}, got {beta:.6g}"
        )
    sums, slopes = _generating(dimension)
    x = _abscissae()
    mass = _STEP * np.exp(beta * x - np.exp(x)) / gamma(beta)
    masses = np.stack([mass, mass * (x - digamma(beta))], axis=1)
    total, total_slope = _zeta(beta)
    value, beta_value = (sums @ masses).T / total
    slope, beta_slope = (slopes @ masses).T / total
    beta_value -= value * (total_slope / total)
    beta_slope -= slope * (total_slope / total)
    # At u = 0 the sum is ζ(β) itself, and the slope has no limit.
    value[0], beta_value[0] = 1.0, 0.0
    slope[0] = beta_slope[0] = 0.0
    return value, slope, beta_value, beta_slope


def _zeta(beta: float) -> tuple[float, float]:
    """ζ(β) by Euler-Maclaurin, and ζ'(β) from a step along the imaginary axis."""
    n, b = 32.0, beta + 1e-30j
    head = np.sum(np.arange(1.0, n) ** -b)
    tail = n ** (1 - b) / (b - 1) + n**-b / 2 + b / 12 * n ** (-b - 1)
    tail -= b * (b + 1) * (b + 2) / 720 * n ** (-b - 3)
    tail += b * (b + 1) * (b + 2) * (b + 3) * (b + 4) / 30240 * n ** (-b - 5)
    total = head + tail
    return float(total.real), float(total.imag / 1e-30)


def _abscissae() -> np.ndarray:
    return np.arange(_FIRST, _LAST, _STEP)


@functools.lru_cache(maxsize=8)
def _generating(dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Σ_l r^l P_l at the ends of intervals for each r = e^-t, and its slope in u."""
    series = _hypergeometric(dimension)
    # Blocks stay in the cache.
    blocks = np.array_split(_chords(), 48)
    values, slopes = zip(
        *(_generating_block(one, series) for one in blocks), strict=True
    )
    return np.concatenate(values), np.concatenate(slopes)


def _generating_block(
    chord: np.ndarray, series: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    chord, t = chord[:, None], np.exp(_abscissae())
    r, gap = np.exp(-t), -np.expm1(-t)
    along = gap + r * chord / 2  # 1 - r cos θ
    across = gap**2 + r * chord  # 1 - 2 r cos θ + r²
    y = along / np.sqrt(across)
    h = chebyshev.chebval(2 * y - 1, series)
    h_slope = chebyshev.chebval(2 * y - 1, 2 * np.asarray(chebyshev.chebder(series)))
    y_slope = r / (2 * along) - r / (2 * across)
    return h / along, (h_slope * y * y_slope - h * r / (2 * along)) / along


@functools.lru_cache(maxsize=64)
def _hypergeometric(dimension: int) -> np.ndarray:
    """H as a Chebyshev series in y = 1/√(1 + q), which lies between 0 and 1.

    H is analytic in y except at -1 and infinity, so the series is short.
    """

    def h(x: np.ndarray) -> np.ndarray:
        return _h(4 / (x + 1) ** 2 - 1, dimension)

    for degree in (32, 64, 128, 256, 512):
        series = np.asarray(chebyshev.chebinterpolate(h, degree))  # pyright: ignore
        heard = np.flatnonzero(np.abs(series) > 1e-13)
        if heard[-1] < degree - 4:
            break
    return series[: heard[-1] + 1]


def _h(q: np.ndarray, dimension: int) -> np.ndarray:
    """H(q) by a recurrence from the sphere two dimensions away.

    H_{d+2} = (d-1)/(d-2) · ((1+q) H_d - 1) / q, upwards where q is large. Solved for
    H_d it has only positive terms and forgets its start where q is small.
    """
    up = np.where(q > dimension / 8, q, 1.0)
    even = dimension % 2 == 0
    large = 1 / (1 + up) if even else 1 / np.sqrt(1 + up)
    # From d = 2 the factor (d-1)/(d-2) is infinite and the difference zero: d = 4.
    if even and dimension > 2:
        large = np.arctan(np.sqrt(up)) / np.sqrt(up)
    for d in range(4 if even else 3, dimension, 2):
        large = (d - 1) / (d - 2) * ((1 + up) * large - 1) / up
    down = np.where(q > dimension / 8, 0.0, q)
    small = np.ones_like(q)
    for d in range(8 * dimension + 80 + dimension % 2, dimension - 1, -2):
        small = (1 + down * small * ((d - 2) / (d - 1))) / (1 + down)
    return np.where(q > dimension / 8, large, small)
