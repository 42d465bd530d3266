"""`zonal fit`: from a file to a model that has been checked."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from zonal.cli.data import (
    Part,
    TargetLook,
    Watched,
    answered,
    check_roles,
    checked_output,
    guessed_task,
    left_out,
    look_at,
    opened,
)
from zonal.cli.options import (
    TIME,
    data_argument,
    delimiter_option,
    json_option,
    out_option,
    quiet_option,
    weight_option,
)
from zonal.cli.progress import Display
from zonal.cli.scores import metric_lines
from zonal.cli.using import some_rows
from zonal.cli.words import counted, duration, lines_of, note, print_json
from zonal.estimators.base import SphericalGP
from zonal.estimators.classifier import SphericalGPClassifier
from zonal.estimators.regressor import SphericalGPRegressor
from zonal.report.writing import write_report
from zonal.scores.batches import measured
from zonal.scores.relevance import relevances
from zonal.tables.batches import BatchReader, check_columns

__all__ = ["fit"]

# Tasks, and how their targets may scatter; the first is what they do by default.
_LIKELIHOODS = {
    "regression": ("gaussian", "student-t", "heteroscedastic"),
    "classification": ("logit", "probit", "softmax"),
    "counts": ("negative-binomial", "poisson"),
}
_MOST_COLUMNS = 5


@click.command(epilog="Rows without a target are left out, and gaps in columns filled.")
@data_argument
@click.option("-t", "--target", required=True, help="The column to be predicted.")
@out_option(default="model.zonal", show_default=True, help="The model to write.")
@click.option(
    "--task",
    type=click.Choice(["auto", *_LIKELIHOODS]),
    default="auto",
    show_default=True,
    help="What the target is; auto tells by its values.",
)
@click.option(
    "--test",
    "test_file",
    type=click.Path(),
    help="Rows to test on, instead of some of DATA.",
)
@click.option(
    "--test-share",
    type=click.FloatRange(0, 0.9),
    default=0.2,
    show_default=True,
    help="Share of DATA to keep aside and test on.",
)
@click.option(
    "--report",
    "report_file",
    type=click.Path(),
    help="An HTML report of the test to write.",
)
@weight_option
@click.option("--drop", multiple=True, help="A column to leave out, such as an id.")
@click.option(
    "--place",
    nargs=2,
    metavar="LAT LON",
    help="Columns of latitude and longitude, in degrees.",
)
@click.option(
    "--likelihood",
    type=click.Choice([name for names in _LIKELIHOODS.values() for name in names]),
    help="How targets scatter, if not as the task has it.",
)
@click.option(
    "--features",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    help="Spherical harmonics to learn with: more are finer, and slower.",
)
@click.option(
    "--solve-features",
    type=click.IntRange(1),
    help="Features to solve with, after learning with fewer: slower, finer. By default "
    "up to four times as many, as long as a pass over the rows takes seconds.",
)
@click.option("--max-time", type=TIME, help="Time to learn for, such as 90s or 2m.")
@click.option(
    "--checkpoint",
    type=click.Path(),
    help="A file to keep progress in; the same command goes on from it.",
)
@delimiter_option
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="For all random choices.",
)
@quiet_option
@json_option
def fit(
    data: tuple[str, ...],
    target: str,
    out: str,
    task: str,
    test_file: str | None,
    test_share: float,
    report_file: str | None,
    weight: str | None,
    drop: tuple[str, ...],
    place: tuple[str, str] | None,
    likelihood: str | None,
    features: int,
    solve_features: int | None,
    max_time: float | None,
    checkpoint: str | None,
    delimiter: str | None,
    seed: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Train a model on DATA and check it on rows kept aside.

    DATA is a CSV, Parquet or Feather file, several, or a folder of them; - is CSV from
    the standard input. Tables larger than memory are read in passes. Ctrl-C stops
    learning and keeps the best model so far.

    \b
    Examples:
      zonal fit houses.csv --target price
      zonal fit flights/ -t delayed --drop id --max-time 5m --report flights.html
    """
    begin = time.monotonic()
    others = [*data, *([] if test_file is None else [test_file])]
    path = checked_output(out, *others)
    if report_file is not None:
        checked_output(report_file, *others, out)
    stream = opened(data, delimiter)
    named = [target, weight, *(place or ())]
    check_roles(*named)
    check_columns(stream, [*(name for name in named if name is not None), *drop])
    if wanted := [name for name in named if name in drop]:
        raise ValueError(f"column {wanted[0]!r} is needed; do not --drop it")
    names = _ordered(stream, drop, place)
    test: BatchReader | None = None
    if test_file is not None:
        test, test_share = opened([test_file], delimiter), 0.0
        check_columns(test, names)
    with Display(quiet, max_time) as display:
        rows = Watched(stream, display.rows)
        look = look_at(rows, target, test_share, seed, place or ())
        task = _task(task, likelihood, look, display)
        _say_rows(display, look)
        model = _model(task, likelihood, names, target, weight, place)
        model.set_params(
            n_features=features,
            solve_features=solve_features,
            max_time=max_time,
            random_state=seed,
            callbacks=[display.step],
        )
        rows = Watched(Part(stream, look, names, test_share, seed), display.rows)
        model.fit(rows, target=target, weight=weight, checkpoint=checkpoint)
        model.save(path)
        metrics: dict[str, Any] = {}
        with _kept(path):
            if test is not None:
                test = answered(test, model, target, weight, display.say)
            elif look.test_rows:
                test = Part(stream, look, names, test_share, seed, test=True)
            if test is not None:
                metrics = measured(model, Watched(test, display.rows), target, weight)
                model.save(path, metrics)
            seconds = time.monotonic() - begin
            if report_file is not None and test is not None:
                table, y, weights = some_rows(model, test, target, weight, display.say)
                write_report(model, table, y, report_file, sample_weight=weights)
    if as_json:
        print_json(_results(model, task, metrics, look, seconds, path))
        return
    click.echo(lines_of(_lines(model, metrics, look, seconds)))
    click.echo(f"\nmodel: {path}")
    if report_file is not None:
        none = "not written, for want of rows to test on"
        click.echo(f"report: {none if test is None else report_file}")


