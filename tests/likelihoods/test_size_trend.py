"""Trends of the size of residuals along columns."""

import numpy as np
import pytest

from zonal.likelihoods.size_trend import SizeTrend, fit_ridge, log_sizes

SHAPES = {
    "line": lambda x: x[:, 1],
    "step": lambda x: 1.0 * (x[:, 2] > 0),
    "wave": lambda x: np.sin(4 * x[:, 1]),
    "two columns": lambda x: x[:, 0] + np.abs(x[:, 2]),
}


def table(count, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, size=(count, 3))


@pytest.mark.parametrize("name", SHAPES)
def test_trends_are_found(name):
    x = table(8000)
    size = SHAPES[name](x)
    residuals = np.exp(size) * np.random.default_rng(1).normal(size=8000)
    trend, _ = SizeTrend.fit(x, residuals**2, np.ones(8000))
    new = table(2000, 2)
    assert np.corrcoef(trend.at(new), SHAPES[name](new))[0, 1] > 0.93
    assert abs(trend.at(x).mean()) < 1e-9


def test_without_a_trend_there_is_next_to_none():
    x = table(2000)
    squares = np.random.default_rng(1).normal(size=2000) ** 2
    trend, _ = SizeTrend.fit(x, squares, np.ones(2000))
    assert trend.at(x).std() < 0.1


def test_beyond_the_table_trends_are_constant():
    x = table(500)
    trend, _ = SizeTrend.fit(x, np.exp(2 * x[:, 0]), np.ones(500))
    ends = trend.at(np.array([[1.0, 0, 0], [1e9, 0, 0]]))
    assert ends[0] == pytest.approx(ends[1], abs=0.05)


def test_constant_and_discrete_columns():
    x = np.column_stack([np.ones(400), np.repeat([0.0, 1.0], 200)])
    squares = np.where(x[:, 1] > 0, 9.0, 1.0)
    trend, _ = SizeTrend.fit(x, squares, np.ones(400))
    gap = trend.at(np.array([[1.0, 1.0]])) - trend.at(np.array([[1.0, 0.0]]))
    assert gap[0] == pytest.approx(np.log(9.1 / 1.1) / 2, rel=0.05)


def test_leave_one_out_predictions_are_those_of_refits():
    generator = np.random.default_rng(0)
    features = generator.normal(size=(300, 10))
    truth = generator.normal(size=10) / 3
    residuals = np.exp(features @ truth) * generator.normal(size=300)
    weight = generator.integers(1, 3, 300).astype(float)
    weights, left_out = fit_ridge(features, log_sizes(residuals**2), weight)
    assert np.corrcoef(features @ weights, features @ truth)[0, 1] > 0.9
    # A regression without the row, with the same penalty and the same centre.
    log_size = 0.5 * np.log(residuals**2 + 0.1)
    target = log_size - np.average(log_size, weights=weight)
    features = features - np.average(features, axis=0, weights=weight)
    gram = (features * weight[:, None]).T @ features
    # The penalty follows from the weights: (G + λ) β = h.
    moment = features.T @ (weight * target)
    penalty = (moment - gram @ weights) @ weights / (weights @ weights)
    for row in (0, 17):
        kept = np.arange(300) != row
        rest = (features[kept] * weight[kept, None]).T @ features[kept]
        rest += penalty * np.eye(10)
        own = np.linalg.solve(rest, features[kept].T @ (weight * target)[kept])
        assert left_out[row] == pytest.approx(features[row] @ own, rel=1e-6)
