"""A first look: train on a small real table, print what was learned, write a report."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.datasets import load_diabetes

from zonal.cli.depth_figure import depth_figure
from zonal.estimators.regressor import SphericalGPRegressor
from zonal.report.writing import write_report

__all__ = ["main"]


def main(folder: Path) -> None:
    """Train on the diabetes table that scikit-learn ships, and report in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data: Any = load_diabetes(scaled=False)
    table = pa.table(dict(zip(data.feature_names, data.data.T, strict=True)))
    test = np.random.default_rng(0).random(len(table)) < 0.25
    people, others = table.filter(~test), table.filter(test)
    y, y_test = data.target[~test], data.target[test]
    print(
        f"Diabetes of {len(people)} people a year on, from {table.num_columns} facts\n"
    )
    model = SphericalGPRegressor().fit(people, y)
    print(model.summary())
    low, high = model.predict_interval(others, coverage=0.9).T
    inside = np.mean((low < y_test) & (y_test < high))
    print(
        f"\n{len(others)} other people: R² {model.score(others, y_test):.2f}, "
        f"{inside:.0%} of them inside the intervals that promise 90 %"
    )
    title = "Diabetes, one year on"
    write_report(model, others, y_test, folder / "report.html", title=title)
    depth_figure(folder / "depth.png")
    print(f"\nreport: {folder / 'report.html'}\nfigure: {folder / 'depth.png'}")
