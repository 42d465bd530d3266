"""The recipe: all options of a fit, and the sizes derived from them."""

import dataclasses

import numpy as np

from zonal.learning.schedule import Schedule, default_schedule
from zonal.prior.kernels import Kernel
from zonal.prior.sphere import Sphere
from zonal.tables.scaling import Scaling
from zonal.tables.sources import Source

__all__ = ["Recipe", "scaling_of"]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The options of a fit; every default was chosen by measurement.

    Parameters
    ----------
    n_features
        Features to learn with.
    solve_features
        Features to solve with, if more: the kernel is learned with a small basis and
        the data are solved with a large one. By default up to four times as many, as
        long as a pass over the rows with them takes seconds: 2048 for a hundred
        thousand rows, 1000 for half a million. (Likelihoods other than normal noise
        take many passes, and use no more features unless asked to. Layouts other than
        banded are solved with the features they are learned with.)
    n_neighbors
        Predict from this many nearest rows instead of features; 0 for features. The
        rows are then stored in the model, the kernel has all its levels, and it is
        learned by leave-one-out densities (`zonal.learning.by_neighbours`). For normal
        noise.
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
        Steps of the optimiser on the largest sample.
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

    n_features: int = 512
    solve_features: int | None = None
    n_neighbors: int = 0
    layout: str = "banded"
    n_levels: int = 8
    kernel: Kernel | None = None
    sphere: Sphere | None = None
    radial_order: float = 0.0
    tightened: bool = True
    tails: str = "keep"
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
        for name in ("n_features", "solve_features", "n_levels", "most_rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}")
        if self.n_neighbors < 0:
            raise ValueError(f"n_neighbors must be 0 or more, got {self.n_neighbors}")
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
            max(self.n_features, affordable), schedule.more_to_solve * self.n_features
        )

    @property
    def sample_rows(self) -> int:
        """Rows of the largest sample."""
        if self.most_rows is not None:
            return self.most_rows
        return self.schedule.affordable_sample(self.n_features)


def scaling_of(source: Source, recipe: Recipe) -> Scaling:
    """The scaling that standardises a table before learning."""
    if recipe.sphere is not None:
        return Scaling.learn(source).of_target_only()
    return Scaling.learn(source, recipe.tails, recipe.linear_mean, recipe.seed)
