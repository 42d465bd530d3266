"""The optimiser's vector: there and back, and its gradient."""

import numpy as np
import pytest

from zonal import ARD, Basis, ContinuousDepth, LatitudeLongitude, Process
from zonal.engine.gradient import value_and_gradient
from zonal.learning.unknowns import Unknowns
from zonal.prior.parameters import named
from zonal.tables.sources import ArraySource


def problem(sphere=None, layout="banded"):
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, size=(60, 2))
    y = np.sin(3 * x[:, 0]) + 0.1 * generator.normal(size=60)
    sphere = ARD(np.array([0.7, 1.4])) if sphere is None else sphere
    basis = Basis.build(sphere, ContinuousDepth(1.0, 8), 20, layout, rows=x)
    basis = Basis(
        basis.sphere, basis.kernel, basis.bands, free_energies=basis.energies + 0.05
    )
    return Process(basis, 0.1), ArraySource(x, y)


@pytest.mark.parametrize("phases", ["anchored", "free", "fixed"])
def test_the_start_is_the_process(phases):
    process, _ = problem()
    unknowns = Unknowns(process, phases)
    again = unknowns.process(unknowns.start)
    for name, value in named(process).items():
        assert np.allclose(named(again)[name], value, atol=1e-12), name


@pytest.mark.parametrize("layout", ["banded", "sparse"])
@pytest.mark.parametrize("phases", ["anchored", "free", "fixed"])
def test_gradient_matches_finite_differences(phases, layout):
    process, source = problem(layout=layout)
    unknowns = Unknowns(process, phases)
    generator = np.random.default_rng(1)
    vector = unknowns.start + 0.01 * generator.normal(size=len(unknowns.start))
    direction = generator.normal(size=len(vector))

    def bound(step):
        moved = unknowns.process(vector + step * direction)
        return value_and_gradient(moved, source, dtype=np.float64)

    truth = (bound(1e-5)[0] - bound(-1e-5)[0]) / 2e-5
    slope = unknowns.gradient(vector, bound(0.0)[1]) @ direction
    assert slope == pytest.approx(truth, rel=1e-5)


def test_anchored_phases_follow_the_scales():
    process, _ = problem()
    unknowns = Unknowns(process)
    vector = unknowns.start.copy()
    scales = np.flatnonzero(np.isclose(vector, np.log(1.4)))
    vector[scales] -= 1.0
    moved = unknowns.process(vector)
    before, after = (one.basis.bands[-1].phases for one in (process, moved))
    rows = before[:, :-1] / before[:, -1:] / process.basis.sphere.scales
    assert np.allclose(after, moved.basis.sphere.points(rows)[0])


def test_phases_without_rows_are_free():
    process, _ = problem(LatitudeLongitude())
    anchored, free = Unknowns(process), Unknowns(process, "free")
    assert len(anchored.start) == len(free.start)


def test_limits_keep_to_what_the_numbers_resolve():
    process, _ = problem()
    unknowns = Unknowns(process)
    assert unknowns.bounds.shape == (len(unknowns.start), 2)
    lowest = np.where(np.isfinite(unknowns.bounds[:, 0]), unknowns.bounds[:, 0], 0.0)
    assert unknowns.process(lowest).noise == pytest.approx(1e-5)
    with pytest.raises(ValueError, match="anchored, free or fixed"):
        Unknowns(process, "loose")
