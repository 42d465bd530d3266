"""The recipe: all options of a fit, and the sizes derived from them."""

import dataclasses

import numpy as np

from zonal.learning.schedule import Schedule, default_schedule
from zonal.likelihoods.base import Likelihood
from zonal.prior.kernels import Kernel
from zonal.prior.sphere import Sphere
from zonal.tables.scaling import Scaling
from zonal.tables.sources import Source
from zonal.tables.target_maps import TargetMap

__all__ = ["Recipe", "scaling_of"]

# Features to learn with, without neighbours.
_FEATURES = 512

TARGET_TRANSFORMS = ("auto", None, "log", "logit", "yeo-johnson")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The options of a fit; every default was chosen by measurement.

    ``tightened``, ``most_rows``, ``validation_fraction`` and ``dtype`` are for features
    alone; with neighbours they have no effect.

    Parameters
    ----------
    n_features
        Number of global features. With neighbours, None chooses it by leave-one-out
        density, and 0 predicts from neighbours alone. Without neighbours it is the
        number of features to learn with, 512 by default.
    n_neighbors
        Number of nearest rows to predict from, besides the features. None chooses it by
        leave-one-out density for normal noise; 0 uses features alone, and so do other
        likelihoods, the layouts ``"sparse"`` and ``"harmonics"``, and
        ``solve_features``. With neighbours, the rows are stored in the model.
    solve_features
        Features to solve with, if more: the kernel is learned with a small basis and
        the data are solved with a large one. By default up to four times as many, as
        long as a pass over the rows with them takes seconds: 2048 for a hundred
        thousand rows, 1000 for half a million. (Likelihoods other than normal noise
        take many passes, and use no more features unless asked to. Layouts other than
        banded are solved with the features they are learned with.)
    layout
        ``"banded"``, ``"sparse"`` or ``"harmonics"``.
    n_levels
        How many levels share the features of the sparse layout.
    kernel
        A kernel to start from, instead of a choice of `ContinuousDepth`.
    sphere
        A map to the sphere to start from, instead of `ARD`. Inputs are then not
        standardised; only the target is.
    radial_order
        The power of the radius in the kernel.
    tightened
        Whether the bound pays the tightened penalty.
    tails
        Treatment of heavy tails in the inputs: ``"keep"``, ``"clip"`` or
        ``"quantile"`` (see `zonal.tables.scaling.Scaling`).
    target_transform
        The scale on which the target is learned, for normal noise: ``"log"`` for
        positive targets, ``"logit"`` for targets between 0 and 1 (or 0 and 100),
        ``"yeo-johnson"`` for skewed ones, None for the target as it is. ``"auto"``
        chooses one of them if its leave-one-out density is clearly higher
        (`zonal.learning.target_maps`). Maps of `zonal.tables.target_maps` are given in
        a tuple, one per target.
    linear_mean
        Whether a linear function of the inputs is subtracted from the target first.
    calibrated
        Whether predictive distributions get the width and shape of the leave-one-out
        residuals (`zonal.likelihoods.noise`), or stay the plain normals of the
        process. For normal noise only; other likelihoods have shapes of their own.
    most_rows
        Rows to learn sphere, kernel and phases from. By default as many as keep a step
        at about a second: 60,000 with 512 features, fewer with more.
    most_steps
        Steps of the optimiser on the largest sample. With neighbours, 0 learns nothing,
        and other numbers have no effect.
    validation_fraction
        Fraction of validation rows: learning stops once they are no longer predicted
        better. (Rows beyond the sample serve as validation rows anyway, at no cost.)
        The solution uses all rows.
    max_seconds
        Time after which learning stops. The solution then uses the parameters learned
        so far, no more features than there is time for and no more passes than needed.
    dtype
        Precision of features and their products: ``"float32"``, ``"float64"``, or
        ``"auto"`` for float64 where that costs a few seconds at most.
    seed
        Seed of all random choices.
    schedule
        Internal sizes and tolerances; tests replace them.
    """

    n_features: int | None = None
    n_neighbors: int | None = None
    solve_features: int | None = None
    layout: str = "banded"
    n_levels: int = 8
    kernel: Kernel | None = None
    sphere: Sphere | None = None
    radial_order: float = 0.0
    tightened: bool = True
    tails: str = "keep"
    target_transform: str | tuple[TargetMap, ...] | None = "auto"
    linear_mean: bool = False
    calibrated: bool = True
    most_rows: int | None = None
    most_steps: int = 100
    validation_fraction: float = 0.0
    max_seconds: float | None = None
    dtype: str = "auto"
    seed: int = 0
    schedule: Schedule = dataclasses.field(default_factory=default_schedule)

    def __post_init__(self) -> None:
        if self.sphere is not None and (self.linear_mean or self.tails != "keep"):
            raise ValueError(
                "with a given sphere, inputs are not standardised; leave tails and "
                "linear_mean at their defaults"
            )
        transform = self.target_transform
        if not isinstance(transform, tuple) and transform not in TARGET_TRANSFORMS:
            known = ", ".join(map(repr, TARGET_TRANSFORMS))
            raise ValueError(
                f"target_transform must be one of {known}, not {transform!r}"
            )
        for name in ("solve_features", "n_levels", "most_rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}")
        for name in ("n_features", "n_neighbors"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must be 0 or more, got {value}")
        if self.n_neighbors and not self._allows_neighbors:
            raise ValueError(
                "n_neighbors is for the default layout without solve_features; set "
                "n_neighbors=0, or leave layout and solve_features at their defaults"
            )
        if self.n_features == 0 and not (self.n_neighbors or self._may_store_rows):
            raise ValueError(
                "n_features=0 predicts from neighbours alone, which needs n_neighbors "
                "of 1 or more and the default layout; set n_features to 1 or more"
            )
        others = (None, self.n_features)
        if self.layout in ("sparse", "harmonics") and self.solve_features not in others:
            raise ValueError(
                "only the banded layout can be solved with other features than it was "
                f"learned with; with layout={self.layout!r} choose n_features and fit"
            )
        if self.dtype not in ("auto", "float32", "float64"):
            raise ValueError(
                f"dtype must be 'auto', 'float32' or 'float64', got {self.dtype!r}"
            )
        if self.max_seconds is not None and not self.max_seconds >= 0:
            raise ValueError(f"max_seconds must be 0 or more, got {self.max_seconds}")
        if self.most_steps < 0:
            raise ValueError(f"most_steps must be 0 or more, got {self.most_steps}")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(
                "validation_fraction must be at least 0 and below 1, "
                f"got {self.validation_fraction}"
            )

    @property
    def _allows_neighbors(self) -> bool:
        return self.layout == "banded" and self.solve_features is None

    @property
    def _may_store_rows(self) -> bool:
        return self.n_neighbors is None and self._allows_neighbors

    def stores_rows(self, likelihood: Likelihood) -> bool:
        """Whether a fit stores its rows and predicts from the nearest."""
        if self.n_neighbors and not likelihood.conjugate:
            raise ValueError(
                "n_neighbors is for normal noise; leave it out for "
                f"{type(likelihood).__name__}"
            )
        return bool(self.n_neighbors) or (self._may_store_rows and likelihood.conjugate)

    def for_features_alone(self) -> "Recipe":
        """The recipe with the default number of features filled in."""
        if self.n_features == 0:
            raise ValueError(
                "n_features=0 predicts from neighbours alone, which is for normal "
                "noise; set n_features to 1 or more"
            )
        return dataclasses.replace(self, n_features=self.features_to_learn)

    @property
    def features_to_learn(self) -> int:
        """Features to learn with, without neighbours."""
        return self.n_features or _FEATURES

    def features_to_solve(self, rows: int | None, one_pass: bool = True) -> int:
        """Features to solve with; fewer than were learned with means no change.

        Layouts other than banded keep their features. So do likelihoods that take
        several passes, unless ``solve_features`` is set: more features gain next to
        nothing, and slow every pass and every prediction by their square.
        """
        if self.layout != "banded":
            return 0
        if self.solve_features is not None or not one_pass:
            return self.solve_features or 0
        schedule = self.schedule
        work = schedule.solve_work
        if self.max_seconds is not None:
            work = min(work, schedule.work_per_second * self.max_seconds)
        n_rows = np.inf if rows is None else max(rows, 1)
        affordable = int(np.sqrt(work / n_rows))
        return min(
            max(self.features_to_learn, affordable),
            schedule.more_to_solve * self.features_to_learn,
        )

    @property
    def sample_rows(self) -> int:
        """Rows of the largest sample."""
        if self.most_rows is not None:
            return self.most_rows
        return self.schedule.affordable_sample(self.features_to_learn)


def scaling_of(
    source: Source, recipe: Recipe, target_map: TargetMap | None = None
) -> Scaling:
    """The scaling that standardises a table before learning."""
    if recipe.sphere is not None:
        return Scaling.learn(source, target_map=target_map).of_target_only()
    return Scaling.learn(
        source, recipe.tails, recipe.linear_mean, recipe.seed, target_map
    )
