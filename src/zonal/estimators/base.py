"""What regressor and classifier share: from a person's table to a fitted model."""

import copy
import numbers
import os
from collections.abc import Callable, Iterator
from typing import Any

import narwhals as nw
import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from zonal.checkpoints import Step
from zonal.columns import Columns
from zonal.estimators.settings import recipe_of, sphere_of
from zonal.kernels import equivalent_depth
from zonal.learning import Recipe
from zonal.objective import Process
from zonal.sources import ArraySource, Chunk, merged, source_of
from zonal.sphere import ARD
from zonal.storing import read, write

try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:
        """Nothing to support."""


__all__ = ["SphericalGP"]

# Rows that are predicted at a time: what memory depends on.
_BLOCK = 65_536


class SphericalGP(CallbackSupportMixin, BaseEstimator):
    """A Gaussian process on tabular data, as scikit-learn has its estimators.

    Subclasses say what targets are, which engine fits them, and how to read it.
    """

    def __init__(
        self,
        n_features=512,
        *,
        solve_features=None,
        kernel="continuous-depth",
        layout="banded",
        likelihood="auto",
        depth=None,
        geometry=None,
        categories="auto",
        missing="error",
        max_time=None,
        early_stopping=False,
        validation_fraction=0.1,
        warm_start=False,
        callbacks=None,
        verbose=0,
        random_state=0,
        dtype="auto",
    ):
        self.n_features = n_features
        self.solve_features = solve_features
        self.kernel = kernel
        self.layout = layout
        self.likelihood = likelihood
        self.depth = depth
        self.geometry = geometry
        self.categories = categories
        self.missing = missing
        self.max_time = max_time
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.verbose = verbose
        self.random_state = random_state
        self.dtype = dtype

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = self.missing == "indicator"
        tags.input_tags.string = self.categories != "error"
        return tags
