"""Phases: complete, greedy, drawn, random."""

import numpy as np
import pytest

from zonal import NTK, ArcCosine, ContinuousDepth
from zonal.prior.phases import (
    complete_phases,
    drawn_phases,
    greedy_phases,
    random_phases,
)
from zonal.prior.polynomials import gegenbauer_level, harmonic_count


@pytest.mark.parametrize(
    ("dimension", "level"),
    [(2, 1), (2, 7), (2, 60), (3, 2), (3, 25), (4, 12), (5, 6), (9, 3), (9, 4)]
    + [(12, 3), (20, 2), (21, 2), (31, 2), (40, 2), (91, 1), (300, 1)],
)
def test_complete_sets_reproduce_their_level(dimension, level):
    v = complete_phases(level, dimension)
    s = random_phases(60, dimension, seed=5)

    def gram(a, b):
        return gegenbauer_level(np.clip(a @ b.T, -1, 1), level, dimension)

    assert v.shape == (harmonic_count(level, dimension), dimension)
    features = np.linalg.solve(np.linalg.cholesky(gram(v, v)), gram(v, s))
    assert np.abs(features.T @ features - gram(s, s)).max() < 1e-9


def test_complete_sets_are_the_same_every_time():
    first = complete_phases(3, 5).copy()
    complete_phases.cache_clear()
    assert np.array_equal(complete_phases(3, 5), first)
    with pytest.raises(ValueError, match="read-only"):
        complete_phases(3, 5)[0, 0] = 2.0


def test_greedy_is_pivoted_cholesky():
    cloud = random_phases(40, 4, seed=2)

    def shape(t):
        return np.exp(t - 1)

    chosen = greedy_phases(cloud, 6, shape)
    # Brute force: at each step the candidate with the largest conditional variance.
    picked = [0]
    gram = shape(cloud @ cloud.T)
    for _ in range(5):
        block = gram[np.ix_(picked, picked)]
        explained = np.einsum(
            "ij,ij->j", gram[picked], np.linalg.solve(block, gram[picked])
        )
        picked.append(int(np.argmax(1 - explained)))
    assert np.allclose(chosen, cloud[picked])


def test_greedy_survives_duplicates():
    cloud = np.repeat(random_phases(3, 3), 4, axis=0)
    chosen = greedy_phases(cloud, 7, lambda t: np.exp(t - 1))
    assert chosen.shape == (7, 3)
    assert len(np.unique(chosen[:3], axis=0)) == 3


def test_bad_input():
    with pytest.raises(ValueError, match="3 candidates cannot give 5 phases"):
        greedy_phases(np.eye(3), 5, lambda t: t)
    with pytest.raises(ValueError, match="dimension 2 or more"):
        random_phases(3, 1)


def exponential(t):
    return np.exp(3 * (t - 1))


def left_over(rows, phases):
    """What phases do not explain of rows, by dense algebra."""
    gram, cross = exponential(phases @ phases.T), exponential(phases @ rows.T)
    return 1 - np.einsum("ij,ij->j", cross, np.linalg.solve(gram, cross))


@pytest.mark.parametrize("at_once", [1, 2, 256])
def test_phases_are_drawn_by_what_is_left_to_explain(at_once, monkeypatch):
    """First one of three given at random, then by the share it leaves of the others."""
    monkeypatch.setattr("zonal.prior.phases._PROPOSALS", at_once)
    cloud = np.array([[1.0, 0.0], [np.cos(0.4), np.sin(0.4)], [-1.0, 0.0]])
    drawn = [drawn_phases(cloud, 2, exponential, seed=seed) for seed in range(1000)]
    found = np.zeros((3, 3))
    for first, second in drawn:
        at = [int(np.argmax(cloud @ one)) for one in (first, second)]
        found[at[0], at[1]] += 1 / len(drawn)
    truth = np.zeros((3, 3))
    for first in range(3):
        rest = np.maximum(left_over(cloud, cloud[[first]]), 0)
        truth[first] = rest / rest.sum() / 3
    assert np.abs(found - truth).max() < 0.045


def test_drawn_phases_explain_more_than_greedy_ones():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(1500, 6)) * [1, 1, 0.3, 0.3, 0.1, 0.1] + 2
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    drawn = left_over(rows, drawn_phases(rows, 40, exponential))
    greedy = left_over(rows, greedy_phases(rows, 40, exponential))
    assert drawn.mean() < 0.9 * greedy.mean()


def test_drawn_phases_take_given_ones_into_account():
    cloud = random_phases(300, 4, seed=2)
    given = cloud[:150]
    more = drawn_phases(cloud, 100, exponential, given)
    assert len(np.unique(more, axis=0)) == 100
    assert not np.any(np.all(more[:, None] == given[None], axis=2))


@pytest.mark.parametrize("apart", [0.0, 1e-15, 1e-9])
@pytest.mark.parametrize("kernel", [NTK(1), ArcCosine(1), ContinuousDepth()], ids=str)
def test_no_more_is_drawn_than_there_is(kernel, apart):
    """Rows that cannot be told apart are drawn once, whatever the kernel's rounding."""
    generator = np.random.default_rng(0)
    cloud = np.repeat(random_phases(20, 4), 2, axis=0)
    cloud = cloud + apart * generator.normal(size=cloud.shape)
    cloud /= np.linalg.norm(cloud, axis=1, keepdims=True)

    def shape(t):
        return np.asarray(kernel.shape_function(t, 4), np.float64)

    drawn = drawn_phases(cloud, 40, shape)
    assert 15 <= len(drawn) <= 25
    assert len(drawn_phases(cloud, 40, shape, given=drawn)) <= 5
