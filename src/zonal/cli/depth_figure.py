"""`zonal figure`: figures that explain the model (needs the extra ``plot``).

    zonal figure depth --out depth.png

``depth`` is Figure 1 of Eleftheriadis, Richards & Hensman (2023): the eigenvalues of
neural tangent kernels of increasing depth beside those of `ContinuousDepth`, relative
to level 1. A single parameter, β, reproduces the effect of depth on the spectrum.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import numpy as np
from jaxtyping import Float

from zonal.cli.options import out_option
from zonal.prior.kernels import NTK, ContinuousDepth, Kernel
from zonal.prior.polynomials import harmonic_count

__all__ = [
    "compute_relative_eigenvalues",
    "draw_depth_figure",
    "figure",
    "format_depth_table",
]

_INPUTS = (3, 10)
_MAX_LEVEL = 50
_DEPTHS = (5, 10, 50, 100)
_BETAS = (2.0, 1.0, 0.1, 0.01)


@click.command()
@click.argument("name", type=click.Choice(["depth"]))
@out_option(help="File to write  [default: NAME.png]")
def figure(name: str, out: str | None) -> None:
    """Draw a figure that explains the model.

    depth: spectra of deep networks beside those of zonal's continuous depth, which has
    a single parameter β. The values are printed.

    \b
    Example:
      zonal figure depth --out depth.png
    """
    from zonal.cli.data import check_output_path

    path = check_output_path(f"{name}.png" if out is None else out)
    draw_depth_figure(path)
    click.echo(f"{format_depth_table()}\n")
    click.echo(f"figure: {path}")


def compute_relative_eigenvalues(
    kernel: Kernel, dimension: int, max_level: int
) -> Float[np.ndarray, " levels"]:
    """λ_l / λ_1 for levels 1, ..., L, where λ_l is the variance of one harmonic.

    Examples
    --------
    >>> compute_relative_eigenvalues(NTK(depth=5), dimension=4, max_level=3).round(3)
    array([1.  , 0.32, 0.1 ])
    """
    weights = kernel.level_weights(dimension, max_level)[1:]
    counts = [harmonic_count(level, dimension) for level in range(1, max_level + 1)]
    eigenvalues = weights / np.array([float(count) for count in counts])
    return eigenvalues / eigenvalues[0]


def _list_families() -> Mapping[str, Sequence[tuple[str, Kernel]]]:
    def betas(decay) -> list[tuple[str, Kernel]]:
        return [
            (f"β = {beta:g}", ContinuousDepth(beta, _MAX_LEVEL, decay))
            for beta in _BETAS
        ]

    return {
        "NTK": [(f"depth {depth}", NTK(depth)) for depth in _DEPTHS],
        "ContinuousDepth, decay of energy per level": betas("energy"),
        "ContinuousDepth, decay of eigenvalues": betas("eigenvalue"),
    }


def format_depth_table(levels: Sequence[int] = (1, 2, 3, 5, 10, 20, 30, 40, 50)) -> str:
    """Values behind the figure, as text."""
    lines = ["eigenvalue relative to level 1"]
    for n_inputs in _INPUTS:
        for family, members in _list_families().items():
            lines.append("")
            lines.append(f"{n_inputs} inputs, sphere in R^{n_inputs + 1}: {family}")
            lines.append(
                f"{'level':>10s}" + "".join(f"{level:>10d}" for level in levels)
            )
            for name, kernel in members:
                values = compute_relative_eigenvalues(kernel, n_inputs + 1, _MAX_LEVEL)
                row = "".join(f"{values[level - 1]:10.2e}" for level in levels)
                lines.append(f"{name:>10s}{row}")
    return "\n".join(lines)


def draw_depth_figure(out: Path) -> None:
    """Draw the spectra of NTK and ContinuousDepth side by side, and save them."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    families = _list_families()
    figure = Figure(figsize=(12.5, 7.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(_INPUTS), len(families), sharex=True, sharey="row")
    colours = colormaps["viridis"](np.linspace(0.0, 0.82, len(_DEPTHS)))
    for row, n_inputs in zip(axes, _INPUTS, strict=True):
        for axis, members in zip(row, families.values(), strict=True):
            for colour, (name, kernel) in zip(colours, members, strict=True):
                values = compute_relative_eigenvalues(kernel, n_inputs + 1, _MAX_LEVEL)
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
    figure.suptitle("Depth determines the decay of the spectrum", fontsize=14)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)
