"""Summaries of fitted models, as text and HTML."""

import dataclasses
import html
from typing import Any

import numpy as np

__all__ = ["Summary", "captured_of", "measure_of", "summary_of"]

# Maximum number of columns in a summary.
_MAX_COLUMNS = 10


@dataclasses.dataclass(frozen=True)
class Summary:
    """A table of names, values and their meanings, as text and HTML."""

    title: str
    rows: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        widths = [max(len(row[index]) for row in self.rows) for index in (0, 1)]
        lines = [
            f"{name:<{widths[0]}}  {value:>{widths[1]}}  {meaning}".rstrip()
            for name, value, meaning in self.rows
        ]
        return "\n".join([self.title, "=" * len(self.title), *lines])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        cells = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        title = html.escape(self.title)
        return f"<table><caption>{title}</caption><tbody>{cells}</tbody></table>"


def summary_of(estimator: Any) -> Summary:
    """The summary of a fitted estimator."""
    process, first = estimator.process_, estimator.models_[0]
    basis, depth = process.basis, estimator.depth_
    rows = first.statistics.rows
    table = [
        ("rows", f"{rows:,.0f}", "counted by weight"),
        ("columns", f"{estimator.n_features_in_}", _columns(estimator)),
        *_sizes(estimator),
        (
            "depth",
            f"{depth.layers}",
            f"hidden layers of the nearest network{_beta(depth)}",
        ),
        *_bound(estimator.bound_ / max(rows, 1), first.stores_rows),
        ("steps", f"{estimator.n_iter_}", "learning steps"),
    ]
    table += _scale(estimator)
    noise = getattr(estimator, "noise_", None)
    if noise is not None and np.all(np.isfinite(noise)):
        value = ", ".join(f"{deviation:.4g}" for deviation in np.atleast_1d(noise))
        table.append(("noise", value, "standard deviation, in the target's units"))
    table.append(first.likelihood.described)
    total = float(basis.variance) * basis.total_energy
    table += _levels(estimator.level_weights_, total)
    table += [
        (f"band {name}", f"{share:.2%}", "captured by its features")
        for name, share in captured_of(estimator)
    ]
    table += _relevance(estimator)
    return Summary(type(estimator).__name__, tuple(table))


def _scale(estimator: Any) -> list[tuple[str, str, str]]:
    """The scale of the target, unless it is learned as it is."""
    maps = [model.target_map for model in estimator.models_]
    if all(target_map.is_identity for target_map in maps):
        return []
    names = ", ".join(target_map.name for target_map in maps)
    scales = ", ".join(target_map.described for target_map in maps)
    return [("target", names, f"{scales}, on which it is learned")]


def _columns(estimator: Any) -> str:
    outputs = len(estimator.columns_.outputs)
    if outputs == estimator.n_features_in_:
        return ""
    return f"encoded as {outputs} numbers"


def _sizes(estimator: Any) -> list[tuple[str, str, str]]:
    """Numbers of features and of neighbours."""
    features, neighbors = estimator.n_features_, estimator.n_neighbors_
    if not estimator.models_[0].stores_rows:
        return [("features", f"{features}", "spherical harmonics in the solution")]
    return [
        ("features", f"{features}", "global features"),
        ("neighbors", f"{neighbors}", "nearest rows that each row is predicted from"),
        ("stored rows", *_stored(estimator)),
    ]


def _stored(estimator: Any) -> tuple[str, str]:
    tables = [model.statistics for model in estimator.models_]
    megabytes = sum(table.nbytes for table in tables) / 1e6
    return f"{len(tables[0]):,}", f"distinct rows in the model, {megabytes:.3g} MB"


def _bound(per_row: float, stores_rows: bool) -> list[tuple[str, str, str]]:
    """The bound per row, or the density that learning from nearest rows maximises."""
    if not np.isfinite(per_row):
        return []
    value = f"{per_row:.4f}"
    if stores_rows:
        return [("density", value, "leave-one-out log density per row")]
    return [("bound", value, "log evidence per row (lower bound)")]


def _beta(depth: Any) -> str:
    return f", β = {depth.beta:.3g}" if np.isfinite(depth.beta) else ""


def _levels(weights: np.ndarray, total: float) -> list[tuple[str, str, str]]:
    """Shares of the prior variance in the first levels and in all others."""
    shares = weights[:3] / max(total, np.finfo(np.float64).tiny)
    names = ("constant", "linear", "quadratic")
    first_levels = [
        (f"level {level}", f"{share:.1%}", f"of the prior variance ({name})")
        for level, (share, name) in enumerate(zip(shares, names, strict=False))
    ]
    rest = 1 - float(shares.sum())
    rest = f"{max(rest, 0.0):.1%}"
    return [*first_levels, ("levels 3+", rest, "of the prior variance")]


def measure_of(estimator: Any) -> str:
    """The name of what the history of a fitted estimator reports per row."""
    return "log density" if estimator.models_[0].stores_rows else "bound"


def captured_of(estimator: Any) -> list[tuple[str, float]]:
    """Bands whose harmonics are not all features, and the captured share of each.

    Shares are averages over the fitted rows.
    """
    first = estimator.models_[0]
    basis = first.process.basis
    if not basis.incomplete:
        return []
    table = first.statistics.uncaptured
    count = table.count.astype(np.float64)
    total = float(count @ table.prior)
    if total <= 0:
        return []
    uncaptured = count @ table.parts / total
    return [
        (str(basis.bands[index].name), float(1 - share))
        for index, share in zip(basis.incomplete, uncaptured, strict=True)
    ]


def _relevance(estimator: Any) -> list[tuple[str, str, str]]:
    shares = getattr(estimator, "relevance_", None)
    if shares is None:
        return []
    order = np.argsort(-shares, kind="stable")
    names = estimator.columns_.names
    table = [
        (f"column {names[column]}", f"{shares[column]:.1%}", "relevance")
        for column in order[:_MAX_COLUMNS]
    ]
    if len(order) > _MAX_COLUMNS:
        rest = shares[order[_MAX_COLUMNS:]].sum()
        table.append((f"{len(order) - _MAX_COLUMNS} more", f"{rest:.1%}", "relevance"))
    return table
