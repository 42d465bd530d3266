"""The polynomials of the levels: Gegenbauer, normalised to P_l(1) = 1.

Everything a zonal kernel does happens through P_l(t), the polynomial of level l
on the sphere in R^d, evaluated at t = s·s'. Two facts shape this module.

**One level is a random angle.** With K ~ BetaBinomial(l, α, α), α = (d-2)/2,

    P_l(cos θ) = E cos((l - 2K) θ),

so a level is a convex combination of Chebyshev polynomials T_k(t) = cos(kθ). The
combination is found from positive numbers only, hence exact to rounding in every
dimension, and nothing ever overflows.

**A weighted sum is one short series.** Σ_l w_l P_l(t) = Σ_k c_k T_k(t), where c is a
linear image of w. Clenshaw's rule sums it without storing a level, at two operations a
term whatever the dimension; even and odd terms run as two independent series in
u = 2t² - 1, which halves the chain. The slope is another such series,
so a value and its gradient cost two sweeps and store no intermediate: see the custom
derivative of :func:`chebyshev_sum`.

References: Szegő, "Orthogonal Polynomials" (1939), eq. 4.9.19; Clenshaw (1955).
"""

import functools
import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float, Num

__all__ = [
    "chebyshev_columns",
    "chebyshev_rows",
    "chebyshev_sum",
    "gegenbauer",
    "gegenbauer_level",
    "harmonic_count",
    "level_sum",
]

AnyArray = np.ndarray | Array


def harmonic_count(level: int, dimension: int) -> int:
    """Number of independent spherical harmonics of a level on the sphere in R^d.

    Examples
    --------
    >>> [harmonic_count(level, 3) for level in range(5)]
    [1, 3, 5, 7, 9]
    """
    level, dimension = int(level), int(dimension)  # NumPy's integers would wrap
    check_dimension(dimension)
    if level < 0:
        raise ValueError(f"level must be 0 or more, got {level}")
    if level == 0:
        return 1
    # N(l,d) = (2l+d-2)/l · binom(l+d-3, l-1); the product is divisible by l.
    return (
        (2 * level + dimension - 2)
        * math.comb(level + dimension - 3, level - 1)
        // level
    )


def gegenbauer(
    t: Float[AnyArray, "*points"], max_level: int, dimension: int
) -> Float[AnyArray, "*points levels"]:
    """P_0(t), ..., P_L(t), all levels from one sweep of the recurrence.

    The recurrence runs on the differences P_{l+1} - P_l at |t|, where each step
    subtracts a multiple of 1 - |t|, itself free of rounding near the poles; the plain
    three-term form loses l² roundings there. Works alike on NumPy and JAX arrays, in
    the precision of ``t``.

    Examples
    --------
    >>> gegenbauer(np.array([-1.0, 0.0, 1.0]), 2, dimension=3)
    array([[ 1. , -1. ,  1. ],
           [ 1. ,  0. , -0.5],
           [ 1. ,  1. ,  1. ]])
    """
    check_levels([max_level])
    check_points(t)
    sweep = itertools.islice(_sweep(t, dimension), max_level + 1)
    return t.__array_namespace__().stack(list(sweep), axis=-1)


def gegenbauer_level(
    t: Float[AnyArray, "*points"], level: int, dimension: int
) -> Float[AnyArray, "*points"]:
    """P_l(t) of a single level, without storing the levels below it.

    Examples
    --------
    >>> gegenbauer_level(np.array([0.0, 0.5]), 2, dimension=3)
    array([-0.5  , -0.125])
    """
    check_levels([level])
    check_points(t)
    return next(itertools.islice(_sweep(t, dimension), level, None))


def _sweep(t, dimension):
    """P_0(t), P_1(t), ... without end."""
    check_dimension(dimension)
    xp = t.__array_namespace__()
    mirror = xp.where(t < 0, -1.0, 1.0).astype(t.dtype)
    drop, value, step = xp.abs(t) - 1, xp.ones_like(t), xp.zeros_like(t)
    yield value
    for level in itertools.count():
        # (l+d-2)(P_{l+1} - P_l) = l (P_l - P_{l-1}) + (2l+d-2)(t-1) P_l; at l = 0 the
        # common factor d-2 cancels, which is what makes d = 2 an ordinary case.
        scale = level + dimension - 2
        momentum = level / scale if level else 0.0
        gain = (2 * level + dimension - 2) / scale if level else 1.0
        step = momentum * step + gain * (drop * value)
        value = value + step
        yield value if level % 2 else mirror * value


