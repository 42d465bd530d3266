"""The idea in pictures: the sphere, its levels, phases, bands, and what comes of them.

They are those of docs/idea.md. Each function draws one picture to a file; the ending of
its name says of what kind.

    python docs/figures/pictures.py            # draws all of them again
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from zonal.prior.kernels import ContinuousDepth
from zonal.prior.layouts import plan_bands
from zonal.prior.polynomials import gegenbauer_level, harmonic_count

__all__ = ["PICTURES"]

_BLUE, _ORANGE, _GREY = "#2f6fab", "#d9772b", "#8a8f98"
# Where one looks at a globe from: longitude and latitude, in radians.
_LONGITUDE, _LATITUDE = 0.6, 0.9
_PIXELS = 121


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Any, path: Path) -> None:
    from matplotlib import rc_context

    path.parent.mkdir(parents=True, exist_ok=True)
    # The same picture gives the same file.
    metadata = {"Date": None} if path.suffix == ".svg" else None
    with rc_context({"svg.hashsalt": "zonal", "svg.fonttype": "none"}):
        figure.savefig(path, dpi=150, metadata=metadata)


def _view() -> Float[np.ndarray, "3 3"]:
    """Rows: to the right, upwards, towards the eye."""
    towards = np.array(
        [
            np.cos(_LATITUDE) * np.cos(_LONGITUDE),
            np.cos(_LATITUDE) * np.sin(_LONGITUDE),
            np.sin(_LATITUDE),
        ]
    )
    right = np.array([-np.sin(_LONGITUDE), np.cos(_LONGITUDE), 0.0])
    return np.stack([right, np.cross(towards, right), towards])


def _globe(axis: Any, values: Callable[[np.ndarray], np.ndarray] | None = None) -> None:
    """A globe as seen from far away, coloured by a function of the place."""
    axis.set_aspect("equal")
    axis.set_axis_off()
    axis.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
    turn = np.linspace(0, 2 * np.pi, 200)
    axis.plot(np.cos(turn), np.sin(turn), color=_GREY, linewidth=0.8)
    view = _view()
    if values is None:
        for angle in np.deg2rad(np.arange(-60, 61, 30)):
            ring = np.cos(angle)
            circle = [
                ring * np.cos(turn),
                ring * np.sin(turn),
                0 * turn + np.sin(angle),
            ]
            _line(axis, view @ np.array(circle))
        for angle in np.deg2rad(np.arange(0, 180, 30)):
            places = [
                np.cos(turn) * np.cos(angle),
                np.cos(turn) * np.sin(angle),
                np.sin(turn),
            ]
            _line(axis, view @ np.array(places))
        return
    across = np.linspace(-1, 1, _PIXELS)
    u, v = np.meshgrid(across, across)
    inside = u**2 + v**2 <= 1
    depth = np.sqrt(np.maximum(1 - u**2 - v**2, 0.0))
    places = np.stack([u, v, depth], axis=-1) @ view
    shown = values(places[inside])
    image = np.full(u.shape, np.nan)
    image[inside] = shown
    most = np.abs(shown).max()
    axis.imshow(
        image,
        extent=(-1, 1, -1, 1),
        origin="lower",
        cmap="RdBu_r",
        vmin=-most,
        vmax=most,
        interpolation="bilinear",
    )


def _line(axis: Any, seen: np.ndarray) -> None:
    front = np.where(seen[2] >= 0, seen[:2], np.nan)
    axis.plot(front[0], front[1], color=_GREY, linewidth=0.4, alpha=0.7)


def _zonal(level: int, phase: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The function that a feature of one level and one phase is."""
    return lambda places: np.asarray(
        gegenbauer_level(np.clip(places @ phase, -1, 1), level, 3)
    )


def _marked(axis: Any, place: np.ndarray) -> None:
    right, up, towards = _view() @ place
    if towards > 0:
        axis.plot(right, up, "o", color="black", markersize=4)


