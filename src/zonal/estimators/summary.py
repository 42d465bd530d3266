"""Summaries: what a fitted model has learned, for a person to read."""

import dataclasses
import html
from typing import Any

import numpy as np

__all__ = ["Summary", "captured_of", "summary_of"]

# Columns and levels that a summary tells of.
_MOST = 10


@dataclasses.dataclass(frozen=True)
class Summary:
    """Names and values with a word on what they mean, as text and as HTML."""

    title: str
    rows: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        widths = [max(len(row[place]) for row in self.rows) for place in (0, 1)]
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
    """What a fitted estimator has learned."""
    process, first = estimator.process_, estimator.models_[0]
    basis, depth = process.basis, estimator.depth_
    rows = first.statistics.rows
    table = [
        ("rows", f"{rows:,.0f}", "counted by weight"),
        ("columns", f"{estimator.n_features_in_}", _columns(estimator)),
        ("features", f"{basis.n_features}", "spherical harmonics to solve with"),
        (
            "depth",
            f"{depth.layers}",
            f"hidden layers of the nearest network{_beta(depth)}",
        ),
        (
            "bound",
            f"{estimator.bound_ / max(rows, 1):.4f}",
            "log evidence a row, at least",
        ),
        ("steps", f"{estimator.n_iter_}", "of learning"),
    ]
    noise = getattr(estimator, "noise_", None)
    if noise is not None and np.all(np.isfinite(noise)):
        value = ", ".join(f"{one:.4g}" for one in np.atleast_1d(noise))
        table.append(("noise", value, "standard deviation, in the target's units"))
    table.append(first.likelihood.described)
    whole = float(basis.variance) * basis.total_energy
    table += _levels(estimator.level_weights_, whole)
    table += [
        (f"band {name}", f"{share:.2%}", "captured by its features")
        for name, share in captured_of(estimator)
    ]
    table += _relevance(estimator)
    return Summary(type(estimator).__name__, tuple(table))


def _columns(estimator: Any) -> str:
    outputs = len(estimator.columns_.outputs)
    if outputs == estimator.n_features_in_:
        return ""
    return f"as {outputs} numbers"


def _beta(depth: Any) -> str:
    return f", β = {depth.beta:.3g}" if np.isfinite(depth.beta) else ""


def _levels(weights: np.ndarray, whole: float) -> list[tuple[str, str, str]]:
    """Shares of the first levels and of all others in the prior variance."""
    shares = weights[:3] / max(whole, np.finfo(np.float64).tiny)
    names = ("constant", "linear", "quadratic")
    found = [
        (f"level {level}", f"{share:.1%}", f"of the prior variance ({name})")
        for level, (share, name) in enumerate(zip(shares, names, strict=False))
    ]
    rest = 1 - float(shares.sum())
    return [*found, ("levels 3 up", f"{max(rest, 0.0):.1%}", "of the prior variance")]


def captured_of(estimator: Any) -> list[tuple[str, float]]:
    """Bands whose harmonics are not all features, and how much of each is captured.

    An average over the rows that were fitted to.
    """
    first = estimator.models_[0]
    basis = first.process.basis
    if not basis.incomplete:
        return []
    table = first.statistics.uncaptured
    count = table.count.astype(np.float64)
    whole = float(count @ table.prior)
    if whole <= 0:
        return []
    lost = count @ table.parts / whole
    return [
        (str(basis.bands[index].name), float(1 - share))
        for index, share in zip(basis.incomplete, lost, strict=True)
    ]


def _relevance(estimator: Any) -> list[tuple[str, str, str]]:
    shares = getattr(estimator, "relevance_", None)
    if shares is None:
        return []
    order = np.argsort(-shares, kind="stable")
    names = estimator.columns_.names
    found = [
        (f"column {names[place]}", f"{shares[place]:.1%}", "relevance")
        for place in order[:_MOST]
    ]
    if len(order) > _MOST:
        rest = shares[order[_MOST:]].sum()
        found.append((f"{len(order) - _MOST} more", f"{rest:.1%}", "relevance"))
    return found
