"""`zonal inspect`, `update`, `forget` and `merge`: a model after its fit."""

from typing import Any

import click

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
from zonal.cli.using import target_of
from zonal.cli.words import lines_of, print_json
from zonal.estimators.loading import load
from zonal.scores.relevance import relevances

__all__ = ["forget", "inspect", "merge", "update"]

changed_option = out_option(help="The model to write; by default MODEL is replaced.")


@click.command()
@model_argument
@json_option
def inspect(model: str, as_json: bool) -> None:
    """Show what MODEL has learned: depth, noise, levels, relevance, and its test.

    \b
    Example:
      zonal inspect houses.zonal
    """
    fitted = load(model)
    metrics: dict[str, Any] = fitted.metrics_
    if as_json:
        depth = fitted.depth_
        settings = fitted.get_params(deep=False)
        contents = {
            "kind": type(fitted).__name__,
            "target": fitted.target_name_,
            "rows": fitted.n_samples_seen_,
            "columns": [
                {"name": str(column.name), "kind": column.kind}
                for column in fitted.columns_.columns
            ],
            "features": fitted.process_.basis.n_features,
            "depth": {"beta": depth.beta, "layers": depth.layers},
            "bound": fitted.bound_,
            "relevance": dict(relevances(fitted, fitted.n_features_in_)),
            "test": metrics,
            "settings": {
                name: value
                if isinstance(value, (int, float, str, bool, type(None)))
                else str(value)
                for name, value in settings.items()
            },
        }
        print_json(contents)
        return
    click.echo(str(fitted.summary()))
    if fitted.target_name_ is not None:
        click.echo(f"\ntarget: {fitted.target_name_}")
    if metrics:
        click.echo("\nWhen it was fitted\n==================")
        click.echo(lines_of(metric_lines(metrics)))


def _changed(
    change: str,
    model: str,
    data: tuple[str, ...],
    out: str | None,
    target: str | None,
    weight: str | None,
    delimiter: str | None,
    quiet: bool,
) -> None:
    path = checked_output(model if out is None else out, *data)
    fitted: Any = load(model)
    target = target_of(fitted, target)
    stream = opened(data, delimiter)
    before = fitted.n_samples_seen_
    with Display(quiet) as display:
        stream = answered(stream, fitted, target, weight, display.say)
        rows = Watched(stream, display.rows)
        getattr(fitted, change)(rows, target=target, weight=weight)
    fitted.save(path)
    after = fitted.n_samples_seen_
    click.echo(f"{before:,.0f} rows before, {after:,.0f} rows now\nmodel: {path}")


@click.command()
@model_argument
@data_argument
@changed_option
@target_option
@weight_option
@delimiter_option
@quiet_option
def update(model: str, data: tuple[str, ...], **options: Any) -> None:
    """Add the rows of DATA to MODEL, without training again.

    What was learned of columns, depth and noise stays. For numbers with normal noise
    the result is exactly that of all rows together.

    \b
    Example:
      zonal update houses.zonal sold-this-year.csv
    """
    _changed("partial_fit", model, data, **options)


@click.command()
@model_argument
@data_argument
@changed_option
@target_option
@weight_option
@delimiter_option
@quiet_option
def forget(model: str, data: tuple[str, ...], **options: Any) -> None:
    """Take the rows of DATA out of MODEL, as if it had not seen them.

    They must be rows that it has seen: what was added up is taken off again. What was
    learned of columns, depth and noise stays.

    \b
    Example:
      zonal forget houses.zonal withdrawn.csv --out houses-without.zonal
    """
    _changed("forget", model, data, **options)


@click.command()
@click.argument("models", nargs=-1, required=True, type=click.Path())
@out_option(required=True, help="The model to write.")
def merge(models: tuple[str, ...], out: str) -> None:
    """Join MODELS of the same fit that have been updated with different rows.

    All rows that each has seen are added up, so rows that two have seen count twice:
    start the others from a model that has seen none (in Python, model.emptied()).

    \b
    Example:
      zonal merge north.zonal south.zonal --out country.zonal
    """
    if len(models) < 2:
        raise ValueError("give two models or more to merge")
    path = checked_output(out)
    whole: Any = load(models[0])
    for other in models[1:]:
        whole.merge(load(other))
    whole.save(path)
    click.echo(f"{whole.n_samples_seen_:,.0f} rows\nmodel: {path}")
