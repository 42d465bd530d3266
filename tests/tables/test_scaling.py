"""Standardised tables, and back."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonal.tables.scaling import ConstantWarning, ScaledSource, Scaling
from zonal.tables.sources import ArraySource


def table(rows=500, columns=3, seed=0):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(rows, columns)), generator.normal(size=rows)


@given(st.floats(-30, 30), st.floats(-1e3, 1e3), st.integers(1, 3000))
def test_columns_of_any_scale_and_place(exponent, shift, rows):
    x, y = table(rows + 1)
    scale = 10.0**exponent
    scaled = (x + shift) * scale
    scaling = Scaling.learn(ArraySource(scaled, 1e12 * y))
    inside = scaling.chunk(ArraySource(scaled, 1e12 * y).sample(rows + 1))
    assert np.allclose(inside.x.mean(axis=0), 0, atol=1e-9)
    assert np.allclose(inside.x.std(axis=0), 1, rtol=1e-6)
    assert inside.y.std() == pytest.approx(1, rel=1e-6)


def test_moments_merge_over_chunks_and_weights():
    x, y = table(10_000)
    weight = np.random.default_rng(1).integers(0, 4, len(x)).astype(float)
    scaling = Scaling.learn(ArraySource(x + 1e6, y, weight))
    repeated = np.repeat(x + 1e6, weight.astype(int), axis=0)
    assert np.allclose(scaling.centre, repeated.mean(axis=0), rtol=1e-12)
    assert np.allclose(scaling.width, repeated.std(axis=0), rtol=1e-9)


def test_constant_columns_are_said_and_left_out():
    x, y = table()
    x[:, 1] = 7e8
    with pytest.warns(ConstantWarning, match="ignored: 1"):
        scaling = Scaling.learn(ArraySource(x, y))
    assert np.all(scaling.inputs(x)[:, 1] == 0)


def test_a_constant_target_is_said():
    x, _ = table()
    with pytest.warns(ConstantWarning, match="target is constant"):
        scaling = Scaling.learn(ArraySource(x, np.full(len(x), 5.0)))
    assert scaling.target_centre == 5.0
    assert np.all(scaling.chunk(ArraySource(x, np.full(len(x), 5.0)).sample(9)).y == 0)


def test_a_linear_mean_is_that_of_least_squares():
    x, _ = table()
    y = 3 + x @ np.array([1.0, -2.0, 0.5]) + 0.1 * table(seed=3)[1]
    scaling = Scaling.learn(ArraySource(x, y), linear_mean=True)
    design = np.column_stack([np.ones(len(x)), x])
    truth = design @ np.linalg.lstsq(design, y, rcond=None)[0]
    assert np.allclose(scaling.mean(x), truth, atol=1e-4)
    rest = scaling.chunk(ArraySource(x, y).sample(len(x))).y * scaling.target_width
    assert np.allclose(rest, y - truth, atol=1e-4)


def test_heavy_tails():
    x, y = table(4000)
    x[:, 0] = np.random.default_rng(2).standard_cauchy(4000)
    source = ArraySource(x, y)
    kept = Scaling.learn(source).inputs(x)[:, 0]
    clipped = Scaling.learn(source, tails="clip").inputs(x)[:, 0]
    scores = Scaling.learn(source, tails="quantile").inputs(x)[:, 0]
    assert np.abs(kept).max() > 30
    assert np.abs(clipped).max() < 20
    assert np.abs(scores).max() < 4
    assert np.all(np.diff(scores[np.argsort(x[:, 0])]) >= 0)
    order = np.abs(
        np.sort(scores) - np.sort(np.random.default_rng(5).normal(size=4000))
    )
    assert np.median(order) < 0.05


def test_what_is_refused():
    x, y = table()
    with pytest.raises(ValueError, match="'keep', 'clip' or 'quantile'"):
        Scaling.learn(ArraySource(x, y), tails="cut")
    scaling = Scaling.learn(ArraySource(x, y))
    with pytest.raises(ValueError, match="2 columns; the model was fitted to 3"):
        ScaledSource(ArraySource(x[:, :2], y), scaling)


def test_a_scaled_source_is_a_source():
    x, y = table()
    source = ArraySource(x, y, precision=np.full(len(x), 2.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaled = ScaledSource(source, Scaling.learn(source))
    assert (scaled.n_rows, scaled.n_inputs) == (500, 3)
    rows = np.concatenate([chunk.x for chunk in scaled.chunks(64)])
    assert np.allclose(rows, (x - x.mean(axis=0)) / x.std(axis=0))
    assert np.allclose(scaled.sample(10).precision, 1.0)
