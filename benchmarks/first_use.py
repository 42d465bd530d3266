"""Default fits of a new user on real tables: incomes and heights of the earth.

    python benchmarks/first_use.py adult
    python benchmarks/first_use.py earth [--report report.html]

``adult``: UCI's adult, with strings and missing values ("?"), a fifth of the rows for
testing.
``earth``: heights of the earth at one degree (ETOPO, NOAA), a fifth for testing.

`zonal_bench.tables` lists the sources of the data.
"""

import argparse
import datetime
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sklearn.metrics import log_loss, roc_auc_score
from zonal_bench.tables import find_data_folder

from zonal import SphericalGPClassifier, SphericalGPRegressor, write_report


def split_table(folder: Path, name: str, target: str):
    """Inputs and targets of the training rows, then of the test rows."""
    table = pq.read_table(folder / f"{name}.parquet")
    for index, column in enumerate(table.column_names):
        if "string" in str(table[column].type) and column != target:
            known = pc.if_else(pc.equal(table[column], "?"), None, table[column])  # pyright: ignore
            table = table.set_column(index, column, known)
    test = np.random.default_rng(0).random(len(table)) < 0.2
    for rows in (table.filter(~test), table.filter(test)):
        yield rows.drop_columns([target]), rows[target].to_numpy()


def adult(folder: Path, report: str | None) -> None:
    (X, y), (X_test, y_test) = split_table(folder, "adult", "income")
    begin = time.perf_counter()
    model = SphericalGPClassifier(missing="indicator").fit(X, y)
    seconds = time.perf_counter() - begin
    probabilities = model.predict_proba(X_test)
    auc = roc_auc_score(y_test, probabilities[:, 1])
    print(
        f"  {len(y):,} rows as {len(model.columns_.outputs)} numbers, {seconds:.0f} s"
    )
    print(f"  accuracy {np.mean(model.predict(X_test) == y_test):.4f} (majority class")
    print(f"  {np.mean(y_test == y_test.min()):.4f}), AUC {auc:.4f}, log loss ", end="")
    print(f"{log_loss(y_test, probabilities):.4f}")
    if report is not None:
        write_report(model, X_test, y_test, report, title="Incomes")


def earth(folder: Path, report: str | None) -> None:
    (X, y), (X_test, y_test) = split_table(folder, "etopo60", "elevation")
    begin = time.perf_counter()
    model = SphericalGPRegressor(1024, geometry="sphere").fit(X, y)
    seconds = time.perf_counter() - begin
    mean = model.predict(X_test)
    low, high = model.predict_interval(X_test, coverage=0.9).T
    error = np.sqrt(np.mean((mean - y_test) ** 2))
    print(f"  {len(y):,} locations, {seconds:.0f} s, depth {model.depth_.layers}")
    print(
        f"  RMSE {error:.0f} m, standard deviation {y_test.std():.0f} m, "
        f"coverage of 90 % {np.mean((low < y_test) & (y_test < high)):.3f}"
    )
    if report is not None:
        write_report(model, X_test, y_test, report, title="Heights of the earth")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["adult", "earth"])
    parser.add_argument("--report")
    parser.add_argument("--data")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{options.what}: {os.cpu_count()} cores, {datetime.date.today()}")
    part = {"adult": adult, "earth": earth}[options.what]
    part(find_data_folder(options.data), options.report)


if __name__ == "__main__":
    main()