@functools.lru_cache(maxsize=256)
def chebyshev_rows(max_level: int, dimension: int) -> Float[np.ndarray, "levels terms"]:
    """Row l holds the Chebyshev coefficients of P_l: non-negative, summing to one.

    The Beta-binomial law of l - 2K, folded at zero (read-only, cached).

    Examples
    --------
    >>> chebyshev_rows(2, dimension=3)
    array([[1.  , 0.  , 0.  ],
           [0.  , 1.  , 0.  ],
           [0.25, 0.  , 0.75]])
    """
    check_dimension(dimension)
    check_levels([max_level])
    alpha = (dimension - 2) / 2
    rows = np.zeros((max_level + 1, max_level + 1))
    if alpha == 0:
        np.fill_diagonal(rows, 1.0)
    else:
        # log (α)_k/k! up to one common factor a level, summed from ratios.
        count = np.arange(1, max_level + 1)
        log_rising = np.concatenate([[0.0], np.cumsum(np.log1p((alpha - 1) / count))])
        for level in range(max_level + 1):
            log_law = log_rising[: level + 1] + log_rising[level::-1]
            law = np.exp(log_law - log_law.max())
            frequency = np.abs(level - 2 * np.arange(level + 1))
            np.add.at(rows[level], frequency, law / law.sum())
    rows.setflags(write=False)
    return rows


def level_sum(
    t: Num[AnyArray, "*points"], weights: Num[AnyArray, " levels"], dimension: int
) -> Float[Array, "*points"]:
    """κ(t) = Σ w_l P_l(t) over levels 0, 1, 2, ..., differentiable in t and w.

    Examples
    --------
    >>> level_sum(jnp.array([0.0, 1.0]), jnp.array([0.5, 0.0, 0.5]), dimension=3)
    Array([0.25, 1.  ], dtype=float32)
    """
    check_points(t)
    points = jnp.asarray(t)
    if not jnp.issubdtype(points.dtype, jnp.floating):
        points = points.astype(float)
    rows = jnp.asarray(chebyshev_rows(len(weights) - 1, dimension), points.dtype)
    return chebyshev_sum(points, jnp.asarray(weights, points.dtype) @ rows)


@jax.custom_vjp
def chebyshev_sum(
    t: Float[Array, "*points"], coefficients: Float[Array, " terms"]
) -> Float[Array, "*points"]:
    """Σ_k c_k T_k(t). Its gradient costs two more sweeps and stores only the slope."""
    return _clenshaw(t, coefficients)


@jax.custom_vjp
def chebyshev_along(
    t: Float[Array, "*points"],
    coefficients: Float[Array, " terms"],
    tangents: Float[Array, "numbers terms"],
    amounts: Float[Array, " numbers"],
) -> Float[Array, "*points"]:
    """The same series, differentiable in t and along a few directions of its own.

    ``amounts`` must be zero: they receive the derivative along each of the
    ``tangents``. That costs one sweep per direction; the gradient in all coefficients
    costs a sum over all points per coefficient.
    """
    return _clenshaw(t, coefficients)


def _chebyshev_along_forward(t, coefficients, tangents, amounts):
    slope = _clenshaw(t, _slope_coefficients(coefficients))
    return _clenshaw(t, coefficients), (t, slope, coefficients, tangents)


def _chebyshev_along_backward(residuals, cotangent):
    t, slope, coefficients, tangents = residuals
    flat = (-1, t.shape[-1]) if t.ndim else (1, 1)
    ones = jnp.ones(flat[1], t.dtype)
    along = []
    for tangent in tangents:
        # XLA sums a fused product one entry at a time; as a product with ones of
        # something already in memory it is ten times as fast.
        change = lax.optimization_barrier(_clenshaw(t, tangent) * cotangent)
        along.append(jnp.sum(change.reshape(flat) @ ones))
    zeros = jnp.zeros_like(coefficients), jnp.zeros_like(tangents)
    return cotangent * slope, *zeros, jnp.stack(along)


chebyshev_along.defvjp(_chebyshev_along_forward, _chebyshev_along_backward)


@jax.custom_jvp
def chebyshev_columns(
    t: Float[Array, "rows columns"], coefficients: Float[Array, "terms columns"]
) -> Float[Array, "rows columns"]:
    """One fixed Chebyshev series per column of t, all evaluated in one sweep.

    Differentiable in t alone. Many levels evaluated together are one loop to compile
    instead of one each.
    """
    return _clenshaw(t, coefficients[:, None, :])


