"""Back ends that evaluate kernels of bands: NumPy for few points, XLA for many.

Both are modules with the functions of `KernelBackend`, and agree to rounding.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from zonal.prior import backend_numpy, backend_xla
from zonal.prior.bands import BandGradient, BandKernel, PhasedKernel
from zonal.prior.sphere import Sphere

__all__ = ["KernelBackend", "backend_for", "numpy_kernel"]

# With more points than this, compiling takes less time than it saves.
_MAX_NUMPY_POINTS = 50_000


@runtime_checkable
class KernelBackend(Protocol):
    """Kernel values between rows and phases, Gram matrices, and their gradients."""

    def prepare(
        self, sphere: Sphere, bands: Sequence[PhasedKernel], dtype: Any
    ) -> tuple[Sphere, Sequence[PhasedKernel]]:
        """Sphere and bands in the form that ``values`` and ``pull_values`` take."""
        ...

    def values(
        self,
        prepared: tuple[Sphere, Sequence[PhasedKernel]],
        x: Float[np.ndarray, "rows inputs"],
    ) -> tuple[Float[np.ndarray, "rows features"], Float[np.ndarray, " rows"]]:
        """Kernel values of all bands side by side, and the radial factor per row."""
        ...

    def pull_values(
        self,
        prepared: tuple[Sphere, Sequence[PhasedKernel]],
        incomplete: tuple[int, ...],
        x: Float[np.ndarray, "rows inputs"],
        cotangent: Float[np.ndarray, "rows features"],
        radial_bar: Float[np.ndarray, " rows"],
    ) -> tuple[dict[str, np.ndarray], list[BandGradient]]:
        """Gradients in the sphere's parameters by name, and in each incomplete band."""
        ...

    def gram(
        self, phases: Float[np.ndarray, "phases d"], kernel: BandKernel
    ) -> Float[np.ndarray, "phases phases"]:
        """The kernel matrix of a band's phases, in float64."""
        ...

    def pull_gram(
        self,
        phases: Float[np.ndarray, "phases d"],
        kernel: BandKernel,
        gram_bar: Float[np.ndarray, "phases phases"],
    ) -> BandGradient:
        """The gradient in a band, from the gradient in its Gram matrix."""
        ...

    def evaluate(
        self, kernel: BandKernel, t: Float[np.ndarray, "*points"]
    ) -> Float[np.ndarray, "*points"]:
        """A band's kernel at cosines, in float64."""
        ...


def backend_for(points: int, *kernels: BandKernel) -> KernelBackend:
    """The faster back end for evaluating kernels at this number of points."""
    if points <= _MAX_NUMPY_POINTS and all(map(backend_numpy.supports, kernels)):
        return backend_numpy
    return backend_xla


def numpy_kernel(kernel: BandKernel) -> Callable[[np.ndarray], np.ndarray]:
    """A band's kernel as a function from cosines to values, both in float64."""
    return lambda t: backend_for(t.size, kernel).evaluate(kernel, t)
