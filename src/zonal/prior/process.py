"""The process: a Gaussian process prior together with the noise of its targets."""

import dataclasses

import numpy as np
from jaxtyping import Float

from zonal.prior.angles import AngleTable
from zonal.prior.basis import Basis
from zonal.prior.kernels import Kernel
from zonal.prior.parameters import POSITIVE, Number, check_values, parameter
from zonal.prior.sphere import Sphere
from zonal.saving import savable

__all__ = ["LocalProcess", "Process"]


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Process:
    """A Gaussian process prior with Gaussian noise: all learned parameters."""

    basis: Basis
    noise: Number = parameter(POSITIVE, default=0.1)

    def __post_init__(self) -> None:
        check_values(self)


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class LocalProcess:
    """A Gaussian process prior with Gaussian noise, without features.

    This is all that predictions from nearest rows need.

    Examples
    --------
    >>> from zonal import ARD, ContinuousDepth
    >>> process = LocalProcess(ARD.isotropic(2), ContinuousDepth(beta=2.0))
    >>> process.variance, process.noise
    (1.0, 0.1)
    """

    sphere: Sphere
    kernel: Kernel
    variance: Number = parameter(POSITIVE, default=1.0)
    noise: Number = parameter(POSITIVE, default=0.1)

    def __post_init__(self) -> None:
        check_values(self)

    def table(self) -> AngleTable:
        """The kernel of unit variance by squared chord."""
        return AngleTable.build(self.kernel, self.sphere.dimension)

    @property
    def level_variances(self) -> Float[np.ndarray, " levels"]:
        """The prior variance of the lowest levels; a kernel may have more."""
        basis = Basis(self.sphere, self.kernel, (), self.variance)
        count = len(basis.level_variances)
        tail = AngleTable.build(self.kernel, self.sphere.dimension, count)
        return float(self.variance) * np.array(tail.low)
