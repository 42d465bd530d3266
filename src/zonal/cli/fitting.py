"""`zonal fit`: train a model on a file and test it."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from zonal.cli.data import (
    ProgressReader,
    RowSubset,
    TargetProfile,
    check_distinct,
    check_output_path,
    describe_dropped_rows,
    guess_task,
    open_tables,
    profile_target,
    select_labelled_rows,
)
from zonal.cli.metrics import describe_metrics
from zonal.cli.options import (
    DURATION,
    data_argument,
    delimiter_option,
    json_option,
    out_option,
    quiet_option,
    weight_option,
)
from zonal.cli.output import (
    format_count,
    format_duration,
    format_table,
    print_json,
    print_note,
)
from zonal.cli.predicting import sample_rows
from zonal.cli.progress import ProgressDisplay
from zonal.estimators.base import SphericalGP
from zonal.estimators.classifier import SphericalGPClassifier
from zonal.estimators.regressor import SphericalGPRegressor
from zonal.report.writing import write_report
from zonal.scores.relevance import rank_columns
from zonal.scores.streaming import score_stream
from zonal.tables.batches import BatchReader, check_columns

__all__ = ["fit"]

# Likelihoods of each task; the first is its default.
_LIKELIHOODS = {
    "regression": ("gaussian", "student-t", "heteroscedastic"),
    "classification": ("logit", "probit", "softmax"),
    "counts": ("negative-binomial", "poisson"),
}
_MOST_COLUMNS = 5


@click.command(
    epilog="Rows without a target are dropped; missing values elsewhere are imputed, "
    "with an indicator column."
)
@data_argument
@click.option("-t", "--target", required=True, help="Column to predict.")
@out_option(default="model.zonal", show_default=True, help="Model to write.")
@click.option(
    "--task",
    type=click.Choice(["auto", *_LIKELIHOODS]),
    default="auto",
    show_default=True,
    help="Kind of target; auto decides by its values.",
)
@click.option(
    "--test",
    "test_file",
    type=click.Path(),
    help="File with test rows, instead of a share of DATA.",
)
@click.option(
    "--test-share",
    type=click.FloatRange(0, 0.9),
    default=0.2,
    show_default=True,
    help="Share of DATA to hold out for testing.",
)
@click.option(
    "--report",
    "report_file",
    type=click.Path(),
    help="HTML report to write, on the test rows.",
)
@weight_option
@click.option(
    "--drop", multiple=True, help="Column to ignore, such as an id; repeatable."
)
@click.option(
    "--place",
    "coordinates",
    nargs=2,
    metavar="LAT LON",
    help="Columns of latitude and longitude, in degrees.",
)
@click.option(
    "--likelihood",
    type=click.Choice([name for names in _LIKELIHOODS.values() for name in names]),
    help="Distribution of the target, if not the default of the task.",
)
@click.option(
    "--target-transform",
    type=click.Choice(["auto", "none", "log", "logit", "yeo-johnson"]),
    default="auto",
    show_default=True,
    help="Scale on which the target of a regression is learned: log for positive "
    "targets, logit for shares or percentages, yeo-johnson for other skewed ones.",
)
@click.option(
    "--features",
    type=click.IntRange(0),
    help="Number of global features; by default the number that predicts best. With "
    "--neighbors 0, the number of features to learn with, 512 by default.",
)
@click.option(
    "--neighbors",
    type=click.IntRange(0),
    help="Number of nearest rows to predict from, for regression; by default the "
    "number that predicts best. The model file then contains the rows; 0 uses features "
    "alone.",
)
@click.option(
    "--solve-features",
    type=click.IntRange(1),
    help="Number of features to solve with after learning, without neighbours. By "
    "default up to four times --features, as long as a pass over the rows takes "
    "seconds.",
)
@click.option(
    "--max-time", type=DURATION, help="Time limit for learning, such as 90s or 2m."
)
@click.option(
    "--checkpoint",
    type=click.Path(),
    help="File to save progress to; the same command resumes from it.",
)
@delimiter_option
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Random seed.",
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
    coordinates: tuple[str, str] | None,
    likelihood: str | None,
    target_transform: str,
    features: int | None,
    neighbors: int | None,
    solve_features: int | None,
    max_time: float | None,
    checkpoint: str | None,
    delimiter: str | None,
    seed: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Train a model on DATA and test it on held-out rows.

    DATA is one or more CSV, Parquet or Feather files, or a folder of them; - is CSV
    from the standard input. Tables may be larger than memory. Ctrl-C stops learning and
    keeps the best model so far.

    \b
    Examples:
      zonal fit houses.csv --target price
      zonal fit flights/ -t delayed --drop id --max-time 5m --report flights.html
    """
    start = time.monotonic()
    others = [*data, *([] if test_file is None else [test_file])]
    path = check_output_path(out, *others)
    if report_file is not None:
        check_output_path(report_file, *others, out)
    stream = open_tables(data, delimiter)
    roles = [target, weight, *(coordinates or ())]
    check_distinct(*roles)
    check_columns(stream, [*(name for name in roles if name is not None), *drop])
    if needed := [name for name in roles if name in drop]:
        raise ValueError(f"column {needed[0]!r} is needed; do not --drop it")
    names = _order_columns(stream, drop, coordinates)
    test: BatchReader | None = None
    if test_file is not None:
        test, test_share = open_tables([test_file], delimiter), 0.0
        check_columns(test, names)
    with ProgressDisplay(quiet, max_time) as display:
        rows = ProgressReader(stream, display.show_rows)
        profile = profile_target(rows, target, test_share, seed, coordinates or ())
        task = _choose_task(task, likelihood, profile, display)
        _print_row_counts(display, profile)
        model = _build_model(task, likelihood, names, target, weight, coordinates)
        model.set_params(
            n_features=features,
            solve_features=solve_features,
            n_neighbors=neighbors,
            max_time=max_time,
            random_state=seed,
            callbacks=[display.show_step],
        )
        train = RowSubset(stream, profile, names, test_share, seed)
        if isinstance(model, SphericalGPRegressor):
            transform = None if target_transform == "none" else target_transform
            model.set_params(target_transform=transform)
        elif target_transform not in ("auto", "none"):
            raise ValueError("--target-transform is for numbers, not for classes")
        model.fit(
            ProgressReader(train, display.show_rows),
            target=target,
            weight=weight,
            checkpoint=checkpoint,
        )
        _print_scale(display, model)
        model.save(path)
        metrics: dict[str, Any] = {}
        with _explain_test_errors(path):
            if test is not None:
                test = select_labelled_rows(
                    test, model, target, weight, display.print_line
                )
            elif profile.test_rows:
                test = RowSubset(stream, profile, names, test_share, seed, test=True)
            if test is not None:
                rows = ProgressReader(test, display.show_rows)
                metrics = score_stream(model, rows, target, weight)
                model.save(path, metrics)
            seconds = time.monotonic() - start
            if report_file is not None and test is not None:
                table, y, weights = sample_rows(
                    model, test, target, weight, display.print_line
                )
                write_report(model, table, y, report_file, sample_weight=weights)
    if as_json:
        print_json(_collect_results(model, task, metrics, profile, seconds, path))
        return
    click.echo(format_table(_describe_fit(model, metrics, profile, seconds)))
    click.echo(f"\nmodel: {path}")
    if report_file is not None:
        reason = "not written, because there are no test rows"
        click.echo(f"report: {reason if test is None else report_file}")


