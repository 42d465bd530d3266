"""Relevance of columns, by name, in the order in which people read it."""

from typing import Any

import numpy as np

from zonal.prior.sphere import LatitudeLongitude

__all__ = ["column_names", "relevance_of", "relevances"]


def column_names(model: Any) -> list[str]:
    """What columns are called, with words for those of an array, which have none."""
    if isinstance(model.process_.basis.sphere, LatitudeLongitude):
        unnamed = ("latitude", "longitude")
    else:
        unnamed = [f"column {place}" for place in range(model.n_features_in_)]
    pairs = zip(model.columns_.names, unnamed, strict=True)
    return [name if isinstance(name, str) else other for name, other in pairs]


def relevance_of(model: Any) -> np.ndarray | None:
    """Each column's share in telling rows apart; None where rows are points."""
    return getattr(model, "relevance_", None)


def relevances(model: Any, most: int = 15) -> list[tuple[str, float]]:
    """The most relevant columns; latitude and longitude are one place."""
    shares = relevance_of(model)
    if shares is None:
        return []
    columns = model.columns_.columns
    named = column_names(model)
    kinds = [column.kind for column in columns]
    if "latitude" in kinds:
        pair = (named[kinds.index("latitude")], named[kinds.index("longitude")])
        named[kinds.index("latitude")] = ", ".join(pair)
    order = [
        place
        for place in np.argsort(-shares, kind="stable")
        if columns[place].kind != "longitude"
    ]
    found = [(named[place], float(shares[place])) for place in order[:most]]
    if len(order) > most:
        rest = float(shares[order[most:]].sum())
        found.append((f"{len(order) - most} more", rest))
    return found
