"""`zonal demo`: train on a small real table, print a summary and write a report."""

from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
from sklearn.datasets import load_diabetes

from zonal.cli.depth_figure import draw_depth_figure
from zonal.cli.options import out_option
from zonal.estimators.regressor import SphericalGPRegressor
from zonal.report.writing import write_report

__all__ = ["demo", "run_demo"]


@click.command()
@out_option(default="demo", show_default=True, help="Folder to write to.")
def demo(out: str) -> None:
    """Train on a small built-in table, predict, and write a report.

    \b
    Example:
      zonal demo --out demo
    """
    run_demo(Path(out))


def run_demo(folder: Path) -> None:
    """Train on scikit-learn's diabetes table and write a report to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data: Any = load_diabetes(scaled=False)
    table = pa.table(dict(zip(data.feature_names, data.data.T, strict=True)))
    is_test = np.random.default_rng(0).random(len(table)) < 0.25
    train, test = table.filter(~is_test), table.filter(is_test)
    y, y_test = data.target[~is_test], data.target[is_test]
    print(
        f"Disease progression of {len(train)} diabetes patients after one year, "
        f"predicted from {table.num_columns} columns\n"
    )
    model = SphericalGPRegressor().fit(train, y)
    print(model.summary())
    low, high = model.predict_interval(test, coverage=0.9).T
    covered = np.mean((low < y_test) & (y_test < high))
    print(
        f"\n{len(test)} test patients: R² {model.score(test, y_test):.2f}, "
        f"{covered:.0%} inside their 90 % intervals"
    )
    title = "Diabetes progression after one year"
    write_report(model, test, y_test, folder / "report.html", title=title)
    draw_depth_figure(folder / "depth.png")
    print(f"\nreport: {folder / 'report.html'}\nfigure: {folder / 'depth.png'}")
