"""The process: a Gaussian process prior together with the noise of its targets."""

import dataclasses

from zonal.prior.basis import Basis
from zonal.prior.parameters import POSITIVE, Number, check_values, parameter
from zonal.saving import savable

__all__ = ["Process"]


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Process:
    """A Gaussian process prior with Gaussian noise: all learned parameters."""

    basis: Basis
    noise: Number = parameter(POSITIVE, default=0.1)

    def __post_init__(self) -> None:
        check_values(self)