@chebyshev_columns.defjvp
def _chebyshev_columns_jvp(primals, tangents):
    (t, coefficients), (dt, _) = primals, tangents
    slopes = _slope_coefficients(coefficients)
    return chebyshev_columns(t, coefficients), chebyshev_columns(t, slopes) * dt


def _chebyshev_sum_forward(t, coefficients):
    slope = _clenshaw(t, _slope_coefficients(coefficients))
    return _clenshaw(t, coefficients), (t, slope, coefficients)


def _chebyshev_sum_backward(residuals, cotangent):
    t, slope, coefficients = residuals
    return cotangent * slope, _moments(t, cotangent, coefficients.shape[0])


chebyshev_sum.defvjp(_chebyshev_sum_forward, _chebyshev_sum_backward)


def _clenshaw(t, coefficients):
    """Clenshaw's rule on the even and the odd terms, two series in u = T_2(t).

    Even terms are T_{2k}(t) = T_k(u). Odd ones obey the same recurrence from
    T_1(t) = t and T_3(t) = t (2u - 1). The loop is unrolled so that XLA keeps the
    whole chain in registers; a rolled loop would write every term to memory.
    """
    twice = 4 * t * t - 2  # 2u
    total = jnp.zeros_like(t)
    for parity in (0, 1):
        part = coefficients[parity::2]
        if part.shape[0] == 0:
            continue
        first, second = jnp.zeros_like(t), jnp.zeros_like(t)
        for k in range(part.shape[0] - 1, 0, -1):
            first, second = part[k] + twice * first - second, first
        if parity == 0:
            total = total + (part[0] + 0.5 * twice * first - second)
        else:
            total = total + t * (part[0] + (twice - 1) * first - second)
    return total


def _slope_coefficients(coefficients):
    """Chebyshev coefficients of the derivative: c'_k = 2 Σ_{j>k, j-k odd} j c_j."""
    terms = coefficients.shape[0]
    if terms == 1:
        return jnp.zeros_like(coefficients)
    k, j = np.arange(terms - 1)[:, None], np.arange(terms)[None, :]
    matrix = np.where((j > k) & ((j - k) % 2 == 1), 2.0 * j, 0.0)
    matrix[0] /= 2
    return jnp.asarray(matrix, coefficients.dtype) @ coefficients


def _moments(t, cotangent, terms):
    """⟨g, T_k(t)⟩ for every k, from one sweep over the entries of t.

    A single variadic reduction over the last axis: XLA then fuses the recurrence into
    one loop, where one reduction per term would recompute or store all terms before.
    """
    shape = (-1, t.shape[-1]) if t.ndim else (1, 1)
    t, cotangent = t.reshape(shape), cotangent.reshape(shape)
    previous, current = cotangent, t * cotangent
    products = [previous, current]
    for _ in range(2, terms):
        previous, current = current, 2 * t * current - previous
        products.append(current)
    products = tuple(products[:terms])
    zero = jnp.zeros((), t.dtype)
    sums = lax.reduce(
        products,
        (zero,) * terms,
        lambda left, right: tuple(a + b for a, b in zip(left, right, strict=True)),
        dimensions=(1,),
    )
    return jnp.stack([jnp.sum(partial) for partial in sums])


def check_dimension(dimension: int) -> None:
    """Raise ValueError for a space too small to hold a sphere."""
    if dimension < 2:
        raise ValueError(
            f"the sphere needs a space of dimension 2 or more, got {dimension}; "
            "a table of one column becomes dimension 2 through its bias"
        )


def check_levels(levels: Sequence[int]) -> None:
    """Raise ValueError for an empty set of levels, or negative levels."""
    if len(levels) == 0:
        raise ValueError("no levels were given; name at least one level, such as [0]")
    negative = [level for level in levels if level < 0]
    if negative:
        raise ValueError(f"levels count from 0, got {negative}")


def check_points(t: AnyArray) -> None:
    """Raise ValueError for cosines that are not finite; traced values pass."""
    if isinstance(t, Tracer):
        return
    bad = np.argwhere(~np.isfinite(np.asarray(t)))
    if len(bad):
        index = tuple(int(i) for i in bad[0])
        raise ValueError(
            f"t must be finite: {len(bad)} entries are not, the first at index "
            f"{index}; remove or impute these rows"
        )
