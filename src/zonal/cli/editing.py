"""`zonal inspect`, `update`, `forget` and `merge`: fitted models shown and changed."""

from typing import Any

import click

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
from zonal.cli.output import format_table, print_json
from zonal.cli.predicting import choose_target
from zonal.cli.progress import ProgressDisplay
from zonal.estimators.loading import load
from zonal.scores.relevance import rank_columns

__all__ = ["forget", "inspect", "merge", "update"]

changed_model_option = out_option(help="Model to write; by default MODEL is replaced.")


@click.command()
@model_argument
@json_option
def inspect(model: str, as_json: bool) -> None:
    """Show MODEL: depth, noise, levels, relevance of columns, and test scores.

    \b
    Example:
      zonal inspect houses.zonal
    """
    fitted = load(model)
    if as_json:
        print_json(_collect_facts(fitted))
        return
    click.echo(str(fitted.summary()))
    if fitted.target_name_ is not None:
        click.echo(f"\ntarget: {fitted.target_name_}")
    if fitted.metrics_:
        click.echo("\nTest scores\n===========")
        click.echo(format_table(describe_metrics(fitted.metrics_)))


def _collect_facts(fitted: Any) -> dict[str, Any]:
    depth = fitted.depth_
    plain = (int, float, str, bool, type(None))
    return {
        "kind": type(fitted).__name__,
        "target": fitted.target_name_,
        "rows": fitted.n_samples_seen_,
        "columns": [
            {"name": str(column.name), "kind": column.kind}
            for column in fitted.columns_.columns
        ],
        "features": fitted.n_features_,
        "neighbors": fitted.n_neighbors_,
        "stored_bytes": _count_stored_bytes(fitted),
        "depth": {"beta": depth.beta, "layers": depth.layers},
        "bound": fitted.bound_,
        "relevance": dict(rank_columns(fitted, fitted.n_features_in_)),
        "test": fitted.metrics_,
        "settings": {
            name: value if isinstance(value, plain) else str(value)
            for name, value in fitted.get_params(deep=False).items()
        },
    }


def _count_stored_bytes(fitted: Any) -> int:
    """Bytes of the rows that a model contains."""
    if not fitted.models_[0].stores_rows:
        return 0
    return sum(model.statistics.nbytes for model in fitted.models_)


def _change_rows(
    method: str,
    model: str,
    data: tuple[str, ...],
    out: str | None,
    target: str | None,
    weight: str | None,
    delimiter: str | None,
    quiet: bool,
) -> None:
    path = check_output_path(model if out is None else out, *data)
    fitted: Any = load(model)
    target = choose_target(fitted, target)
    stream = open_tables(data, delimiter)
    before = fitted.n_samples_seen_
    with ProgressDisplay(quiet) as display:
        labelled = select_labelled_rows(
            stream, fitted, target, weight, display.print_line
        )
        rows = ProgressReader(labelled, display.show_rows)
        getattr(fitted, method)(rows, target=target, weight=weight)
    fitted.save(path)
    after = fitted.n_samples_seen_
    click.echo(f"rows: {before:,.0f} before, {after:,.0f} now\nmodel: {path}")


@click.command()
@model_argument
@data_argument
@changed_model_option
@target_option
@weight_option
@delimiter_option
@quiet_option
def update(model: str, data: tuple[str, ...], **options: Any) -> None:
    """Add the rows of DATA to MODEL without retraining.

    Relevance of columns, depth and noise stay as they are. For regression with normal
    noise the result is exactly that of all rows together.

    \b
    Example:
      zonal update houses.zonal sold-this-year.csv
    """
    _change_rows("partial_fit", model, data, **options)


@click.command()
@model_argument
@data_argument
@changed_model_option
@target_option
@weight_option
@delimiter_option
@quiet_option
def forget(model: str, data: tuple[str, ...], **options: Any) -> None:
    """Remove the rows of DATA from MODEL, as if it had never seen them.

    MODEL must have seen these rows: they are deleted from it, and their sums are
    subtracted from its own. Relevance of columns, depth and noise stay as they are.

    \b
    Example:
      zonal forget houses.zonal withdrawn.csv --out houses-without.zonal
    """
    _change_rows("forget", model, data, **options)


@click.command()
@click.argument("models", nargs=-1, required=True, type=click.Path())
@out_option(required=True, help="Model to write.")
def merge(models: tuple[str, ...], out: str) -> None:
    """Merge MODELS of the same fit that have been updated with different rows.

    The rows of all models are added up, so rows that two models have seen count twice:
    start the others from a model without rows (in Python, model.emptied()).

    \b
    Example:
      zonal merge north.zonal south.zonal --out country.zonal
    """
    if len(models) < 2:
        raise ValueError("give at least two models to merge")
    path = check_output_path(out)
    merged: Any = load(models[0])
    for other in models[1:]:
        merged.merge(load(other))
    merged.save(path)
    click.echo(f"rows: {merged.n_samples_seen_:,.0f}\nmodel: {path}")
