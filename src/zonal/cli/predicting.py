"""`zonal predict`, `evaluate` and `report`: a fitted model applied to rows."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from zonal.cli.data import (
    ProgressReader,
    check_output_path,
    open_tables,
    select_labelled_rows,
)
from zonal.cli.metrics import describe_metrics
from zonal.cli.options import (
    data_argument,
    delimiter_option,
    json_option,
    model_argument,
    out_option,
    quiet_option,
    target_option,
    weight_option,
)
from zonal.cli.output import format_count, format_table, print_json, print_note
from zonal.cli.progress import ProgressDisplay
from zonal.estimators.classifier import SphericalGPClassifier
from zonal.estimators.loading import load
from zonal.report.writing import write_report
from zonal.scores.streaming import score_stream
from zonal.tables.batches import (
    BatchReader,
    check_columns,
    prefix_errors,
    read_ahead,
    values_of,
)

__all__ = ["choose_target", "evaluate", "predict", "report", "sample_rows"]

_MOST_REPORT_ROWS = 200_000


@click.command()
@model_argument
@data_argument
@out_option(
    default="-",
    help="A .parquet or .csv file to write; by default CSV on the standard output.",
)
@click.option(
    "--coverage",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.9,
    show_default=True,
    help="Coverage of the interval from lower to upper.",
)
@click.option(
    "--id", "ids", multiple=True, help="Column to copy to the output; repeatable."
)
@delimiter_option
@quiet_option
def predict(
    model: str,
    data: tuple[str, ...],
    out: str,
    coverage: float,
    ids: tuple[str, ...],
    delimiter: str | None,
    quiet: bool,
) -> None:
    """Predict the rows of DATA with MODEL.

    Regression writes the columns mean, std, lower and upper; classification writes
    class and one probability per class, such as p_yes. DATA is read in batches; - is
    CSV from the standard input.

    \b
    Examples:
      zonal predict houses.zonal new.csv --out prices.parquet --id address
      cat new.csv | zonal predict houses.zonal - > prices.csv
    """
    path = None if out == "-" else check_output_path(out, model, *data)
    if path is not None and path.suffix.lower() not in (".parquet", ".csv"):
        raise ValueError(f"{path} must end in .parquet or .csv")
    fitted = load(model)
    stream = open_tables(data, delimiter)
    with ProgressDisplay(quiet or path is None) as display:
        rows = ProgressReader(stream, display.show_rows)
        count = _write_tables(_predict_batches(fitted, rows, coverage, ids), path)
    if path is not None and not quiet:
        print_note(f"{format_count(count, 'prediction')} written to {path}")


def _predict_batches(
    model: Any, stream: BatchReader, coverage: float, ids: Sequence[str]
) -> Iterator[pa.Table]:
    """Tables of predictions, one for each batch."""
    inputs, ids = model.columns_.input_names, list(dict.fromkeys(ids))
    check_columns(stream, [*inputs, *ids])
    to_read = list(dict.fromkeys([*inputs, *ids]))
    for frame, origin, _ in read_ahead(stream.batches(to_read)):
        batch = nw.from_native(frame, eager_only=True)
        with prefix_errors(origin):
            table = _predict_table(model, batch.select(inputs).to_native(), coverage)
        for name in reversed(ids):
            if name in table.column_names:
                raise ValueError(
                    f"--id {name} has the name of a column of predictions; rename it"
                )
            table = table.add_column(0, name, batch.get_column(name).to_arrow())
        yield table


def _predict_table(model: Any, table: Any, coverage: float) -> pa.Table:
    if isinstance(model, SphericalGPClassifier):
        probabilities = model.predict_proba(table)
        classes = model.classes_[probabilities.argmax(axis=1)]
        columns = {"class": pa.array(classes)}
        for index, name in enumerate(model.classes_):
            columns[f"p_{name}"] = pa.array(probabilities[:, index])
        return pa.table(columns)
    predicted = model.predict_dist(table)
    distributions = predicted if isinstance(predicted, list) else [predicted]
    columns = {}
    for index, distribution in enumerate(distributions):
        suffix = f"_{index}" if len(distributions) > 1 else ""
        interval = distribution.interval(coverage)
        columns |= {
            f"mean{suffix}": pa.array(distribution.mean()),
            f"std{suffix}": pa.array(distribution.std()),
            f"lower{suffix}": pa.array(np.asarray(interval[:, 0], np.float64)),
            f"upper{suffix}": pa.array(np.asarray(interval[:, 1], np.float64)),
        }
    return pa.table(columns)


def _write_tables(tables: Iterator[pa.Table], path: Path | None) -> int:
    """Write tables one after another; a file appears complete or not at all."""
    temporary = None if path is None else Path(f"{path}.part")
    sink: Any = sys.stdout.buffer if temporary is None else str(temporary)
    parquet = path is not None and path.suffix.lower() == ".parquet"
    writer_class = pq.ParquetWriter if parquet else pc.CSVWriter
    writer, rows = None, 0
    try:
        for table in tables:
            if writer is None:
                writer = writer_class(sink, table.schema)
            writer.write_table(table)
            rows += len(table)
        if writer is None:
            raise ValueError("the table has no rows; give at least one")
        writer.close()
        if temporary is not None and path is not None:
            temporary.replace(path)
    except BaseException:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise
    return rows


@click.command()
@model_argument
@data_argument
@target_option
@weight_option
@delimiter_option
@quiet_option
@json_option
def evaluate(
    model: str,
    data: tuple[str, ...],
    target: str | None,
    weight: str | None,
    delimiter: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Score MODEL on the rows of DATA, which include the target.

    \b
    Example:
      zonal evaluate houses.zonal sold-this-year.csv
    """
    fitted = load(model)
    target = choose_target(fitted, target)
    stream = open_tables(data, delimiter)
    with ProgressDisplay(quiet) as display:
        labelled = select_labelled_rows(
            stream, fitted, target, weight, display.print_line
        )
        rows = ProgressReader(labelled, display.show_rows)
        metrics = score_stream(fitted, rows, target, weight)
    if as_json:
        print_json(metrics)
    else:
        click.echo(format_table(describe_metrics(metrics)))