def draw_sphere(path: Path) -> None:
    """Rows of a table, and the same rows on a sphere."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(250, 2))
    y = np.sin(2 * x[:, 0]) + x[:, 1]
    figure = _figure(8, 3.9)
    left, right = figure.subplots(1, 2)
    left.scatter(x[:, 0], x[:, 1], c=y, cmap="RdBu_r", s=14, edgecolors="none")
    left.set(title="two columns of a table", xlabel="first", ylabel="second")
    left.set_aspect("equal")
    left.grid(alpha=0.25)
    # The third coordinate, one, is what points upwards.
    lifted = np.column_stack([0.8 * x, np.ones(len(x))])
    lifted /= np.linalg.norm(lifted, axis=1, keepdims=True)
    _globe(right)
    seen = lifted @ _view().T
    order = np.argsort(seen[:, 2])
    near = np.clip(seen[:, 2], 0, 1)
    right.scatter(
        seen[order, 0],
        seen[order, 1],
        c=y[order],
        cmap="RdBu_r",
        s=6 + 14 * near[order],
        alpha=0.9,
        edgecolors="none",
    )
    right.set_title("scaled, with a one beside them, on the sphere")
    _save(figure, path)


def draw_levels(path: Path) -> None:
    """One feature of each of some levels."""
    figure = _figure(10, 2.6)
    phase = _view()[2] * 0.8 + _view()[1] * 0.6
    levels = (1, 2, 4, 8, 16)
    for axis, level in zip(figure.subplots(1, len(levels)), levels, strict=True):
        _globe(axis, _zonal(level, phase))
        count = harmonic_count(level, 3)
        axis.set_title(f"level {level}: one of {count}", fontsize=10)
    _save(figure, path)


def draw_phases(path: Path) -> None:
    """A level's features at three phases, and a sum of them."""
    figure = _figure(10, 2.9)
    towards, up, right = _view()[2], _view()[1], _view()[0]
    phases = [
        one / np.linalg.norm(one)
        for one in (towards + 0.9 * up, towards - 0.8 * right, towards + 0.7 * right)
    ]
    weights = (1.0, 0.8, -0.9)
    axes = figure.subplots(1, 4)
    for axis, phase in zip(axes, phases, strict=False):
        _globe(axis, _zonal(6, phase))
        _marked(axis, phase)
        axis.set_title("level 6, a phase of its own", fontsize=10)

    def total(places: np.ndarray) -> np.ndarray:
        pairs = zip(weights, phases, strict=True)
        return sum((w * _zonal(6, phase)(places) for w, phase in pairs), np.zeros(1))

    _globe(axes[3], total)
    for phase in phases:
        _marked(axes[3], phase)
    axes[3].set_title("a sum of the three", fontsize=10)
    _save(figure, path)


def draw_bands(path: Path) -> None:
    """How each layout spends 512 features on the levels of eight columns."""
    figure = _figure(10, 3.2)
    kernel = ContinuousDepth(max_level=20)
    weights = kernel.level_weights(9)
    layouts = ("harmonics", "sparse", "banded")
    axes = figure.subplots(1, 3, sharey=True)
    for axis, layout in zip(axes, layouts, strict=True):
        levels = np.arange(len(weights))
        axis.bar(levels, weights, color="#e3e5e8", width=0.9)
        for number, plan in enumerate(plan_bands(layout, kernel, 9, 512)):
            last = len(weights) - 1 if plan.last is None else plan.last
            inside = np.arange(plan.first, last + 1)
            colour = _BLUE if plan.complete else _ORANGE
            alpha = 0.95 if number % 2 == 0 else 0.7
            axis.bar(inside, weights[inside], color=colour, width=0.9, alpha=alpha)
            place = inside.mean(), weights[inside].max()
            axis.annotate(
                f"{plan.size}",
                place,
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
        axis.set(title=layout, xlabel="level")
    axes[0].set_ylabel("share of the variance")
    handles = [
        axes[2].bar([0], [0], color=colour, label=label)
        for colour, label in (
            (_BLUE, "complete: every harmonic"),
            (_ORANGE, "learned phases"),
            ("#e3e5e8", "not seen"),
        )
    ]
    axes[2].legend(handles=handles, frameon=False, fontsize=9)
    _save(figure, path)


def draw_uncertainty(path: Path) -> None:
    """A function that is known where there are rows, and not where there are none."""
    from zonal.estimators.regressor import SphericalGPRegressor

    generator = np.random.default_rng(3)
    x = np.concatenate([generator.uniform(-3, -0.7, 40), generator.uniform(1, 2.6, 25)])
    y = np.sin(3 * x) * np.exp(0.4 * x) / 2 + 0.1 * generator.normal(size=len(x))
    model = SphericalGPRegressor().fit(x[:, None], y)
    grid = np.linspace(-4, 4, 300)
    quantiles = model.predict_quantiles(grid[:, None], [0.05, 0.25, 0.75, 0.95])
    figure = _figure(8, 3.4)
    axis = figure.subplots()
    axis.fill_between(
        grid, quantiles[:, 0], quantiles[:, 3], color=_BLUE, alpha=0.18, label="90 %"
    )
    axis.fill_between(
        grid, quantiles[:, 1], quantiles[:, 2], color=_BLUE, alpha=0.3, label="50 %"
    )
    axis.plot(grid, model.predict(grid[:, None]), color=_BLUE, label="mean")
    axis.plot(x, y, "o", color="black", markersize=3, label="rows")
    axis.set(xlabel="x", ylabel="y", ylim=(-3.2, 3.2), xlim=(-4, 4))
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, ncols=4, loc="upper left", fontsize=9)
    _save(figure, path)


PICTURES: dict[str, Callable[[Path], None]] = {
    "sphere": draw_sphere,
    "levels": draw_levels,
    "phases": draw_phases,
    "bands": draw_bands,
    "uncertainty": draw_uncertainty,
}


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        draw(Path(__file__).parent / f"{name}.svg")
