"""Plots of a fitted model: each draws on an axes and returns it.

They need ``pip install "zonal[plot]"``. Every function takes ``ax=``; without it a new
figure is made.
"""

# pyright: reportMissingImports=false

from typing import Any

import numpy as np

from zonal.prior.kernels import NTK

__all__ = [
    "plot_calibration",
    "plot_history",
    "plot_prediction",
    "plot_relevance",
    "plot_reliability",
    "plot_spectrum",
]

_DEPTHS = (1, 3, 10)


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def plot_prediction(model, X, y=None, *, coverage=(0.5, 0.9), ax=None):
    """The mean and central intervals of a new target along the only column of X.

    Examples
    --------
    >>> from zonal import SphericalGPRegressor
    >>> from zonal.plots import plot_prediction
    >>> X = np.linspace(-1, 1, 30)[:, None]
    >>> y = np.sin(4 * X[:, 0])
    >>> model = SphericalGPRegressor().fit(X, y)
    >>> plot_prediction(model, X, y).get_ylabel()
    'target'
    """
    ax = _axes(ax)
    values = np.asarray(X, np.float64)
    if values.ndim != 2 or values.shape[1] != 1:
        raise ValueError(
            f"predictions are drawn along one column; X has shape {values.shape}"
        )
    order = np.argsort(values[:, 0])
    at = values[order]
    ax.plot(at[:, 0], model.predict(at), color="C0", label="mean")
    for share in sorted(coverage, reverse=True):
        low, high = model.predict_interval(at, share).T
        ax.fill_between(
            at[:, 0], low, high, color="C0", alpha=0.2, label=f"{share:.0%}"
        )
    if y is not None:
        ax.plot(values[:, 0], y, ".", color="0.3", markersize=3, label="rows")
    name = model.columns_.names[0]
    ax.set(xlabel=str(name), ylabel="target")
    ax.legend()
    return ax


def plot_calibration(model, X, y, *, bins=20, ax=None):
    """How often targets fall into each part of their predicted distribution.

    A histogram of the probability integral transform: flat if uncertainty is right,
    a hill if intervals are too wide, a bowl if they are too narrow.

    Examples
    --------
    >>> from zonal import SphericalGPRegressor
    >>> from zonal.plots import plot_calibration
    >>> generator = np.random.default_rng(0)
    >>> X = generator.normal(size=(100, 1))
    >>> y = X[:, 0] + generator.normal(size=100)
    >>> model = SphericalGPRegressor().fit(X, y)
    >>> ax = plot_calibration(model, X, y, bins=4)
    >>> heights = [bar.get_height() for bar in ax.patches]
    >>> bool(0.5 < min(heights) <= max(heights) < 1.5)
    True
    """
    ax = _axes(ax)
    place = model.predict_dist(X).cdf(np.asarray(y, np.float64))
    ax.hist(place, bins=bins, range=(0, 1), density=True, color="C0", alpha=0.8)
    ax.axhline(1.0, color="0.3", linestyle="--", label="right")
    ax.set(xlabel="predicted probability below the target", ylabel="share of rows")
    ax.legend()
    return ax


def plot_reliability(model, X, y, *, bins=15, ax=None):
    """How often the predicted class is right, against how sure the model is.

    Examples
    --------
    >>> from zonal import SphericalGPClassifier
    >>> from zonal.plots import plot_reliability
    >>> X = np.linspace(-1, 1, 30)[:, None]
    >>> model = SphericalGPClassifier().fit(X, X[:, 0] > 0)
    >>> plot_reliability(model, X, X[:, 0] > 0).get_xlabel()
    'stated probability'
    """
    ax = _axes(ax)
    chance = model.predict_proba(X)
    sure, right = chance.max(axis=1), model.predict(X) == np.asarray(y)
    place = np.minimum((sure * bins).astype(int), bins - 1)
    filled = [one for one in range(bins) if np.any(place == one)]
    stated = [sure[place == one].mean() for one in filled]
    found = [right[place == one].mean() for one in filled]
    ax.plot([0, 1], [0, 1], color="0.3", linestyle="--", label="right")
    ax.plot(stated, found, "o-", color="C0", label="model")
    ax.set(xlabel="stated probability", ylabel="share of rows that are right")
    ax.legend()
    return ax


def plot_spectrum(model, *, depths=_DEPTHS, ax=None):
    """The learned share of each level, beside those of networks of some depths.

    Examples
    --------
    >>> from zonal import SphericalGPRegressor
    >>> from zonal.plots import plot_spectrum
    >>> X = np.linspace(-1, 1, 30)[:, None]
    >>> model = SphericalGPRegressor().fit(X, np.sin(4 * X[:, 0]))
    >>> [line.get_label() for line in plot_spectrum(model, depths=[1, 3]).lines]
    ['1 layers', '3 layers', 'learned']
    """
    ax = _axes(ax)
    weights = model.level_weights_ / model.level_weights_.sum()
    levels = np.arange(len(weights))
    dimension = model.process_.basis.sphere.dimension
    for depth in depths:
        theirs = NTK(depth).level_weights(dimension, len(weights) - 1)
        shown = theirs > 0
        ax.plot(1 + levels[shown], theirs[shown], ":", label=f"{depth} layers")
    ax.plot(1 + levels, weights, "o-", markersize=3, label="learned")
    ax.set(xscale="log", yscale="log", xlabel="1 + level", ylabel="share of variance")
    ax.legend()
    return ax


def plot_relevance(model, *, ax=None):
    """Each column's share in telling rows apart.

    Examples
    --------
    >>> from zonal import SphericalGPRegressor
    >>> from zonal.plots import plot_relevance
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> model = SphericalGPRegressor().fit(X, np.sin(2 * X[:, 1]))
    >>> [label.get_text() for label in plot_relevance(model).get_yticklabels()]
    ['0', '1']
    """
    ax = _axes(ax)
    order = np.argsort(model.relevance_)
    names = [str(model.columns_.names[place]) for place in order]
    ax.barh(names, model.relevance_[order], color="C0")
    ax.set(xlabel="relevance")
    return ax


def plot_history(model, *, ax=None):
    """The bound a row at every step, stage by stage.

    Examples
    --------
    >>> from zonal import SphericalGPRegressor
    >>> from zonal.plots import plot_history
    >>> X = np.linspace(-1, 1, 30)[:, None]
    >>> model = SphericalGPRegressor().fit(X, np.sin(4 * X[:, 0]))
    >>> [line.get_label() for line in plot_history(model).lines]
    ['start', 'learn 1', 'solve']
    """
    ax = _axes(ax)
    history = model.history_
    for stage in dict.fromkeys(history["stage"]):
        chosen = history[history["stage"] == stage]
        ax.plot(chosen["seconds"], chosen["bound"], ".-", label=str(stage))
    ax.set(xlabel="seconds", ylabel="bound a row")
    ax.legend()
    return ax
