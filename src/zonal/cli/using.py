"""`zonal predict`, `zonal evaluate` and `zonal report`: what a model says of rows."""

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

from zonal.cli.data import Watched, answered, checked_output, opened
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
from zonal.cli.progress import Display
from zonal.cli.scores import metric_lines
from zonal.cli.words import counted, lines_of, note, print_json
from zonal.estimators.classifier import SphericalGPClassifier
from zonal.estimators.loading import load
from zonal.report.writing import write_report
from zonal.scores.batches import measured
from zonal.tables.batches import (
    BatchReader,
    check_columns,
    prefix_errors,
    read_ahead,
    values_of,
)

__all__ = ["evaluate", "predict", "report", "some_rows", "target_of"]

# Rows of a report at most: its figures show no more.
_MOST_ROWS = 200_000


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
    help="Share of new targets that lie between lower and upper.",
)
@click.option(
    "--id", "kept", multiple=True, help="A column to keep beside the predictions."
)
@delimiter_option
@quiet_option
def predict(
    model: str,
    data: tuple[str, ...],
    out: str,
    coverage: float,
    kept: tuple[str, ...],
    delimiter: str | None,
    quiet: bool,
) -> None:
    """Predict the rows of DATA with MODEL.

    Numbers get the columns mean, std, lower and upper; classes get class and a
    probability for each, such as p_yes. DATA is read a batch at a time; - is CSV from
    the standard input.

    \b
    Examples:
      zonal predict houses.zonal new.csv --out prices.parquet --id address
      cat new.csv | zonal predict houses.zonal - > prices.csv
    """
    path = None if out == "-" else checked_output(out, model, *data)
    if path is not None and path.suffix.lower() not in (".parquet", ".csv"):
        raise ValueError(f"{path} is neither a .parquet nor a .csv file; name one")
    fitted = load(model)
    stream = opened(data, delimiter)
    with Display(quiet or path is None) as display:
        watched = Watched(stream, display.rows)
        rows = _write(_predictions(fitted, watched, coverage, kept), path)
    if path is not None and not quiet:
        note(f"{counted(rows, 'prediction')} in {path}")


def _predictions(
    model: Any, stream: BatchReader, coverage: float, ids: Sequence[str]
) -> Iterator[pa.Table]:
    """Tables of predictions, one for each batch."""
    inputs, kept = model.columns_.input_names, list(dict.fromkeys(ids))
    check_columns(stream, [*inputs, *kept])
    read = list(dict.fromkeys([*inputs, *kept]))
    for frame, origin, _ in read_ahead(stream.batches(read)):
        batch = nw.from_native(frame, eager_only=True)
        with prefix_errors(origin):
            said = _said(model, batch.select(inputs).to_native(), coverage)
        for name in reversed(kept):
            column = batch.get_column(name).to_arrow()
            if name in said.column_names:
                raise ValueError(
                    f"--id {name} has the name of a column of predictions; rename it"
                )
            said = said.add_column(0, name, column)
        yield said


def _said(model: Any, table: Any, coverage: float) -> pa.Table:
    if isinstance(model, SphericalGPClassifier):
        chance = model.predict_proba(table)
        columns = {"class": pa.array(model.classes_[chance.argmax(axis=1)])}
        for place, name in enumerate(model.classes_):
            columns[f"p_{name}"] = pa.array(chance[:, place])
        return pa.table(columns)
    found = model.predict_dist(table)
    several = found if isinstance(found, list) else [found]
    columns = {}
    for place, one in enumerate(several):
        end = f"_{place}" if len(several) > 1 else ""
        ends = one.interval(coverage)
        columns |= {
            f"mean{end}": pa.array(one.mean()),
            f"std{end}": pa.array(one.std()),
            f"lower{end}": pa.array(np.asarray(ends[:, 0], np.float64)),
            f"upper{end}": pa.array(np.asarray(ends[:, 1], np.float64)),
        }
    return pa.table(columns)


def _write(tables: Iterator[pa.Table], path: Path | None) -> int:
    """Write tables one below the other; the file appears as a whole or not at all."""
    beside = None if path is None else Path(f"{path}.part")
    sink: Any = sys.stdout.buffer if beside is None else str(beside)
    parquet = path is not None and path.suffix.lower() == ".parquet"
    kind = pq.ParquetWriter if parquet else pc.CSVWriter
    writer, rows = None, 0
    try:
        for table in tables:
            if writer is None:
                writer = kind(sink, table.schema)
            writer.write_table(table)
            rows += len(table)
        if writer is None:
            raise ValueError("the table has no rows; give it at least one")
        writer.close()
        if beside is not None and path is not None:
            beside.replace(path)
    except BaseException:
        if beside is not None:
            beside.unlink(missing_ok=True)
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
    """Measure MODEL on the rows of DATA, which have their targets beside them.

    \b
    Example:
      zonal evaluate houses.zonal sold-this-year.csv
    """
    fitted = load(model)
    target = target_of(fitted, target)
    stream = opened(data, delimiter)
    with Display(quiet) as display:
        stream = answered(stream, fitted, target, weight, display.say)
        metrics = measured(fitted, Watched(stream, display.rows), target, weight)
    if as_json:
        print_json(metrics)
    else:
        click.echo(lines_of(metric_lines(metrics)))


@click.command()
@model_argument
@data_argument
@out_option(default="report.html", show_default=True, help="The file to write.")
@click.option("--title", help="What stands at the top.")
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
    """Write an HTML report of MODEL on DATA, rows that it was not fitted to.

    One file that needs no network: errors, calibration, what was learned, what columns
    do, the rows predicted worst. Of tables with more than 200,000 rows, as many are
    drawn at random.

    \b
    Example:
      zonal report houses.zonal sold-this-year.csv --out houses.html
    """
    path = checked_output(out, model, *data)
    fitted = load(model)
    target = target_of(fitted, target)
    stream = answered(opened(data, delimiter), fitted, target, weight, note)
    table, y, weights = some_rows(fitted, stream, target, weight, note)
    write_report(fitted, table, y, path, title=title, sample_weight=weights)
    click.echo(f"report: {path}")


def target_of(model: Any, target: str | None) -> str:
    """The column with the target: as it is said, or as it was when fitted."""
    name = target or model.target_name_
    if name is None:
        raise ValueError(
            "the model does not know what its target is called; name it by --target"
        )
    return name


def some_rows(
    model: Any,
    stream: BatchReader,
    target: str,
    weight: str | None,
    say: Callable[[str], None],
) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """Rows with targets and weights in memory: all, or as many as a report needs."""
    inputs = model.columns_.input_names
    read = [*inputs, target, *([] if weight is None else [weight])]
    count = stream.n_rows
    share = 1.0 if not count else min(_MOST_ROWS / count, 1.0)
    generator = np.random.default_rng([*b"report"])
    frames = []
    for batch in stream.batches(read):
        frame = nw.from_native(batch.frame, eager_only=True)
        if share < 1:
            frame = frame.filter((generator.random(len(frame)) < share).tolist())
        frames.append(frame)
    if not frames:
        raise ValueError("the table has no rows; give it at least one")
    if share < 1:
        say(f"of {count:,} rows, {sum(map(len, frames)):,} are looked at")
    whole = nw.concat(frames)
    native = whole.to_native()
    weights = None if weight is None else values_of(native, weight)
    return whole.select(inputs).to_native(), values_of(native, target), weights
