"""Speed of the features, relative to one BLAS product on the resulting block.

    python benchmarks/features.py

One band of 20 levels with 500 phases, 4096 rows on the sphere in R^9, float32. The
reference is NumPy's F.T @ F (SYRK) on the 4096 x 500 block. Tasks alternate within one
run, and the best time counts. The script also prints the rounding error of one level in
float32, and the time for complete sets.
"""

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from zonal import ARD, Band, Basis, ContinuousDepth, whiten
from zonal.prior.phases import complete_phases, random_phases
from zonal.prior.polynomials import (
    chebyshev_rows,
    chebyshev_sum,
    gegenbauer_level,
    harmonic_count,
    level_sum,
)

ROWS, PHASES, LEVELS, DIMENSION = 4096, 500, 20, 9


def time_alternating(
    tasks: dict[str, Callable[[], object]], rounds: int
) -> dict[str, float]:
    """Best time of each task over rounds of all tasks."""
    best = dict.fromkeys(tasks, np.inf)
    for task in tasks.values():
        jax.block_until_ready(task())
    for _ in range(rounds):
        for name, task in tasks.items():
            begin = time.perf_counter()
            jax.block_until_ready(task())
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def naive_sum(t, weights):
    """The plain recurrence, for automatic differentiation."""
    before, now = jnp.ones_like(t), t
    total = weights[0] * before + weights[1] * now
    for level in range(1, LEVELS - 1):
        before, now = (
            now,
            ((2 * level + DIMENSION - 2) * t * now - level * before)
            / (level + DIMENSION - 2),
        )
        total = total + weights[level + 1] * now
    return total


def speed(rounds: int) -> None:
    generator = np.random.default_rng(0)
    block = generator.normal(size=(ROWS, PHASES)).astype(np.float32)
    s = jnp.asarray(random_phases(ROWS, DIMENSION, seed=1), jnp.float32)
    v = jnp.asarray(random_phases(PHASES, DIMENSION, seed=2), jnp.float32)
    weights = ContinuousDepth(1.0, LEVELS - 1).level_weights(DIMENSION)
    weights = jnp.asarray(weights, jnp.float32)
    rows = jnp.asarray(chebyshev_rows(LEVELS - 1, DIMENSION), jnp.float32)

    def kernel(s, v, weights):
        return chebyshev_sum(s @ v.T, weights @ rows)

    @jax.jit
    def value_and_slope(s, v, weights):
        t = s @ v.T
        value, pull = jax.vjp(lambda t: chebyshev_sum(t, weights @ rows), t)
        return value, pull(jnp.ones_like(t))

    @jax.jit
    def whole_vjp(s, v, weights, cotangent):
        return jax.vjp(kernel, s, v, weights)[1](cotangent)

    @jax.jit
    def naive_vjp(s, v, weights, cotangent):
        plain = lambda s, v, weights: naive_sum(s @ v.T, weights)  # noqa: E731
        return jax.vjp(plain, s, v, weights)[1](cotangent)

    value = jax.jit(kernel)
    table = generator.normal(size=(ROWS, DIMENSION - 1)).astype(np.float32)
    basis = Basis(
        ARD.isotropic(DIMENSION - 1),
        ContinuousDepth(1.0, LEVELS - 1),
        (Band(0, LEVELS - 1, np.asarray(random_phases(PHASES, DIMENSION, seed=2))),),
    )
    frame = whiten(basis)
    cotangent = jnp.asarray(block)
    radial, other = np.zeros(ROWS, np.float32), block.copy()
    times = time_alternating(
        {
            "F.T @ F (NumPy, SYRK)": lambda: block.T @ block,
            "kernel block: value": lambda: value(s, v, weights),
            "kernel block: value and derivative": lambda: value_and_slope(
                s, v, weights
            ),
            "kernel block: whole VJP": lambda: whole_vjp(s, v, weights, cotangent),
            "  the same, plain automatic": lambda: naive_vjp(s, v, weights, cotangent),
            "whitened features, from rows": lambda: frame.unit_features(table),
            "whitened features: whole VJP": lambda: (
                frame.pull_rows(table, block, radial).moved,
                block.T @ other,
            ),
        },
        rounds,
    )
    unit = times["F.T @ F (NumPy, SYRK)"]
    print(f"{ROWS} rows, {PHASES} phases, {LEVELS} levels, d = {DIMENSION}, float32")
    for name, seconds in times.items():
        print(f"  {name:36s} {1e3 * seconds:8.2f} ms {seconds / unit:6.2f} x")


def complete_sets(sizes: list[tuple[int, int]]) -> None:
    """Time and error of complete levels; whitening and features in float64."""
    print("complete sets: dimension, level, harmonics, seconds, error of P_l")
    for dimension, level in sizes:
        begin = time.perf_counter()
        v = complete_phases(level, dimension)
        seconds = time.perf_counter() - begin
        s = random_phases(300, dimension, seed=7)

        def gram(a, b, level=level, dimension=dimension):
            return gegenbauer_level(np.clip(a @ b.T, -1, 1), level, dimension)

        features = np.linalg.solve(np.linalg.cholesky(gram(v, v)), gram(v, s))
        error = np.abs(features.T @ features - gram(s, s)).max()
        count = harmonic_count(level, dimension)
        print(f"  {dimension:4d} {level:4d} {count:6d} {seconds:8.2f} s {error:10.1e}")


def rounding(sizes: list[tuple[int, int]]) -> None:
    """Largest float32 error of one level, compared with float64."""
    print("float32 error of P_l: dimension, level, plain, differences, series")
    near = np.logspace(-7, -2, 200)
    grid = np.concatenate([np.linspace(-1, 1, 4001), 1 - near, near - 1])
    grid = grid.astype(np.float32)
    for dimension, level in sizes:
        truth = gegenbauer_level(grid.astype(np.float64), level, dimension)
        before, plain = np.ones_like(grid), grid
        for k in range(1, level):
            up = np.float32(2 * k + dimension - 2) * grid * plain
            step = (up - np.float32(k) * before) / np.float32(k + dimension - 2)
            before, plain = plain, step
        series = level_sum(grid, np.eye(1, level + 1, level)[0], dimension)
        ways = (plain, gegenbauer_level(grid, level, dimension), np.asarray(series))
        errors = " ".join(f"{np.abs(way - truth).max():9.1e}" for way in ways)
        print(f"  {dimension:4d} {level:4d} {errors}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    speed(rounds)
    rounding([(2, 60), (3, 60), (9, 60), (91, 60)])
    complete_sets([(31, 2), (40, 2), (9, 4), (20, 3), (4, 37), (3, 300), (3, 749)])


if __name__ == "__main__":
    main()