@contextlib.contextmanager
def _explain_test_errors(path: Path) -> Iterator[None]:
    """Errors during testing say that the model has already been saved."""
    try:
        yield
    except KeyboardInterrupt:
        print_note(f"the model is saved in {path}, but testing was interrupted")
        raise
    except ValueError as error:
        raise ValueError(
            f"the model is saved in {path}, but testing it failed: {error}"
        ) from error


def _choose_task(
    task: str,
    likelihood: str | None,
    profile: TargetProfile,
    display: ProgressDisplay,
) -> str:
    """The task: as given, as the likelihood implies, or as the values suggest."""
    if likelihood is not None:
        implied = next(
            name
            for name, likelihoods in _LIKELIHOODS.items()
            if likelihood in likelihoods
        )
        if task not in ("auto", implied):
            raise ValueError(f"--likelihood {likelihood} is for --task {implied}")
        return implied
    if task != "auto":
        return task
    task, reason = guess_task(profile)
    display.print_line(
        f"treating {profile.name!r} as {task}, because {reason} (see --task)"
    )
    return task


def _print_row_counts(display: ProgressDisplay, profile: TargetProfile) -> None:
    if profile.dropped:
        display.print_line(describe_dropped_rows(profile))
    held_out = f"{profile.test_rows:,}" if profile.test_rows else "none"
    display.print_line(
        f"{format_count(profile.rows, 'training row')}, {held_out} held out for testing"
    )


def _print_scale(display: ProgressDisplay, model: SphericalGP) -> None:
    """Print the scale of the target, unless it is learned as it is."""
    target_map = model.models_[0].target_map
    if not target_map.is_identity:
        display.print_line(f"target: {target_map.described}")


def _order_columns(
    stream: BatchReader, drop: tuple[str, ...], coordinates: tuple[str, str] | None
) -> list[str]:
    """Columns that are used: latitude and longitude, then the others in order."""
    first = list(coordinates or ())
    others = [name for name in stream.names if name not in drop and name not in first]
    return first + others


def _build_model(
    task: str,
    likelihood: str | None,
    names: list[str],
    target: str,
    weight: str | None,
    coordinates: tuple[str, str] | None,
) -> SphericalGP:
    geometry: Any = coordinates
    if coordinates is not None and set(names) <= {*coordinates, target, weight}:
        geometry = "sphere"
    if likelihood is None:
        likelihood = _LIKELIHOODS["counts"][0] if task == "counts" else "auto"
    model_class = (
        SphericalGPClassifier if task == "classification" else SphericalGPRegressor
    )
    return model_class(likelihood=likelihood, missing="indicator", geometry=geometry)


def _describe_fit(
    model: Any, metrics: dict[str, Any], profile: TargetProfile, seconds: float
) -> list[tuple[str, str, str]]:
    """Rows, scores, depth and the most relevant columns."""
    table = [
        ("training rows", f"{profile.rows:,}", f"in {format_duration(seconds)}"),
        *(describe_metrics(metrics) if metrics else []),
    ]
    meaning = "hidden layers of the nearest network; deeper is rougher"
    table.append(("depth", f"{model.depth_.layers}", meaning))
    table += [
        (name, f"{share:.1%}", "relevance")
        for name, share in rank_columns(model, _MOST_COLUMNS)
    ]
    return table


def _collect_results(
    model: Any,
    task: str,
    metrics: dict[str, Any],
    profile: TargetProfile,
    seconds: float,
    path: Path,
) -> dict[str, Any]:
    depth = model.depth_
    return {
        "model": str(path),
        "task": task,
        "target": profile.name,
        "rows": profile.rows,
        "rows_without_target": profile.dropped,
        "test": metrics,
        "depth": {"beta": depth.beta, "layers": depth.layers},
        "relevance": dict(rank_columns(model, model.n_features_in_)),
        "bound": model.bound_,
        "seconds": seconds,
    }