@contextlib.contextmanager
def _kept(path: Path) -> Iterator[None]:
    """The model is there, whatever happens while it is tested."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"the model is in {path}, but its test was not finished")
        raise
    except ValueError as error:
        raise ValueError(
            f"the model is in {path}, but it could not be tested: {error}"
        ) from error


def _task(task: str, likelihood: str | None, look: TargetLook, display: Display) -> str:
    """What the target is: as it was said, as a likelihood implies, or as it looks."""
    if likelihood is not None:
        fits = [one for one, names in _LIKELIHOODS.items() if likelihood in names]
        if task not in ("auto", *fits):
            raise ValueError(f"--likelihood {likelihood} is for --task {fits[0]}")
        return fits[0]
    if task != "auto":
        return task
    task, why = guessed_task(look)
    display.say(f"{look.name!r} is taken for {task}, because {why} (see --task)")
    return task


def _say_rows(display: Display, look: TargetLook) -> None:
    if look.missing:
        display.say(left_out(look))
    aside = ", none kept aside to test on"
    if look.test_rows:
        aside = f", {look.test_rows:,} kept aside to test on"
    display.say(f"{counted(look.rows, 'row')} to learn from{aside}")


def _ordered(
    stream: BatchReader, drop: tuple[str, ...], place: tuple[str, str] | None
) -> list[str]:
    """Columns that are kept; a place is latitude first."""
    first = list(place or ())
    return [*first, *(n for n in stream.names if n not in drop and n not in first)]


def _model(
    task: str,
    likelihood: str | None,
    names: list[str],
    target: str,
    weight: str | None,
    place: tuple[str, str] | None,
) -> SphericalGP:
    geometry: Any = place
    if place is not None and set(names) <= {*place, target, weight}:
        geometry = "sphere"
    kind = SphericalGPClassifier if task == "classification" else SphericalGPRegressor
    if likelihood is None:
        likelihood = _LIKELIHOODS["counts"][0] if task == "counts" else "auto"
    return kind(likelihood=likelihood, missing="indicator", geometry=geometry)


def _lines(
    model: Any, metrics: dict[str, Any], look: TargetLook, seconds: float
) -> list[tuple[str, str, str]]:
    """What a person wants to know first."""
    depth = model.depth_
    found = [("rows", f"{look.rows:,}", f"learned from in {duration(seconds)}")]
    found += metric_lines(metrics) if metrics else []
    words = "hidden layers of the nearest network; deeper is rougher"
    found.append(("depth", f"{depth.layers}", words))
    found += [
        (name, f"{share:.1%}", "relevance")
        for name, share in relevances(model, _MOST_COLUMNS)
    ]
    return found


def _results(
    model: Any,
    task: str,
    metrics: dict[str, Any],
    look: TargetLook,
    seconds: float,
    path: Path,
) -> dict[str, Any]:
    depth = model.depth_
    return {
        "model": str(path),
        "task": task,
        "target": look.name,
        "rows": look.rows,
        "rows_without_target": look.missing,
        "test": metrics,
        "depth": {"beta": depth.beta, "layers": depth.layers},
        "relevance": dict(relevances(model, model.n_features_in_)),
        "bound": model.bound_,
        "seconds": seconds,
    }
