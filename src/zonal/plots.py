"""Plots of a fitted model with matplotlib; each function returns its axes.

They need ``pip install "zonal[plot]"``. Every function takes ``ax=``, by default the
axes of a new figure.
"""

# pyright: reportMissingImports=false

from typing import Any

import numpy as np
from sklearn.calibration import calibration_curve

from zonal.estimators.summary import measure_of
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


def _get_axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def plot_prediction(model, X, y=None, *, coverage=(0.5, 0.9), ax=None):
    """Plot the mean and central intervals of the target against the only column of X.

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
    ax = _get_axes(ax)
    values = np.asarray(X, np.float64)
    if values.ndim != 2 or values.shape[1] != 1:
        raise ValueError(
            f"plot_prediction needs X with one column; X has shape {values.shape}"
        )
    order = np.argsort(values[:, 0])
    x = values[order]
    ax.plot(x[:, 0], model.predict(x), color="C0", label="mean")
    for share in sorted(coverage, reverse=True):
        low, high = model.predict_interval(x, share).T
        ax.fill_between(x[:, 0], low, high, color="C0", alpha=0.2, label=f"{share:.0%}")
    if y is not None:
        ax.plot(values[:, 0], y, ".", color="0.3", markersize=3, label="rows")
    name = model.columns_.names[0]
    ax.set(xlabel=str(name), ylabel="target")
    ax.legend()
    return ax


def plot_calibration(model, X, y, *, bins=20, ax=None):
    """Plot a histogram of the probability integral transform (PIT).

    It is flat if uncertainty is calibrated, has a peak in the middle if intervals are
    too wide, and peaks at both ends if they are too narrow.

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
    ax = _get_axes(ax)
    pit = model.predict_dist(X).cdf(np.asarray(y, np.float64))
    ax.hist(pit, bins=bins, range=(0, 1), density=True, color="C0", alpha=0.8)
    ax.axhline(1.0, color="0.3", linestyle="--", label="calibrated")
    ax.set(xlabel="predicted probability below the target", ylabel="density")
    ax.legend()
    return ax


def plot_reliability(model, X, y, *, bins=15, ax=None):
    """Plot accuracy against the probability of the predicted class.

    Examples
    --------
    >>> from zonal import SphericalGPClassifier
    >>> from zonal.plots import plot_reliability
    >>> X = np.linspace(-1, 1, 30)[:, None]
    >>> model = SphericalGPClassifier().fit(X, X[:, 0] > 0)
    >>> plot_reliability(model, X, X[:, 0] > 0).get_xlabel()
    'probability of the predicted class'
    """
    ax = _get_axes(ax)
    confidence = model.predict_proba(X).max(axis=1)
    correct = (model.predict(X) == np.asarray(y)).astype(int)
    accuracy, probability = calibration_curve(
        correct, np.minimum(confidence, 1.0), pos_label=1, n_bins=bins
    )
    ax.plot([0, 1], [0, 1], color="0.3", linestyle="--", label="calibrated")
    ax.plot(probability, accuracy, "o-", color="C0", label="model")
    ax.set(xlabel="probability of the predicted class", ylabel="accuracy")
    ax.legend()
    return ax


def plot_spectrum(model, *, depths=_DEPTHS, ax=None):
    """Plot the learned share of each level and those of networks of some depths.

    Examples
    --------
    >>> from zonal import SphericalGPRegressor
    >>> from zonal.plots import plot_spectrum
    >>> X = np.linspace(-1, 1, 30)[:, None]
    >>> model = SphericalGPRegressor().fit(X, np.sin(4 * X[:, 0]))
    >>> [line.get_label() for line in plot_spectrum(model, depths=[1, 3]).lines]
    ['1 hidden layers', '3 hidden layers', 'learned']
    """
    ax = _get_axes(ax)
    weights = model.level_weights_ / model.level_weights_.sum()
    levels = np.arange(len(weights))
    dimension = model.process_.basis.sphere.dimension
    for depth in depths:
        network = NTK(depth).level_weights(dimension, len(weights) - 1)
        shown = network > 0
        label = f"{depth} hidden layers"
        ax.plot(1 + levels[shown], network[shown], ":", label=label)
    ax.plot(1 + levels, weights, "o-", markersize=3, label="learned")
    ax.set(xscale="log", yscale="log", xlabel="1 + level", ylabel="share of variance")
    ax.legend()
    return ax


def plot_relevance(model, *, ax=None):
    """Plot the relevance of each column.

    Examples
    --------
    >>> from zonal import SphericalGPRegressor
    >>> from zonal.plots import plot_relevance
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> model = SphericalGPRegressor().fit(X, np.sin(2 * X[:, 1]))
    >>> [label.get_text() for label in plot_relevance(model).get_yticklabels()]
    ['0', '1']
    """
    ax = _get_axes(ax)
    order = np.argsort(model.relevance_)
    names = [str(model.columns_.names[index]) for index in order]
    ax.barh(names, model.relevance_[order], color="C0")
    ax.set(xlabel="relevance")
    return ax


def plot_history(model, *, ax=None):
    """Plot the bound or the log density per row at each step, stage by stage.

    Examples
    --------
    >>> from zonal import SphericalGPRegressor
    >>> from zonal.plots import plot_history
    >>> X = np.linspace(-1, 1, 30)[:, None]
    >>> model = SphericalGPRegressor().fit(X, np.sin(4 * X[:, 0]))
    >>> [line.get_label() for line in plot_history(model).lines]
    ['race', 'round', 'sizes']
    """
    ax = _get_axes(ax)
    history = model.history_
    for stage in dict.fromkeys(history["stage"]):
        steps = history[history["stage"] == stage]
        ax.plot(steps["seconds"], steps["bound"], ".-", label=str(stage))
    ax.set(xlabel="seconds", ylabel=f"{measure_of(model)} per row")
    ax.legend()
    return ax
