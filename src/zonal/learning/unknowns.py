"""Unknowns: the vector that an optimiser changes, and the process it represents.

Phases move in one of two ways. *Free* phases move independently. *Anchored* phases move
as rows of the table would: each is the image of its own row, v = z̃/|z̃| with
z̃ = (a⊙z, 1), and stays among the data while the scales a of the inputs change.
Anchored phases find scales sooner, free phases fit more closely in the end; alternating
does both. (Where a sphere has no inverse from phases to rows, all phases are free.)
"""

from collections.abc import Mapping, Sequence

import numpy as np

from zonal.prior.parameters import free, free_gradient, named, with_free, with_values
from zonal.prior.process import Process
from zonal.prior.sphere import ARD

__all__ = ["Unknowns"]

# Free energies include the variance; the radius and the truncation keep their values.
_FIXED = ("basis.variance", "basis.sphere.radial_order", "basis.kernel.cut")
# A spectrum steeper than that of a single hidden layer, or noise below what float32
# resolves, is never useful; both leave the basis close to singular. A prior far wider
# than the target goes with inputs squeezed into a small cap, where float32 cannot
# distinguish rows. The other limits lie far outside the range of standardised data.
_LIMITS = {
    "basis.kernel.beta": (0.02, 5.0),
    "basis.sphere.scales": (1e-4, 1e3),
    "basis.free_energies": (1e-8, 10.0),
    "noise": (1e-5, 1e3),
}
# One phase among hundreds moves the bound far less than the noise does. In these units
# the optimiser's first steps are balanced.
_PHASE_UNIT = 4.0
_SCALES = "basis.sphere.scales"


class Unknowns:
    """The free parameters of a process as a vector, with their gradients.

    Examples
    --------
    >>> from zonal import ARD, Basis, ContinuousDepth
    >>> basis = Basis.build(ARD.isotropic(3), ContinuousDepth(), n_features=20)
    >>> unknowns = Unknowns(Process(basis, noise=0.3))
    >>> round(float(unknowns.process(unknowns.start).noise), 3)
    0.3
    """

    def __init__(
        self,
        process: Process,
        phases: str = "anchored",
        fixed: Sequence[str] = (),
    ):
        if phases not in ("anchored", "free", "fixed"):
            raise ValueError(f"phases must be anchored, free or fixed, got {phases!r}")
        self._process = process
        # The gradient at a vector is needed right after the process there.
        self._last: tuple[np.ndarray, Process] | None = None
        names = [name for name in named(process) if name not in (*_FIXED, *fixed)]
        moving = [name for name in names if name.endswith(".phases")]
        self._anchors = _anchors(process, moving) if phases == "anchored" else {}
        excluded = set(moving) if phases == "fixed" else set(self._anchors)
        self._names = [name for name in names if name not in excluded]
        sizes = [len(free(process, [name])) for name in self._names]
        self._size = sum(sizes)
        anchor_units = [
            np.full(anchors.size, _PHASE_UNIT) for anchors in self._anchors.values()
        ]
        self._unit = np.concatenate(
            [
                np.full(size, _PHASE_UNIT if name.endswith(".phases") else 1.0)
                for name, size in zip(self._names, sizes, strict=True)
            ]
            + anchor_units
        )
        limits = [_LIMITS.get(name, (0.0, np.inf)) for name in self._names]
        with np.errstate(divide="ignore"):
            limits = np.log(np.repeat(limits, sizes, axis=0))
        free_range = np.tile([-np.inf, np.inf], (len(self._unit) - self._size, 1))
        self.bounds = np.concatenate([limits, free_range]) / self._unit[:, None]

    @property
    def start(self) -> np.ndarray:
        """The vector of the given process."""
        anchors = [anchors.ravel() for anchors in self._anchors.values()]
        vector = np.concatenate([free(self._process, self._names), *anchors])
        return vector / self._unit

    def process(self, vector: np.ndarray) -> Process:
        """The process that a vector represents."""
        if self._last is None or not np.array_equal(self._last[0], vector):
            self._last = vector.copy(), self._build(vector)
        return self._last[1]

    def _build(self, vector: np.ndarray) -> Process:
        vector = vector * self._unit
        process = with_free(self._process, vector[: self._size], self._names)
        if not self._anchors:
            return process
        images = {
            name: _image(process, anchors)[0]
            for name, anchors in self._anchors_in(vector).items()
        }
        return with_values(process, images)

    def gradient(
        self, vector: np.ndarray, gradients: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """The gradient in the vector, from gradients by parameter."""
        process = self.process(vector)
        vector = vector * self._unit
        gradients = dict(gradients)
        moved = []
        for name, anchors in self._anchors_in(vector).items():
            phases, length = _image(process, anchors)
            scales = _scales(process)
            phases_bar = gradients[name]
            inner = np.sum(phases * phases_bar, axis=1, keepdims=True)
            stretched_bar = ((phases_bar - phases * inner) / length)[:, :-1]
            scales_bar = np.sum(stretched_bar * anchors, axis=0)
            gradients[_SCALES] = gradients[_SCALES] + scales_bar
            moved.append((stretched_bar * scales).ravel())
        own = free_gradient(process, gradients, vector[: self._size], self._names)
        return np.concatenate([own, *moved]) * self._unit

    def _anchors_in(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """The anchors in a vector, by the name of their phases."""
        parts, start = {}, self._size
        for name, anchors in self._anchors.items():
            parts[name] = vector[start : start + anchors.size].reshape(anchors.shape)
            start += anchors.size
        return parts


def _anchors(process: Process, names: list[str]) -> dict[str, np.ndarray]:
    """The rows that map to the phases, where such rows exist."""
    sphere = process.basis.sphere
    if not isinstance(sphere, ARD):
        return {}
    anchors = {}
    for name, phases in named(process, names).items():
        height = phases[:, -1:]
        if np.all(height > 1e-6):
            anchors[name] = phases[:, :-1] / height / sphere.scales
    return anchors


def _scales(process: Process) -> np.ndarray:
    sphere = process.basis.sphere
    assert isinstance(sphere, ARD), "only ARD has anchors"
    return np.asarray(sphere.scales)


def _image(process: Process, anchors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Phases of anchors, and the lengths that they were divided by."""
    stretched = anchors * _scales(process)
    lifted = np.column_stack([stretched, np.ones(len(stretched))])
    length = np.linalg.norm(lifted, axis=1, keepdims=True)
    return lifted / length, length
