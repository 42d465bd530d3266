"""Convert the parameters of an estimator to kernels, likelihoods and recipes."""

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from zonal.learning.recipe import Recipe
from zonal.likelihoods.base import Likelihood
from zonal.likelihoods.counts import NegativeBinomial, Poisson
from zonal.likelihoods.noise import Gaussian
from zonal.likelihoods.reals import Heteroscedastic, StudentT
from zonal.prior.kernels import NTK, ArcCosine, Kernel
from zonal.prior.sphere import LatitudeLongitude, Sphere, UnitVectors

__all__ = ["kernel_of", "likelihood_of", "recipe_of", "sphere_of"]

_KERNELS = ("continuous-depth", "ntk", "arc-cosine")
_LIKELIHOODS = {
    "auto": Gaussian,
    "gaussian": Gaussian,
    "student-t": StudentT,
    "heteroscedastic": Heteroscedastic,
    "poisson": Poisson,
    "negative-binomial": NegativeBinomial,
}


def kernel_of(kernel: str | Kernel, depth: int | None) -> Kernel | None:
    """The kernel to start from, or None if it is to be chosen by learning."""
    if isinstance(kernel, Kernel):
        return kernel
    if kernel not in _KERNELS:
        known = ", ".join(map(repr, _KERNELS))
        raise ValueError(
            f"kernel must be one of {known} or a zonal kernel, not {kernel!r}"
        )
    if kernel == "arc-cosine":
        return ArcCosine(depth=1 if depth is None else depth)
    if kernel == "ntk" or depth is not None:
        return NTK(depth=1 if depth is None else depth)
    return None


def likelihood_of(likelihood: str | Likelihood) -> Likelihood:
    """The likelihood of numbers with this name; a likelihood is returned as it is."""
    if isinstance(likelihood, Likelihood):
        return likelihood
    if likelihood not in _LIKELIHOODS:
        known = ", ".join(map(repr, _LIKELIHOODS))
        raise ValueError(f"likelihood must be one of {known}, not {likelihood!r}")
    return _LIKELIHOODS[likelihood]()


def sphere_of(geometry: Any, n_inputs: int) -> Sphere | None:
    """The sphere that whole rows lie on, or None if columns are ordinary."""
    if not isinstance(geometry, str):
        return None
    if geometry != "sphere":
        raise ValueError(
            "geometry must be None, 'sphere' or the two columns of latitude and "
            f"longitude, not {geometry!r}"
        )
    if n_inputs < 2:
        raise ValueError(
            "geometry='sphere' needs latitude and longitude, or the coordinates of "
            f"unit vectors, but X has {n_inputs} column"
        )
    return LatitudeLongitude() if n_inputs == 2 else UnitVectors(n_inputs)


def recipe_of(estimator: Any, sphere: Sphere | None) -> Recipe:
    """The recipe that corresponds to an estimator's parameters."""
    for name in ("n_features", "n_neighbors"):
        value = getattr(estimator, name)
        if value is not None and not isinstance(value, int | np.integer):
            raise ValueError(f"{name} must be an integer, got {value!r}")
    n_neighbors = estimator.n_neighbors
    if not estimator.keep_rows:
        if n_neighbors:
            raise ValueError(
                "a model that predicts from neighbours has to keep its rows; leave "
                "n_neighbors out, or set keep_rows=True"
            )
        n_neighbors = 0
    fraction = estimator.validation_fraction if estimator.early_stopping else 0.0
    return Recipe(
        n_features=estimator.n_features,
        solve_features=estimator.solve_features,
        n_neighbors=n_neighbors,
        layout=estimator.layout,
        kernel=kernel_of(estimator.kernel, estimator.depth),
        sphere=sphere,
        validation_fraction=fraction,
        max_seconds=estimator.max_time,
        seed=seed_of(estimator.random_state),
        dtype=estimator.dtype,
        target_transform=getattr(estimator, "target_transform", None),
    )


def seed_of(random_state: Any) -> int:
    """An integer seed from ``random_state``; None gives a new one on every call."""
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
