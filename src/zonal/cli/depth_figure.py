"""Figures that explain the model (needs the extra ``plot``).

    zonal figure depth --out depth.png

``depth`` is Figure 1 of Eleftheriadis, Richards & Hensman (2023): the eigenvalues of
neural tangent kernels of growing depth beside those of `ContinuousDepth`, relative to
level 1. One number, β, reproduces what depth does to the spectrum.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from zonal.prior.kernels import NTK, ContinuousDepth, Kernel
from zonal.prior.polynomials import harmonic_count

__all__ = ["depth_figure", "depth_table", "relative_eigenvalues"]

_INPUTS = (3, 10)
_MAX_LEVEL = 50
_DEPTHS = (5, 10, 50, 100)
_BETAS = (2.0, 1.0, 0.1, 0.01)


def relative_eigenvalues(
    kernel: Kernel, dimension: int, max_level: int
) -> Float[np.ndarray, " levels"]:
    """λ_l / λ_1 for levels 1, ..., L: the weight of one harmonic, not of a level.

    Examples
    --------
    >>> relative_eigenvalues(NTK(depth=5), dimension=4, max_level=3).round(3)
    array([1.  , 0.32, 0.1 ])
    """
    weights = kernel.level_weights(dimension, max_level)[1:]
    counts = [harmonic_count(level, dimension) for level in range(1, max_level + 1)]
    eigenvalues = weights / np.array([float(count) for count in counts])
    return eigenvalues / eigenvalues[0]


def _families() -> Mapping[str, Sequence[tuple[str, Kernel]]]:
    def betas(decay) -> list[tuple[str, Kernel]]:
        return [
            (f"β = {beta:g}", ContinuousDepth(beta, _MAX_LEVEL, decay))
            for beta in _BETAS
        ]

    return {
        "NTK": [(f"depth {depth}", NTK(depth)) for depth in _DEPTHS],
        "ContinuousDepth, decay of a level's energy": betas("energy"),
        "ContinuousDepth, decay of an eigenvalue": betas("eigenvalue"),
    }


def depth_table(levels: Sequence[int] = (1, 2, 3, 5, 10, 20, 30, 40, 50)) -> str:
    """The numbers behind the figure, as text."""
    lines = ["eigenvalue of a level relative to level 1"]
    for n_inputs in _INPUTS:
        for family, members in _families().items():
            lines.append("")
            lines.append(f"{n_inputs} inputs, sphere in R^{n_inputs + 1}: {family}")
            lines.append(f"{'level':>10s}" + "".join(f"{x:>10d}" for x in levels))
            for name, kernel in members:
                values = relative_eigenvalues(kernel, n_inputs + 1, _MAX_LEVEL)
                row = "".join(f"{values[level - 1]:10.2e}" for level in levels)
                lines.append(f"{name:>10s}{row}")
    return "\n".join(lines)


def depth_figure(out: Path) -> None:
    """Draw the spectra of NTK and ContinuousDepth side by side and save them."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    families = _families()
    figure = Figure(figsize=(12.5, 7.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(_INPUTS), len(families), sharex=True, sharey="row")
    colours = colormaps["viridis"](np.linspace(0.0, 0.82, len(_DEPTHS)))
    for row, n_inputs in zip(axes, _INPUTS, strict=True):
        for axis, members in zip(row, families.values(), strict=True):
            for colour, (name, kernel) in zip(colours, members, strict=True):
                values = relative_eigenvalues(kernel, n_inputs + 1, _MAX_LEVEL)
                axis.plot(
                    np.arange(1, _MAX_LEVEL + 1), values, color=colour, label=name
                )
            axis.set(xscale="log", yscale="log")
            axis.grid(alpha=0.25, which="both", linewidth=0.5)
            axis.legend(frameon=False, loc="lower left")
        row[0].set_ylabel(f"{n_inputs} inputs\neigenvalue relative to level 1")
    for axis, family in zip(axes[0], families, strict=True):
        axis.set_title(family, fontsize=11)
    ticks = [1, 2, 5, 10, 20, 50]
    for axis in axes[-1]:
        axis.set_xlabel("level")
        axis.set_xticks(ticks, [str(tick) for tick in ticks], minor=False)
        axis.set_xticks([], minor=True)
    figure.suptitle("Depth is the decay of the spectrum", fontsize=14)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)
