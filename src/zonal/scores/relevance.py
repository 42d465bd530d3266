"""Relevance of columns by name, the most relevant first."""

from typing import Any

import numpy as np

from zonal.prior.sphere import LatitudeLongitude

__all__ = ["get_column_names", "get_relevance", "rank_columns"]


def get_column_names(model: Any) -> list[str]:
    """Names of the columns; those of an array, which has none, are numbered."""
    if isinstance(model.process_.basis.sphere, LatitudeLongitude):
        defaults = ["latitude", "longitude"]
    else:
        defaults = [f"column {index}" for index in range(model.n_features_in_)]
    pairs = zip(model.columns_.names, defaults, strict=True)
    return [name if isinstance(name, str) else default for name, default in pairs]


def get_relevance(model: Any) -> np.ndarray | None:
    """Relevance of each column; None when rows are points on a sphere."""
    return getattr(model, "relevance_", None)


def rank_columns(model: Any, limit: int = 15) -> list[tuple[str, float]]:
    """Names and relevances of the `limit` most relevant columns, and of the rest.

    Latitude and longitude count as one column.
    """
    relevance = get_relevance(model)
    if relevance is None:
        return []
    names = get_column_names(model)
    kinds = [column.kind for column in model.columns_.columns]
    if "latitude" in kinds:
        latitude, longitude = kinds.index("latitude"), kinds.index("longitude")
        names[latitude] = f"{names[latitude]}, {names[longitude]}"
    order = [
        index
        for index in np.argsort(-relevance, kind="stable")
        if kinds[index] != "longitude"
    ]
    ranked = [(names[index], float(relevance[index])) for index in order[:limit]]
    if len(order) > limit:
        rest = float(relevance[order[limit:]].sum())
        ranked.append((f"{len(order) - limit} more", rest))
    return ranked