@click.command()
@model_argument
@data_argument
@out_option(default="report.html", show_default=True, help="File to write.")
@click.option("--title", help="Title of the report.")
@target_option
@weight_option
@delimiter_option
def report(
    model: str,
    data: tuple[str, ...],
    out: str,
    title: str | None,
    target: str | None,
    weight: str | None,
    delimiter: str | None,
) -> None:
    """Write an HTML report of MODEL on DATA, rows that were not used to fit it.

    The report is one file that needs no network: scores, calibration, the rows with
    the largest errors, relevance of columns, partial dependence and the model itself.
    Tables with more than 200,000 rows are sampled at random.

    \b
    Example:
      zonal report houses.zonal sold-this-year.csv --out houses.html
    """
    path = check_output_path(out, model, *data)
    fitted = load(model)
    target = choose_target(fitted, target)
    stream = open_tables(data, delimiter)
    labelled = select_labelled_rows(stream, fitted, target, weight, print_note)
    table, y, weights = sample_rows(fitted, labelled, target, weight, print_note)
    write_report(fitted, table, y, path, title=title, sample_weight=weights)
    click.echo(f"report: {path}")


def choose_target(model: Any, target: str | None) -> str:
    """The target column: as given, or as named when the model was fitted."""
    name = target or model.target_name_
    if name is None:
        raise ValueError("the model does not store a target name; pass --target")
    return name


def sample_rows(
    model: Any,
    stream: BatchReader,
    target: str,
    weight: str | None,
    print_line: Callable[[str], None],
) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """Rows with targets and weights in memory: all, or a random sample for a report."""
    inputs = model.columns_.input_names
    needed = [*inputs, target, *([] if weight is None else [weight])]
    count = stream.n_rows
    share = 1.0 if not count else min(_MOST_REPORT_ROWS / count, 1.0)
    generator = np.random.default_rng([*b"report"])
    frames = []
    for batch in stream.batches(needed):
        frame = nw.from_native(batch.frame, eager_only=True)
        if share < 1:
            frame = frame.filter((generator.random(len(frame)) < share).tolist())
        frames.append(frame)
    if not frames:
        raise ValueError("the table has no rows; give at least one")
    if share < 1:
        used = sum(map(len, frames))
        print_line(f"the report uses {used:,} of {count:,} rows, chosen at random")
    sample = nw.concat(frames)
    native = sample.to_native()
    weights = None if weight is None else values_of(native, weight)
    return sample.select(inputs).to_native(), values_of(native, target), weights
