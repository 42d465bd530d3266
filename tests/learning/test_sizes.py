"""The choice of sizes, against dense algebra and functions that are known."""

import dataclasses

import numpy as np
import pytest

from zonal import ARD, ContinuousDepth
from zonal.learning.schedule import NoiseSearch, SizeSchedule
from zonal.learning.sizes import choose_sizes
from zonal.prior.process import LocalProcess
from zonal.tables.repeats import merged_rows

QUICK = SizeSchedule(
    candidates=((0, 16), (64, 0), (64, 16)),
    n_features=(0, 40),
    n_neighbors=(8, 32),
    judged=NoiseSearch(200, 1.0, 4),
    final=NoiseSearch(300, 1.0, 8),
)
PROCESS = LocalProcess(ARD.isotropic(2), ContinuousDepth(beta=3.0), 5.0, 0.02)


def table(rows=500, noise=0.1, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 2))
    return x, np.sin(2 * x[:, 0]) + noise * generator.normal(size=rows)


def dense_density(rows, process):
    """Mean log density of each original row given all other distinct rows."""
    points, _ = process.sphere.points(rows.x)
    points = points.astype(np.float32).astype(np.float64)
    squares = np.sum((points[:, None] - points[None]) ** 2, axis=2)
    covariance = float(process.variance) * process.table().kernel(squares)
    noise = float(process.noise)
    inverse = np.linalg.inv(covariance + np.diag(noise / rows.weight))
    spread = 1 / np.diag(inverse)
    error = (inverse @ rows.y) * spread
    total = -0.5 * np.sum(np.log(2 * np.pi * spread) + error**2 / spread)
    weight = rows.weight
    total -= 0.5 * np.sum((weight - 1) * np.log(2 * np.pi * noise) + np.log(weight))
    return (total - 0.5 * rows.spread.sum() / noise) / weight.sum()


def test_the_density_is_that_of_a_dense_process_with_repeated_rows():
    x, y = table(60)
    rows = merged_rows(np.vstack([x, x[:9]]), np.append(y, y[:9] + 0.2))
    (sizes,) = choose_sizes(rows, PROCESS, n_features=0, n_neighbors=59)
    fitted = sizes.features.process
    assert sizes.density == pytest.approx(dense_density(rows, fitted), abs=2e-4)
    # No other noise or variance has a much higher density.
    for name in ("noise", "variance"):
        for factor in (0.6, 1.6):
            value = factor * float(getattr(fitted, name))
            other = dataclasses.replace(fitted, **{name: value})
            assert dense_density(rows, other) < sizes.density + 0.01


@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_the_noise_is_found(noise):
    rows = merged_rows(*table(noise=noise))
    (sizes,) = choose_sizes(rows, PROCESS, settings=QUICK)
    assert np.sqrt(sizes.features.process.noise) == pytest.approx(noise, rel=0.2)


def test_given_sizes_are_kept():
    rows = merged_rows(*table())
    for count, k in [(0, 5), (20, 0), (7, 9)]:
        (sizes,) = choose_sizes(rows, PROCESS, count, k, settings=QUICK)
        assert (len(sizes.features), sizes.n_neighbors) == (count, k)
    (sizes,) = choose_sizes(rows, PROCESS, n_features=30, settings=QUICK)
    assert len(sizes.features) == 30
    assert sizes.n_neighbors in QUICK.n_neighbors
    (sizes,) = choose_sizes(rows, PROCESS, n_neighbors=12, settings=QUICK)
    assert len(sizes.features) in QUICK.n_features
    assert sizes.n_neighbors == 12


def test_the_choice_has_the_highest_density():
    rows = merged_rows(*table())
    settings = dataclasses.replace(QUICK, least_gain=0.0)
    (chosen,) = choose_sizes(rows, PROCESS, settings=settings)
    densities = {
        pair: choose_sizes(rows, PROCESS, *pair, settings=settings)[0].density
        for pair in settings.candidates
    }
    best = max(densities, key=lambda pair: densities[pair])
    assert chosen.density > densities[best] - 0.01


def test_features_stay_within_memory():
    rows = merged_rows(*table())
    settings = dataclasses.replace(QUICK, most_work=64.0**2 * 500 - 1)
    (sizes,) = choose_sizes(rows, PROCESS, settings=settings)
    assert len(sizes.features) == 0


def test_the_same_seed_chooses_the_same():
    rows = merged_rows(*table())
    first, second = (choose_sizes(rows, PROCESS, settings=QUICK)[0] for _ in range(2))
    assert first.density == second.density
    assert first.features.process.noise == second.features.process.noise
    np.testing.assert_array_equal(first.features.phases, second.features.phases)
