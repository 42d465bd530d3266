"""Solutions by nearest rows against dense Gaussian processes and brute force."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonal import ARD, NTK, ContinuousDepth
from zonal.engine.inducing import GlobalFeatures
from zonal.inference.local import LocalSolution
from zonal.inference.solving import (
    add_rows,
    forget_rows,
    merge_rows,
    without_rows,
)
from zonal.likelihoods.noise import Gaussian
from zonal.prior.process import LocalProcess
from zonal.tables.chunks import Chunk
from zonal.tables.sources import ArraySource
from zonal.tables.stored import StoredTable

ROWS = 60
PROCESS = LocalProcess(
    ARD(np.array([0.5, 1.0, 2.0])), ContinuousDepth(beta=2.2), 1.5, 0.05
)


def table(rows=ROWS, seed=0):
    generator = np.random.default_rng(seed)
    # Exactly representable in float32, as stored rows are.
    x = generator.normal(size=(rows, 3)).astype(np.float32).astype(np.float64)
    return x, np.sin(x[:, 0]) + 0.2 * generator.normal(size=rows)


def features_of(process, count=0):
    """Features with phases near the rows of the table."""
    if count == 0:
        return GlobalFeatures(process, 0, np.zeros((0, process.sphere.dimension)))
    direction, _ = process.sphere.points(table()[0])
    return GlobalFeatures.draw(process, direction.astype(np.float32), count)


def solved(x, y, weight=None, process=PROCESS, k=1000, count=0):
    stored = StoredTable.of(ArraySource(x, y, weight))
    features = features_of(process, count)
    return LocalSolution.solve(features, Gaussian(process.noise), stored, k)


def dense(x, y, new, weight=None, process=PROCESS):
    """Mean and variance of the function by dense algebra in float64."""
    kernel = process.table()

    def covariance(one, other):
        s, t = (process.sphere.points(rows)[0] for rows in (one, other))
        squares = np.sum((s[:, None] - t[None]) ** 2, axis=2)
        return float(process.variance) * kernel.kernel(squares)

    weight = np.ones(len(x)) if weight is None else weight
    noisy = covariance(x, x) + np.diag(float(process.noise) / weight)
    cross = covariance(x, new)
    mean = cross.T @ np.linalg.solve(noisy, y)
    joint = covariance(new, new) - cross.T @ np.linalg.solve(noisy, cross)
    return mean, joint


def check_equal(one, other, new, tolerance=2e-5):
    ours, theirs = one.marginals(Chunk(new)), other.marginals(Chunk(new))
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=tolerance)
    np.testing.assert_allclose(ours.variance, theirs.variance, atol=tolerance)
    assert one.rows == pytest.approx(other.rows)


@pytest.mark.parametrize("kernel", [ContinuousDepth(beta=2.2), NTK(2)])
def test_all_rows_as_neighbours_are_the_dense_process(kernel):
    process = dataclasses.replace(PROCESS, kernel=kernel)
    x, y = table()
    new = table(15, seed=1)[0]
    mean, joint = dense(x, y, new, process=process)
    solution = solved(x, y, process=process)
    found = solution.marginals(Chunk(new))
    np.testing.assert_allclose(found.mean[:, 0], mean, atol=2e-5)
    np.testing.assert_allclose(found.variance[:, 0], np.diag(joint), atol=2e-5)
    np.testing.assert_allclose(solution.covariance(new), joint, atol=2e-5)


def test_few_neighbours_are_the_process_of_these_rows():
    x, y = table()
    new = table(5, seed=1)[0]
    found = solved(x, y, k=7).marginals(Chunk(new))
    s, t = (PROCESS.sphere.points(rows)[0] for rows in (x, new))
    for row in range(5):
        near = np.argsort(np.sum((s - t[row]) ** 2, axis=1))[:7]
        mean, joint = dense(x[near], y[near], new[row : row + 1])
        assert found.mean[row, 0] == pytest.approx(mean[0], abs=2e-5)
        assert found.variance[row, 0] == pytest.approx(joint[0, 0], abs=2e-5)


def test_leave_one_out_is_the_prediction_without_the_row():
    x, y = table()
    left_out = solved(x, y).left_out(Chunk(x[:8], y[:8]))
    for row in range(8):
        others = np.arange(ROWS) != row
        mean, joint = dense(x[others], y[others], x[row : row + 1])
        assert left_out.mean[row, 0] == pytest.approx(mean[0], abs=5e-5)
        assert left_out.variance[row, 0] == pytest.approx(joint[0, 0], abs=5e-5)


def test_leaving_out_a_repeated_row_keeps_its_repetitions():
    x, y = table()
    x[1], x[2] = x[0], x[0]
    left_out = solved(x, y).left_out(Chunk(x[:1], y[:1]))
    mean, joint = dense(x[1:], y[1:], x[:1])
    assert left_out.mean[0, 0] == pytest.approx(mean[0], abs=5e-5)
    assert left_out.variance[0, 0] == pytest.approx(joint[0, 0], abs=5e-5)


def test_weights_are_repetitions():
    x, y = table()
    new = table(10, seed=1)[0]
    weight = np.where(np.arange(ROWS) < 20, 3.0, 1.0)
    often = np.repeat(np.arange(ROWS), weight.astype(int))
    check_equal(solved(x, y, weight), solved(x[often], y[often]), new)
    mean, _ = dense(x, y, new, weight)
    found = solved(x, y, weight).marginals(Chunk(new))
    np.testing.assert_allclose(found.mean[:, 0], mean, atol=2e-5)
    alone = solved(x, y, np.where(np.arange(ROWS) < 30, 1.0, 0.0))
    check_equal(alone, solved(x[:30], y[:30]), new)


def test_repetitions_with_other_targets_are_their_mean():
    x, y = table()
    again = np.concatenate([x, x[:10]]), np.concatenate([y, y[:10] + 1.0])
    noise = float(PROCESS.noise)
    solution = solved(*again)
    assert len(solution.table) == ROWS
    np.testing.assert_allclose(solution.table.y[:10], y[:10] + 0.5)
    np.testing.assert_allclose(solution.table.spread[:10], 0.5)
    # Against all 70 rows by dense algebra, which noise makes possible.
    new = table(10, seed=1)[0]
    assert noise > 0.01
    np.testing.assert_allclose(
        solution.marginals(Chunk(new)).mean[:, 0], dense(*again, new)[0], atol=2e-5
    )


@given(
    cut=st.integers(1, ROWS - 1),
    seed=st.integers(0, 9),
    k=st.sampled_from([0, 5, 99]),
    count=st.sampled_from([0, 20]),
)
def test_adding_and_forgetting_are_fits_at_the_same_parameters(cut, seed, k, count):
    x, y = table()
    # Some rows are in both parts.
    x[1], x[30] = x[0], x[40]
    order = np.random.default_rng(seed).permutation(ROWS)
    first, last = order[:cut], order[cut:]
    new = table(10, seed=1)[0]
    whole, part = (
        solved(x, y, k=k, count=count),
        solved(x[first], y[first], k=k, count=count),
    )
    rest = ArraySource(x[last], y[last])
    check_equal(add_rows(part, rest), whole, new)
    check_equal(forget_rows(whole, rest), part, new)
    check_equal(
        merge_rows(part, solved(x[last], y[last], k=k, count=count)), whole, new
    )
    check_equal(add_rows(without_rows(part), ArraySource(x, y)), whole, new)


def test_one_of_several_repetitions_is_forgotten():
    x, y = table()
    x[1] = x[0]
    new = table(10, seed=1)[0]
    found = forget_rows(solved(x, y), ArraySource(x[:1], y[:1]))
    check_equal(found, solved(x[1:], y[1:]), new)
    before = solved(x[1:], y[1:]).table
    place = found.table.find(x[1:2])[0]
    assert found.table.spread[place] == pytest.approx(0.0, abs=1e-12)
    assert before.weight.sum() == pytest.approx(found.table.weight.sum())


def test_rows_that_were_never_seen_are_not_forgotten():
    x, y = table()
    other = table(3, seed=5)
    with pytest.raises(ValueError, match="row 0 of the rows to forget is not in"):
        forget_rows(solved(x, y), ArraySource(*other))
    twice = ArraySource(np.repeat(x[:1], 2, axis=0), np.repeat(y[:1], 2))
    with pytest.raises(ValueError, match="not in the model as often"):
        forget_rows(solved(x, y), twice)
    with pytest.raises(ValueError, match="row 1 is not among the rows"):
        solved(x, y).left_out(Chunk(np.vstack([x[:1], other[0]]), np.zeros(4)))


def test_without_rows_there_is_the_prior():
    x, y = table()
    empty = without_rows(solved(x, y))
    mean, variance, _ = empty.marginals(Chunk(x))
    assert np.all(mean == 0)
    np.testing.assert_allclose(variance, 1.5)
    np.testing.assert_allclose(np.diag(empty.covariance(x)), 1.5)
    assert empty.rows == 0
    with pytest.raises(ValueError, match="not in the model"):
        forget_rows(empty, ArraySource(x, y))


def test_far_away_the_variance_is_the_prior_s():
    sphere = ARD(np.array([5.0, 5.0, 5.0]))
    process = dataclasses.replace(PROCESS, sphere=sphere, variance=1.5)
    x = np.abs(table()[0]) + 1.0
    solution = solved(x, table()[1], process=process)
    variance = solution.marginals(Chunk(-x[:1])).variance
    near = solution.marginals(Chunk(x[:1])).variance
    assert variance[0, 0] > 0.2
    assert near[0, 0] < 0.1


def test_rows_that_are_all_equal():
    x, y = np.ones((50, 2)), np.linspace(-1, 1, 50)
    process = LocalProcess(ARD.isotropic(2), ContinuousDepth(beta=2.0), 1.0, 0.1)
    solution = solved(x, y, process=process)
    assert len(solution.table) == 1
    mean, variance, _ = solution.marginals(Chunk(x[:1]))
    assert mean[0, 0] == pytest.approx(0.0, abs=1e-6)
    assert variance[0, 0] == pytest.approx(1 / (1 + 50 / 0.1), rel=1e-2)


def test_draws_have_the_joint_distribution():
    x, y = table()
    new = table(6, seed=1)[0]
    new[1] = new[0] + 0.05
    for count in (0, 20):
        solution = solved(x, y, count=count)
        values = solution.sample_functions(20_000, seed=1)(new)[:, :, 0]
        mean, joint = dense(x, y, new)
        scale = np.sqrt(np.diag(joint))
        np.testing.assert_allclose(values.mean(axis=1), mean, atol=0.05)
        np.testing.assert_allclose(
            np.cov(values) / np.outer(scale, scale),
            joint / np.outer(scale, scale),
            atol=0.05,
        )


def test_draws_at_equal_rows_are_equal():
    x, y = table()
    draw = solved(x, y, k=9, count=20).sample_functions(50, seed=1)
    values = draw(x[[3, 5, 3]])[:, :, 0]
    np.testing.assert_array_equal(values[0], values[2])
    with pytest.raises(TypeError, match="no number of effective parameters"):
        _ = solved(x, y).effective_parameters


def test_joint_covariance_with_features_and_neighbours():
    x, y = table()
    new = table(8, seed=1)[0]
    solution = solved(x, y, count=25)
    found = solution.covariance(new)
    # With all rows as neighbours, marginals share the union of neighbours.
    variance = solution.marginals(Chunk(new)).variance[:, 0]
    np.testing.assert_allclose(np.diag(found), variance, atol=5e-5)
    # FITC's posterior of the weights is close to, but not, the exact one.
    np.testing.assert_allclose(found, dense(x, y, new)[1], atol=5e-3)


def test_a_forgotten_row_is_gone():
    x, y = table()
    solution = solved(x, y, k=9, count=30)
    rest = forget_rows(solution, ArraySource(x[:5], y[:5]))
    gone, _ = PROCESS.sphere.points(x[:5])
    for points in (rest.features.phases, rest.given.rows.directions):
        gaps = np.abs(points[:, None] - gone[None]).max(axis=2)
        assert gaps.min() > 1e-4
    assert not np.any(np.isin(x[:5].astype(np.float32), rest.table.x))
